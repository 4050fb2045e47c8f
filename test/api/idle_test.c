/* idle_test.c - a runtime without work uses no CPU, and wakes no more workers than it needs.
 *
 * Full idle is measured with counts of the kernel: how often each thread gave up or lost its CPU. The counts of a
 * sleeping thread do not change. Threads of the sanitizers are recognised by name.
 */
#include "port/atomic.h"
#include "port/clock.h"
#include "port/cpu.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

#include <dirent.h>
#include <filch.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 4 };

#define LIMIT FILCH_SECONDS(60)
#define FULL_IDLE_NS FILCH_SECONDS(5)

/* Sleeps for `ns`. The tests of this file check that nothing happens in a time span, so they must wait in real time. */
static void let_time_pass(uint64_t ns)
{
    struct timespec span = { .tv_sec = (time_t)(ns / FILCH_SECONDS(1)), .tv_nsec = (long)(ns % FILCH_SECONDS(1)) };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &span, &span) != 0) {}
}

/* What the kernel reports about the threads of the workers, summed over all workers. */
typedef struct census {
    uint64_t switches; /* context switches of the workers so far */
    uint32_t workers;
    uint32_t asleep; /* number of workers that sleep in the kernel; workers that wait for a CPU do not count */
} census;

static void add_thread(census *sum, const char *task)
{
    char     path[300], line[256];
    bool     worker = false, asleep = false;
    uint64_t switches = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *status = fopen(path, "r");
    if (status == NULL) return;
    while (fgets(line, sizeof line, status) != NULL) {
        if (strcmp(line, "Name:\tfilch\n") == 0) worker = true;
        if (strncmp(line, "State:\tS", 8) == 0) asleep = true;
        char *at = strstr(line, "voluntary_ctxt_switches:"); /* also matches "nonvoluntary_ctxt_switches:" */
        if (at != NULL) switches += strtoull(strchr(at, ':') + 1, NULL, 10);
    }
    fclose(status);
    if (!worker) return;
    sum->switches += switches;
    sum->workers++;
    if (asleep) sum->asleep++;
}

static census count_switches(void)
{
    census         now = { 0, 0, 0 };
    DIR           *tasks = opendir("/proc/self/task");
    struct dirent *task;
    assert_non_null(tasks);
    while ((task = readdir(tasks)) != NULL) {
        if (task->d_name[0] != '.') add_thread(&now, task->d_name);
    }
    closedir(tasks);
    return now;
}

static filch_stats stats_of(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

/* Waits until all workers are parked and the kernel has counted no context switch of a worker for 20 ms. A sentinel
 * timeout is at most 8 ms (SENTINEL_LAST_NS), so after 20 ms no sentinel timeout is pending. */
static void settle(filch_sched *sched)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), LIMIT);
    for (;;) {
        census before = count_switches();
        let_time_pass(FILCH_MILLISECONDS(20));
        census      now = count_switches();
        filch_stats stats = stats_of(sched);
        if (stats.asleep == stats.workers && now.asleep == now.workers && now.switches == before.switches) return;
        assert_true(fli_clock_ns() < until);
    }
}

/* Number of times this program was stopped and continued (SIGSTOP, SIGCONT). A stop causes context switches of every
 * thread, so check_full_idle() then measures again. Workers block all signals, so the handler of SIGCONT runs on the
 * test's thread, before that thread reads any count. */
static volatile sig_atomic_t stops;

static void on_continue(int number)
{
    (void)number;
    stops = stops + 1;
}

/* Checks that all workers stay parked and make no context switch for `ns` nanoseconds. Measures again if the program
 * was stopped (SIGSTOP) during the measurement. */
static void check_full_idle(filch_sched *sched, uint64_t ns)
{
    struct sigaction count_it = { .sa_handler = on_continue }, usual;
    uint64_t         until = fli_clock_after(fli_clock_ns(), LIMIT);
    int              stopped;
    filch_stats      stats, still;
    census           before, after;
    ok(sigaction(SIGCONT, &count_it, &usual));
    do {
        assert_true(fli_clock_ns() < until);
        settle(sched);
        stopped = stops;
        stats = stats_of(sched);
        before = count_switches();
        let_time_pass(ns);
        after = count_switches();
        still = stats_of(sched);
    } while (stops != stopped);
    ok(sigaction(SIGCONT, &usual, NULL));
    same(before.workers, WORKERS);
    same(after.workers, WORKERS);
    same(after.switches, before.switches);
    same(still.wakes, stats.wakes);
    same(still.sleeps, stats.sleeps);
    same(still.asleep, WORKERS);
}

/* ---- full idle after work: all workers park when the work is done ---- */

/* Step of a process that counts its messages. A negative message makes the process sleep first, so that a timer
 * exists. */
static FLI_ATOMIC(uint64_t) served; /* relaxed: a count */

static filch_err clerk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    bool tired = false;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE && filch_as_int(&events[i].data) < 0) tired = true;
        else (void)fli_add_rlx(&served, 1);
    }
    if (!tired) return filch_idle(out);
    filch_err err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(3));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type clerk_type = { .name = "clerk", .step = clerk_step };

static void wait_served(uint64_t wanted)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), LIMIT);
    while (fli_load_rlx(&served) < wanted) {
        assert_true(fli_clock_ns() < until);
        yield_slice();
    }
}

static filch_sched *start(uint32_t workers, filch_pid *clerks, uint32_t count)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = (int32_t)workers;
    filch_sched *sched = NULL;
    ok(filch_sched_create(&sched, &opt));
    for (uint32_t i = 0; i < count; i++) ok(filch_spawn(sched, &clerk_type, NULL, &clerks[i]));
    fli_store_rlx(&served, 0);
    return sched;
}

/* ---- the tests ---- */

TEST(an_idle_scheduler_makes_no_context_switches)
{
    enum { CLERKS = 100, ROUNDS = 50 };
    filch_pid    clerks[CLERKS];
    filch_sched *sched = start(WORKERS, clerks, CLERKS);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < CLERKS; i++) ok(filch_send(sched, clerks[i], filch_int(round == 7 ? -1 : 1)));
    }
    wait_served(CLERKS * ROUNDS);
    check_full_idle(sched, scaled(FULL_IDLE_NS));
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

/* The process ends on a cancel, and ignores all other events. */
static filch_err passer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

/* After a peak of processes, a parked worker wakes several times to return memory to the system. When this memory is
 * returned, no worker wakes any more. */
TEST(an_idle_scheduler_makes_no_context_switches_after_a_peak)
{
    enum { PEAK = 30000 };
    static const filch_type passer = { .name = "passer", .step = passer_step };
    static filch_pid        pids[PEAK];
    filch_sched            *sched = start(WORKERS, NULL, 0);
    for (int i = 0; i < PEAK; i++) ok(filch_spawn(sched, &passer, NULL, &pids[i]));
    for (int i = 0; i < PEAK; i++) ok(filch_cancel(sched, pids[i]));
    until(stats_of(sched).alive == 0 && stats_of(sched).memory_returned > 0);
    /* Memory is returned in portions, with pauses of at most 100 ms. */
    for (uint64_t returned = 0; stats_of(sched).memory_returned != returned;) {
        returned = stats_of(sched).memory_returned;
        let_time_pass(FILCH_MILLISECONDS(500));
    }
    check_full_idle(sched, scaled(FULL_IDLE_NS / 5));
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

/* The process accepts on a listener, and sleeps for an hour. Neither yield is completed during the test. */
static filch_err lodger_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    enum { LISTENS, ACCEPTS, SLEEPS };
    (void)self;
    filch_err err = FILCH_OK;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].tag != LISTENS)
            /* only the listen may complete: no client connects, and the sleep takes an hour */
            return FILCH_EUSER;
        if (events[i].error == FILCH_ECOMMAND) continue; /* the library was built without I/O */
        err = filch_yield_accept(out, ACCEPTS, filch_as_stream(&events[i].data), FILCH_SECONDS(3600));
    }
    if (count == 0) err = filch_yield_listen(out, LISTENS, "127.0.0.1:0", NULL);
    if (count == 0 && err == FILCH_OK) err = filch_yield_sleep(out, SLEEPS, FILCH_SECONDS(3600));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type lodger_type = { .name = "lodger", .step = lodger_step };

TEST(a_scheduler_that_waits_for_io_and_far_timers_makes_no_context_switches)
{
    filch_sched *sched = start(WORKERS, NULL, 0);
    for (int i = 0; i < 3; i++) ok(filch_spawn(sched, &lodger_type, NULL, NULL));
    check_full_idle(sched, scaled(FULL_IDLE_NS / 5));
    same(stats_of(sched).alive, 3); /* the three processes wait and have not ended */
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

TEST(one_submission_wakes_one_worker)
{
    filch_pid    pid;
    filch_sched *sched = start(WORKERS, &pid, 1);
    for (uint64_t round = 1; round <= 20; round++) {
        settle(sched);
        filch_stats before = stats_of(sched);
        ok(filch_send(sched, pid, filch_int(1)));
        wait_served(round);
        settle(sched);
        filch_stats after = stats_of(sched);
        same(after.wakes - before.wakes, 1);
        /* The worker that was unparked has parked again, and no other worker was unparked. */
        same(after.sleeps - before.sleeps, 1);
    }
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

/* A process with a step that does not return until the test releases it. */
static FLI_ATOMIC(bool) held, released; /* relaxed: seen eventually */

static filch_err late_clerk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count == 0) {
        fli_store_rlx(&held, true);
        while (!fli_load_rlx(&released)) yield_slice();
    }
    return count == 0 ? filch_idle(out) : filch_done(out, filch_none());
}

static const filch_type late_clerk_type = { .name = "late clerk", .step = late_clerk_step };

TEST(one_submission_wakes_one_worker_also_beside_a_long_step)
{
    filch_pid    pid;
    filch_sched *sched = start(WORKERS, &pid, 1);
    uint64_t     woken = 0, until = fli_clock_after(fli_clock_ns(), LIMIT);
    fli_store_rlx(&held, false);
    fli_store_rlx(&released, false);
    ok(filch_spawn(sched, &late_clerk_type, NULL, NULL));
    for (uint64_t round = 1; round <= 20; round++) {
        while (!fli_load_rlx(&held) || stats_of(sched).asleep < WORKERS - 1) {
            assert_true(fli_clock_ns() < until);
            yield_slice();
        }
        filch_stats before = stats_of(sched);
        ok(filch_send(sched, pid, filch_int(1)));
        wait_served(round);
        /* At most one wake; none if a worker has just woken by its timeout to check the worker in the long step. */
        uint64_t wakes = stats_of(sched).wakes - before.wakes;
        assert_true(wakes <= 1);
        woken += wakes;
    }
    assert_true(woken > 0);
    fli_store_rlx(&released, true);
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

/* ---- dense timers ---- */

enum { SLEEPERS = 5000 };
#define SPREAD FILCH_MILLISECONDS(200)
#define GAP_NS UINT64_C(150000) /* value of TIMER_GAP_NS in sched/sentinel.c */

/* Number of sleepers that have begun to sleep. Each sleeper sleeps once, a little longer than the sleeper before it, so
 * that one timer is due every 40 us. */
static FLI_ATOMIC(uint64_t) started; /* relaxed: a count */

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count > 0) {
        (void)fli_add_rlx(&served, 1);
        return filch_done(out, filch_none());
    }
    uint64_t  n = fli_add_rlx(&started, 1);
    filch_err err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(50) + n * (SPREAD / SLEEPERS));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type sleeper_type = { .name = "sleeper", .step = sleeper_step };

TEST(dense_timers_share_their_wake_ups)
{
    filch_sched *sched = start(2, NULL, 0);
    fli_store_rlx(&started, 0);
    for (uint32_t i = 0; i < SLEEPERS; i++) ok(filch_spawn(sched, &sleeper_type, NULL, NULL));
    until(fli_load_rlx(&started) >= SLEEPERS);
    uint64_t    began_ns = fli_clock_ns();
    filch_stats before = stats_of(sched);
    /* The test does not read the statistics in this time: reading them would keep the workers from parking. */
    let_time_pass(FILCH_MILLISECONDS(50) + SPREAD);
    wait_served(SLEEPERS);
    uint64_t took_ns = fli_clock_ns() - began_ns;
    /* Expected: one park for each GAP_NS, and half of that number for the backup sentinel and for a worker that is
     * unparked. This is far fewer than SLEEPERS. */
    uint64_t sleeps = stats_of(sched).sleeps - before.sleeps;
    assert_in_range(sleeps, 0, took_ns / GAP_NS * 3 / 2);
    ok(filch_sched_stop(sched, LIMIT, NULL));
}

static uint32_t default_workers(void)
{
    filch_sched *sched = NULL;
    ok(filch_sched_create(&sched, NULL));
    uint32_t workers = stats_of(sched).workers;
    ok(filch_sched_stop(sched, LIMIT, NULL));
    return workers;
}

TEST(default_worker_count_follows_the_affinity_mask)
{
    cpu_set_t before, one;
    same(sched_getaffinity(0, sizeof before, &before), 0);
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &before)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    same(sched_setaffinity(0, sizeof one, &one), 0);
    uint32_t alone = default_workers();
    same(sched_setaffinity(0, sizeof before, &before), 0);
    same(alone, 1);
    uint32_t usual = default_workers();
    assert_in_range(usual, 1, CPU_COUNT(&before));
    same(usual, fli_cpu_count());
}

/* ---- a single busy worker ---- */

static filch_sched     *court;
static FLI_ATOMIC(bool) over; /* relaxed: seen eventually */

/* The player sends each message back until `over` is set. */
static filch_err player_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL || fli_load_rlx(&over)) return filch_done(out, filch_none());
        filch_pid to = filch_as_pid(&events[i].data), from = filch_ctx_self(filch_out_ctx(out));
        filch_err err = filch_send(court, to, filch_of_pid(from));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type player_type = { .name = "player", .step = player_step };

TEST(a_parked_worker_is_not_unparked_for_one_process_at_a_time)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_pid     players[2];
    opt.workers = 2;
    ok(filch_sched_create(&court, &opt));
    fli_store_rlx(&over, false);
    for (int i = 0; i < 2; i++) ok(filch_spawn(court, &player_type, NULL, &players[i]));
    ok(filch_send(court, players[0], filch_of_pid(players[1])));
    /* The second worker parks until its timeout, checks the busy worker, and parks again. Other unparks are rare: they
     * happen when the machine has suspended a worker. */
    uint64_t    until = fli_clock_after(fli_clock_ns(), LIMIT), sleeps = 40 + scaled(90);
    filch_stats stats = stats_of(court);
    while (stats.sleeps < sleeps) {
        assert_true(fli_clock_ns() < until);
        let_time_pass(FILCH_MILLISECONDS(5));
        stats = stats_of(court);
    }
    printf("%llu sleeps, %llu wakes\n", (unsigned long long)stats.sleeps, (unsigned long long)stats.wakes);
    /* more wakes would mean that nearly every park of the second worker is ended by an unpark */
    assert_true(stats.wakes <= 3 + stats.sleeps / 4);
    fli_store_rlx(&over, true);
    ok(filch_sched_stop(court, LIMIT, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_scheduler_makes_no_context_switches),
        cmocka_unit_test(an_idle_scheduler_makes_no_context_switches_after_a_peak),
        cmocka_unit_test(a_scheduler_that_waits_for_io_and_far_timers_makes_no_context_switches),
        cmocka_unit_test(one_submission_wakes_one_worker),
        cmocka_unit_test(one_submission_wakes_one_worker_also_beside_a_long_step),
        cmocka_unit_test(dense_timers_share_their_wake_ups),
        cmocka_unit_test(default_worker_count_follows_the_affinity_mask),
        cmocka_unit_test(a_parked_worker_is_not_unparked_for_one_process_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
