/* stop.c - ends a scheduler: what the stopping thread does. docs/design/shutdown.md has the phases and the reasons. In
 * this order:
 *
 *   1. phase CLOSING: messages and spawns of foreign threads are refused, no connections are accepted
 *   2. drain: set ASK for every process. The worker that steps the process then gives it a cancel behind its messages
 *      (drain.c), unless the process has a supervisor, which ends it. ASK is set again from time to time, for processes
 *      that were being spawned or have lost their supervisor
 *   3. wait until no process is left, or until the deadline. Timers, files, sockets and the pool work as before
 *   4. force: set KILL for every process that is left. Workers end a process with KILL instead of stepping it, and note
 * it for the report. The stopping thread does the same with caller_worker: all workers may be stuck in steps
 *   5. if processes are still left, each is inside a step that does not return (stuck.c), or a foreign thread is inside
 *      an init that does not return: name them in the report, free nothing, return FILCH_EBUSY
 *   6. if no process is left, end the threads of the pool and the workers; phase CLOSED
 *   7. filch_sched_stop frees the scheduler; after filch_sched_close a later stop frees it
 */
#include <string.h>

#include "base/assert.h"
#include "base/versioned.h"
#include "clock/timers.h"
#include "io/io.h"
#include "port/clock.h"
#include "port/inside.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/ready.h"
#include "sched/report.h"
#include "sched/sched.h"
#include "sched/stats.h"
#include "sched/step.h"
#include "sched/stop.h"
#include "sched/stuck.h"
#include "sched/throttle.h"
#include "sched/torn.h"
#include "sched/worker.h"
#include "sync/inject.h"
#include "work/pool.h"

#define GRACE_NS FILCH_MILLISECONDS(100) /* additional time, after the deadline, for jobs of the work pool */
#define LOOK_NS FILCH_MILLISECONDS(5)
#define ROUND_FIRST_NS FILCH_MILLISECONDS(5)
#define ROUND_LAST_NS FILCH_SECONDS(1)
#define PATIENCE_NS FILCH_SECONDS(1)

void fli_stop_nudge(filch_sched *sched)
{
    fli_mutex_lock(&sched->stop.lock);
    fli_cond_broadcast(&sched->stop.changed);
    fli_mutex_unlock(&sched->stop.lock);
}

/* The stopping thread may see without the lock that the count in foreign_spawns has fallen to 0. But before it frees
 * the scheduler it takes the lock, to make the report. So the scheduler lives until the thread that called
 * fli_stop_left() has released the lock. */
void fli_stop_left(filch_sched *sched)
{
    fli_mutex_lock(&sched->stop.lock);
    (void)fli_sub_acqrel(&sched->stop.foreign_spawns, 1); /* PAIR spawn.closed, release half: the process is counted */
    fli_cond_broadcast(&sched->stop.changed);
    fli_mutex_unlock(&sched->stop.lock);
}

/* Returns how many foreign threads are inside filch_spawn. */
static uint32_t count_foreign_spawns(filch_sched *sched)
{
    /* PAIR spawn.closed, acquire half: if a thread has left filch_spawn, its process has been counted. */
    return fli_load_acq(&sched->stop.foreign_spawns) & ~FLI_SPAWN_CLOSED;
}

/* ---- the phases of a stop (begin, drain, force, end), and functions that they share ---- */

/* Sets `flag` for every living process, and queues the processes that the flag wakes. */
static void set_flag_of_all(filch_sched *sched, uint64_t flag)
{
    fli_runtime *rt = &sched->rt;
    uint32_t     fresh = fli_load_acq(&rt->procs.fresh); /* PAIR slab.fresh, acquire half */
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&rt->procs, slot);
        uint32_t  gen = fli_word_gen(fli_state_peek(&p->state));
        if (fli_state_set_flag(&p->state, gen, flag) == FLI_DELIVERY_WOKE) fli_ready(rt, fli_current_worker(rt), p);
    }
}

/* Returns true if no process lives and no foreign thread is inside filch_spawn. */
static bool is_empty(filch_sched *sched)
{
    return count_foreign_spawns(sched) == 0 && fli_stats_alive(sched) == 0;
}

/* State of run_pending(), for the cleanup function run_pending_end(). */
typedef struct pending_run {
    fli_worker *w;
    bool        whole;
} pending_run;

/* Cleanup function of run_pending(). Runs also when a C++ exception of a step leaves run_pending(): then the process of
 * that step is torn (torn.c). */
static void run_pending_end(pending_run *h)
{
    if (FLI_UNLIKELY(!h->whole)) fli_torn_note(h->w);
    fli_current_leave(&h->w->local);
}

/* Runs ready processes on this thread, as caller_worker, until none is ready or until `until_ns`. `any`: also steals
 * processes from other workers. */
static void run_pending(filch_sched *sched, bool any, uint64_t until_ns)
{
    fli_worker *w = sched->caller_worker;

    __attribute__((cleanup(run_pending_end))) pending_run h = { .w = w };
    fli_current_enter(&w->local);
    fli_torn_mend(w);
    fli_worker_clock(w);
    while (fli_clock_ns() < until_ns) {
        bool      retry = false;
        fli_proc *p = NULL;
        if (fli_worker_turn(w) || fli_worker_fire_due(w)) continue;
        if (any) p = fli_find_far(w, true, &retry);
        if (p != NULL) fli_step(w, p);
        else if (!retry) break;
    }
    h.whole = true;
}

/* Waits for fli_stop_nudge(), at most until `until_ns`. A thread that calls fli_stop_nudge() makes its change first and
 * takes the lock afterwards. So this thread sees the change, or it is waiting already and is woken. */
static void wait_for_nudge(filch_sched *sched, uint64_t until_ns)
{
    fli_mutex_lock(&sched->stop.lock);
    bool ready = sched->worker_count == 0 && fli_inject_count(&sched->global) > 0;
    if (!ready && !is_empty(sched)) (void)fli_cond_wait_until(&sched->stop.changed, &sched->stop.lock, until_ns);
    fli_mutex_unlock(&sched->stop.lock);
}

/* For a scheduler without workers: runs ready processes on this thread. Returns the time at which it must be called
 * again, at most `until_ns`. */
static uint64_t run_caller_worker(filch_sched *sched, uint64_t until_ns)
{
    /* PAIR tick.signal, both halves: a thread that queues a process after this swap sees the phase CLOSING and calls
     * fli_stop_nudge(). */
    if (fli_swap_acqrel(&sched->signalled, false)) fli_wakefd_clear(sched->wake_fd);
    run_pending(sched, false, until_ns);
    uint64_t timer_ns = fli_timers_next_ns(&sched->timers);
    if (timer_ns < until_ns) until_ns = timer_ns;
    /* No thread calls fli_stop_nudge() when a descriptor becomes ready, so descriptors are polled every LOOK_NS. */
    uint64_t look_ns = fli_io_has_fds(&sched->io) ? fli_clock_ns() + LOOK_NS : until_ns;
    return look_ns < until_ns ? look_ns : until_ns;
}

void fli_stop_round(filch_sched *sched, bool hurry)
{
    if (hurry) fli_store_rlx(&sched->stop.hurry, true);
    set_flag_of_all(sched, FLI_ASK);
}

/* The drain: waits until no process is left or until the deadline. Sets ASK repeatedly, for processes that were still
 * being spawned when ASK was last set, or that have lost their supervisor since. All other processes ignore the
 * repeated flag. */
static void drain(filch_sched *sched, uint64_t until_ns, uint64_t patience_ns)
{
    uint64_t pause_ns = ROUND_FIRST_NS, now_ns = fli_clock_ns(), hurry_ns = fli_clock_after(now_ns, patience_ns);
    uint64_t round_ns = now_ns + pause_ns;
    while (!is_empty(sched) && (now_ns = fli_clock_ns()) < until_ns) {
        if (now_ns >= hurry_ns || now_ns >= round_ns) {
            fli_stop_round(sched, now_ns >= hurry_ns);
            if (now_ns >= hurry_ns) hurry_ns = FLI_NEVER;
            if (now_ns >= round_ns) pause_ns = pause_ns < ROUND_LAST_NS / 2 ? pause_ns * 2 : ROUND_LAST_NS;
            round_ns = now_ns + pause_ns;
        }
        uint64_t wake_ns = round_ns < hurry_ns ? round_ns : hurry_ns;
        if (until_ns < wake_ns) wake_ns = until_ns;
        if (sched->worker_count == 0) wake_ns = run_caller_worker(sched, wake_ns);
        wait_for_nudge(sched, wake_ns);
    }
}

/* Sets KILL for the processes that are left, and ends on this thread the processes that no worker ends. Returns true if
 * no process is left. Returns false if steps do not return; then *starved is the number of running steps on threads
 * that the system does not run. The time limit starts anew whenever a process has ended. The loop ends nevertheless,
 * because no process is spawned any more. */
static bool force(filch_sched *sched, uint64_t *starved)
{
    uint64_t began_ns = fli_clock_ns(), last = fli_report_ended(sched);
    fli_store_rlx(&sched->stop.force, true);
    while (!is_empty(sched)) {
        set_flag_of_all(sched, FLI_KILL);
        /* run_pending() ends the processes that it finds, instead of stepping them, because stop.force is set. */
        run_pending(sched, true, FLI_NEVER);
        if (is_empty(sched)) break;
        uint64_t ended = fli_report_ended(sched);
        if (ended != last) last = ended, began_ns = fli_clock_ns();
        if (fli_stuck_look(sched, began_ns, starved) != FLI_VERDICT_WAIT) return false;
        wait_for_nudge(sched, fli_clock_ns() + LOOK_NS);
    }
    return true;
}

/* Called after force() has returned false. Returns the number of steps and foreign spawns that have not returned. If
 * all have returned, returns the number of living processes (one may be inside close), which is 0 if the last process
 * has just ended. */
static uint64_t count_stuck(filch_sched *sched)
{
    uint64_t stuck = fli_report_stuck(sched) + count_foreign_spawns(sched);
    return stuck > 0 ? stuck : fli_stats_alive(sched);
}

/* Makes the worker threads return, and joins them. */
static void join_workers(filch_sched *sched)
{
    fli_idle_leave(sched);
    for (uint32_t i = 0; i < sched->worker_count; i++) fli_thread_join(&sched->workers[i]->thread);
}

/* Sets the phase CLOSING, and sets ASK for every process for the first time. */
void fli_stop_begin(filch_sched *sched)
{
    fli_store_rel(&sched->rt.phase, FLI_CLOSING); /* PAIR runtime.phase, release half */
    /* Taking the idle lock orders this thread with workers that park. A worker that takes the lock later, to park, sees
     * the phase CLOSING and calls fli_stop_nudge(). If a worker took the lock earlier, this thread sees what that
     * worker did before. */
    fli_mutex_lock(&sched->idle.lock);
    fli_mutex_unlock(&sched->idle.lock);
    fli_throttle_end_all(sched);
    /* PAIR spawn.closed, both halves: a foreign spawn that begins after the CAS is refused, and the stop waits for the
     * foreign spawns that began before the CAS. */
    uint32_t before = fli_load_rlx(&sched->stop.foreign_spawns);
    while (!fli_cas_weak_acqrel(&sched->stop.foreign_spawns, &before, before | FLI_SPAWN_CLOSED)) {}
    set_flag_of_all(sched, FLI_ASK);
}

/* Ends the threads of the work pool. Called when no process is left. Returns false if a job has not returned in
 * time. */
static bool end_pool(filch_sched *sched, uint64_t until_ns)
{
    uint64_t grace_ns = fli_clock_after(fli_clock_ns(), GRACE_NS);
    fli_workpool_close(&sched->workpool);
    return fli_workpool_join(&sched->workpool, until_ns > grace_ns ? until_ns : grace_ns);
}

static uint64_t patience_of(const filch_stop_options *opt)
{
    uint64_t half_ns = opt->deadline_ns / 2;
    if (opt->patience_ns != 0) return opt->patience_ns;
    return half_ns < PATIENCE_NS ? half_ns : PATIENCE_NS;
}

/* Runs all phases of the stop. Returns FILCH_EBUSY if a step, a spawn or a job has not returned; then *found contains
 * how many have not. */
static filch_err end_all(filch_sched *sched, const filch_stop_options *opt, filch_report *found)
{
    uint64_t until_ns = fli_clock_after(fli_clock_ns(), opt->deadline_ns);
    fli_stop_begin(sched);
    drain(sched, until_ns, patience_of(opt));
    bool gone = is_empty(sched) || force(sched, &found->starved);
    if (!gone) found->stuck = count_stuck(sched);
    gone = gone || found->stuck == 0;
    if (gone && end_pool(sched, until_ns)) {
        join_workers(sched);
        fli_store_rel(&sched->rt.phase, FLI_CLOSED); /* PAIR runtime.phase, release half */
        return FILCH_OK;
    }
    found->jobs = fli_workpool_busy(&sched->workpool);
    found->stuck += found->jobs;
    return FILCH_EBUSY;
}

void fli_stop_force(filch_sched *sched)
{
    fli_store_rlx(&sched->stop.force, true);
    set_flag_of_all(sched, FLI_KILL);
}

uint64_t fli_stop_over(filch_sched *sched)
{
    filch_report nothing = { .size = 0 };
    uint64_t     forced = sched->stop.forced;
    FLI_ASSERT(is_empty(sched));
    fli_workpool_close(&sched->workpool);
    fli_report_give(sched, &nothing, NULL);
    fli_store_rel(&sched->rt.phase, FLI_CLOSED); /* PAIR runtime.phase, release half */
    return forced;
}

/* Cleanup functions: tick_over() releases `ticking`, stop_over() releases `stop.busy`. They run also when a C++
 * exception leaves the stop, so that a later stop can finish the work. */
static void tick_over(filch_sched **sched)
{
    fli_store_rel(&(*sched)->ticking, false); /* PAIR tick.owner, release half */
}

static void stop_over(filch_sched **sched)
{
    if (*sched != NULL) fli_store_rel(&(*sched)->stop.busy, false); /* PAIR stop.owner, release half */
}

/* Stops the scheduler. Thread: the one that has set stop.busy. */
static filch_err stop_now(filch_sched *sched, const filch_stop_options *opt, filch_report *found)
{
    uint32_t phase = fli_load_acq(&sched->rt.phase); /* PAIR runtime.phase, acquire half */
    if (phase == FLI_CLOSED) return FILCH_OK;
    /* This thread runs a scheduler without workers itself, as a tick does, so it sets `ticking`. */
    if (sched->worker_count == 0 && fli_swap_acqrel(&sched->ticking, true)) return FILCH_EBUSY;
    __attribute__((cleanup(tick_over))) filch_sched *ticks = sched;
    if (phase == FLI_OPEN) {
        sched->stop.ended_before = fli_report_ended(sched);
        fli_store_rlx(&sched->stop.flags, opt->flags);
    }
    filch_err err = end_all(ticks, opt, found);
    return err == FILCH_OK && sched->stop.forced > 0 ? FILCH_EDEADLINE : err;
}

static filch_err stop(filch_sched *sched, const filch_stop_options *opt, filch_report *report, const char *call)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!fli_report_is_sound(report)) return filch_invalid("report.size is not set: begin with FILCH_REPORT_INIT");
    if (fli_program_self() != sched->program)
        return FILCH_EFORKED; /* the calling process is a forked child. Checked before any lock is taken, because
                                 another thread of the parent may have held the lock at the fork */
    if (fli_simulator_refuses(&sched->rt, call)) return FILCH_ESTATE;
    if (fli_current_is_inside(&sched->rt)) return FILCH_ESTATE;
    if (fli_is_inside(sched) || fli_is_inside(&sched->workpool)) return FILCH_ESTATE;
    /* PAIR stop.owner, acquire half: there is one stop at a time, and each stop sees what the stop before it did. */
    if (fli_swap_acqrel(&sched->stop.busy, true)) return FILCH_EBUSY;
    __attribute__((cleanup(stop_over))) filch_sched *busy = sched;

    filch_report found = { .size = 0 };
    filch_err    err = stop_now(sched, opt, &found);
    fli_report_give(sched, &found, report);
    stop_over(&busy);
    busy = NULL; /* NULL: the cleanup call of stop_over() does nothing, because the scheduler may be freed below */
    bool over = err == FILCH_OK || err == FILCH_EDEADLINE;
    if (over && (opt->flags & FILCH_STOP_KEEP) == 0) fli_sched_free(sched);
    return err;
}

static filch_err read_options(const filch_stop_options *given, filch_stop_options *out)
{
    if (given == NULL) return filch_invalid("options is NULL");
    filch_err err = FLI_VERSIONED_READ(out, given, "options", FILCH_STOP_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if ((out->flags & ~(uint32_t)FILCH_STOP_ALL) != 0)
        return filch_invalid("options.flags has bits besides FILCH_STOP_ALL");
    return out->spare == 0 ? FILCH_OK : filch_invalid("options.spare is not 0: begin with the FILCH_*_INIT macro");
}

filch_err filch_sched_stop_with(filch_sched *sched, const filch_stop_options *options, filch_report *report)
{
    filch_stop_options opt;
    filch_err          err = read_options(options, &opt);
    return err == FILCH_OK ? stop(sched, &opt, report, "filch_sched_stop_with") : err;
}

filch_err filch_sched_close(filch_sched *sched, uint64_t deadline_ns, filch_report *report)
{
    filch_stop_options opt = { .deadline_ns = deadline_ns, .flags = FILCH_STOP_KEEP };
    return stop(sched, &opt, report, "filch_sched_close");
}

filch_err filch_sched_stop(filch_sched *sched, uint64_t deadline_ns, filch_report *report)
{
    filch_stop_options opt = { .deadline_ns = deadline_ns };
    return stop(sched, &opt, report, "filch_sched_stop");
}

int filch_sched_stopping(const filch_sched *sched)
{
    return sched != NULL && fli_load_acq(&sched->rt.phase) != FLI_OPEN; /* PAIR runtime.phase, acquire half */
}
