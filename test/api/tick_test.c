/* tick_test.c - a scheduler without workers, which the loop of its host runs by filch_tick. */
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include <filch.h>

#include "port/thread.h"
#include "support/check.h"
#include "support/descriptors.h"
#include "support/manual_clock.h"
#include "support/until.h"

enum { HOLD = FILCH_CMD_USER };

static struct {
    atomic_uint_fast64_t steps, messages, cancels;
    atomic_bool          inside, release, held, sent;
    filch_receiver       receiver;
    filch_err            code[4];
    /* on_thread: number of steps on the thread of the test; elsewhere: on other threads */
    uint64_t  on_thread, elsewhere;
    pthread_t test_thread;
    uint64_t  slept, fired, ticks;
    filch_pid pid;
} seen;

static void count_step(void)
{
    if (pthread_equal(pthread_self(), seen.test_thread)) seen.on_thread++;
    else seen.elsewhere++;
    atomic_fetch_add(&seen.steps, 1);
}

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    seen.receiver = receiver;
    atomic_store(&seen.held, true);
    return FILCH_OK;
}

static filch_sched *begin(int32_t workers)
{
    memset(&seen, 0, sizeof seen);
    seen.test_thread = pthread_self();
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = workers;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, HOLD, hold, NULL));
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    return sched;
}

static bool is_readable(filch_sched *sched)
{
    struct pollfd fd = { .fd = filch_wake_fd(sched), .events = POLLIN };
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN) != 0;
}

/* Sleeps in poll() as a program with its own loop would, until the wake descriptor is readable or the next timer is
 * due. */
static void host_waits(filch_sched *sched)
{
    uint64_t        ns = filch_next_timeout(sched);
    struct pollfd   fd = { .fd = filch_wake_fd(sched), .events = POLLIN };
    struct timespec span = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    if (ns > FILCH_SECONDS(60)) span = (struct timespec){ .tv_sec = 60 };
    assert_true(ppoll(&fd, 1, &span, NULL) >= 0);
}

static filch_err counting_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    count_step();
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) atomic_fetch_add(&seen.messages, 1);
    }
    return filch_idle(out);
}

static const filch_type counting = { .name = "counting", .step = counting_step };

static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    count_step();
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_continue(out);
}

static const filch_type busy = { .name = "busy", .step = busy_step };

/* ---- a typical host ---- */

/* State of a process that spawns a child, sends to it, sleeps, and gets one message of a timer and three messages of a
 * ticker. */
typedef struct day {
    uint64_t  began_ns, slept, fired, ticks;
    filch_pid child;
} day;

static filch_err day_begins(day *d, filch_out *out)
{
    d->began_ns = fli_clock_ns();
    filch_err err = filch_spawn(filch_out_sched(out), &counting, NULL, &d->child);
    if (err == FILCH_OK) err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS(3));
    if (err == FILCH_OK) err = filch_yield_timer(out, 2, FILCH_MILLISECONDS(5));
    if (err == FILCH_OK) err = filch_yield_ticker(out, 3, FILCH_MILLISECONDS(2));
    return err == FILCH_OK ? filch_idle(out) : err;
}

static filch_err day_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    day         *d = self;
    filch_sched *sched = filch_out_sched(out);
    count_step();
    if (d->began_ns == 0) return day_begins(d, out);
    for (size_t i = 0; i < count; i++) {
        const filch_event *e = &events[i];
        uint64_t           after_ns = fli_clock_ns() - d->began_ns;
        if (e->type == FILCH_EVENT_YIELD && e->tag == 1) d->slept += after_ns >= FILCH_MILLISECONDS(3);
        if (e->type == FILCH_EVENT_MESSAGE && e->tag == 2) d->fired += after_ns >= FILCH_MILLISECONDS(5);
        if (e->type == FILCH_EVENT_MESSAGE && e->tag == 3) d->ticks += (uint64_t)filch_as_int(&e->data);
        filch_err err = filch_send(sched, d->child, filch_int((int64_t)i));
        if (err != FILCH_OK) return err;
    }
    if (d->slept == 0 || d->fired == 0 || d->ticks < 3) return filch_idle(out);
    seen.slept += d->slept;
    seen.fired += d->fired;
    seen.ticks += d->ticks;
    (void)!filch_cancel(sched, d->child);
    return filch_done(out, filch_none());
}

TEST(host_loop_runs_everything_without_a_thread)
{
    static const filch_type day_type = { .name = "day", .size = sizeof(day), .step = day_step };
    int                     threads = thread_count();
    filch_sched            *sched = begin(FILCH_NO_WORKERS);
    filch_stats             stats = FILCH_STATS_INIT;
    assert_true(filch_wake_fd(sched) >= 0);
    assert_true(filch_next_timeout(sched) == FILCH_FOREVER);
    for (int i = 0; i < 5; i++) ok(filch_spawn(sched, &day_type, NULL, NULL));
    assert_true(filch_next_timeout(sched) == 0);
    uint64_t laps = 0;
    do {
        host_waits(sched);
        ok(filch_tick(sched, 0, NULL));
        until(thread_count() <= threads);
        ok(filch_sched_stats(sched, &stats));
        laps++;
    } while (stats.alive > 0);
    same(seen.slept, 5);
    same(seen.fired, 5);
    assert_true(seen.ticks >= 15);
    same(seen.elsewhere, 0);
    same(stats.workers, 0);
    same(stats.timers, 0);
    assert_true(filch_next_timeout(sched) == FILCH_FOREVER);
    /* a loop that spins would make far more than 2000 iterations */
    assert_true(laps < 2000);
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
    until(thread_count() <= threads);
}

/* ---- the descriptor ---- */

static void send_one(void *arg)
{
    filch_sched *sched = arg;
    seen.code[0] = filch_send(sched, seen.pid, filch_int(1));
}

TEST(descriptor_becomes_readable_when_another_thread_sends)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    ok(filch_spawn(sched, &counting, NULL, &seen.pid));
    assert_true(is_readable(sched));
    ok(filch_tick(sched, 0, NULL));
    uint64_t rounds = scaled(300);
    for (uint64_t i = 1; i <= rounds; i++) {
        assert_false(is_readable(sched));
        assert_true(filch_next_timeout(sched) == FILCH_FOREVER);
        fli_thread thread;
        ok(fli_thread_start(&thread, "sender", send_one, sched));
        /* waits until `thread` sends, for at most a minute; returns at once if the message is already queued */
        host_waits(sched);
        fli_thread_join(&thread);
        assert_true(is_readable(sched));
        same(seen.code[0], FILCH_OK);
        ok(filch_tick(sched, 0, NULL));
        same(atomic_load(&seen.messages), i);
    }
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

static void send_many(void *arg)
{
    filch_sched *sched = arg;
    uint64_t     count = scaled(100000);
    for (uint64_t i = 0; i < count && seen.code[0] == FILCH_OK; i++) {
        seen.code[0] = filch_send(sched, seen.pid, filch_int(1));
        if (i % 64 == 0) yield_slice();
    }
    atomic_store(&seen.sent, true);
}

TEST(no_wake_up_is_lost_while_others_send_and_the_host_sleeps)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    uint64_t     count = scaled(100000), began_ns = fli_clock_ns();
    fli_thread   thread;
    ok(filch_spawn(sched, &counting, NULL, &seen.pid));
    ok(fli_thread_start(&thread, "sender", send_many, sched));
    while (atomic_load(&seen.messages) < count) {
        host_waits(sched); /* if a wake-up were lost, this call would sleep for a minute */
        ok(filch_tick(sched, 3, NULL));
    }
    fli_thread_join(&thread);
    same(seen.code[0], FILCH_OK);
    assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(55));
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

TEST(tick_keeps_to_its_limit_and_stays_readable_while_work_is_left)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    uint32_t     ran = 99;
    ok(filch_tick(sched, 5, &ran));
    same(ran, 0);
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &counting, NULL, NULL));
    ok(filch_tick(sched, 4, &ran));
    same(ran, 4);
    same(atomic_load(&seen.steps), 4);
    assert_true(is_readable(sched) && filch_next_timeout(sched) == 0);
    ok(filch_tick(sched, 1, NULL));
    assert_true(is_readable(sched) && filch_next_timeout(sched) == 0);
    ok(filch_tick(sched, 100, &ran));
    same(ran, 5);
    assert_false(is_readable(sched));
    assert_true(filch_next_timeout(sched) == FILCH_FOREVER);

    ok(filch_spawn(sched, &busy, NULL, NULL));
    ok(filch_tick(sched, 7, &ran));
    same(ran, 7);
    assert_true(is_readable(sched));
    ok(filch_tick(sched, 0, &ran)); /* a limit of 0 steps means 65536 steps */
    same(ran, 65536);
    ok(filch_tick(sched, UINT32_MAX, &ran)); /* also with the largest limit, a tick runs at most 65536 steps */
    same(ran, 65536);
    assert_true(is_readable(sched));
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

TEST(next_timeout_is_the_time_to_the_next_timer)
{
    static const filch_type day_type = { .name = "day", .size = sizeof(day), .step = day_step };
    filch_sched            *sched = begin(FILCH_NO_WORKERS);
    clock_stop();
    ok(filch_spawn(sched, &day_type, NULL, NULL));
    ok(filch_tick(sched, 1, NULL));
    ok(filch_tick(sched, 0, NULL));
    uint64_t ns = filch_next_timeout(sched);
    /* the ticker's period, plus at most one tick of the timer wheel */
    assert_in_range(ns, FILCH_MILLISECONDS(2), FILCH_MILLISECONDS(2) + FILCH_MICROSECONDS(200));
    clock_advance(FILCH_MILLISECONDS(1));
    assert_in_range(filch_next_timeout(sched), ns - FILCH_MILLISECONDS(1), ns);
    clock_go();
    same(filch_sched_stop(sched, 0, NULL), FILCH_EDEADLINE);
}

/* Init of a process that sleeps for the time in its args, and then ends. */
static filch_err sleeper_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(uint64_t *)self = (uint64_t)filch_as_int(args);
    return FILCH_OK;
}

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    if (count > 0) {
        seen.slept++;
        return filch_done(out, filch_none());
    }
    filch_err err = filch_yield_sleep(out, 1, *(uint64_t *)self);
    return err != FILCH_OK ? err : filch_wait(out);
}

static void spawn_sleeper(filch_sched *sched, uint64_t ns)
{
    static const filch_type sleeper = {
        .name = "sleeper", .size = sizeof(uint64_t), .init = sleeper_init, .step = sleeper_step
    };
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_int((int64_t)ns);
    ok(filch_spawn(sched, &sleeper, &options, NULL));
}

TEST(after_several_timers_at_once_the_host_may_sleep_a_little)
{
    enum { ROUNDS = 10000, GAP_NS = 150000 };
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    bool         held = false;
    /* On a slow machine the timers may fire one by one, or all three at once. Such a round proves nothing, so the test
     * makes another round. */
    for (unsigned i = 0; i < ROUNDS && !held; i++) {
        seen.slept = 0;
        spawn_sleeper(sched, 0);
        spawn_sleeper(sched, 0);
        spawn_sleeper(sched, FILCH_MICROSECONDS(100));
        ok(filch_tick(sched, 3, NULL));
        uint64_t armed_ns = fli_clock_ns(), before = seen.slept;
        while (fli_clock_ns() < armed_ns + FILCH_MICROSECONDS(40)) {}
        uint64_t began_ns = fli_clock_ns();
        ok(filch_tick(sched, 0, NULL));
        uint64_t until_ns = fli_clock_after(fli_clock_ns(), filch_next_timeout(sched));
        if (before == 0 && seen.slept == 2) {
            held = true;
            assert_true(until_ns >= began_ns + GAP_NS);
        }
        until(filch_tick(sched, 0, NULL) == FILCH_OK && seen.slept >= 3);
    }
    assert_true(held);
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

/* Yields SLEEPS sleeps in one step, and ends when all of them are completed. */
enum { SLEEPS = 5000 };
static filch_err dozing_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    for (uint64_t tag = 1; seen.slept == 0 && count == 0 && tag <= SLEEPS; tag++) {
        ok(filch_yield_sleep(out, tag, FILCH_MILLISECONDS(5)));
    }
    seen.slept += count;
    return seen.slept < SLEEPS ? filch_wait(out) : filch_done(out, filch_none());
}

/* A worker fires only as many timers at once as it expects processes to run before its next fairness pick. In this
 * test all timers wake one process, so one tick must fire all of them. */
TEST(one_tick_fires_all_timers_that_are_due)
{
    static const filch_type dozing = { .name = "dozing", .step = dozing_step };
    filch_sched            *sched = begin(FILCH_NO_WORKERS);
    ok(filch_spawn(sched, &dozing, NULL, NULL));
    ok(filch_tick(sched, 1, NULL));
    uint64_t armed_ns = fli_clock_ns();
    while (fli_clock_ns() < armed_ns + FILCH_MILLISECONDS(6)) {}
    ok(filch_tick(sched, 0, NULL));
    same(seen.slept, SLEEPS);
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

/* ---- which threads may call filch_tick() ---- */

static filch_err lingering_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    atomic_store(&seen.inside, true);
    while (!atomic_load(&seen.release)) yield_slice();
    return filch_done(out, filch_none());
}

static void tick_elsewhere(void *arg)
{
    seen.code[0] = filch_tick(arg, 0, NULL);
}

TEST(a_second_thread_that_ticks_gets_ebusy)
{
    static const filch_type lingering = { .name = "lingering", .step = lingering_step };
    filch_sched            *sched = begin(FILCH_NO_WORKERS);
    fli_thread              thread;
    ok(filch_spawn(sched, &lingering, NULL, NULL));
    ok(fli_thread_start(&thread, "ticker", tick_elsewhere, sched));
    until(atomic_load(&seen.inside));
    uint32_t ran = 99;
    same(filch_tick(sched, 0, &ran), FILCH_EBUSY);
    same(ran, 99);
    /* the other thread is inside filch_tick(), in a step */
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_EBUSY);
    atomic_store(&seen.release, true);
    fli_thread_join(&thread);
    same(seen.code[0], FILCH_OK);
    ok(filch_tick(sched, 0, NULL)); /* different threads may tick one after the other */
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

static filch_err ticking_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    seen.code[0] = filch_tick(filch_out_sched(out), 0, NULL);
    atomic_store(&seen.inside, true);
    return filch_done(out, filch_none());
}

static const filch_type ticking = { .name = "ticking", .step = ticking_step };

TEST(tick_inside_a_step_is_refused)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    ok(filch_spawn(sched, &ticking, NULL, NULL));
    ok(filch_tick(sched, 0, NULL));
    same(seen.code[0], FILCH_ESTATE);
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
}

TEST(scheduler_with_workers_is_not_ticked)
{
    filch_sched *sched = begin(1);
    same(filch_tick(sched, 0, NULL), FILCH_ESTATE);
    same(filch_wake_fd(sched), -1);
    assert_true(filch_next_timeout(sched) == FILCH_FOREVER);
    ok(filch_spawn(sched, &ticking, NULL, NULL));
    until(atomic_load(&seen.inside));
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
    same(seen.code[0], FILCH_ESTATE);
    same(filch_tick(NULL, 0, NULL), FILCH_EINVAL);
    same(filch_wake_fd(NULL), -1);
    assert_true(filch_next_timeout(NULL) == FILCH_FOREVER);
}

/* ---- stopping a scheduler without workers, on the calling thread ---- */

/* The process waits for a completion and ignores a cancel. */
static filch_err waiting_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *steps = self;
    count_step();
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) atomic_fetch_add(&seen.cancels, 1);
        if (events[i].type == FILCH_EVENT_YIELD) return filch_done(out, filch_none());
    }
    filch_err err = (*steps)++ == 0 ? filch_yield(out, HOLD, 1, filch_none()) : FILCH_OK;
    return err == FILCH_OK ? filch_wait(out) : err;
}

static const filch_type waiting = { .name = "waiting", .size = sizeof(uint64_t), .step = waiting_step };

static bool was_cancelled(void *ctx)
{
    (void)ctx;
    return atomic_load(&seen.cancels) > 0;
}

/* Completes the yield shortly after the cancel. The delay differs in each round, so that some completions arrive just
 * when the stopping thread goes to sleep. */
static void complete_after_cancel(void *arg)
{
    uint64_t round = *(uint64_t *)arg;
    atomic_store(&seen.inside, true);
    for (int i = 0; i < 100000 && !was_cancelled(NULL); i++) fli_thread_pause();
    bool in_time = until_or_late(was_cancelled, NULL);
    for (uint64_t i = 0; i < round % 64; i++) fli_thread_pause();
    seen.code[0] = in_time ? filch_complete(seen.receiver, 1, filch_none(), FILCH_OK) : FILCH_EDEADLINE;
}

/* On a cancel the process sleeps for 2 ms, then ends. */
static filch_err tidy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) return filch_idle(out);
    if (events[0].type != FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    filch_err err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS(2));
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(stop_without_workers_fires_timers_of_processes_that_clean_up)
{
    const filch_type type = { .name = "tidy", .step = tidy_step };
    filch_sched     *sched = begin(FILCH_NO_WORKERS);
    filch_report     report = FILCH_REPORT_INIT;
    uint64_t         began_ns = fli_clock_ns();
    ok(filch_spawn(sched, &type, NULL, NULL));
    ok(filch_tick(sched, 0, NULL));
    same(filch_sched_stop(sched, FILCH_SECONDS(50), &report), FILCH_OK);
    same(report.ended, 1);
    same(report.forced, 0);
    assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(40)); /* the stop did not wait for its deadline */
    filch_report_free(&report);
}

TEST(stop_runs_processes_to_their_end_and_gets_foreign_completions)
{
    uint64_t rounds = scaled(500), began_ns = fli_clock_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        filch_sched *sched = begin(FILCH_NO_WORKERS);
        fli_thread   thread;
        ok(filch_spawn(sched, &waiting, NULL, NULL));
        ok(filch_spawn(sched, &counting, NULL, NULL)); /* the process has not been stepped when the stop begins */
        ok(filch_tick(sched, 2, NULL));
        assert_true(atomic_load(&seen.held));
        ok(fli_thread_start(&thread, "answer", complete_after_cancel, &i));
        until(atomic_load(&seen.inside));
        filch_report report = FILCH_REPORT_INIT;
        /* filch_sched_close() instead of filch_sched_stop(), because the other thread may still be inside
         * filch_complete() and use the scheduler. */
        same(filch_sched_close(sched, FILCH_SECONDS(60), &report), FILCH_OK);
        same(report.ended, 2);
        filch_report_free(&report);
        fli_thread_join(&thread);
        same(seen.code[0], FILCH_OK);
        same(seen.elsewhere, 0);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        /* If the stopping thread missed a completion, it would sleep for a minute. */
        assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(55));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_loop_runs_everything_without_a_thread),
        cmocka_unit_test(descriptor_becomes_readable_when_another_thread_sends),
        cmocka_unit_test(no_wake_up_is_lost_while_others_send_and_the_host_sleeps),
        cmocka_unit_test(tick_keeps_to_its_limit_and_stays_readable_while_work_is_left),
        cmocka_unit_test(next_timeout_is_the_time_to_the_next_timer),
        cmocka_unit_test(after_several_timers_at_once_the_host_may_sleep_a_little),
        cmocka_unit_test(one_tick_fires_all_timers_that_are_due),
        cmocka_unit_test(a_second_thread_that_ticks_gets_ebusy),
        cmocka_unit_test(tick_inside_a_step_is_refused),
        cmocka_unit_test(scheduler_with_workers_is_not_ticked),
        cmocka_unit_test(stop_without_workers_fires_timers_of_processes_that_clean_up),
        cmocka_unit_test(stop_runs_processes_to_their_end_and_gets_foreign_completions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
