/* stuck_test.c - a step counts as stuck by the CPU time and sleep of its thread, not by wall time. */
#include <string.h>

#include "port/clock.h"
#include "port/thread.h"
#include "sched/stuck.h"
#include "support/check.h"
#include "support/until.h"

#define MS(n) FILCH_MILLISECONDS(n)

static fli_stuck seen_at(uint64_t now_ns, uint64_t cpu_ns)
{
    return (fli_stuck){ .serial = 1, .cpu_ns = cpu_ns, .since_ns = now_ns, .asleep_ns = now_ns };
}

TEST(a_step_on_a_thread_without_cpu_time_is_starved_after_ten_seconds)
{
    fli_stuck seen = seen_at(MS(1000), MS(5));
    for (uint64_t ms = 0; ms < 10000; ms += 5) {
        same(fli_stuck_judge(&seen, MS(1000 + ms), FLI_THREAD_RUNS, MS(5) + MS(ms) / 200), FLI_VERDICT_WAIT);
    }
    same(fli_stuck_judge(&seen, MS(11000), FLI_THREAD_RUNS, MS(55)), FLI_VERDICT_STARVED);
}

TEST(a_step_that_uses_100_ms_of_cpu_time_is_stuck)
{
    fli_stuck seen = seen_at(0, MS(700));
    same(fli_stuck_judge(&seen, MS(99), FLI_THREAD_RUNS, MS(799)), FLI_VERDICT_WAIT);
    same(fli_stuck_judge(&seen, MS(5000), FLI_THREAD_RUNS, MS(799)), FLI_VERDICT_WAIT);
    same(fli_stuck_judge(&seen, MS(5001), FLI_THREAD_RUNS, MS(800)), FLI_VERDICT_STUCK);
}

TEST(a_step_that_sleeps_for_100_ms_is_stuck)
{
    fli_stuck seen = seen_at(0, 0);
    same(fli_stuck_judge(&seen, MS(50), FLI_THREAD_SLEEPS, 0), FLI_VERDICT_WAIT);
    /* At 60 ms the thread is seen awake, so the 100 ms of sleep are measured from there. */
    same(fli_stuck_judge(&seen, MS(60), FLI_THREAD_RUNS, 0), FLI_VERDICT_WAIT);
    same(fli_stuck_judge(&seen, MS(159), FLI_THREAD_SLEEPS, 0), FLI_VERDICT_WAIT);
    same(fli_stuck_judge(&seen, MS(160), FLI_THREAD_SLEEPS, 0), FLI_VERDICT_STUCK);
}

TEST(a_step_on_a_thread_of_unknown_state_is_stuck_after_two_seconds)
{
    fli_stuck seen = seen_at(MS(10), 0);
    same(fli_stuck_judge(&seen, MS(2009), FLI_THREAD_UNKNOWN, 0), FLI_VERDICT_WAIT);
    same(fli_stuck_judge(&seen, MS(2010), FLI_THREAD_UNKNOWN, 0), FLI_VERDICT_STUCK);
}

/* ---- tests with a real thread; the system reports its state ---- */

static FLI_ATOMIC(int) wanted; /* the test tells its thread what to do: 0: sleep, 1: run, 2: return */
static fli_mutex       lock;
static fli_cond        changed;

static void obey(void *arg)
{
    (void)arg;
    for (;;) {
        fli_mutex_lock(&lock);
        while (fli_load_acq(&wanted) == 0) fli_cond_wait(&changed, &lock);
        fli_mutex_unlock(&lock);
        while (fli_load_acq(&wanted) == 1) {}
        if (fli_load_acq(&wanted) == 2) return;
    }
}

static void want(int what)
{
    fli_mutex_lock(&lock);
    fli_store_rel(&wanted, what);
    fli_cond_broadcast(&changed);
    fli_mutex_unlock(&lock);
}

TEST(a_thread_is_reported_as_running_or_sleeping)
{
    fli_thread thread;
    uint64_t   before, after;
    ok(fli_mutex_init(&lock));
    ok(fli_cond_init(&changed));
    ok(fli_thread_start(&thread, "looked at", obey, NULL));
    if (fli_thread_look(&thread, &before) != FLI_THREAD_UNKNOWN) {
        until(fli_thread_look(&thread, &before) == FLI_THREAD_SLEEPS);
        want(1);
        until(fli_thread_look(&thread, &after) == FLI_THREAD_RUNS && after > before);
        want(0);
        until(fli_thread_look(&thread, &after) == FLI_THREAD_SLEEPS);
    }
    want(2);
    fli_thread_join(&thread);
    fli_cond_fini(&changed);
    fli_mutex_fini(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_on_a_thread_without_cpu_time_is_starved_after_ten_seconds),
        cmocka_unit_test(a_step_that_uses_100_ms_of_cpu_time_is_stuck),
        cmocka_unit_test(a_step_that_sleeps_for_100_ms_is_stuck),
        cmocka_unit_test(a_step_on_a_thread_of_unknown_state_is_stuck_after_two_seconds),
        cmocka_unit_test(a_thread_is_reported_as_running_or_sleeping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
