/* out_test.c - the `out` of a step is valid in that step only: not in handlers, on_exit functions and callbacks, nor in
 * a step on another worker or of another scheduler. Also: a status that a step replaces leaves nothing behind. */
#include <stdio.h>

#include "api/world.h"

#define FAILURE (FILCH_EUSER + 8)

static filch_err still_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* A type without init and close. */
static const filch_type still = { .name = "still", .size = 200, .step = still_step };

/* Makes every call that needs the step of `out`. Returns true if each is refused. */
static bool is_of_no_use(filch_out *out)
{
    return filch_yield(out, 1000, 1, filch_none()) == FILCH_ESTATE &&
           filch_yield(out, 1000, 1, filch_str("a text that does not fit into an event")) == FILCH_ESTATE &&
           filch_yield_sleep(out, 1, 0) == FILCH_ESTATE &&
           filch_yield_send(out, 1, (filch_pid){ 1, 1 }, filch_none()) == FILCH_ESTATE &&
           filch_upgrade(out, &still, NULL, filch_none()) == FILCH_ESTATE && filch_trap_links(out, 1) == FILCH_ESTATE &&
           filch_done(out, filch_str("a result that does not fit into an event")) == FILCH_ESTATE;
}

/* ---- a status that is replaced ---- */

static filch_err play_thinks_better(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_upgrade(out, &still, NULL, filch_none());
    me->note |= filch_upgrade(out, &still, NULL, filch_none());
    me->note |= filch_done(out, filch_str("a result that does not fit into an event"));
    return filch_idle(out); /* the last call decides */
}

TEST(an_upgrade_that_is_thought_better_of_leaves_nothing_behind)
{
    world w;
    actor a = { 0 };
    world_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_thinks_better);
    world_tick(&w);
    ok(a.note);
    ok(filch_send(w.sched, a.pid, filch_none()));
    world_tick(&w);
    same(a.steps, 2); /* the process has not ended or changed its type */
    same(a.closes, 0);
    ok(filch_cancel(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_OK);
    world_end(&w);
}

static filch_err play_fails_at_length(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    me->note = filch_fail(out, FILCH_OK, filch_none());
    return filch_fail(out, FAILURE, filch_str(me->stage == 0 ? "short" : "words that are longer than they may be"));
}

TEST(a_failure_whose_words_are_too_long_is_told_without_them)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    world         w;
    opt.payload_max = 20;
    world_begin_with(&w, FILCH_NO_WORKERS, opt);
    for (int i = 0; i < 2; i++) {
        actor a = { .stage = i };
        actor_start(&w, &a, play_fails_at_length);
        world_tick(&w);
        same(a.note, FILCH_EINVAL);
        same(filch_kind_of(&a.result), i == 0 ? FILCH_KIND_TEXT : FILCH_KIND_NONE);
        actor_ends(&w, &a, FAILURE);
    }
    world_end(&w);
}

/* ---- other places where `out` is invalid ---- */

static struct {
    filch_out       *out;
    world           *inner;
    FLI_ATOMIC(bool) there, tried, useless, named;
} lent;

static filch_err play_uses(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    fli_store_rel(&lent.tried, true);
    return filch_idle(out);
}

/* ---- after the step ---- */

static struct {
    filch_out *out;
    uint32_t   handled, useless, asked, heard;
} after;

static void after_ask(void)
{
    after.asked++;
    if (is_of_no_use(after.out)) after.useless++;
    (void)!filch_yield(after.out, FILCH_CMD_USER, 9, filch_int(1));
}

static filch_err after_handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    after.handled++;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void after_close(void *self)
{
    (void)self;
    after_ask();
}

static void after_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
    after_ask();
}

/* Ends at its first message. */
static filch_err after_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    after.out = out;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err after_change(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    after.out = out;
    return filch_upgrade(out, &still, NULL, filch_none());
}

static const filch_type ends = { .name = "ends", .step = after_step, .close = after_close };
static const filch_type changes = { .name = "changes", .step = after_change, .close = after_close };

static filch_err hears(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    after.heard += (uint32_t)count;
    return filch_idle(out);
}

static const filch_type bystander = { .name = "bystander", .step = hears };

TEST(a_yield_in_close_or_on_exit_is_refused_and_does_not_come_to_somebody_else)
{
    world               w;
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           told, killed;
    memset(&after, 0, sizeof after);
    how.on_exit = after_exit;
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, FILCH_CMD_USER, after_handle, NULL));
    world_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
    ok(filch_spawn(w.sched, &ends, &how, &told));
    ok(filch_spawn(w.sched, &ends, &how, &killed));
    world_tick(&w);
    ok(filch_send(w.sched, told, filch_none())); /* `told` ends by itself */
    world_tick(&w);
    ok(filch_terminate(w.sched, killed)); /* `killed` is ended by force */
    world_tick(&w);
    ok(filch_spawn(w.sched, &changes, NULL, NULL)); /* `changes` upgrades */
    world_tick(&w);
    same(after.asked, 5);
    same(after.useless, 5);
    ok(filch_spawn(w.sched, &bystander, NULL, NULL));
    world_tick(&w);
    same(after.handled, 0);
    same(after.heard, 0);
    same(world_stats(&w).yields, 0);
    world_end(&w);
}

/* ---- the close of the old instance in an upgrade ---- */

static void says_close(void *self)
{
    (void)self;
    after.asked++;
    after.useless += filch_done(after.out, filch_int(1)) == FILCH_ESTATE && filch_idle(after.out) == FILCH_ESTATE &&
                     filch_fail(after.out, FAILURE, filch_str("a text that does not fit into an event")) == FAILURE;
}

static const filch_type says = { .name = "says", .step = after_change, .close = says_close };

TEST(a_status_in_close_takes_nothing_from_the_one_that_takes_over)
{
    world      w;
    filch_pid  pid;
    filch_info info = { .size = sizeof info };
    memset(&after, 0, sizeof after);
    world_begin(&w, FILCH_NO_WORKERS);
    ok(filch_spawn(w.sched, &says, NULL, &pid));
    world_tick(&w);
    same(after.asked, 1);
    same(after.useless, 1);
    ok(filch_inspect(w.sched, pid, &info));
    assert_string_equal(info.name, "still");
    world_end(&w);
}

static filch_err play_ticks_another(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    me->note = filch_tick(lent.inner->sched, 0, NULL);
    /* After the tick of the inner scheduler `out` is valid again. */
    me->note |= filch_yield_sleep(out, 7, 0);
    return filch_idle(out);
}

TEST(a_step_may_tick_another_scheduler_which_cannot_use_its_out)
{
    world outer, inner;
    actor ticks = { 0 }, uses = { 0 };
    memset(&lent, 0, sizeof lent);
    world_begin(&outer, FILCH_NO_WORKERS);
    world_begin(&inner, FILCH_NO_WORKERS);
    lent.inner = &inner;
    actor_start(&outer, &ticks, play_ticks_another);
    actor_start(&inner, &uses, play_uses);
    UNTIL(&outer, ticks.seen_count == 1);
    ok(ticks.note);
    same(ticks.seen[0].tag, 7);
    assert_true(fli_load_acq(&lent.tried) && fli_load_rlx(&lent.useless));
    world_end(&outer);
    world_end(&inner);
}

/* Stays in its step until another worker has tried to use `out`. */
static filch_err play_lends(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    fli_store_rel(&lent.there, true);
    uint64_t give_up_ns = fli_clock_ns() + FILCH_SECONDS(60);
    while (!fli_load_acq(&lent.tried) && fli_clock_ns() < give_up_ns) fli_thread_yield();
    return filch_idle(out);
}

TEST(the_out_of_a_step_is_of_no_use_on_another_worker)
{
    world w;
    actor lends = { 0 }, uses = { 0 };
    memset(&lent, 0, sizeof lent);
    world_begin(&w, 2);
    actor_start(&w, &lends, play_lends);
    UNTIL(&w, fli_load_acq(&lent.there));
    assert_true(is_of_no_use(lent.out)); /* the test runs on a foreign thread */
    actor_start(&w, &uses, play_uses);
    UNTIL(&w, fli_load_acq(&lent.tried));
    assert_true(fli_load_rlx(&lent.useless));
    world_end(&w);
}

static filch_err on_command(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_err play_asks(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    me->note = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return filch_idle(out);
}

TEST(the_out_of_a_step_is_of_no_use_to_the_handler_of_its_yield)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    world         w;
    actor         a = { 0 };
    memset(&lent, 0, sizeof lent);
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, FILCH_CMD_USER, on_command, NULL));
    world_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
    actor_start(&w, &a, play_asks);
    world_tick(&w);
    ok(a.note);
    same(a.seen_count, 1);
    assert_true(fli_load_rlx(&lent.useless));
    world_end(&w);
}

/* ---- in a callback on another worker, outside of any step ---- */

static struct {
    filch_sched *sched;
    filch_err    broadcast, spawn, related, sent;
} watcher;

/* Called while the step runs: on a worker, but not inside a step of any process. */
static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    (void)user, (void)pid, (void)name, (void)took_ns;
    if (finished || fli_load_rlx(&lent.named)) return;
    /* Each step is reported once. On a slow machine that may be before the step has published its `out`. */
    while (!fli_load_acq(&lent.there)) fli_thread_yield();
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    watcher.broadcast = filch_broadcast(watcher.sched, "ears", filch_int(1), NULL);
    watcher.sent = filch_send_name(watcher.sched, "ear", filch_int(2));
    opt.name = "made by a watcher";
    watcher.spawn = filch_spawn(watcher.sched, &still, &opt, NULL);
    opt.relations = FILCH_SPAWN_MONITOR;
    opt.name = NULL;
    watcher.related = filch_spawn(watcher.sched, &still, &opt, NULL);
    fli_store_rel(&lent.named, true);
    fli_store_rel(&lent.tried, true);
}

TEST(who_is_told_of_a_long_step_while_it_runs_speaks_for_nobody)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    world         w;
    actor         lends = { 0 }, ear = { 0 };
    memset(&lent, 0, sizeof lent);
    opt.long_step_ns = FILCH_MILLISECONDS(1);
    opt.on_long_step = on_long_step;
    world_begin_with(&w, 2, opt);
    watcher.sched = w.sched;
    actor_start(&w, &ear, play_idle);
    UNTIL(&w, world_stats(&w).alive == 1);
    ok(filch_join(w.sched, "ears", ear.pid));
    ok(filch_register(w.sched, "ear", ear.pid));
    actor_start(&w, &lends, play_lends);
    UNTIL(&w, fli_load_acq(&lent.named));
    ok(watcher.broadcast | watcher.sent | watcher.spawn);
    same(watcher.related, FILCH_ESTATE); /* only a process can monitor */
    assert_true(fli_load_rlx(&lent.useless));
    world_end(&w);
    same(ear.seen_count, 3);
    for (size_t i = 0; i < 3; i++) {
        if (ear.seen[i].type == FILCH_EVENT_MESSAGE) assert_true(is_nobody(ear.seen[i].from));
    }
}

TEST(a_report_of_an_older_header_is_left_alone)
{
    filch_report report = { .size = 8, .ended = 5 };
    filch_report_free(&report);
    same(report.ended, 5);
    filch_report_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_yield_in_close_or_on_exit_is_refused_and_does_not_come_to_somebody_else),
        cmocka_unit_test(a_status_in_close_takes_nothing_from_the_one_that_takes_over),
        cmocka_unit_test(an_upgrade_that_is_thought_better_of_leaves_nothing_behind),
        cmocka_unit_test(a_failure_whose_words_are_too_long_is_told_without_them),
        cmocka_unit_test(a_step_may_tick_another_scheduler_which_cannot_use_its_out),
        cmocka_unit_test(the_out_of_a_step_is_of_no_use_on_another_worker),
        cmocka_unit_test(the_out_of_a_step_is_of_no_use_to_the_handler_of_its_yield),
        cmocka_unit_test(who_is_told_of_a_long_step_while_it_runs_speaks_for_nobody),
        cmocka_unit_test(a_report_of_an_older_header_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
