/* out_late_test.c - a status that is chosen after the step has returned has no effect. A handler, close, on_long_step,
 * or the function that frees a payload may have kept `out` and choose one. */
#include "api/world.h"

enum { FAILURE = FILCH_EUSER + 8, ASK = FILCH_CMD_USER };

static const char long_text[] = "a text that does not fit into an event, so that somebody has to free it";

/* The call that is made too late, and its result. */
static struct {
    filch_out *out;
    void (*say)(void);
    uint32_t  said, freed;
    filch_err answer;
} late;

static void say_done(void)
{
    late.answer = filch_done(late.out, filch_int(666));
}

static void say_done_at_length(void)
{
    late.answer = filch_done(late.out, filch_str(long_text));
}

static void say_idle(void)
{
    late.answer = filch_idle(late.out);
}

static void say_continue(void)
{
    late.answer = filch_continue(late.out);
}

static void say_wait(void)
{
    late.answer = filch_wait(late.out);
}

static void say_failed(void)
{
    late.answer = filch_fail(late.out, FAILURE, filch_int(666));
}

static void ask(void)
{
    late.answer = filch_yield(late.out, ASK, 9, filch_int(1));
}

static void say(void)
{
    late.said++;
    if (late.say != NULL) late.say();
}

/* ---- handlers ---- */

static filch_err on_ask(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    say();
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void begin_with(world *w, filch_options opt)
{
    memset(&late, 0, sizeof late);
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, ASK, on_ask, NULL));
    world_begin_with(w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
}

static void begin(world *w)
{
    begin_with(w, (filch_options)FILCH_OPTIONS_INIT);
}

/* Makes `stage` yields one after the other; then idles or waits. */
static filch_err play_asks(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage-- <= 0) return filch_idle(out);
    me->note |= filch_yield(out, ASK, 1, filch_none());
    return me->user != NULL ? filch_wait(out) : filch_idle(out);
}

TEST(what_a_handler_says_of_the_process_that_asked_has_no_effect)
{
    static void (*const all[])(void) = { say_done, say_done_at_length, say_idle, say_continue, say_wait, say_failed };
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        world w;
        begin(&w);
        late.say = all[i / 2];
        /* The second and third yield are completed inside the inline completion loop. */
        actor a = { .stage = 3, .user = i % 2 != 0 ? &w : NULL };
        actor_start(&w, &a, play_asks);
        world_tick(&w);
        ok(a.note);
        same(late.said, 3);
        same(a.seen_count, 3);
        same(a.steps, 4);
        assert_false(is_over(&a));
        same(world_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
        ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        world_end(&w);
    }
}

/* ---- close ---- */

static void close_says(void *self)
{
    say();
    actor_close(self);
}

static const filch_type closer = {
    .name = "closer", .size = sizeof(actor *), .init = actor_init, .step = actor_step, .close = close_says
};

static filch_err play_answers_at_length(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me, (void)events, (void)count;
    late.out = out;
    return filch_done(out, filch_str(long_text));
}

TEST(a_result_is_what_the_step_said_though_close_says_another)
{
    static void (*const all[])(void) = { say_done, say_done_at_length, say_failed };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        world w;
        actor a = { .play = play_answers_at_length };
        begin(&w);
        late.say = all[i];
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(&a);
        opt.on_exit = actor_exit;
        opt.on_exit_user = &a;
        ok(filch_spawn(w.sched, &closer, &opt, NULL));
        world_tick(&w);
        same(late.said, 1);
        assert_string_equal(filch_text(&a.result), long_text);
        actor_ends(&w, &a, FILCH_OK);
        world_end(&w); /* also checks that all memory is freed */
    }
}

/* Close of a new instance after an upgrade that did not happen. */
static void heir_close(void *self)
{
    (void)self;
    late.freed++;
    say();
}

static filch_err heir_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static const filch_type heir = { .name = "heir", .size = 200, .step = heir_step, .close = heir_close };

static filch_err play_ends_instead(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    me->note = filch_upgrade(out, &heir, NULL, filch_none());
    return filch_done(out, filch_none());
}

/* Checks that a result that `play` replaced by another status is freed once, whatever is called while it is freed. Then
 * the process continues (`goes_on`) or has ended. */
static void is_let_go_once(play_fn play, bool goes_on)
{
    static void (*const all[])(void) = { say_idle, say_done, say_done_at_length };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        world w;
        actor a = { 0 };
        begin(&w);
        late.say = all[i];
        actor_start(&w, &a, play);
        world_tick(&w);
        ok(a.note);
        same(late.freed, 1);
        same(is_over(&a), !goes_on);
        if (goes_on) ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        world_end(&w);
    }
}

TEST(an_heir_that_is_thought_better_of_is_closed_once_whatever_its_close_says)
{
    is_let_go_once(play_ends_instead, false);
}

/* ---- on_long_step ---- */

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    (void)user, (void)pid, (void)name, (void)took_ns;
    if (finished) say();
}

static filch_err play_lends(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    late.out = out;
    /* Waits for the next clock value, so that the step takes some time, whatever the resolution of the clock. */
    for (uint64_t now_ns = fli_clock_ns(); fli_clock_ns() == now_ns;) fli_thread_yield();
    return play_idle(me, events, count, out);
}

TEST(whoever_is_told_that_a_step_took_long_has_no_say_in_what_it_was)
{
    static void (*const all[])(void) = { ask, say_done, say_done_at_length, say_continue, say_failed };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        world         w;
        actor         a = { 0 };
        opt.long_step_ns = 1;
        opt.on_long_step = on_long_step;
        begin_with(&w, opt);
        late.say = all[i];
        actor_start(&w, &a, play_lends);
        world_tick(&w);
        same(late.said, 1);
        if (late.say == ask || late.say == say_done_at_length) same(late.answer, FILCH_ESTATE);
        same(a.steps, 1);
        same(a.seen_count, 0);
        assert_false(is_over(&a));
        late.say = NULL;
        ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        world_end(&w);
    }
}

/* ---- functions that free a payload ---- */

static char bytes[100];

static void free_says(void *user, void *which, size_t size)
{
    (void)user, (void)which, (void)size;
    late.freed++;
    say();
}

static filch_err play_thinks_better(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage++ > 0) return filch_idle(out);
    me->note = filch_done(out, filch_move(bytes, sizeof bytes, free_says));
    return filch_idle(out);
}

/* The free function is called while the step still runs, so it may choose a status. The replaced result stays freed,
 * and the last call of the step decides. */
TEST(a_result_that_is_thought_better_of_is_freed_once_whatever_its_free_function_says)
{
    is_let_go_once(play_thinks_better, true);
}

static filch_err play_fails(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    late.out = out;
    if (me->stage == 0) me->note = filch_done(out, filch_move(bytes, sizeof bytes, free_says));
    else me->note = filch_yield(out, ASK, 1, filch_move(bytes, sizeof bytes, free_says));
    return FAILURE;
}

/* A second process, which must not notice what the failed step left. */
static filch_err play_bystander(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    return play_idle(me, events, count, out);
}

TEST(what_a_failed_step_leaves_is_freed_and_nothing_more_comes_of_it)
{
    static void (*const all[])(void) = { ask, say_done, say_done_at_length };
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        world w;
        actor a = { .stage = (int64_t)(i % 2) }, b = { 0 };
        begin(&w);
        late.say = all[i / 2];
        actor_start(&w, &a, play_fails);
        world_tick(&w);
        ok(a.note);
        same(late.freed, 1);
        if (late.say != say_done) same(late.answer, FILCH_ESTATE);
        late.say = NULL;
        actor_ends(&w, &a, FAILURE);
        actor_start(&w, &b, play_bystander);
        world_tick(&w);
        same(b.seen_count, 0);
        same(late.said, 1); /* no handler was called */
        world_end(&w);
    }
}

/* Waits for a completion that never comes. */
static filch_err play_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    late.out = out;
    if (me->stage++ == 0) me->note = filch_yield_sleep(out, 1, FILCH_SECONDS(100000));
    return filch_wait(out);
}

TEST(what_is_dropped_from_a_full_mailbox_is_freed_and_nothing_more_comes_of_it)
{
    static void (*const all[])(void) = { ask, say_done, say_done_at_length };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        world               w;
        actor               a = { 0 }, b = { 0 };
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        begin(&w);
        opt.mailbox_max = 1;
        opt.overflow = FILCH_OVERFLOW_DROP_OLDEST;
        actor_start_with(&w, &a, play_waits, opt);
        world_tick(&w);
        ok(a.note);
        late.say = all[i];
        ok(filch_send(w.sched, a.pid, filch_move(bytes, sizeof bytes, free_says)));
        ok(filch_send(w.sched, a.pid, filch_none()));
        world_tick(&w); /* process a continues to wait, but the older message is dropped and freed */
        same(late.freed, 1);
        same(a.steps, 1);
        if (late.say != say_done) same(late.answer, FILCH_ESTATE);
        late.say = NULL;
        actor_start(&w, &b, play_bystander);
        world_tick(&w);
        same(b.seen_count, 0);
        same(late.said, 1);
        world_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_handler_says_of_the_process_that_asked_has_no_effect),
        cmocka_unit_test(a_result_is_what_the_step_said_though_close_says_another),
        cmocka_unit_test(an_heir_that_is_thought_better_of_is_closed_once_whatever_its_close_says),
        cmocka_unit_test(whoever_is_told_that_a_step_took_long_has_no_say_in_what_it_was),
        cmocka_unit_test(a_result_that_is_thought_better_of_is_freed_once_whatever_its_free_function_says),
        cmocka_unit_test(what_a_failed_step_leaves_is_freed_and_nothing_more_comes_of_it),
        cmocka_unit_test(what_is_dropped_from_a_full_mailbox_is_freed_and_nothing_more_comes_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
