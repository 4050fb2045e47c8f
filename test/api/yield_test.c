/* yield_test.c - commands and their handlers: what a handler receives; which threads may complete a yield, when, and
 * how often. */
#include "api/fixture.h"

enum { CMD_KEEP = FILCH_CMD_USER, CMD_AT_ONCE, CMD_FAILS, CMD_BOTH, CMD_LOOK, CMD_SMALL = 255, CMD_LARGE = INT32_MAX };
#define CMD_LARGEST UINT32_MAX

static fixture w;

/* ---- handlers ---- */

#define KEPT_MAX 10000

static filch_receiver       kept[KEPT_MAX];
static FLI_ATOMIC(uint32_t) kept_count;

static filch_err handle_keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    kept[fli_load_rlx(&kept_count)] = receiver;
    fli_add_rel(&kept_count, 1);
    return FILCH_OK;
}

static filch_err handle_at_once(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    return filch_complete(receiver, tag, command->data, FILCH_OK);
}

static filch_err handle_fails(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag, (void)receiver;
    return FILCH_EUSER + 4;
}

/* A handler that completes the yield and then also returns an error. */
static filch_err handle_both(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    (void)!filch_complete(receiver, tag, filch_int(1), FILCH_OK);
    return FILCH_EUSER;
}

typedef struct look {
    void         *user;
    filch_command command;
    filch_data    data; /* payload of the command, kept by filch_keep() */
    filch_pid     ctx_self;
    filch_sched  *ctx_sched;
    uint64_t      tag;
    int64_t       value; /* the value inherited under "key" */
} look;

static look last_look;

static filch_err handle_look(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    last_look = (look){ .user = user,
                        .command = *command,
                        .tag = tag,
                        .ctx_self = filch_ctx_self(command->ctx),
                        .ctx_sched = filch_ctx_sched(command->ctx),
                        .value = filch_as_int(filch_ctx_value(command->ctx, "key")) };
    filch_err err = filch_keep(&command->data, &last_look.data);
    return err == FILCH_OK ? filch_complete(receiver, tag, filch_none(), FILCH_OK) : err;
}

static void begin_with(int32_t workers, filch_options opt)
{
    static const struct {
        uint32_t         id;
        filch_handler_fn handler;
    } table[] = { { CMD_KEEP, handle_keep },  { CMD_AT_ONCE, handle_at_once }, { CMD_FAILS, handle_fails },
                  { CMD_BOTH, handle_both },  { CMD_LOOK, handle_look },       { CMD_SMALL, handle_look },
                  { CMD_LARGE, handle_look }, { CMD_LARGEST, handle_look } };
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        ok(filch_registry_add(registry, table[i].id, table[i].handler, (void *)(uintptr_t)table[i].id));
    }
    opt.registry = registry;
    fli_store_rlx(&kept_count, 0);
    fixture_begin_with(&w, workers, opt);
    filch_registry_destroy(registry);
}

static void begin(int32_t workers)
{
    begin_with(workers, (filch_options)FILCH_OPTIONS_INIT);
}

/* ---- plays ---- */

/* The process yields the command with the id `stage` once, with the payload that `user` points to. Ends with the error
 * or the data of the completion. */
static filch_err play_yield(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        return events[i].error != FILCH_OK ? events[i].error : filch_done(out, events[i].data);
    }
    filch_data data = me->user != NULL ? *(filch_data *)me->user : filch_int(31);
    filch_err  err = filch_yield(out, (uint32_t)me->stage, UINT64_MAX - 5, data);
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(a_handler_may_complete_synchronously)
{
    actor a = { .stage = CMD_AT_ONCE };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_yield);
    UNTIL(&w, is_over(&a));
    same(filch_as_int(&a.result), 31);
    same(a.seen[0].type, FILCH_EVENT_YIELD);
    assert_true(a.seen[0].tag == UINT64_MAX - 5);
    actor_ends(&w, &a, FILCH_OK);
    filch_stats stats = fixture_stats(&w);
    same(stats.yields, 1);
    same(stats.completions, 1);
    same(stats.late_completions, 0);
    fixture_end(&w);
}

TEST(errors_of_handlers_and_unknown_commands_are_events)
{
    static const struct {
        uint32_t  command;
        filch_err error;
    } cases[] = { { CMD_FAILS, FILCH_EUSER + 4 }, { CMD_LOOK + 1, FILCH_ECOMMAND }, { 0, FILCH_ECOMMAND },
                  { 99, FILCH_ECOMMAND },         { 1 << 20, FILCH_ECOMMAND },      { CMD_BOTH, FILCH_OK } };
    begin(FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        actor a = { .stage = cases[i].command };
        actor_start(&w, &a, play_yield);
        UNTIL(&w, is_over(&a));
        same(a.seen_count, 1); /* only one completion arrives, even if the handler made two */
        actor_ends(&w, &a, cases[i].error);
    }
    same(fixture_stats(&w).completions, COUNT_OF(cases));
    same(fixture_stats(&w).late_completions, 1);
    fixture_end(&w);
}

TEST(built_in_commands_refuse_data_they_do_not_understand)
{
    static const struct {
        uint32_t  command;
        filch_err error;
    } cases[] = { { FILCH_CMD_SLEEP, FILCH_EINVAL },        { FILCH_CMD_TIMER, FILCH_EINVAL },
                  { FILCH_CMD_TICKER, FILCH_EINVAL },       { FILCH_CMD_WORK, FILCH_EINVAL },
                  { FILCH_CMD_TIMER_CANCEL, FILCH_EINVAL }, { FILCH_CMD_SEND, FILCH_EDEAD } };
    begin(FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        filch_data data = filch_str("not what it wants");
        actor      a = { .stage = cases[i].command, .user = &data };
        actor_start(&w, &a, play_yield);
        actor_ends(&w, &a, cases[i].error);
    }
    filch_data zero = filch_int(0);
    actor      a = { .stage = FILCH_CMD_TICKER, .user = &zero };
    actor_start(&w, &a, play_yield);
    actor_ends(&w, &a, FILCH_EINVAL);
    same(fixture_stats(&w).timers, 0);
    fixture_end(&w);
}

TEST(a_handler_gets_the_command_its_data_and_the_yielding_process)
{
    static const uint32_t ids[] = { CMD_LOOK, CMD_SMALL, CMD_LARGE, CMD_LARGEST };
    filch_values         *values;
    ok(filch_values_create(NULL, "key", filch_int(5), &values));
    begin(FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        filch_data          text = filch_str("lent to the handler, and long enough for a block");
        actor               a = { .stage = ids[i], .user = &text };
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.values = values;
        actor_start_with(&w, &a, play_yield, opt);
        actor_ends(&w, &a, FILCH_OK);
        /* each handler is registered with its id as `user` */
        assert_true(last_look.user == (void *)(uintptr_t)ids[i]);
        same(last_look.command.id, ids[i]);
        assert_true(same_pid(last_look.command.from, a.pid));
        assert_true(is_null_pid(last_look.command.target));
        assert_true(last_look.tag == UINT64_MAX - 5);
        assert_true(same_pid(last_look.ctx_self, a.pid));
        assert_ptr_equal(last_look.ctx_sched, w.sched);
        same(last_look.value, 5);
        assert_string_equal(filch_text(&last_look.data), "lent to the handler, and long enough for a block");
        filch_drop(&last_look.data);
    }
    filch_values_drop(values);
    fixture_end(&w);
}

/* ---- completing a yield from a foreign thread ---- */

TEST(the_first_completion_counts)
{
    actor a = { .stage = CMD_KEEP };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_yield);
    (void)fixture_tick(&w);
    same(fli_load_acq(&kept_count), 1);
    filch_receiver to = kept[0];
    same(filch_complete(to, 7, filch_int(0), FILCH_OK), FILCH_EINVAL); /* 7 is not the tag of the yield */
    same(filch_complete(to, to.tag, filch_bytes(NULL, 1), FILCH_OK), FILCH_EINVAL);
    same(fixture_stats(&w).completions, 0);
    ok(filch_complete(to, to.tag, filch_int(1), FILCH_OK));
    same(filch_complete(to, to.tag, filch_int(2), FILCH_OK), FILCH_ESTALE);
    UNTIL(&w, is_over(&a));
    same(filch_as_int(&a.result), 1);
    same(a.seen_count, 1);
    actor_ends(&w, &a, FILCH_OK);
    filch_data moved = filch_move(malloc(50), 50, NULL);
    /* the process has ended, so the completion is refused and the caller still owns the memory */
    same(filch_complete(to, to.tag, moved, FILCH_OK), FILCH_ESTALE);
    free((void *)filch_raw(&moved));
    filch_stats stats = fixture_stats(&w);
    same(stats.completions, 1);
    same(stats.late_completions, 2);
    fixture_end(&w);
}

TEST(receivers_that_never_existed_are_refused)
{
    actor a = { .stage = CMD_KEEP };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_yield);
    (void)fixture_tick(&w);
    static const uint64_t wrong[] = { 1, 2, UINT64_MAX, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 63 };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        filch_receiver to = kept[0];
        to.key += wrong[i];
        if (to.key == 0) continue;
        filch_err err = filch_complete(to, to.tag, filch_int(9), FILCH_OK);
        assert_true(err == FILCH_ESTALE || err == FILCH_EINVAL);
    }
    same(fixture_stats(&w).completions, 0);
    ok(filch_complete(kept[0], kept[0].tag, filch_int(1), FILCH_EUSER + 1));
    actor_ends(&w, &a, FILCH_EUSER + 1); /* an error code of the program is passed on unchanged */
    fixture_end(&w);
}

TEST(a_completion_for_an_ended_process_has_no_effect)
{
    actor a = { .stage = CMD_KEEP };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_yield);
    (void)fixture_tick(&w);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    same(filch_complete(kept[0], kept[0].tag, filch_int(1), FILCH_OK), FILCH_ESTALE);
    /* The yield of process b may use the node of the earlier yield. The receiver of the earlier
     * yield must not complete the yield of b. */
    actor b = { .stage = CMD_KEEP };
    actor_start(&w, &b, play_yield);
    (void)fixture_tick(&w);
    same(filch_complete(kept[0], kept[0].tag, filch_int(1), FILCH_OK), FILCH_ESTALE);
    same(b.seen_count, 0);
    ok(filch_complete(kept[1], kept[1].tag, filch_int(2), FILCH_OK));
    actor_ends(&w, &b, FILCH_OK);
    same(fixture_stats(&w).late_completions, 2);
    fixture_end(&w);
}

/* The process makes a yield and ends in the same step. */
static filch_err play_last_words(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    me->note = filch_yield(out, CMD_LOOK, 3, filch_int(8));
    return filch_done(out, filch_none());
}

TEST(yields_of_the_last_step_are_dispatched)
{
    actor a = { .stage = 0 };
    begin(FILCH_NO_WORKERS);
    last_look = (look){ .tag = 0 };
    actor_start(&w, &a, play_last_words);
    actor_ends(&w, &a, FILCH_OK);
    same(last_look.tag, 3);
    same(filch_as_int(&last_look.data), 8);
    assert_true(same_pid(last_look.command.from, a.pid));
    fixture_end(&w);
}

/* ---- many yields ---- */

typedef struct yield_batch {
    uint32_t n, answered, repeated, wrong;
    uint8_t  seen[KEPT_MAX];
} yield_batch;

static filch_err play_yield_batch(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    yield_batch *c = me->user;
    if (me->stage++ == 0) {
        for (uint64_t tag = 0; tag < c->n; tag++) {
            filch_err err = filch_yield(out, CMD_KEEP, tag, filch_int((int64_t)tag));
            if (err != FILCH_OK) return err;
        }
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t tag = events[i].tag;
        if (events[i].type != FILCH_EVENT_YIELD || tag >= c->n || filch_as_int(&events[i].data) != -(int64_t)tag) {
            c->wrong++;
            continue;
        }
        if (c->seen[tag]++ != 0) c->repeated++;
        c->answered++;
    }
    return c->answered < c->n ? filch_wait(out) : filch_done(out, filch_none());
}

static void yield_batch_begin(actor *a, yield_batch *c, int32_t workers)
{
    memset(c, 0, sizeof *c);
    c->n = fixture_scale(KEPT_MAX, 100);
    a->user = c;
    begin(workers);
    actor_start(&w, a, play_yield_batch);
    UNTIL(&w, fli_load_acq(&kept_count) == c->n);
}

static void yield_batch_end(actor *a, yield_batch *c)
{
    actor_ends(&w, a, FILCH_OK);
    same(c->answered, c->n);
    same(c->repeated + c->wrong, 0);
    same(fixture_stats(&w).yields, c->n);
    same(fixture_stats(&w).completions, c->n);
    fixture_end(&w);
}

TEST(thousands_of_yields_of_one_step_complete_in_any_order)
{
    static yield_batch c;
    actor              a = { .stage = 0 };
    yield_batch_begin(&a, &c, FILCH_NO_WORKERS);
    /* Completes the yields in a fixed mixed order; 7919 is a prime that divides none of the counts. */
    for (uint64_t i = 0; i < c.n; i++) {
        filch_receiver to = kept[i * 7919 % c.n];
        ok(filch_complete(to, to.tag, filch_int(-(int64_t)to.tag), FILCH_OK));
        if (i % 97 == 0) (void)fixture_tick(&w);
    }
    yield_batch_end(&a, &c);
}

static FLI_ATOMIC(uint32_t) bad_results, wins;

/* Thread that completes every yield; one or several of these threads run. `wins` counts the accepted completions,
 * `bad_results` the unexpected errors. */
static void complete_all(void *arg)
{
    const yield_batch *c = arg;
    for (uint32_t i = 0; i < c->n; i++) {
        filch_err err = filch_complete(kept[i], kept[i].tag, filch_int(-(int64_t)kept[i].tag), FILCH_OK);
        if (err == FILCH_OK) fli_add_rlx(&wins, 1);
        else if (err != FILCH_ESTALE && err != FILCH_EDEAD) fli_add_rlx(&bad_results, 1);
    }
}

TEST(threads_that_race_to_complete_make_one_completion_per_yield)
{
    static yield_batch c;
    actor              a = { .stage = 0 };
    fli_thread         threads[3];
    fli_store_rlx(&wins, 0);
    fli_store_rlx(&bad_results, 0);
    yield_batch_begin(&a, &c, 2);
    for (size_t i = 0; i < COUNT_OF(threads); i++) ok(fli_thread_start(&threads[i], "answer", complete_all, &c));
    for (size_t i = 0; i < COUNT_OF(threads); i++) fli_thread_join(&threads[i]);
    same(fli_load_rlx(&wins), c.n);
    same(fli_load_rlx(&bad_results), 0);
    same(fixture_stats(&w).late_completions, 2 * c.n);
    yield_batch_end(&a, &c);
}

TEST(completions_that_race_with_the_end_of_the_process_are_safe)
{
    static yield_batch c;
    for (int round = 0; round < 5; round++) {
        actor      a = { .stage = 0 };
        fli_thread thread;
        fli_store_rlx(&wins, 0);
        fli_store_rlx(&bad_results, 0);
        yield_batch_begin(&a, &c, 2);
        ok(fli_thread_start(&thread, "answer", complete_all, &c));
        UNTIL(&w, fli_load_rlx(&wins) > c.n / 8);
        filch_err err = filch_terminate(w.sched, a.pid);
        fli_thread_join(&thread);
        UNTIL(&w, is_over(&a));
        assert_true(err == FILCH_OK || err == FILCH_EDEAD);
        same(fli_load_rlx(&bad_results), 0);
        same(fixture_stats(&w).completions + fixture_stats(&w).late_completions, c.n);
        same(a.closes, 1);
        fixture_end(&w);
    }
}

static filch_err play_same_tags(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    for (int64_t i = 0; me->stage == 0 && i < 5; i++) me->note |= filch_yield(out, CMD_KEEP, 1, filch_int(i));
    me->stage += (int64_t)count;
    return me->stage < 5 ? filch_wait(out) : filch_done(out, filch_none());
}

TEST(tags_need_not_differ)
{
    actor a = { .stage = 0 };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_same_tags);
    (void)fixture_tick(&w);
    same(fli_load_acq(&kept_count), 5);
    for (uint32_t i = 5; i-- > 0;) ok(filch_complete(kept[i], 1, filch_int(i), FILCH_OK));
    actor_ends(&w, &a, FILCH_OK);
    same(a.note, FILCH_OK);
    for (int i = 0; i < 5; i++) {
        same(a.seen[i].tag, 1);
        same(a.seen[i].number, 4 - i); /* events with equal tags come in the order of the completions */
    }
    fixture_end(&w);
}

enum { BATCH_MAX = 4, WAITING_MESSAGES = 10 };

/* Yields BATCH_MAX commands in each step, which complete at once, and idles. Ends after WAITING_MESSAGES messages, or
 * after ten times as many steps. Counts messages in `stage` and steps in `note`. */
static filch_err play_busy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) me->stage += events[i].type == FILCH_EVENT_MESSAGE;
    for (uint64_t i = 0; i < BATCH_MAX; i++) {
        filch_err err = filch_yield(out, CMD_AT_ONCE, i, filch_none());
        if (err != FILCH_OK) return err;
    }
    if (me->stage == WAITING_MESSAGES || ++me->note == 10 * WAITING_MESSAGES) return filch_done(out, filch_none());
    return filch_idle(out);
}

TEST(a_process_with_a_full_batch_of_completions_in_every_step_gets_its_messages)
{
    actor         a = { .stage = 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.batch_max = BATCH_MAX;
    begin_with(FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_busy);
    for (int i = 0; i < WAITING_MESSAGES; i++) ok(filch_send(w.sched, a.pid, filch_int(i)));
    actor_ends(&w, &a, FILCH_OK);
    same(a.stage, WAITING_MESSAGES);
    assert_true(a.note <= 2 * WAITING_MESSAGES + 1);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_may_complete_synchronously),
        cmocka_unit_test(errors_of_handlers_and_unknown_commands_are_events),
        cmocka_unit_test(built_in_commands_refuse_data_they_do_not_understand),
        cmocka_unit_test(a_handler_gets_the_command_its_data_and_the_yielding_process),
        cmocka_unit_test(the_first_completion_counts),
        cmocka_unit_test(receivers_that_never_existed_are_refused),
        cmocka_unit_test(a_completion_for_an_ended_process_has_no_effect),
        cmocka_unit_test(yields_of_the_last_step_are_dispatched),
        cmocka_unit_test(thousands_of_yields_of_one_step_complete_in_any_order),
        cmocka_unit_test(threads_that_race_to_complete_make_one_completion_per_yield),
        cmocka_unit_test(completions_that_race_with_the_end_of_the_process_are_safe),
        cmocka_unit_test(tags_need_not_differ),
        cmocka_unit_test(a_process_with_a_full_batch_of_completions_in_every_step_gets_its_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
