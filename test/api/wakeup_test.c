/* wakeup_test.c - a ready process is run by a worker even if the workers that queued it are busy.
 *
 * Steps here spin until other processes have run, so each process needs a worker of its own at the same time. If a
 * process gets no worker within PATIENCE, the test releases all steps and fails.
 */
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/full_idle.h"
#include "support/patience.h"

#include <filch.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT FILCH_SECONDS(30)
#define PATIENCE FILCH_SECONDS(5)
#define LONG_STEP FILCH_MILLISECONDS(2)

static uint64_t scaled(uint64_t count)
{
    const char *percent = getenv("FILCH_TEST_SCALE");
    uint64_t    some = count * (percent != NULL ? strtoull(percent, NULL, 10) : 100) / 100;
    return some > 0 ? some : 1;
}

/* Accessed with relaxed order: these are only counts and flags, and order no other memory. */
static FLI_ATOMIC(uint32_t) expected, sleeps, arrived, left;
static FLI_ATOMIC(bool)     give_up, named_early;
static FLI_ATOMIC(uint32_t) named_late;

static void spin_until_all_arrived(void)
{
    while (fli_load_rlx(&arrived) < fli_load_rlx(&expected) && !fli_load_rlx(&give_up)) yield_slice();
}

static bool wait_for(FLI_ATOMIC(uint32_t) *count, uint32_t wanted)
{
    patience waits = patience_begin(PATIENCE);
    while (fli_load_rlx(count) < wanted && !patience_is_over(&waits)) yield_slice();
    bool came = fli_load_rlx(count) >= wanted;
    fli_store_rlx(&give_up, !came);
    return came;
}

static bool wait_until_asleep(filch_sched *sched)
{
    patience    waits = patience_begin(PATIENCE);
    filch_stats stats = FILCH_STATS_INIT;
    do {
        yield_slice();
        ok(filch_sched_stats(sched, &stats));
    } while (stats.asleep < stats.workers && !patience_is_over(&waits));
    return stats.asleep == stats.workers;
}

static void reset(uint32_t parties)
{
    fli_store_rlx(&expected, parties);
    fli_store_rlx(&sleeps, 0);
    fli_store_rlx(&arrived, 0);
    fli_store_rlx(&left, 0);
    fli_store_rlx(&give_up, false);
    fli_store_rlx(&named_early, false);
    fli_store_rlx(&named_late, 0);
}

static filch_sched *start(int32_t workers, const filch_options *more)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    if (more != NULL) opt = *more;
    opt.workers = workers;
    filch_sched *sched = NULL;
    ok(filch_sched_create(&sched, &opt));
    return sched;
}

/* ---- meeting inside steps ---- */

static filch_err waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    (void)fli_add_rlx(&arrived, 1);
    spin_until_all_arrived();
    (void)fli_add_rlx(&left, 1);
    return filch_done(out, filch_none());
}

static const filch_type waiter = { .name = "waiter", .step = waiter_step };

/* Spawns the other processes. Then each process, the spawner too, waits inside its step until all processes are inside
 * a step. */
static filch_err spawner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    for (uint32_t i = 1; i < fli_load_rlx(&expected); i++) {
        if (filch_spawn(sched, &waiter, NULL, NULL) != FILCH_OK) return FILCH_ENOMEM;
    }
    return waiter_step(self, events, count, out);
}

static const filch_type spawner = { .name = "host", .step = spawner_step };

TEST(the_queue_of_a_worker_in_a_long_step_is_stolen)
{
    filch_sched *sched = start(2, NULL);
    for (uint64_t i = 0; i < scaled(100); i++) {
        reset(2);
        ok(filch_spawn(sched, &spawner, NULL, NULL));
        assert_true(wait_for(&left, 2));
    }
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

/* The first worker that steals takes a part of the queue and then stays in a step. Other workers must steal the other
 * processes of the queue. */
TEST(as_many_processes_as_workers_can_be_inside_steps_at_once)
{
    for (int32_t workers = 3; workers <= 6; workers++) {
        filch_sched *sched = start(workers, NULL);
        for (uint64_t i = 0; i < scaled(20); i++) {
            /* In every second round all workers are parked; in the other rounds the workers may be about to park. */
            if (i % 2 == 0) assert_true(wait_until_asleep(sched));
            reset((uint32_t)workers);
            ok(filch_spawn(sched, &spawner, NULL, NULL));
            assert_true(wait_for(&left, (uint32_t)workers));
        }
        ok(filch_sched_stop(sched, LIMIT, NULL));
    }
}

/* A foreign thread spawns the processes, so they come from the global queue, from which a worker takes several at
 * once. */
TEST(processes_spawned_by_a_foreign_thread_can_be_inside_steps_at_once)
{
    for (int32_t workers = 2; workers <= 5; workers++) {
        filch_sched *sched = start(workers, NULL);
        for (uint64_t i = 0; i < scaled(20); i++) {
            if (i % 2 == 0) assert_true(wait_until_asleep(sched));
            reset((uint32_t)workers);
            for (int32_t n = 0; n < workers; n++) ok(filch_spawn(sched, &waiter, NULL, NULL));
            assert_true(wait_for(&left, (uint32_t)workers));
        }
        ok(filch_sched_stop(sched, LIMIT, NULL));
    }
}

/* The process sleeps a little longer than the process before it. After the sleep it waits inside its step until all
 * processes are inside a step. */
static filch_err late_waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0) return waiter_step(self, events, count, out);
    uint64_t  n = fli_add_rlx(&sleeps, 1);
    filch_err err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(5) * (1 + n));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type late_waiter = { .name = "late waiter", .step = late_waiter_step };

/* The worker that wakes for the first timer stays in a step. Another worker must wake for the second timer, and so
 * on. */
TEST(timers_fire_while_the_workers_of_earlier_timers_are_in_long_steps)
{
    for (int32_t workers = 2; workers <= 4; workers++) {
        filch_sched *sched = start(workers, NULL);
        for (uint64_t i = 0; i < scaled(10); i++) {
            if (i % 2 == 0) assert_true(wait_until_asleep(sched));
            reset((uint32_t)workers);
            for (int32_t n = 0; n < workers; n++) ok(filch_spawn(sched, &late_waiter, NULL, NULL));
            assert_true(wait_for(&left, (uint32_t)workers));
        }
        ok(filch_sched_stop(sched, LIMIT, NULL));
    }
}

/* ---- reports of long steps ---- */

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    const filch_pid *wanted = user;
    if (strcmp(name, "sloth") != 0 || pid.serial != wanted->serial || took_ns < LONG_STEP) return;
    if (finished != 0) (void)fli_add_rlx(&named_late, 1);
    else fli_store_rlx(&named_early, true);
}

/* The process stays in its step until the step has been reported. */
static filch_err sloth_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count == 0) return filch_idle(out);
    while (!fli_load_rlx(&named_early) && !fli_load_rlx(&give_up)) yield_slice();
    (void)fli_add_rlx(&left, 1);
    return filch_idle(out);
}

static const filch_type sloth = { .name = "sloth", .step = sloth_step };

TEST(a_long_step_is_reported_while_it_runs_and_counted_when_it_ends)
{
    filch_pid     pid = { 0, 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.long_step_ns = LONG_STEP;
    opt.on_long_step = on_long_step;
    opt.on_long_step_user = &pid;
    reset(0);
    filch_sched *sched = start(2, &opt);
    ok(filch_spawn(sched, &sloth, NULL, &pid));
    ok(filch_send(sched, pid, filch_none()));
    assert_true(wait_for(&left, 1));
    assert_true(wait_for(&named_late, 1));
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    assert_true(stats.long_steps >= 1);
    same(fli_load_rlx(&named_late), 1);
    same(filch_sched_stop(sched, 0, NULL), FILCH_EDEADLINE);
}

/* Nothing is queued and no worker is parked with a timeout: another worker must be unparked to check the running
 * worker. */
TEST(a_long_step_after_full_idle_is_reported_while_it_runs)
{
    filch_pid     pid = { 0, 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.long_step_ns = LONG_STEP;
    opt.on_long_step = on_long_step;
    opt.on_long_step_user = &pid;
    for (int32_t workers = 2; workers <= 4; workers++) {
        reset(0);
        filch_sched *sched = start(workers, &opt);
        ok(filch_spawn(sched, &sloth, NULL, &pid));
        assert_true(full_idle_comes(sched));
        ok(filch_send(sched, pid, filch_none()));
        assert_true(wait_for(&left, 1));
        same(filch_sched_stop(sched, 0, NULL), FILCH_EDEADLINE);
    }
}

/* The process yields a sleep of half a millisecond in each step. So its worker searches twice per millisecond, and each
 * search checks the other workers for long steps. */
static filch_err fidget_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    (void)fli_add_rlx(&arrived, 1);
    filch_err err = filch_yield_sleep(out, 1, FILCH_MICROSECONDS(500));
    return err == FILCH_OK ? filch_wait(out) : err;
}

static FLI_ATOMIC(uint32_t) named_running;

static void count_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    (void)user, (void)pid, (void)took_ns;
    if (strcmp(name, "hermit") == 0 && finished == 0) (void)fli_add_rlx(&named_running, 1);
}

/* The process stays in its step, which is overdue, until process `fidget` has been stepped often enough. */
static filch_err hermit_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count == 0) return filch_idle(out);
    uint64_t overdue_ns = fli_clock_ns() + LONG_STEP;
    while (fli_clock_ns() < overdue_ns) yield_slice();
    uint32_t from = fli_load_rlx(&arrived);
    while (fli_load_rlx(&arrived) < from + 20 && !fli_load_rlx(&give_up)) yield_slice();
    (void)fli_add_rlx(&left, 1);
    return filch_done(out, filch_none());
}

TEST(a_long_step_is_reported_once_while_it_runs_however_often_checked)
{
    static const filch_type hermit = { .name = "hermit", .step = hermit_step };
    static const filch_type fidget = { .name = "fidget", .step = fidget_step };
    for (int i = 0; i < 2; i++) {
        filch_pid     pid;
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.long_step_ns = LONG_STEP;
        opt.on_long_step = i == 0 ? count_long_step : NULL; /* without a callback, long steps are only counted */
        reset(0);
        fli_store_rlx(&named_running, 0);
        filch_sched *sched = start(2, &opt);
        ok(filch_spawn(sched, &fidget, NULL, NULL));
        ok(filch_spawn(sched, &hermit, NULL, &pid));
        ok(filch_send(sched, pid, filch_none()));
        assert_true(wait_for(&left, 1));
        ok(filch_sched_stop(sched, LIMIT, NULL));
        same(fli_load_rlx(&named_running), i == 0 ? 1 : 0);
    }
}

TEST(long_steps_are_counted_without_a_callback_and_short_ones_are_not)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_stats   stats = FILCH_STATS_INIT;
    for (int i = 0; i < 2; i++) {
        filch_sched *sched = NULL;
        opt.workers = FILCH_NO_WORKERS;
        opt.long_step_ns = i == 0 ? 1 : FILCH_SECONDS(3600);
        reset(0);
        ok(filch_sched_create(&sched, &opt));
        ok(filch_spawn(sched, &sloth, NULL, NULL));
        ok(filch_tick(sched, 1, NULL));
        ok(filch_sched_stats(sched, &stats));
        same(stats.long_steps, i == 0 ? 1 : 0);
        same(filch_sched_stop(sched, 0, NULL), FILCH_EDEADLINE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_of_a_worker_in_a_long_step_is_stolen),
        cmocka_unit_test(as_many_processes_as_workers_can_be_inside_steps_at_once),
        cmocka_unit_test(processes_spawned_by_a_foreign_thread_can_be_inside_steps_at_once),
        cmocka_unit_test(timers_fire_while_the_workers_of_earlier_timers_are_in_long_steps),
        cmocka_unit_test(a_long_step_is_reported_while_it_runs_and_counted_when_it_ends),
        cmocka_unit_test(a_long_step_after_full_idle_is_reported_while_it_runs),
        cmocka_unit_test(a_long_step_is_reported_once_while_it_runs_however_often_checked),
        cmocka_unit_test(long_steps_are_counted_without_a_callback_and_short_ones_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
