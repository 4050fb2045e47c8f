/* stop.c - everything ends: the stopping thread's part. docs/design/shutdown.md has the phases and the reasons. In this order:
 *
 *   1. phase CLOSING: no messages and spawns from outside, no connections are accepted
 *   2. drain: ASK for every process that lives. The worker that steps it decides what that means (drain.c): a cancel behind
 *      its messages, or nothing, if a supervisor asks it. Again from time to time, for those that came meanwhile or have
 *      lost their supervisor
 *   3. wait until no process is left, or the deadline. Timers, files, sockets and the pool work as ever
 *   4. force: a kill for every process that is left; workers end them instead of stepping them, and note them for the report.
 *      The stopping thread helps, as the guest worker: it may be the only one that is not stuck in a step
 *   5. those that are still there are inside a step (or, spawned from outside, an init) that does not return (stuck.c): they
 *      are named, nothing is freed, FILCH_EBUSY
 *   6. otherwise the work pool and the workers leave; phase CLOSED
 *   7. stop frees everything; close leaves that to a later stop
 */
#include <string.h>

#include "base/versioned.h"
#include "port/clock.h"
#include "port/wakefd.h"
#include "sched/sched.h"
#include "sched/simulate.h"

#define GRACE_NS FILCH_MILLISECONDS(100) /* for jobs of the pool, after the deadline */
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

/* Stop sees that we have gone when it comes to this lock, or at a look outside of it; then it still has to come to it, for
 * the report, before it frees anything. */
void fli_stop_left(filch_sched *sched)
{
    fli_mutex_lock(&sched->stop.lock);
    (void)fli_sub_acqrel(&sched->stop.foreign_spawns, 1); /* PAIR spawn.closed, release half: we have been counted */
    fli_cond_broadcast(&sched->stop.changed);
    fli_mutex_unlock(&sched->stop.lock);
}

/* How many threads from outside are in filch_spawn. */
static uint32_t count_foreign_spawns(filch_sched *sched)
{
    /* PAIR spawn.closed, acquire half: whoever has left the door is counted among the living. */
    return fli_load_acq(&sched->stop.foreign_spawns) & ~FLI_SPAWN_CLOSED;
}

/* ---- the steps ---- */

/* Raises `flag` for every process that lives. */
static void raise_all(filch_sched *sched, uint64_t flag)
{
    fli_runtime *rt = &sched->rt;
    uint32_t     fresh = fli_load_acq(&rt->procs.fresh); /* PAIR slab.fresh, acquire half */
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&rt->procs, slot);
        uint32_t  gen = fli_word_gen(fli_state_peek(&p->state));
        if (fli_state_set_flag(&p->state, gen, flag) == FLI_DELIVERY_WOKE) fli_ready(rt, fli_current_worker(rt), p);
    }
}

/* Nobody lives, and nobody is being spawned from outside. */
static bool is_empty(filch_sched *sched)
{
    return count_foreign_spawns(sched) == 0 && fli_stats_alive(sched) == 0;
}

/* Runs what is ready on this thread, as the guest, but not beyond `until_ns`: there may be no end to it. With `any`,
 * also what other workers have queued. */
typedef struct pending_run {
    fli_worker *w;
    void       *before;
    bool        whole;
} pending_run;

/* Runs also when an exception of C++ passes through: see tick.c. */
static void run_pending_end(pending_run *h)
{
    if (FLI_UNLIKELY(!h->whole)) fli_torn_note(h->w);
    fli_current_set(h->before);
}

static void run_pending(filch_sched *sched, bool any, uint64_t until_ns)
{
    fli_worker *w = sched->caller_worker;
    __attribute__((cleanup(run_pending_end))) pending_run h = { .w = w, .before = fli_current_get() };
    fli_current_set(&w->local);
    fli_torn_mend(w);
    fli_worker_clock(w);
    while (fli_clock_ns() < until_ns) {
        bool      retry = false;
        fli_proc *p = NULL;
        if (fli_worker_turn(w)) continue;
        if (any) p = fli_find_far(w, true, &retry);
        if (p != NULL) fli_step(w, p);
        else if (!retry) break;
    }
    h.whole = true;
}

/* Waits for a nudge, at most until `until_ns`. Whoever nudges takes the lock after what he has to tell happened: we
 * see it here, or are asleep when he comes. */
static void wait_for_nudge(filch_sched *sched, uint64_t until_ns)
{
    fli_mutex_lock(&sched->stop.lock);
    bool ready = sched->worker_count == 0 && fli_inject_count(&sched->global) > 0;
    if (!ready && !is_empty(sched)) (void)fli_cond_wait_until(&sched->stop.changed, &sched->stop.lock, until_ns);
    fli_mutex_unlock(&sched->stop.lock);
}

/* Without workers this thread does the work. Returns when it should look again, at most `until_ns`. */
static uint64_t run_here(filch_sched *sched, uint64_t until_ns)
{
    /* PAIR tick.signal, both halves: whoever queues after this sees CLOSING and nudges. */
    if (fli_swap_acqrel(&sched->signalled, false)) fli_wakefd_clear(sched->wake_fd);
    run_pending(sched, false, until_ns);
    uint64_t timer_ns = fli_timers_next_ns(&sched->timers);
    if (timer_ns < until_ns) until_ns = timer_ns;
    /* Descriptors do not nudge: look at them now and then. */
    uint64_t look_ns = fli_io_has_fds(&sched->io) ? fli_clock_ns() + LOOK_NS : until_ns;
    return look_ns < until_ns ? look_ns : until_ns;
}

void fli_stop_round(filch_sched *sched, bool hurry)
{
    if (hurry) fli_store_rlx(&sched->stop.hurry, true);
    raise_all(sched, FLI_ASK);
}

/* The drain: until no process is left or the deadline. A round of ASK finds a process that was being spawned during the one
 * before it, and one whose supervisor has ended; those that have been told take no notice. */
static void drain(filch_sched *sched, uint64_t until_ns, uint64_t patience_ns)
{
    uint64_t pause_ns = ROUND_FIRST_NS, now_ns = fli_clock_ns(), hurry_ns = fli_clock_after(now_ns, patience_ns);
    uint64_t round_ns = now_ns + pause_ns;
    while (!is_empty(sched) && (now_ns = fli_clock_ns()) < until_ns) {
        if (now_ns >= hurry_ns || now_ns >= round_ns) {
            fli_stop_round(sched, now_ns >= hurry_ns);
            if (now_ns >= hurry_ns) hurry_ns = FLI_NEVER;
            if (now_ns >= round_ns && pause_ns < ROUND_LAST_NS) pause_ns *= 2;
            round_ns = now_ns + pause_ns;
        }
        uint64_t wake_ns = round_ns < hurry_ns ? round_ns : hurry_ns;
        if (until_ns < wake_ns) wake_ns = until_ns;
        if (sched->worker_count == 0) wake_ns = run_here(sched, wake_ns);
        wait_for_nudge(sched, wake_ns);
    }
}

/* Kills what is left, and helps to bury it. Returns true if no process is left; otherwise *starved is how many of the steps
 * that run the system gave no processor to. Patience begins anew with each process that has ended: from now on nothing is
 * spawned, so there is an end to it. */
static bool force(filch_sched *sched, uint64_t *starved)
{
    uint64_t began_ns = fli_clock_ns(), last = fli_report_ended(sched);
    fli_store_rlx(&sched->stop.force, true);
    while (!is_empty(sched)) {
        raise_all(sched, FLI_KILL);
        run_pending(sched, true, FLI_NEVER); /* what it finds is ended, not stepped */
        if (is_empty(sched)) break;
        uint64_t ended = fli_report_ended(sched);
        if (ended != last) last = ended, began_ns = fli_clock_ns();
        if (fli_stuck_look(sched, began_ns, starved) != FLI_VERDICT_WAIT) return false;
        wait_for_nudge(sched, fli_clock_ns() + LOOK_NS);
    }
    return true;
}

/* How many have not returned after a force. Without a step or a spawn among them: those that live, in a close for example.
 * 0: the last one has just ended. */
static uint64_t count_stuck(filch_sched *sched)
{
    uint64_t stuck = fli_report_stuck(sched) + count_foreign_spawns(sched);
    return stuck > 0 ? stuck : fli_stats_alive(sched);
}

static void join_workers(filch_sched *sched)
{
    fli_idle_leave(sched);
    for (uint32_t i = 0; i < sched->worker_count; i++) fli_thread_join(&sched->workers[i]->thread);
}

/* Closes the scheduler to the outside, and asks for the first time. */
void fli_stop_begin(filch_sched *sched)
{
    fli_store_rel(&sched->rt.phase, FLI_CLOSING); /* PAIR runtime.phase, release half */
    /* A worker that goes to sleep after this knows, and nudges us; what one did before that, we see. */
    fli_mutex_lock(&sched->idle.lock);
    fli_mutex_unlock(&sched->idle.lock);
    fli_throttle_end_all(sched);
    /* PAIR spawn.closed, both halves: whoever comes to the door after this finds it closed; the others we wait for. */
    uint32_t before = fli_load_rlx(&sched->stop.foreign_spawns);
    while (!fli_cas_weak_acqrel(&sched->stop.foreign_spawns, &before, before | FLI_SPAWN_CLOSED)) {}
    raise_all(sched, FLI_ASK);
}

/* The processes have ended. Returns false if a job of the pool has not returned. */
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

/* From the first question to the last thread. FILCH_EBUSY: what has not returned is in *found. */
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
    raise_all(sched, FLI_KILL);
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

/* Both run also when an exception of C++ passes through: a later stop goes on. */
static void tick_over(filch_sched **sched)
{
    fli_store_rel(&(*sched)->ticking, false); /* PAIR tick.owner, release half */
}

static void stop_over(filch_sched **sched)
{
    if (*sched != NULL) fli_store_rel(&(*sched)->stop.busy, false); /* PAIR stop.owner, release half */
}

/* One stop at a time, that is us. */
static filch_err stop_now(filch_sched *sched, const filch_stop_options *opt, filch_report *found)
{
    uint32_t phase = fli_load_acq(&sched->rt.phase); /* PAIR runtime.phase, acquire half */
    if (phase == FLI_CLOSED) return FILCH_OK;
    /* Without workers we are about to be the one who ticks. */
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
    if (fli_program_self() != sched->program) return FILCH_EFORKED; /* before any lock: a thread of the parent may hold it */
    if (fli_simulate_refuses(sched, call)) return FILCH_ESTATE;
    if (fli_current_worker(&sched->rt) != NULL) return FILCH_ESTATE;
    /* PAIR stop.owner, acquire half: one at a time, and the next one sees what the last one did. */
    if (fli_swap_acqrel(&sched->stop.busy, true)) return FILCH_EBUSY;
    __attribute__((cleanup(stop_over))) filch_sched *busy = sched;
    filch_report found = { .size = 0 };
    filch_err    err = stop_now(sched, opt, &found);
    fli_report_give(sched, &found, report);
    stop_over(&busy);
    busy = NULL; /* it may be freed */
    bool over = err == FILCH_OK || err == FILCH_EDEADLINE;
    if (over && (opt->flags & FILCH_STOP_KEEP) == 0) fli_sched_free(sched);
    return err;
}

static filch_err read_options(const filch_stop_options *given, filch_stop_options *out)
{
    if (given == NULL) return filch_invalid("options is NULL");
    filch_err err = FLI_VERSIONED_READ(out, given, "options", FILCH_STOP_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if ((out->flags & ~(uint32_t)FILCH_STOP_ALL) != 0) return filch_invalid("options.flags has bits besides FILCH_STOP_ALL");
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
