/* out_late_test.c - a status that is chosen outside the step function has no effect. Such a status may be chosen by a
 * handler, by close, by on_long_step or by the function that frees a payload, if a step has stored `out` for it. */
#include "api/fixture.h"

enum { FAILURE = FILCH_EUSER + 8, CMD_OWN = FILCH_CMD_USER };

static const char long_text[] = "a text that does not fit into an event, so that somebody has to free it";

/* A call that a handler, a close function or a free function makes with the `out` of a step, and its result. */
static struct {
    filch_out *out;
    void (*make_late_call)(void);
    uint32_t  late_calls, freed;
    filch_err late_result;
} late;

static void late_done(void)
{
    late.late_result = filch_done(late.out, filch_int(666));
}

static void late_done_long(void)
{
    late.late_result = filch_done(late.out, filch_str(long_text));
}

static void late_idle(void)
{
    late.late_result = filch_idle(late.out);
}

static void late_continue(void)
{
    late.late_result = filch_continue(late.out);
}

static void late_wait(void)
{
    late.late_result = filch_wait(late.out);
}

static void late_fail(void)
{
    late.late_result = filch_fail(late.out, FAILURE, filch_int(666));
}

static void late_yield(void)
{
    late.late_result = filch_yield(late.out, CMD_OWN, 9, filch_int(1));
}

static void make_late_call(void)
{
    late.late_calls++;
    if (late.make_late_call != NULL) late.make_late_call();
}

/* ---- handlers ---- */

static filch_err on_own(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    make_late_call();
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void begin_with(fixture *w, filch_options opt)
{
    memset(&late, 0, sizeof late);
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, CMD_OWN, on_own, NULL));
    fixture_begin_with(w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
}

static void begin(fixture *w)
{
    begin_with(w, (filch_options)FILCH_OPTIONS_INIT);
}

/* The process makes `stage` yields one after the other; then it idles or waits. */
static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage-- <= 0) return filch_idle(out);
    me->note |= filch_yield(out, CMD_OWN, 1, filch_none());
    return me->user != NULL ? filch_wait(out) : filch_idle(out);
}

TEST(a_status_set_by_a_handler_has_no_effect_on_the_yielding_process)
{
    static void (*const all[])(void) = { late_done, late_done_long, late_idle, late_continue, late_wait, late_fail };
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        fixture w;
        begin(&w);
        late.make_late_call = all[i / 2];
        /* Three yields: the second and the third are completed inside the inline completion loop. */
        actor a = { .stage = 3, .user = i % 2 != 0 ? &w : NULL };
        actor_start(&w, &a, play_yields);
        fixture_tick(&w);
        ok(a.note);
        same(late.late_calls, 3);
        same(a.seen_count, 3);
        same(a.steps, 4);
        assert_false(is_over(&a));
        same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
        ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        fixture_end(&w);
    }
}

/* ---- close ---- */

static void close_and_call(void *self)
{
    make_late_call();
    actor_close(self);
}

static const filch_type closer = {
    .name = "closer", .size = sizeof(actor *), .init = actor_init, .step = actor_step, .close = close_and_call
};

static filch_err play_answers_at_length(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me, (void)events, (void)count;
    late.out = out;
    return filch_done(out, filch_str(long_text));
}

TEST(the_result_of_the_step_is_kept_though_close_sets_another)
{
    static void (*const all[])(void) = { late_done, late_done_long, late_fail };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        fixture w;
        actor   a = { .play = play_answers_at_length };
        begin(&w);
        late.make_late_call = all[i];
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(&a);
        opt.on_exit = actor_exit;
        opt.on_exit_user = &a;
        ok(filch_spawn(w.sched, &closer, &opt, NULL));
        fixture_tick(&w);
        same(late.late_calls, 1);
        assert_string_equal(filch_text(&a.result), long_text);
        actor_ends(&w, &a, FILCH_OK);
        fixture_end(&w); /* fixture_end() also checks that all memory is freed */
    }
}

/* Close function of the new type of an upgrade. Closes the new state when the step replaces the upgrade by another
 * status. */
static void replaced_close(void *self)
{
    (void)self;
    late.freed++;
    make_late_call();
}

static filch_err replaced_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static const filch_type replaced_type = { .name = "heir", .size = 200, .step = replaced_step, .close = replaced_close };

static filch_err play_ends_instead(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    me->note = filch_upgrade(out, &replaced_type, NULL, filch_none());
    return filch_done(out, filch_none());
}

/* `play` sets a result or an upgrade and then replaces it by another status. Checks that the replaced result or state
 * is freed once, whatever call is made while it is freed. After that the process must live (`goes_on`) or have
 * ended. */
static void is_let_go_once(play_fn play, bool goes_on)
{
    static void (*const all[])(void) = { late_idle, late_done, late_done_long };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        fixture w;
        actor   a = { 0 };
        begin(&w);
        late.make_late_call = all[i];
        actor_start(&w, &a, play);
        fixture_tick(&w);
        ok(a.note);
        same(late.freed, 1);
        same(is_over(&a), !goes_on);
        if (goes_on) ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        fixture_end(&w);
    }
}

TEST(a_replaced_upgrade_is_closed_once_whatever_its_close_calls)
{
    is_let_go_once(play_ends_instead, false);
}

/* ---- on_long_step ---- */

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    (void)user, (void)pid, (void)name, (void)took_ns;
    if (finished) make_late_call();
}

static filch_err play_lends(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    late.out = out;
    /* Waits for the next clock value, so that the step takes some time, whatever the resolution of the clock. */
    for (uint64_t now_ns = fli_clock_ns(); fli_clock_ns() == now_ns;) yield_slice();
    return play_idle(me, events, count, out);
}

TEST(on_long_step_cannot_change_the_status_of_the_step)
{
    static void (*const all[])(void) = { late_yield, late_done, late_done_long, late_continue, late_fail };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        fixture       w;
        actor         a = { 0 };
        opt.long_step_ns = 1;
        opt.on_long_step = on_long_step;
        begin_with(&w, opt);
        late.make_late_call = all[i];
        actor_start(&w, &a, play_lends);
        fixture_tick(&w);
        same(late.late_calls, 1);
        if (late.make_late_call == late_yield || late.make_late_call == late_done_long)
            same(late.late_result, FILCH_ESTATE);
        same(a.steps, 1);
        same(a.seen_count, 0);
        assert_false(is_over(&a));
        late.make_late_call = NULL;
        ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        fixture_end(&w);
    }
}

/* ---- calls in functions that free a payload ---- */

static char bytes[100];

static void free_and_call(void *user, void *which, size_t size)
{
    (void)user, (void)which, (void)size;
    late.freed++;
    make_late_call();
}

static filch_err play_thinks_better(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage++ > 0) return filch_idle(out);
    me->note = filch_done(out, filch_move(bytes, sizeof bytes, free_and_call));
    return filch_idle(out);
}

/* The free function is called while the step still runs, so it may choose a status. The result that was replaced is
 * freed only once, and the last call that the step makes chooses its status. */
TEST(a_replaced_result_is_freed_once_whatever_its_free_function_calls)
{
    is_let_go_once(play_thinks_better, true);
}

static filch_err play_fails(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    late.out = out;
    if (me->stage == 0) me->note = filch_done(out, filch_move(bytes, sizeof bytes, free_and_call));
    else me->note = filch_yield(out, CMD_OWN, 1, filch_move(bytes, sizeof bytes, free_and_call));
    return FAILURE;
}

/* A second process, on which the data of the failed step must have no effect. */
static filch_err play_bystander(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    return play_idle(me, events, count, out);
}

TEST(data_of_a_failed_step_is_freed_and_its_free_calls_have_no_effect)
{
    static void (*const all[])(void) = { late_yield, late_done, late_done_long };
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        fixture w;
        actor   a = { .stage = (int64_t)(i % 2) }, b = { 0 };
        begin(&w);
        late.make_late_call = all[i / 2];
        actor_start(&w, &a, play_fails);
        fixture_tick(&w);
        ok(a.note);
        same(late.freed, 1);
        if (late.make_late_call != late_done) same(late.late_result, FILCH_ESTATE);
        late.make_late_call = NULL;
        actor_ends(&w, &a, FAILURE);
        actor_start(&w, &b, play_bystander);
        fixture_tick(&w);
        same(b.seen_count, 0);
        same(late.late_calls, 1); /* the handler of the failed step's yield was not called */
        fixture_end(&w);
    }
}

/* The process waits for a completion that never comes. */
static filch_err play_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage++ == 0) me->note = filch_yield_sleep(out, 1, FILCH_SECONDS(100000));
    return filch_wait(out);
}

TEST(a_dropped_message_is_freed_and_its_free_calls_have_no_effect)
{
    static void (*const all[])(void) = { late_yield, late_done, late_done_long };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        fixture             w;
        actor               a = { 0 }, b = { 0 };
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        begin(&w);
        opt.mailbox_max = 1;
        opt.overflow = FILCH_OVERFLOW_DROP_OLDEST;
        actor_start_with(&w, &a, play_waits, opt);
        fixture_tick(&w);
        ok(a.note);
        late.make_late_call = all[i];
        ok(filch_send(w.sched, a.pid, filch_move(bytes, sizeof bytes, free_and_call)));
        ok(filch_send(w.sched, a.pid, filch_none()));
        fixture_tick(&w); /* process a continues to wait; the mailbox drops and frees the older message */
        same(late.freed, 1);
        same(a.steps, 1);
        if (late.make_late_call != late_done) same(late.late_result, FILCH_ESTATE);
        late.make_late_call = NULL;
        actor_start(&w, &b, play_bystander);
        fixture_tick(&w);
        same(b.seen_count, 0);
        same(late.late_calls, 1);
        fixture_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_set_by_a_handler_has_no_effect_on_the_yielding_process),
        cmocka_unit_test(the_result_of_the_step_is_kept_though_close_sets_another),
        cmocka_unit_test(a_replaced_upgrade_is_closed_once_whatever_its_close_calls),
        cmocka_unit_test(on_long_step_cannot_change_the_status_of_the_step),
        cmocka_unit_test(a_replaced_result_is_freed_once_whatever_its_free_function_calls),
        cmocka_unit_test(data_of_a_failed_step_is_freed_and_its_free_calls_have_no_effect),
        cmocka_unit_test(a_dropped_message_is_freed_and_its_free_calls_have_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
