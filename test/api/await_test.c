/* await_test.c - filch_await.h: step functions that return in the middle and continue there. */
#include <stdbool.h>
#include <stdlib.h>

/* Allocator for events that filch_await.h holds back; fails if `no_memory` is true. */
static bool  no_memory;
static void *test_realloc(void *old, size_t size)
{
    return no_memory ? NULL : realloc(old, size);
}
#define realloc test_realloc
#include <filch_await.h>
#undef realloc

#include "fixture.h"

enum { CMD_DOUBLE = FILCH_CMD_USER, CMD_LATER };

/* State of the process of one actor. The struct belongs to the test, which can read it at any time. */
typedef struct script {
    filch_await    at;
    int64_t        got[16];
    int            count;
    filch_err      errors[4];
    char           text[128];
    filch_pid      to;
    filch_receiver later[4]; /* receivers of CMD_LATER yields, indexed by the number that the yield carried */
} script;

static void note(script *s, int64_t number)
{
    if (s->count < 16) s->got[s->count++] = number;
}

/* FILCH_BEGIN for the play functions of this file: declares `s` and `at`, and passes the arguments of the function. */
#define BEGIN(me)                \
    script      *s = (me)->user; \
    filch_await *at = &s->at;    \
    FILCH_BEGIN(at, events, count, out)

static filch_err on_double(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    return filch_complete(receiver, tag, filch_int(2 * filch_as_int(&command->data)), FILCH_OK);
}

/* Handler of CMD_LATER: keeps the receiver, so that the test can complete the yield by complete_kept(). */
static filch_err on_later(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)tag;
    ((script *)user)->later[filch_as_int(&command->data)] = receiver;
    return FILCH_OK;
}

static void complete_kept(script *s, int which)
{
    ok(filch_complete(s->later[which], s->later[which].tag, filch_int(which), FILCH_OK));
}

/* Creates a scheduler without workers, with the commands CMD_DOUBLE and CMD_LATER. */
static void begin(fixture *w, script *s)
{
    filch_options options = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, CMD_DOUBLE, on_double, NULL));
    ok(filch_registry_add(options.registry, CMD_LATER, on_later, s));
    fixture_begin_with(w, FILCH_NO_WORKERS, options);
    filch_registry_destroy(options.registry);
}

static void end(fixture *w, script *s)
{
    /* the test itself frees the held events; in a program, the `close` function of the process type does this */
    filch_await_drop(&s->at);
    fixture_end(w);
}

static void saw(const script *s, int count, const int64_t *wanted)
{
    same(s->count, count);
    for (int i = 0; i < count; i++) same(s->got[i], wanted[i]);
}
#define SAW(s, ...) saw((s), (int)COUNT_OF(((int64_t[]){ __VA_ARGS__ })), (int64_t[]){ __VA_ARGS__ })

/* ---- yields ---- */

static filch_err play_doubles(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    while (s->count < 3) {
        FILCH_AWAIT(at, filch_yield(out, CMD_DOUBLE, at->tag, filch_int(s->count + 10)));
        note(s, filch_as_int(at->data));
    }
    FILCH_END(at);
}

TEST(an_await_continues_with_the_result_of_its_yield)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_doubles);
    actor_ends(&w, &a, FILCH_OK);
    SAW(&s, 20, 22, 24);
    same(a.steps, 4);       /* the first step, and one step for each completion */
    assert_null(s.at.held); /* no event was held back for later, so no memory was allocated */
    end(&w, &s);
}

static filch_err play_errors(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT(at, filch_yield_ticker(out, at->tag, 0)); /* fails: the period is 0 */
    s->errors[0] = at->error;
    note(s, at->event == NULL && at->data == NULL && filch_as_int(at->data) == 0);
    FILCH_AWAIT(at, filch_yield(out, FILCH_CMD_USER + 99, at->tag, filch_none())); /* this command has no handler */
    s->errors[1] = at->error;
    FILCH_AWAIT(at, filch_yield(out, CMD_DOUBLE, at->tag, filch_int(4)));
    s->errors[2] = at->error;
    note(s, filch_as_int(at->data));
    FILCH_END(at);
}

TEST(an_await_fails_with_the_error_of_its_yield_even_if_it_was_refused)
{
    fixture w;
    script  s = { .errors = { -1, -1, -1 } };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_errors);
    actor_ends(&w, &a, FILCH_OK);
    same(s.errors[0], FILCH_EINVAL);
    same(s.errors[1], FILCH_ECOMMAND);
    same(s.errors[2], FILCH_OK);
    SAW(&s, 1, 8);
    end(&w, &s);
}

static filch_err play_two_at_once(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    for (int i = 0; i < 3; i++) {
        filch_err err = filch_yield(out, CMD_LATER, (uint64_t)i, filch_int(i));
        if (err != FILCH_OK) return err;
    }
    FILCH_AWAIT_TAG(at, 1);
    note(s, filch_as_int(at->data));
    FILCH_AWAIT_YIELD(at);
    note(s, (int64_t)at->event->tag);
    FILCH_AWAIT_YIELD(at);
    note(s, (int64_t)at->event->tag);
    FILCH_END(at);
}

TEST(completions_of_several_yields_are_found_in_any_order)
{
    static const int orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 0, 2 }, { 2, 0, 1 } };
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        /* together = 1: one step gets all three completions; together = 0: each completion has a step of its own */
        for (int together = 0; together < 2; together++) {
            fixture w;
            script  s = { .count = 0 };
            actor   a = { .user = &s };
            begin(&w, &s);
            actor_start(&w, &a, play_two_at_once);
            (void)fixture_tick(&w);
            for (int k = 0; k < 3; k++) {
                complete_kept(&s, orders[i][k]);
                if (!together) (void)fixture_tick(&w);
            }
            actor_ends(&w, &a, FILCH_OK);
            int others[2], n = 0;
            for (int k = 0; k < 3; k++) {
                if (orders[i][k] != 1) others[n++] = orders[i][k];
            }
            /* play_two_at_once() awaits yield 1 first; it gets the completions of the other two yields in the order in
             * which they arrived */
            SAW(&s, 1, others[0], others[1]);
            end(&w, &s);
        }
    }
}

static filch_err play_no_yield(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT_YIELD(at);
    FILCH_END(at);
}

TEST(awaiting_a_yield_that_was_not_made_is_an_error)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_no_yield);
    actor_ends(&w, &a, FILCH_ENOYIELD);
    end(&w, &s);
}

/* ---- messages ---- */

static filch_err play_one_at_a_time(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    while (s->count < 12) {
        FILCH_AWAIT_MESSAGE(at);
        note(s, filch_as_int(at->data));
        FILCH_AWAIT(at, filch_yield(out, CMD_DOUBLE, at->tag, filch_int(s->got[s->count - 1])));
        note(s, filch_as_int(at->data));
    }
    FILCH_END(at);
}

TEST(messages_of_one_batch_wait_in_order_while_a_yield_is_awaited)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_one_at_a_time);
    (void)fixture_tick(&w);
    for (int i = 1; i <= 6; i++) ok(filch_send(w.sched, a.pid, filch_int(i)));
    actor_ends(&w, &a, FILCH_OK);
    same(a.count_max, 6); /* the six messages arrived in one batch */
    SAW(&s, 1, 2, 2, 4, 3, 6, 4, 8, 5, 10, 6, 12);
    end(&w, &s);
}

static filch_err play_pass_on(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT(at, filch_yield(out, CMD_LATER, at->tag, filch_int(0)));
    FILCH_AWAIT_MESSAGE(at);
    FILCH_AWAIT_MESSAGE(at);
    /* at->data is the payload of the message that the last await returned; the call inside the next await may use it */
    FILCH_AWAIT(at, filch_yield_send(out, at->tag, s->to, *at->data));
    s->errors[0] = at->error;
    FILCH_END(at);
}

static filch_err play_listen(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT_MESSAGE(at);
    memcpy(s->text, filch_raw(at->data), filch_size(at->data));
    note(s, (int64_t)filch_size(at->data));
    FILCH_END(at);
}

TEST(a_held_payload_is_complete_and_valid_until_the_next_await)
{
    fixture w;
    script  s = { .count = 0 }, t = { .count = 0 };
    actor   a = { .user = &s }, b = { .user = &t };
    char    large[100];
    begin(&w, &s);
    actor_start(&w, &b, play_listen);
    s.to = b.pid;
    actor_start(&w, &a, play_pass_on);
    /* The first step of process a gets both messages. It awaits a yield, so filch_await.h holds the messages. */
    memset(large, 'x', sizeof large);
    ok(filch_send(w.sched, a.pid, filch_bytes(large, 50)));
    ok(filch_send(w.sched, a.pid, filch_bytes(large, sizeof large)));
    (void)fixture_tick(&w);
    memset(large, 'y', sizeof large);
    complete_kept(&s, 0);
    actor_ends(&w, &a, FILCH_OK);
    actor_ends(&w, &b, FILCH_OK);
    same(s.errors[0], FILCH_OK);
    SAW(&t, 100);
    for (int i = 0; i < 100; i++) same(t.text[i], 'x');
    filch_await_drop(&t.at);
    end(&w, &s);
}

TEST(a_process_that_ends_with_events_held_leaves_no_memory_behind)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    char    large[100] = "";
    begin(&w, &s);
    actor_start(&w, &a, play_pass_on);
    for (int i = 0; i < 20; i++) ok(filch_send(w.sched, a.pid, filch_bytes(large, sizeof large)));
    (void)fixture_tick(&w);
    assert_true(s.at.held_count > 0);
    ok(filch_cancel(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_ECANCELLED);
    end(&w, &s); /* end() also checks that all memory was freed */
}

TEST(without_memory_to_hold_an_event_the_process_ends_with_enomem)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_pass_on);
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    no_memory = true;
    actor_ends(&w, &a, FILCH_ENOMEM);
    no_memory = false;
    end(&w, &s);
}

static filch_err play_any(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    if (filch_yield(out, CMD_LATER, 7, filch_int(0)) != FILCH_OK) return FILCH_ENOMEM;
    while (s->count < 3) {
        FILCH_AWAIT_EVENT(at);
        note(s, at->event->type);
    }
    FILCH_END(at);
}

static filch_err play_end(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    (void)events;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(the_next_event_of_any_kind_can_be_awaited)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s }, b = { .stage = 0 };
    begin(&w, &s);
    actor_start(&w, &a, play_any);
    actor_start(&w, &b, play_end);
    ok(filch_monitor(w.sched, a.pid, b.pid, 1, NULL));
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, a.pid, filch_none()));
    (void)fixture_tick(&w);
    complete_kept(&s, 0);
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, b.pid, filch_none()));
    actor_ends(&w, &b, FILCH_OK);
    actor_ends(&w, &a, FILCH_OK);
    SAW(&s, FILCH_EVENT_MESSAGE, FILCH_EVENT_YIELD, FILCH_EVENT_EXIT);
    end(&w, &s);
}

/* ---- cancellation ---- */

static filch_err play_for_ever(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    for (;;) {
        FILCH_AWAIT_MESSAGE(at);
        note(s, filch_as_int(at->data));
    }
    FILCH_END(at);
}

TEST(a_cancel_ends_an_await_body_with_its_reason_at_any_point)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_for_ever);
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    (void)fixture_tick(&w);
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 5, FILCH_FOREVER));
    actor_ends(&w, &a, FILCH_EUSER + 5);
    SAW(&s, 1);
    end(&w, &s);
}

static filch_err play_tidy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT_MESSAGE(at);
    note(s, filch_as_int(at->data));
    FILCH_FINALLY(at);
    note(s, at->reason == FILCH_OK ? 50 : 51);
    FILCH_AWAIT(at, filch_yield(out, CMD_LATER, at->tag, filch_int(0)));
    note(s, 52);
    FILCH_END(at);
}

TEST(finally_runs_on_cancel_and_may_await_while_more_cancels_are_ignored)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_tidy);
    (void)fixture_tick(&w);
    ok(filch_cancel(w.sched, a.pid));
    (void)fixture_tick(&w);
    ok(filch_cancel(w.sched, a.pid));
    (void)fixture_tick(&w);
    SAW(&s, 51);
    complete_kept(&s, 0);
    actor_ends(&w, &a, FILCH_ECANCELLED);
    SAW(&s, 51, 52);
    end(&w, &s);
}

static filch_err play_tidy_by_events(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    BEGIN(me);
    FILCH_AWAIT_EVENT(at);
    note(s, at->event->type);
    FILCH_FINALLY(at);
    FILCH_AWAIT_EVENT(at);
    note(s, at->event->type);
    FILCH_END(at);
}

TEST(several_cancels_in_one_step_are_no_events_of_an_await)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_tidy_by_events);
    (void)fixture_tick(&w);
    /* One step gets the first three cancels, and one step gets the last two, which come after FILCH_FINALLY. */
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 5, FILCH_FOREVER));
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 5, FILCH_FOREVER));
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 5, FILCH_FOREVER));
    (void)fixture_tick(&w);
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 6, FILCH_FOREVER));
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER + 6, FILCH_FOREVER));
    (void)fixture_tick(&w);
    same(a.count_max, 3);
    same(s.count, 0);
    assert_null(s.at.held); /* an ignored cancel takes no memory */
    ok(filch_send(w.sched, a.pid, filch_none()));
    actor_ends(&w, &a, FILCH_EUSER + 5);
    SAW(&s, FILCH_EVENT_MESSAGE);
    end(&w, &s);
}

TEST(finally_runs_once_when_the_body_reaches_it)
{
    fixture w;
    script  s = { .count = 0 };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_tidy);
    ok(filch_send(w.sched, a.pid, filch_int(9)));
    (void)fixture_tick(&w);
    ok(filch_cancel(w.sched, a.pid)); /* the process is already in its FINALLY part, so this cancel changes nothing */
    (void)fixture_tick(&w);
    complete_kept(&s, 0);
    actor_ends(&w, &a, FILCH_OK);
    SAW(&s, 9, 50, 52);
    end(&w, &s);
}

/* ---- mistakes ---- */

TEST(a_state_that_was_not_zeroed_is_refused)
{
    fixture w;
    script  s = { .at = { .line = 3 } };
    actor   a = { .user = &s };
    begin(&w, &s);
    actor_start(&w, &a, play_doubles);
    actor_ends(&w, &a, FILCH_ESTATE);
    end(&w, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_await_continues_with_the_result_of_its_yield),
        cmocka_unit_test(an_await_fails_with_the_error_of_its_yield_even_if_it_was_refused),
        cmocka_unit_test(completions_of_several_yields_are_found_in_any_order),
        cmocka_unit_test(awaiting_a_yield_that_was_not_made_is_an_error),
        cmocka_unit_test(messages_of_one_batch_wait_in_order_while_a_yield_is_awaited),
        cmocka_unit_test(a_held_payload_is_complete_and_valid_until_the_next_await),
        cmocka_unit_test(a_process_that_ends_with_events_held_leaves_no_memory_behind),
        cmocka_unit_test(without_memory_to_hold_an_event_the_process_ends_with_enomem),
        cmocka_unit_test(the_next_event_of_any_kind_can_be_awaited),
        cmocka_unit_test(a_cancel_ends_an_await_body_with_its_reason_at_any_point),
        cmocka_unit_test(finally_runs_on_cancel_and_may_await_while_more_cancels_are_ignored),
        cmocka_unit_test(several_cancels_in_one_step_are_no_events_of_an_await),
        cmocka_unit_test(finally_runs_once_when_the_body_reaches_it),
        cmocka_unit_test(a_state_that_was_not_zeroed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
