/* wake_fd_test.c - the descriptor of a scheduler without workers reports timers too, so a host that polls only this
 * descriptor misses no timer. Polls have a timeout only so that a failure does not hang the test. */
#include <poll.h>

#include "api/fixture.h"

static bool readable_within(fixture *w, int ms)
{
    struct pollfd p = { .fd = filch_wake_fd(w->sched), .events = POLLIN };
    int           n = poll(&p, 1, ms);
    assert_true(n >= 0);
    return n == 1;
}

/* Polls the wake descriptor and calls filch_tick() until the condition is true. */
#define HOST_UNTIL(w, condition)                                             \
    while (!(condition)) {                                                   \
        if (!readable_within((w), 60000)) fail_msg("never: %s", #condition); \
        ok(filch_tick((w)->sched, 0, NULL));                                 \
    }

/* Sleeps `stage` times. */
static filch_err play_sleeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage-- == 0) return filch_done(out, filch_none());
    me->note = filch_yield_sleep(out, 1, FILCH_MICROSECONDS(700));
    return filch_wait(out);
}

TEST(a_host_that_only_polls_the_descriptor_runs_every_timer)
{
    fixture w;
    actor   a = { .stage = 20 }, b = { .stage = 13 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_sleeps);
    actor_start(&w, &b, play_sleeps);
    HOST_UNTIL(&w, is_over(&a) && is_over(&b));
    ok(filch_tick(w.sched, 0, NULL));
    assert_false(readable_within(&w, 0)); /* no timer is left, so the wake descriptor does not become readable */
    actor_ends(&w, &a, FILCH_OK);
    actor_ends(&w, &b, FILCH_OK);
    fixture_end(&w);
}

TEST(a_timer_older_than_the_wake_descriptor_makes_it_readable)
{
    fixture w;
    actor   a = { .stage = 1 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_sleeps);
    ok(filch_tick(w.sched, 0, NULL));
    HOST_UNTIL(&w, is_over(&a));
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
}

static filch_err play_ignores_cancel(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    (void)events;
    (void)count;
    return filch_idle(out);
}

TEST(a_deadline_set_by_another_thread_makes_the_descriptor_readable)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ignores_cancel);
    HOST_UNTIL(&w, a.steps > 0);
    ok(filch_cancel_with(w.sched, a.pid, FILCH_EUSER, FILCH_MILLISECONDS(1)));
    HOST_UNTIL(&w, is_over(&a));
    actor_ends(&w, &a, FILCH_EKILLED);
    fixture_end(&w);
}

/* Starts a timer of one hour and cancels it. The wake descriptor must not become readable because of this timer. */
static filch_err play_takes_back(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage == 0) me->note = filch_yield_timer(out, 1, FILCH_SECONDS(3600));
    if (me->stage == 1) me->note = filch_yield_timer_cancel(out, 2, filch_as_int(&events[0].data));
    me->stage++;
    return filch_idle(out);
}

TEST(a_far_or_cancelled_timer_does_not_make_the_descriptor_readable)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)filch_wake_fd(w.sched);
    actor_start(&w, &a, play_takes_back);
    HOST_UNTIL(&w, a.stage >= 1);
    HOST_UNTIL(&w, a.stage >= 3);
    for (int i = 0; i < 3; i++) ok(filch_tick(w.sched, 0, NULL));
    assert_false(readable_within(&w, 0));
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_only_polls_the_descriptor_runs_every_timer),
        cmocka_unit_test(a_timer_older_than_the_wake_descriptor_makes_it_readable),
        cmocka_unit_test(a_deadline_set_by_another_thread_makes_the_descriptor_readable),
        cmocka_unit_test(a_far_or_cancelled_timer_does_not_make_the_descriptor_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
