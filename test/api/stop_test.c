/* stop_test.c - the promises of filch_sched_stop and filch_sched_close: every process ends, whatever its behaviour, and
 * while other threads keep calling. */
#include <stdlib.h>
#include <string.h>

#include <filch.h>

#include "port/thread.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/descriptors.h"
#include "support/gate.h"
#include "support/until.h"

enum { HOLD = FILCH_CMD_USER }; /* a command that is not completed: its handler keeps the receiver */

/* Counts and flags set by the processes of a test. Reset by begin(). */
static struct {
    atomic_uint_fast64_t opened, closed, steps, cancels, cancels_again, exits, exit_error;
    /* moved: number of processes that storm() has spawned; freed: number of calls of free_moved() */
    atomic_uint_fast64_t moved, freed;
    atomic_bool          inside, release;
    atomic_int           code[8];
    atomic_bool          holding, held;
    filch_receiver       receiver; /* receiver of the first HOLD yield; valid if `held` is true */
    filch_pid            peer;
    test_alloc           alloc;
} seen;

/* State of the processes; too large for a control block, so that each state is allocated separately. */
typedef struct instance {
    uint64_t state, filler[7];
} instance;

static filch_err open_instance(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method, (void)args;
    ((instance *)self)->state = 1;
    atomic_fetch_add(&seen.opened, 1);
    return FILCH_OK;
}

static void close_instance(void *self)
{
    instance *me = self;
    if (me->state == 1)
        atomic_fetch_add(&seen.closed, 1); /* changes the state, so that a second close would not be counted */
    me->state = 0;
}

static bool has(const filch_event *events, size_t count, int32_t type)
{
    bool found = false;
    for (size_t i = 0; i < count; i++) found |= events[i].type == type;
    return found;
}

static bool cancelled(instance *self, const filch_event *events, size_t count)
{
    bool cancel = has(events, count, FILCH_EVENT_CANCEL);
    atomic_fetch_add(&seen.steps, 1);
    if (cancel) atomic_fetch_add(self->filler[6]++ == 0 ? &seen.cancels : &seen.cancels_again, 1);
    return cancel;
}

/* ---- behaviours ---- */

static filch_err ends_on_cancel_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    return cancelled(self, events, count) ? filch_done(out, filch_int(7)) : filch_idle(out);
}

static filch_err ignores_cancel_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)cancelled(self, events, count);
    return filch_idle(out);
}

static filch_err blocked_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    instance *me = self;
    (void)cancelled(self, events, count);
    if (has(events, count, FILCH_EVENT_YIELD)) return filch_done(out, filch_none());
    if (me->filler[0]++ == 0) ok(filch_yield(out, HOLD, 77, filch_none()));
    return filch_wait(out);
}

static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)cancelled(self, events, count);
    return filch_continue(out);
}

static const filch_type ends_on_cancel = { .name = "polite",
                                           .size = sizeof(instance),
                                           .init = open_instance,
                                           .step = ends_on_cancel_step,
                                           .close = close_instance };
static const filch_type ignores_cancel = { .name = "deaf",
                                           .size = sizeof(instance),
                                           .init = open_instance,
                                           .step = ignores_cancel_step,
                                           .close = close_instance };
static const filch_type blocked = {
    .name = "blocked", .size = sizeof(instance), .init = open_instance, .step = blocked_step, .close = close_instance
};
static const filch_type busy = {
    .name = "busy", .size = sizeof(instance), .init = open_instance, .step = busy_step, .close = close_instance
};

/* Step of a process that spawns the next process of its type, and then ends. */
static filch_err        breeder_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type breeder = {
    .name = "breeder", .size = sizeof(instance), .init = open_instance, .step = breeder_step, .close = close_instance
};
static filch_err breeder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)cancelled(self, events, count);
    filch_err err = filch_spawn(filch_out_sched(out), &breeder, NULL, NULL);
    return err == FILCH_OK || err == FILCH_ECLOSED ? filch_done(out, filch_none()) : err;
}

/* The process stays in its first step until the test releases it. Then it uses its state and its scheduler, both of
 * which must still exist. */
static filch_err stuck_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    instance *me = self;
    (void)cancelled(self, events, count);
    atomic_store(&seen.inside, true);
    while (!atomic_load(&seen.release)) yield_slice();
    me->filler[0] = me->state;
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_err        err = filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_str("still here, and well fed"));
    return err == FILCH_OK ? filch_idle(out) : err;
}

static const filch_type stuck = {
    .name = "stuck", .size = sizeof(instance), .init = open_instance, .step = stuck_step, .close = close_instance
};

/* ---- functions that begin and end a test ---- */

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    if (atomic_exchange(&seen.holding, true)) return FILCH_OK;
    seen.receiver = receiver;
    atomic_store(&seen.held, true);
    return FILCH_OK;
}

static void on_exit_count(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    atomic_fetch_add(&seen.exits, 1);
    atomic_store(&seen.exit_error, (uint64_t)error);
}

static filch_sched *begin(int32_t workers)
{
    memset(&seen, 0, sizeof seen);
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, HOLD, hold, NULL));
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = workers;
    options.registry = registry;
    options.alloc = test_alloc_fn;
    options.alloc_user = &seen.alloc;
    options.work_threads = 1;
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(registry);
    return sched;
}

static filch_pid start(filch_sched *sched, const filch_type *type)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    options.on_exit = on_exit_count;
    ok(filch_spawn(sched, type, &options, &pid));
    return pid;
}

static int32_t state_of(filch_sched *sched, filch_pid pid)
{
    filch_info info = { .size = sizeof info };
    return filch_inspect(sched, pid, &info) == FILCH_OK ? info.state : FILCH_STATE_COMPLETE;
}

static const filch_straggler *find(const filch_report *report, filch_pid pid)
{
    for (size_t i = 0; i < report->count; i++) {
        if (report->stragglers[i].pid.serial == pid.serial) return &report->stragglers[i];
    }
    fail_msg("the report does not name process %#llx", (unsigned long long)pid.serial);
    return NULL;
}

static void end(void)
{
    same(atomic_load(&seen.closed), atomic_load(&seen.opened));
    test_alloc_balanced(&seen.alloc);
}

/* ---- the clock of the stopping thread ---- */

/* While `may_pass` is set, the clock of this thread stands still until may_pass(ctx) returns true. So the deadline of a
 * stop comes after the events that a test waits for, however long the machine does not run the workers. The other
 * threads have the clock of the machine. */
typedef struct held_clock {
    bool (*may_pass)(void *ctx);
    void    *ctx;
    uint64_t now_ns, steps; /* `steps`: seen.steps when the clock was last read */
    uint64_t looks;         /* number of times that the clock was read, weighted by their cost */
    unsigned pauses;        /* number of times in a row that the clock was read without a step in between */
    /* How far the clock advances when may_pass() has returned true. If this is the deadline of the stop, the deadline
     * passes at once: the stop does not set ASK (see stop.c) again. */
    uint64_t advance_ns;
    /* true: the clock advances by advance_ns whenever may_pass() returns true. false: it does so only the first time,
     * and then continues by itself. */
    bool stepwise;
    bool passes;
} held_clock;
static _Thread_local held_clock held;

uint64_t __real_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void)
{
    if (held.may_pass == NULL) return __real_fli_clock_ns();
    if (held.passes && !held.stepwise) {
        uint64_t now_ns = __real_fli_clock_ns();
        return now_ns > held.now_ns ? now_ns : held.now_ns;
    }
    if (held.may_pass(held.ctx)) {
        held.now_ns += held.advance_ns;
        held.passes = true;
        return held.now_ns;
    }
    uint64_t steps = atomic_load(&seen.steps);
    held.pauses = steps == held.steps ? held.pauses + 1 : 0;
    held.steps = steps;
    held.looks += held.pauses > 0 ? 50 : 1;
    if (held.pauses > 0) until_pause(held.pauses);
    /* Gives up after many seconds of CPU time: the clock continues, and clock_go() fails the test. */
    if (held.looks > 3000000) held.may_pass = NULL;
    return held.now_ns;
}

/* Stops the clock of this thread, until clock_go(). */
static void clock_hold(bool (*may_pass)(void *ctx), void *ctx, uint64_t advance_ns, bool stepwise)
{
    held = (held_clock){ .may_pass = may_pass, .ctx = ctx, .advance_ns = advance_ns, .stepwise = stepwise };
    held.now_ns = __real_fli_clock_ns();
}

/* Lets the clock of this thread continue. Fails the test if may_pass() has never returned true, because then the stop
 * did not wait for the events. */
static void clock_go(void)
{
    held.may_pass = NULL;
    assert_true(held.passes);
}

/* What a stop must have done before its deadline may come: `ended` processes have ended, `cancels` cancels were
 * delivered, and the processes `idle` and `blocked` are idle and blocked again. */
typedef struct awaited {
    filch_sched *sched;
    uint64_t     ended, cancels;
    filch_pid    idle, blocked; /* a serial of 0: none */
} awaited;

static bool is_done(void *ctx)
{
    const awaited *a = ctx;
    filch_stats    stats = FILCH_STATS_INIT;
    /* `ended` is counted after on_exit has returned */
    if (filch_sched_stats(a->sched, &stats) != FILCH_OK || stats.ended < a->ended) return false;
    if (atomic_load(&seen.cancels) < a->cancels) return false;
    if (a->idle.serial != 0 && state_of(a->sched, a->idle) != FILCH_STATE_IDLE) return false;
    return a->blocked.serial == 0 || state_of(a->sched, a->blocked) == FILCH_STATE_BLOCKED;
}

/* Stops the scheduler, with a deadline that comes when is_done() returns true. */
static filch_err stop_when_done(filch_sched *sched, awaited a, filch_report *report)
{
    a.sched = sched;
    clock_hold(is_done, &a, FILCH_MILLISECONDS(50), false);
    filch_err err = filch_sched_stop(sched, FILCH_MILLISECONDS(50), report);
    clock_go();
    return err;
}

/* ---- stops of processes that end by themselves ---- */

static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 2, 5 };
#define EACH_WORKER_COUNT(w) for (size_t w = 0; w < sizeof worker_counts / sizeof *worker_counts; w++)
/* The worker counts FILCH_NO_WORKERS and 2, for tests in which a stop waits 2 s (UNKNOWN_NS in src/sched/stuck.c) for a
 * spawn that does not return. */
#define SOME_WORKER_COUNTS(w) for (size_t w = 0; w < sizeof worker_counts / sizeof *worker_counts; w += 2)

TEST(stopping_an_empty_scheduler_frees_everything)
{
    EACH_WORKER_COUNT(w)
    {
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_stop(begin(worker_counts[w]), FILCH_SECONDS(10), &report), FILCH_OK);
        assert_true(report.ended == 0 && report.forced == 0 && report.stuck == 0 && report.count == 0);
        filch_report_free(&report);
        end();
    }
}

TEST(processes_that_end_on_cancel_are_counted_and_stop_is_ok)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 300; i++) (void)start(sched, &ends_on_cancel);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_stop(sched, FILCH_SECONDS(30), &report), FILCH_OK);
        assert_true(report.ended == 300 && report.forced == 0 && report.stuck == 0 && report.count == 0);
        filch_report_free(&report);
        same(atomic_load(&seen.cancels), 300);
        same(atomic_load(&seen.exits), 300);
        same(atomic_load(&seen.exit_error), FILCH_OK);
        end();
    }
}

TEST(processes_that_keep_spawning_do_not_outlive_stop)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 4; i++) ok(filch_spawn(sched, &breeder, NULL, NULL));
        if (worker_counts[w] > 0) until(atomic_load(&seen.steps) > 100);
        else ok(filch_tick(sched, 100, NULL));
        /* Spawns succeed until the deadline. After the deadline a spawn is refused, or the stop kills the new
         * process. */
        filch_err err = filch_sched_stop(sched, FILCH_MILLISECONDS(20), NULL);
        assert_true(err == FILCH_OK || err == FILCH_EDEADLINE);
        end();
    }
}

/* ---- stops of processes that do not end by themselves ---- */

TEST(report_names_each_straggler_and_what_it_waited_for)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        filch_pid    idle = start(sched, &ignores_cancel), waits = start(sched, &blocked);
        if (worker_counts[w] > 0) {
            until(state_of(sched, idle) == FILCH_STATE_IDLE && state_of(sched, waits) == FILCH_STATE_BLOCKED);
        } else {
            ok(filch_tick(sched, 0, NULL));
        }
        filch_pid runs = start(sched, &busy);
        (void)start(sched, &ends_on_cancel);
        filch_report report = FILCH_REPORT_INIT;
        same(stop_when_done(sched, (awaited){ .ended = 1, .cancels = 4, .idle = idle, .blocked = waits }, &report),
             FILCH_EDEADLINE);
        same(report.ended, 1);
        same(report.forced, 3);
        same(report.stuck, 0);
        same(report.count, 3);
        same(report.omitted, 0);

        const filch_straggler *s = find(&report, idle);
        assert_string_equal(s->name, "deaf");
        same(s->state, FILCH_STATE_IDLE);
        assert_true(s->waiting == 0 && s->command == 0);
        s = find(&report, waits);
        assert_string_equal(s->name, "blocked");
        same(s->state, FILCH_STATE_BLOCKED);
        assert_true(s->waiting == 1 && s->command == HOLD && s->tag == 77);
        s = find(&report, runs);
        assert_string_equal(s->name, "busy");
        same(s->state, FILCH_STATE_READY);
        filch_report_free(&report);
        assert_null(report.stragglers);
        end();
    }
}

TEST(forced_processes_are_closed_once_and_end_with_ecancelled)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 40; i++) (void)start(sched, i % 2 == 0 ? &ignores_cancel : &blocked);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_stop(sched, FILCH_MILLISECONDS(5), &report), FILCH_EDEADLINE);
        assert_true(report.ended == 0 && report.forced == 40 && report.count == 40);
        filch_report_free(&report);
        same(atomic_load(&seen.exits), 40);
        same(atomic_load(&seen.exit_error), FILCH_ECANCELLED);
        end();
    }
}

/* Returns true when every process has got its cancel, and the processes that are always ready have been stepped since
 * the last call that returned true. */
static bool has_stepped(void *ctx)
{
    uint64_t *last = ctx, steps = atomic_load(&seen.steps);
    if (atomic_load(&seen.cancels) < 2013 || steps < *last + 6) return false;
    *last = steps;
    return true;
}

TEST(stop_delivers_its_cancel_once)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 2000; i++) (void)start(sched, &ignores_cancel);
        for (int i = 0; i < 10; i++) (void)start(sched, &blocked);
        /* These processes are always ready. They were spawned last, so the stop cancels them last. */
        for (int i = 0; i < 3; i++) (void)start(sched, &busy);
        if (worker_counts[w] > 0) until(atomic_load(&seen.steps) > 4000);
        /* the stop sets ASK (see stop.c) again several times in these 50 ms */
        uint64_t last = 0;
        clock_hold(has_stepped, &last, FILCH_MILLISECONDS(1), true);
        same(filch_sched_stop(sched, FILCH_MILLISECONDS(50), NULL), FILCH_EDEADLINE);
        clock_go();
        same(atomic_load(&seen.cancels), 2013);
        same(atomic_load(&seen.cancels_again), 0);
        end();
    }
}

TEST(deadline_zero_ends_everything_at_once)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 50; i++) (void)start(sched, i % 2 == 0 ? &ends_on_cancel : &busy);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_stop(sched, 0, &report), FILCH_EDEADLINE);
        same(report.ended + report.forced, 50);
        assert_true(report.forced >= 25);
        same(report.count, report.forced);
        filch_report_free(&report);
        end();
    }
}

TEST(no_step_runs_and_no_thread_is_left_after_stop)
{
    int          threads = thread_count();
    filch_sched *sched = begin(3);
    for (int i = 0; i < 20; i++) ok(filch_spawn(sched, i % 2 == 0 ? &busy : &breeder, NULL, NULL));
    until(atomic_load(&seen.steps) > 1000);
    same(filch_sched_stop(sched, FILCH_MILLISECONDS(20), NULL), FILCH_EDEADLINE);
    uint64_t steps = atomic_load(&seen.steps);
    until(thread_count() <= threads); /* the system may list a joined thread for a moment */
    same(atomic_load(&seen.steps), steps);
    end();
}

static filch_err timed_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    instance *me = self;
    if (cancelled(self, events, count)) return filch_done(out, filch_none());
    if (me->filler[0]++ == 0) {
        ok(filch_yield_sleep(out, 1, FILCH_SECONDS(3600)));
        ok(filch_yield_timer(out, 2, FILCH_SECONDS(3600)));
        ok(filch_yield_ticker(out, 3, FILCH_SECONDS(3600)));
        ok(filch_yield_ticker(out, 4, FILCH_MILLISECONDS(1)));
    }
    return filch_idle(out);
}

static const filch_type timed = {
    .name = "timed", .size = sizeof(instance), .init = open_instance, .step = timed_step, .close = close_instance
};

TEST(timers_do_not_keep_stop_waiting)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        for (int i = 0; i < 10; i++) (void)start(sched, &timed);
        filch_stats stats = FILCH_STATS_INIT;
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(filch_sched_stats(sched, &stats) == FILCH_OK && stats.timers >= 30);
        uint64_t began_ns = fli_clock_ns();
        same(filch_sched_stop(sched, FILCH_SECONDS(600), NULL), FILCH_OK);
        assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(60));
        end();
    }
}

/* ---- stops while a step does not return ---- */

TEST(a_step_that_never_returns_is_reported_and_left_until_a_later_stop)
{
    filch_sched *sched = begin(2);
    filch_pid    pid = start(sched, &stuck);
    until(atomic_load(&seen.inside));
    (void)start(sched, &ends_on_cancel);
    filch_pid forced = start(sched, &ignores_cancel);

    filch_report report = FILCH_REPORT_INIT;
    awaited      expected = { .ended = 1, .cancels = 2, .idle = forced };
    same(stop_when_done(sched, expected, &report), FILCH_EBUSY);
    assert_true(report.ended == 1 && report.forced == 1 && report.stuck == 1 && report.count == 2);
    const filch_straggler *s = find(&report, pid);
    assert_string_equal(s->name, "stuck");
    same(s->state, FILCH_STATE_RUNNING);
    same(find(&report, forced)->state, FILCH_STATE_IDLE);
    filch_report_free(&report);
    same(atomic_load(&seen.closed), 2);

    /* A second call while nothing has changed returns equal results and counts no process twice. */
    report = (filch_report)FILCH_REPORT_INIT;
    same(filch_sched_stop(sched, 0, &report), FILCH_EBUSY);
    assert_true(report.ended == 0 && report.forced == 0 && report.stuck == 1 && report.count == 1);
    filch_report_free(&report);

    atomic_store(&seen.release, true);
    report = (filch_report)FILCH_REPORT_INIT;
    same(filch_sched_stop(sched, FILCH_SECONDS(30), &report), FILCH_EDEADLINE);
    assert_true(report.ended == 0 && report.forced == 1 && report.stuck == 0 && report.count == 1);
    same(find(&report, pid)->pid.serial, pid.serial);
    filch_report_free(&report);
    end();
}

TEST(one_stuck_step_does_not_keep_the_others_from_ending)
{
    /* the only worker stays in a step, so the stopping thread must end the other processes */
    filch_sched *sched = begin(1);
    (void)start(sched, &stuck);
    until(atomic_load(&seen.inside));
    for (int i = 0; i < 100; i++) (void)start(sched, &ignores_cancel);
    filch_report report = FILCH_REPORT_INIT;
    same(filch_sched_close(sched, 0, &report), FILCH_EBUSY);
    assert_true(report.forced == 100 && report.stuck == 1 && report.count == 101);
    filch_report_free(&report);
    same(atomic_load(&seen.closed), 100);
    atomic_store(&seen.release, true);
    same(filch_sched_stop(sched, FILCH_SECONDS(30), NULL), FILCH_EDEADLINE);
    end();
}

/* ---- blocking work ---- */

static filch_err work_stuck(void *arg, filch_data *result)
{
    (void)arg;
    atomic_store(&seen.inside, true);
    while (!atomic_load(&seen.release)) yield_slice();
    *result = filch_int(1);
    return FILCH_OK;
}

/* The process yields blocking work. After a cancel it continues to wait for the work, and ends with the error of the
 * work. */
static filch_err worker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    instance *me = self;
    (void)cancelled(self, events, count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD)
            return events[i].error != 0 ? events[i].error : filch_done(out, filch_none());
    }
    if (me->filler[0]++ == 0) ok(filch_yield_work(out, 5, work_stuck, NULL));
    return filch_wait(out);
}

static const filch_type works = {
    .name = "works", .size = sizeof(instance), .init = open_instance, .step = worker_step, .close = close_instance
};

TEST(work_function_that_does_not_return_counts_as_stuck)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        filch_pid    pid = start(sched, &works);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.inside));
        filch_report report = FILCH_REPORT_INIT;
        same(stop_when_done(sched, (awaited){ .cancels = 1, .blocked = pid }, &report), FILCH_EBUSY);
        assert_true(report.stuck == 1 && report.forced == 1 && report.count == 1);
        const filch_straggler *s = find(&report, pid);
        same(s->state, FILCH_STATE_BLOCKED);
        assert_true(s->command == FILCH_CMD_WORK && s->tag == 5);
        filch_report_free(&report);
        atomic_store(&seen.release, true);
        same(filch_sched_stop(sched, FILCH_SECONDS(30), NULL), FILCH_EDEADLINE);
        end();
    }
}

TEST(work_that_has_not_begun_at_the_deadline_is_dropped)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]); /* the thread pool of begin() has one thread */
        filch_pid    running = start(sched, &works);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.inside));
        filch_pid queued = start(sched, &works);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(state_of(sched, queued) == FILCH_STATE_BLOCKED);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_close(sched, FILCH_MILLISECONDS(20), &report), FILCH_EBUSY);
        assert_true(report.forced == 2 && report.stuck == 1 && report.jobs == 1 && report.running_count == 1);
        same(report.running[0].pid.serial, running.serial);
        assert_string_equal(report.running[0].name, "works");
        assert_true(report.running[0].command == FILCH_CMD_WORK && report.running[0].tag == 5);
        filch_report_free(&report);
        assert_null(report.running);
        same(atomic_load(&seen.exits), 2);
        filch_stats stats = FILCH_STATS_INIT;
        ok(filch_sched_stats(sched, &stats));
        same(stats.completions, 0);
        same(stats.alive, 0);
        atomic_store(&seen.release, true);
        same(filch_sched_stop(sched, FILCH_SECONDS(30), NULL), FILCH_EDEADLINE);
        end();
    }
}

/* ---- which threads may stop a scheduler, and when ---- */

static filch_err stops_handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    atomic_store(&seen.code[2], filch_sched_stop(receiver.sched, 0, NULL));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_err stops_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    filch_sched *sched = filch_out_sched(out);
    if (has(events, count, FILCH_EVENT_YIELD)) return filch_done(out, filch_none());
    atomic_store(&seen.code[0], filch_sched_stop(sched, 0, NULL));
    atomic_store(&seen.code[1], filch_sched_close(sched, FILCH_SECONDS(1), NULL));
    ok(filch_yield(out, HOLD, 1, filch_none()));
    return filch_wait(out);
}

static void stops_on_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid, (void)error, (void)result;
    atomic_store(&seen.code[3], filch_sched_stop(user, 0, NULL));
    atomic_store(&seen.inside, true);
}

TEST(stop_from_inside_is_refused)
{
    static const filch_type stops = { .name = "stops", .step = stops_step };
    EACH_WORKER_COUNT(w)
    {
        memset(&seen, 0, sizeof seen);
        filch_options options = FILCH_OPTIONS_INIT;
        options.workers = worker_counts[w];
        ok(filch_registry_create(&options.registry));
        ok(filch_registry_add(options.registry, HOLD, stops_handler, NULL));
        filch_sched *sched;
        ok(filch_sched_create(&sched, &options));
        filch_registry_destroy(options.registry);
        filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
        spawn.on_exit = stops_on_exit;
        spawn.on_exit_user = sched;
        ok(filch_spawn(sched, &stops, &spawn, NULL));
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.inside));
        for (int i = 0; i < 4; i++) same(atomic_load(&seen.code[i]), FILCH_ESTATE);
        same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
    }
}

/* The scheduler that the functions below try to stop, and another one without workers. */
static filch_sched *to_stop, *aside;

static void try_stop(int code)
{
    atomic_store(&seen.code[code], filch_sched_stop(to_stop, 0, NULL));
}

static filch_err stopping_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method;
    try_stop((int)filch_as_int(args));
    return FILCH_OK;
}

static filch_err ends_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static const filch_type stops_in_init = { .name = "stops in init", .init = stopping_init, .step = ends_step };

static filch_err spawn_that_stops(filch_sched *sched, int code)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_int(code);
    return filch_spawn(sched, &stops_in_init, &options, NULL);
}

static filch_err stops_other_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    try_stop(3);
    return filch_done(out, filch_none());
}

static void stopping_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)bytes, (void)size;
    try_stop(5);
    atomic_store(&seen.inside, true);
}

/* A work function. Its process ends before the function returns, so a thread of the pool frees the result. */
static filch_err stopping_work(void *arg, filch_data *result)
{
    static char              byte;
    static const filch_type  stops_other = { .name = "stops other", .step = stops_other_step };
    const filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    (void)arg;
    until(atomic_load(&seen.exits) == 1);
    try_stop(0);
    atomic_store(&seen.code[1], filch_sched_close(to_stop, 0, NULL));
    atomic_store(&seen.code[2], filch_sched_stop_with(to_stop, &options, NULL));
    ok(filch_spawn(aside, &stops_other, NULL, NULL));
    ok(filch_tick(aside, 0, NULL));
    ok(spawn_that_stops(aside, 4));
    *result = filch_move(&byte, 1, stopping_free);
    return FILCH_OK;
}

static filch_err works_and_ends_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    ok(filch_yield_work(out, 1, stopping_work, NULL));
    return filch_done(out, filch_none());
}

TEST(stop_from_a_work_function_of_the_scheduler_is_refused)
{
    static const filch_type works_and_ends = { .name = "works and ends", .step = works_and_ends_step };
    EACH_WORKER_COUNT(w)
    {
        filch_options none = FILCH_OPTIONS_INIT;
        none.workers = FILCH_NO_WORKERS;
        ok(filch_sched_create(&aside, &none));
        to_stop = begin(worker_counts[w]);
        (void)start(to_stop, &works_and_ends);
        if (worker_counts[w] < 0) ok(filch_tick(to_stop, 0, NULL));
        until(atomic_load(&seen.inside));
        for (int i = 0; i < 6; i++) same(atomic_load(&seen.code[i]), FILCH_ESTATE);
        ok(filch_sched_stop(to_stop, FILCH_SECONDS(60), NULL));
        end();
        ok(filch_sched_stop(aside, FILCH_SECONDS(60), NULL));
    }
}

static filch_err stops_while_spawning_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    ok(spawn_that_stops(to_stop, 1));
    atomic_store(&seen.inside, true);
    return filch_done(out, filch_none());
}

TEST(stop_from_the_init_of_a_spawn_is_refused)
{
    static const filch_type stops_while_spawning = { .name = "stops while spawning",
                                                     .step = stops_while_spawning_step };
    SOME_WORKER_COUNTS(w)
    {
        to_stop = begin(worker_counts[w]);
        ok(spawn_that_stops(to_stop, 0));
        same(atomic_load(&seen.code[0]), FILCH_ESTATE);
        filch_sched *other; /* a worker of another scheduler is a foreign thread for `to_stop` */
        ok(filch_sched_create(&other, NULL));
        ok(filch_spawn(other, &stops_while_spawning, NULL, NULL));
        until(atomic_load(&seen.inside));
        same(atomic_load(&seen.code[1]), FILCH_ESTATE);
        ok(filch_sched_stop(other, FILCH_SECONDS(60), NULL));
        /* after the spawn this thread may stop the scheduler */
        ok(filch_sched_stop(to_stop, FILCH_SECONDS(60), NULL));
        end();
    }
}

TEST(bad_arguments_to_stop_change_nothing)
{
    filch_sched *sched = begin(1);
    filch_report report = { .size = 1 };
    same(filch_sched_stop(NULL, 0, NULL), FILCH_EINVAL);
    same(filch_sched_close(NULL, 0, NULL), FILCH_EINVAL);
    same(filch_sched_stop(sched, 0, &report), FILCH_EINVAL);
    filch_report_free(NULL);
    (void)start(sched, &ends_on_cancel);
    same(filch_sched_stop(sched, FILCH_SECONDS(10), NULL), FILCH_OK);
    end();
}

typedef struct closing {
    filch_sched *sched;
    uint64_t     deadline_ns;
    filch_err    err;
    filch_report report;
    fli_thread   thread;
} closing;

static void close_in_background(void *arg)
{
    closing *c = arg;
    c->report = (filch_report)FILCH_REPORT_INIT;
    c->err = filch_sched_close(c->sched, c->deadline_ns, &c->report);
}

static void close_begin(closing *c, filch_sched *sched, uint64_t deadline_ns)
{
    *c = (closing){ .sched = sched, .deadline_ns = deadline_ns };
    ok(fli_thread_start(&c->thread, "closer", close_in_background, c));
}

static filch_err close_end(closing *c)
{
    fli_thread_join(&c->thread);
    filch_report_free(&c->report);
    return c->err;
}

static filch_err refuse_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method, (void)args;
    return FILCH_EUSER;
}

/* Returns true if the scheduler is open. Changes nothing. */
static bool is_open(filch_sched *sched)
{
    static const filch_type refuses = { .init = refuse_init, .step = ends_on_cancel_step };
    return filch_spawn(sched, &refuses, NULL, NULL) != FILCH_ECLOSED;
}

TEST(a_second_thread_that_stops_gets_ebusy)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        (void)start(sched, &blocked);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.held));
        closing c;
        close_begin(&c, sched, FILCH_SECONDS(60));
        until(!is_open(sched));
        same(filch_sched_close(sched, 0, NULL), FILCH_EBUSY);
        same(filch_sched_stop(sched, FILCH_SECONDS(60), NULL), FILCH_EBUSY);
        if (worker_counts[w] < 0) same(filch_tick(sched, 0, NULL), FILCH_EBUSY);
        ok(filch_complete(seen.receiver, 77, filch_none(), FILCH_OK));
        same(close_end(&c), FILCH_OK);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        end();
    }
}

TEST(calls_during_and_after_close_return_the_documented_codes)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        filch_pid    pid = start(sched, &blocked);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.held));
        ok(filch_register(sched, "name", pid));
        ok(filch_join(sched, "group", pid));
        closing c;
        close_begin(&c, sched, FILCH_SECONDS(60));
        until(!is_open(sched));
        filch_package package = { .to = pid, .data = filch_int(1) };
        same(filch_send(sched, pid, filch_int(1)), FILCH_ECLOSED);
        same(filch_send_name(sched, "name", filch_int(1)), FILCH_ECLOSED);
        same(filch_broadcast(sched, "group", filch_int(1), NULL), FILCH_ECLOSED);
        ok(filch_join(sched, "group", pid));
        same(filch_deliver(sched, &package), FILCH_ECLOSED);
        same(filch_spawn(sched, &ends_on_cancel, NULL, NULL), FILCH_ECLOSED);
        same(filch_cancel(sched, pid), FILCH_OK);
        assert_true(state_of(sched, pid) != FILCH_STATE_COMPLETE);
        until(state_of(sched, pid) == FILCH_STATE_BLOCKED);
        same(filch_complete(seen.receiver, 77, filch_none(), FILCH_OK), FILCH_OK);
        same(close_end(&c), FILCH_OK);

        same(filch_send(sched, pid, filch_int(1)), FILCH_ECLOSED);
        same(filch_broadcast(sched, "group", filch_int(1), NULL), FILCH_ECLOSED);
        same(filch_deliver(sched, &package), FILCH_ECLOSED);
        same(filch_spawn(sched, &ends_on_cancel, NULL, NULL), FILCH_ECLOSED);
        same(filch_complete(seen.receiver, 77, filch_none(), FILCH_OK), FILCH_ECLOSED);
        same(filch_cancel(sched, pid), FILCH_EDEAD);
        same(filch_terminate(sched, pid), FILCH_EDEAD);
        if (worker_counts[w] < 0) {
            same(filch_tick(sched, 0, NULL), FILCH_ECLOSED);
            assert_true(filch_next_timeout(sched) == FILCH_FOREVER);
        }
        filch_stats stats = FILCH_STATS_INIT;
        ok(filch_sched_stats(sched, &stats));
        assert_true(stats.alive == 0 && stats.spawned == 1 && stats.ended == 1);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_close(sched, 0, &report), FILCH_OK); /* closing a closed scheduler has no effect */
        assert_true(report.ended == 0 && report.forced == 0 && report.count == 0);
        filch_report_free(&report);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        end();
    }
}

/* On a cancel the process makes every call that is still allowed, and then yields blocking work. */
static filch_err last_words_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        atomic_store(&seen.code[3], events[i].error);
        return filch_done(out, filch_none());
    }
    if (!cancelled(self, events, count)) return filch_idle(out);
    atomic_store(&seen.code[0], filch_spawn(sched, &ends_on_cancel, NULL, NULL));
    atomic_store(&seen.code[1], filch_send(sched, filch_ctx_self(filch_out_ctx(out)), filch_int(1)));
    atomic_store(&seen.code[2], filch_send(sched, seen.peer, filch_str("farewell")));
    ok(filch_yield_work(out, 9, work_stuck, NULL));
    return filch_wait(out);
}

TEST(processes_may_still_send_spawn_and_block_while_closing)
{
    static const filch_type last_words = { .name = "last words", .size = sizeof(instance), .step = last_words_step };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        seen.peer = start(sched, &blocked);
        if (worker_counts[w] < 0) ok(filch_tick(sched, 0, NULL));
        until(atomic_load(&seen.held));
        for (int i = 0; i < 4; i++) atomic_store(&seen.code[i], -1);
        atomic_store(&seen.release, true); /* lets the blocking work return at once */
        (void)start(sched, &last_words);
        closing c;
        close_begin(&c, sched, FILCH_SECONDS(60));
        until(atomic_load(&seen.code[3]) != -1);
        /* completes the yield of the peer, so that the peer can end */
        ok(filch_complete(seen.receiver, 77, filch_none(), FILCH_OK));
        same(close_end(&c), FILCH_OK);
        for (int i = 0; i < 4; i++) same(atomic_load(&seen.code[i]), FILCH_OK);
        /* the process `last_words` and the process that it spawned were cancelled; the peer may end before its
         * cancel */
        assert_true(atomic_load(&seen.cancels) >= 2);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        end();
    }
}

/* ---- foreign threads that make calls during a stop ---- */

static filch_err slow_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    atomic_store(&seen.inside, true);
    while (!atomic_load(&seen.release)) yield_slice();
    return open_instance(self, ctx, method, args);
}

static const filch_type slow_to_start = { .name = "slow to start",
                                          .size = sizeof(instance),
                                          .init = slow_init,
                                          .step = ends_on_cancel_step,
                                          .close = close_instance };

static void spawn_slowly(void *sched)
{
    atomic_store(&seen.code[0], filch_spawn(sched, &slow_to_start, NULL, NULL));
}

TEST(spawn_that_began_before_close_is_waited_for_and_ended)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        fli_thread   spawner;
        ok(fli_thread_start(&spawner, "spawner", spawn_slowly, sched));
        until(atomic_load(&seen.inside));
        closing c;
        close_begin(&c, sched, FILCH_SECONDS(60));
        until(!is_open(sched));
        atomic_store(&seen.release, true);
        same(close_end(&c), FILCH_OK);
        fli_thread_join(&spawner);
        same(atomic_load(&seen.code[0]), FILCH_OK);
        same(atomic_load(&seen.cancels), 1);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        end();
    }
}

TEST(spawn_whose_init_does_not_return_keeps_the_scheduler_alive)
{
    SOME_WORKER_COUNTS(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        fli_thread   spawner;
        ok(fli_thread_start(&spawner, "spawner", spawn_slowly, sched));
        until(atomic_load(&seen.inside));
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_close(sched, FILCH_MILLISECONDS(10), &report), FILCH_EBUSY);
        same(report.stuck, 1);
        filch_report_free(&report);
        atomic_store(&seen.release, true);
        fli_thread_join(&spawner);
        same(atomic_load(&seen.code[0]), FILCH_OK);
        filch_err err = filch_sched_stop(sched, FILCH_SECONDS(30), NULL);
        assert_true(err == FILCH_OK || err == FILCH_EDEADLINE);
        end();
    }
}

/* Gate for a thread that spawns a process with a failing init. After the failed init the thread waits at this gate
 * before it takes the lock that the stop uses. */
static gate                           late_gate;
static _Thread_local const fli_mutex *late_gate_lock;
void                                  __real_fli_mutex_lock(fli_mutex *mutex);
void                                  __wrap_fli_mutex_lock(fli_mutex *mutex);
void                                  __wrap_fli_mutex_lock(fli_mutex *mutex)
{
    if (mutex == late_gate_lock) gate_pass(&late_gate);
    __real_fli_mutex_lock(mutex);
}

static filch_err slow_to_refuse_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    filch_err err = slow_init(self, ctx, method, args);
    close_instance(self);
    late_gate_lock = &filch_ctx_sched(ctx)->stop.lock;
    return err != FILCH_OK ? err : FILCH_EUSER;
}

static const filch_type slow_to_refuse = {
    .name = "slow to refuse", .size = sizeof(instance), .init = slow_to_refuse_init, .step = ends_on_cancel_step
};

static void spawn_in_vain(void *sched)
{
    atomic_store(&seen.code[0], filch_spawn(sched, &slow_to_refuse, NULL, NULL));
}

/* The init of the process has returned, but filch_spawn() has not returned and may still use the scheduler, so the stop
 * must wait. */
TEST(a_spawn_that_is_about_to_return_keeps_the_scheduler_alive)
{
    SOME_WORKER_COUNTS(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        fli_thread   spawner;
        gate_shut(&late_gate);
        ok(fli_thread_start(&spawner, "spawner", spawn_in_vain, sched));
        until(atomic_load(&seen.inside));
        closing c;
        close_begin(&c, sched, FILCH_MILLISECONDS(100));
        until((fli_load_acq(&sched->stop.foreign_spawns) & FLI_SPAWN_CLOSED) != 0);
        atomic_store(&seen.release, true);
        until(gate_is_waiting(&late_gate));
        same(close_end(&c), FILCH_EBUSY);
        gate_open(&late_gate);
        fli_thread_join(&spawner);
        same(atomic_load(&seen.code[0]), FILCH_EUSER);
        same(filch_sched_stop(sched, FILCH_SECONDS(30), NULL), FILCH_OK);
        end();
    }
}

static const filch_type slow_then_busy = {
    .name = "slow, then busy", .size = sizeof(instance), .init = slow_init, .step = busy_step, .close = close_instance
};

static void spawn_slow_then_busy(void *sched)
{
    atomic_store(&seen.code[0], filch_spawn(sched, &slow_then_busy, NULL, NULL));
}

TEST(process_that_arrives_after_the_deadline_is_ended_without_a_step)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        fli_thread   spawner;
        ok(fli_thread_start(&spawner, "spawner", spawn_slow_then_busy, sched));
        until(atomic_load(&seen.inside));
        closing c;
        close_begin(&c, sched, 0);
        until(!is_open(sched));
        atomic_store(&seen.release, true);
        filch_err err = close_end(&c);
        if (err == FILCH_EBUSY) err = filch_sched_close(sched, FILCH_SECONDS(30), NULL); /* a slow machine */
        same(err, FILCH_EDEADLINE);
        fli_thread_join(&spawner);
        if (worker_counts[w] < 0) same(atomic_load(&seen.steps), 0);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
        end();
    }
}

typedef struct stormer {
    filch_sched *sched;
    fli_thread   thread;
    uint64_t     accepted, closed, dead, other;
} stormer;

static void free_moved(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    atomic_fetch_add(&seen.freed, 1);
    free(bytes);
}

static void tally(stormer *s, filch_err err)
{
    if (err == FILCH_OK) s->accepted++;
    else if (err == FILCH_ECLOSED) s->closed++;
    else if (err == FILCH_EDEAD) s->dead++;
    else s->other++;
}

/* The thread spawns processes, and sends to, cancels and terminates them, until 200 calls have returned FILCH_ECLOSED.
 * If this takes longer than UNTIL_NS, the test fails. */
static void storm(void *arg)
{
    stormer  *s = arg;
    filch_pid pid = { 0, 0 };
    patience  left = patience_begin(UNTIL_NS);
    for (uint64_t i = 0; s->closed < 200; i++) {
        if (patience_is_over(&left)) {
            s->other++;
            break;
        }
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.on_exit = on_exit_count;
        filch_err err = filch_spawn(s->sched, &ends_on_cancel, &options, &pid);
        tally(s, err);
        /* `moved` counts the spawned processes: on_exit must be called for each */
        if (err == FILCH_OK) atomic_fetch_add(&seen.moved, 1);
        void *bytes = malloc(40);
        err = bytes != NULL ? filch_send(s->sched, pid, filch_move(bytes, 40, free_moved)) : FILCH_OK;
        tally(s, err);
        if (err != FILCH_OK) free_moved(NULL, bytes, 40);
        tally(s, filch_send(s->sched, pid, filch_bytes(&(uint64_t[8]){ i }, 64)));
        if (i % 4 == 0) (void)!filch_cancel(s->sched, pid);
        if (i % 16 == 0) (void)!filch_terminate(s->sched, pid);
    }
    atomic_fetch_add(&seen.exit_error, s->other);
}

static void storm_once(int32_t workers, uint64_t deadline_ns)
{
    stormer      stormers[3];
    filch_sched *sched = begin(workers);
    uint64_t     sent = 0;
    for (int i = 0; i < 3; i++) {
        stormers[i] = (stormer){ .sched = sched };
        ok(fli_thread_start(&stormers[i].thread, "storm", storm, &stormers[i]));
    }
    if (workers < 0) {
        until(filch_tick(sched, 100, NULL) == FILCH_OK && atomic_load(&seen.opened) > 50);
    } else {
        until(atomic_load(&seen.opened) > 50);
    }
    filch_err err;
    /* FILCH_EBUSY: a thread was suspended inside a spawn; tries again */
    until((err = filch_sched_close(sched, deadline_ns, NULL)) != FILCH_EBUSY);
    assert_true(err == FILCH_OK || err == FILCH_EDEADLINE);
    uint64_t steps = atomic_load(&seen.steps);
    for (int i = 0; i < 3; i++) {
        fli_thread_join(&stormers[i].thread);
        same(stormers[i].other, 0);
        sent += stormers[i].accepted + stormers[i].closed + stormers[i].dead;
    }
    assert_true(sent > 0);
    same(atomic_load(&seen.steps), steps);
    same(atomic_load(&seen.exits), atomic_load(&seen.moved));
    same(atomic_load(&seen.exits), atomic_load(&seen.opened));
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    same(stats.alive, 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
    end();
}

TEST(close_during_concurrent_calls_loses_and_leaks_nothing)
{
    uint64_t rounds = scaled(80);
    for (uint64_t i = 0; i < rounds; i++) {
        EACH_WORKER_COUNT(w) storm_once(worker_counts[w], i % 3 == 0 ? 0 : FILCH_SECONDS(30));
    }
}

TEST(a_thousand_schedulers_created_and_stopped_leak_nothing)
{
    int      threads = thread_count();
    uint64_t rounds = scaled(1000);
    for (uint64_t i = 0; i < rounds; i++) {
        filch_sched *sched = begin(i % 4 == 0 ? FILCH_NO_WORKERS : (int32_t)(i % 3 + 1));
        (void)start(sched, &ends_on_cancel);
        if (i % 2 == 0) (void)start(sched, &timed);
        if (i % 5 == 0) (void)start(sched, &blocked);
        filch_err err = filch_sched_stop(sched, i % 5 == 0 ? 0 : FILCH_SECONDS(30), NULL);
        same(err, i % 5 == 0 ? FILCH_EDEADLINE : FILCH_OK);
        end();
    }
    until(thread_count() <= threads);
}

/* ---- a stop without workers sleeps until another thread completes a yield ---- */

/* If set, a timed wait inside the library ends only when it is signalled, or after 30 s, which is longer than a stop
 * waits for a step that does not return. `waits` counts these waits. */
static FLI_ATOMIC(bool)     waits_for_signals;
static FLI_ATOMIC(uint32_t) waits;
bool                        __real_fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);
bool                        __wrap_fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);
bool                        __wrap_fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns)
{
    if (!fli_load_acq(&waits_for_signals)) return __real_fli_cond_wait_until(cond, mutex, until_ns);
    fli_add_rel(&waits, 1);
    return __real_fli_cond_wait_until(cond, mutex, fli_clock_after(fli_clock_ns(), FILCH_SECONDS(30)));
}

static bool stop_waits(void *unused)
{
    (void)unused;
    return fli_load_acq(&waits) > 0;
}

static void complete_when_stop_waits(void *arg)
{
    filch_err *err = arg;
    *err = until_or_late(stop_waits, NULL) ? filch_complete(seen.receiver, 77, filch_none(), FILCH_OK) : FILCH_EUSER;
}

TEST(stop_without_workers_runs_processes_woken_by_other_threads_at_once)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    filch_err    err = FILCH_EUSER;
    fli_thread   thread;
    (void)start(sched, &blocked);
    ok(filch_tick(sched, 0, NULL));
    fli_store_rel(&waits_for_signals, true);
    ok(fli_thread_start(&thread, "completes", complete_when_stop_waits, &err));
    /* filch_sched_close() instead of filch_sched_stop(), which would free the scheduler: the other thread may still be
     * inside filch_complete() when the last process has ended. */
    filch_err stopped = filch_sched_close(sched, FILCH_SECONDS(25), NULL);
    fli_thread_join(&thread);
    fli_store_rel(&waits_for_signals, false);
    ok(err);
    ok(stopped);
    ok(filch_sched_stop(sched, 0, NULL));
    end();
}

/* ---- a close function that keeps its worker during a stop ---- */

static FLI_ATOMIC(bool) in_close;

static filch_err ends_on_message(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

/* A close function that keeps its worker for 300 ms. */
static void slow_close(void *self)
{
    uint64_t until_ns = fli_clock_ns() + FILCH_MILLISECONDS(300);
    (void)self;
    fli_store_rel(&in_close, true);
    while (fli_clock_ns() < until_ns) yield_slice();
}

static const filch_type slow_to_close = { .name = "slow to close", .step = ends_on_message, .close = slow_close };

TEST(a_slow_close_function_is_not_reported_as_stuck)
{
    for (int killed = 0; killed < 2; killed++) {
        filch_report report = FILCH_REPORT_INIT;
        filch_sched *sched = begin(1);
        filch_pid    pid;
        fli_store_rel(&in_close, false);
        ok(filch_spawn(sched, &slow_to_close, NULL, &pid));
        ok(killed ? filch_terminate(sched, pid) : filch_send(sched, pid, filch_none()));
        until(fli_load_acq(&in_close));
        ok(filch_sched_stop(sched, 0, &report));
        assert_true(report.ended == 1 && report.forced == 0 && report.stuck == 0 && report.count == 0);
        filch_report_free(&report);
    }
}

/* ---- processes with slow close functions that a stop ends by force ---- */

enum { MANY = 8 }; /* closing this many processes takes 2.4 s in total */

static FLI_ATOMIC(uint64_t) closed_many;

static void close_one_of_many(void *self)
{
    slow_close(self);
    (void)fli_add_acqrel(&closed_many, 1);
}

/* A close function that keeps its worker until the stopping thread has closed all other processes, and a little
 * longer. */
static void close_after_all(void *self)
{
    fli_store_rel(&in_close, true);
    while (fli_load_acq(&closed_many) < MANY) yield_slice();
    slow_close(self);
}

static const filch_type one_of_many = { .name = "one of many", .step = ends_on_message, .close = close_one_of_many };
static const filch_type after_all = { .name = "after all", .step = ends_on_message, .close = close_after_all };

TEST(stop_continues_after_its_deadline_as_long_as_processes_end)
{
    filch_report report = FILCH_REPORT_INIT;
    filch_sched *sched = begin(1);
    filch_pid    pid;
    fli_store_rel(&in_close, false);
    fli_store_rel(&closed_many, 0);
    ok(filch_spawn(sched, &after_all, NULL, &pid));
    ok(filch_terminate(sched, pid));
    until(fli_load_acq(&in_close));
    for (int i = 0; i < MANY; i++) ok(filch_spawn(sched, &one_of_many, NULL, NULL));
    same(filch_sched_stop(sched, 0, &report), FILCH_EDEADLINE);
    assert_true(report.ended == 1 && report.forced == MANY && report.stuck == 0);
    filch_report_free(&report);
    end();
}

static FLI_ATOMIC(bool) may_close;

static void close_when_allowed(void *self)
{
    (void)self;
    fli_store_rel(&in_close, true);
    while (!fli_load_acq(&may_close)) yield_slice();
}

static const filch_type held_in_close = { .name = "held in close",
                                          .step = ends_on_message,
                                          .close = close_when_allowed };

TEST(a_close_that_does_not_return_is_counted_as_stuck)
{
    filch_report report = FILCH_REPORT_INIT;
    filch_sched *sched = begin(1);
    filch_pid    pid;
    fli_store_rel(&in_close, false);
    fli_store_rel(&may_close, false);
    ok(filch_spawn(sched, &held_in_close, NULL, &pid));
    ok(filch_terminate(sched, pid));
    until(fli_load_acq(&in_close));
    same(filch_sched_stop(sched, 0, &report), FILCH_EBUSY);
    same(report.stuck, 1);
    filch_report_free(&report);
    fli_store_rel(&may_close, true);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopping_an_empty_scheduler_frees_everything),
        cmocka_unit_test(processes_that_end_on_cancel_are_counted_and_stop_is_ok),
        cmocka_unit_test(processes_that_keep_spawning_do_not_outlive_stop),
        cmocka_unit_test(report_names_each_straggler_and_what_it_waited_for),
        cmocka_unit_test(forced_processes_are_closed_once_and_end_with_ecancelled),
        cmocka_unit_test(stop_delivers_its_cancel_once),
        cmocka_unit_test(deadline_zero_ends_everything_at_once),
        cmocka_unit_test(no_step_runs_and_no_thread_is_left_after_stop),
        cmocka_unit_test(timers_do_not_keep_stop_waiting),
        cmocka_unit_test(a_step_that_never_returns_is_reported_and_left_until_a_later_stop),
        cmocka_unit_test(one_stuck_step_does_not_keep_the_others_from_ending),
        cmocka_unit_test(a_slow_close_function_is_not_reported_as_stuck),
        cmocka_unit_test(stop_continues_after_its_deadline_as_long_as_processes_end),
        cmocka_unit_test(a_close_that_does_not_return_is_counted_as_stuck),
        cmocka_unit_test(work_function_that_does_not_return_counts_as_stuck),
        cmocka_unit_test(work_that_has_not_begun_at_the_deadline_is_dropped),
        cmocka_unit_test(stop_from_inside_is_refused),
        cmocka_unit_test(stop_from_a_work_function_of_the_scheduler_is_refused),
        cmocka_unit_test(stop_from_the_init_of_a_spawn_is_refused),
        cmocka_unit_test(bad_arguments_to_stop_change_nothing),
        cmocka_unit_test(a_second_thread_that_stops_gets_ebusy),
        cmocka_unit_test(calls_during_and_after_close_return_the_documented_codes),
        cmocka_unit_test(processes_may_still_send_spawn_and_block_while_closing),
        cmocka_unit_test(spawn_that_began_before_close_is_waited_for_and_ended),
        cmocka_unit_test(spawn_whose_init_does_not_return_keeps_the_scheduler_alive),
        cmocka_unit_test(a_spawn_that_is_about_to_return_keeps_the_scheduler_alive),
        cmocka_unit_test(process_that_arrives_after_the_deadline_is_ended_without_a_step),
        cmocka_unit_test(close_during_concurrent_calls_loses_and_leaks_nothing),
        cmocka_unit_test(stop_without_workers_runs_processes_woken_by_other_threads_at_once),
        cmocka_unit_test(a_thousand_schedulers_created_and_stopped_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
