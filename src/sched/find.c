/* find.c - where a worker takes the next process from.
 *
 *   1. its LIFO slot and its deque, newest first: the caches are warm
 *   2. the global queue: one process, and up to `global_batch` more for its deque
 *   3. another worker, in random order: half of that worker's deque in one CAS
 *
 * Fairness. That order alone would starve processes: a process that always continues is always the newest. So every
 * `fair_every`-th turn is a fairness pick: it takes an oldest process instead, alternately from the local deque and
 * from the global queue. The oldest end of a deque only loses processes. So a process with n older ones in its deque is
 * stepped within 2 * fair_every * (n + 1) turns of that worker; a process with n before it in the global queue leaves
 * that queue within the same number of turns, and joins a deque together with at most `global_batch` others. Together:
 * a ready process is stepped within
 *
 *     FLI_FAIR_BOUND(R) = 2 * fair_most * (R + 1 + global_batch)
 *
 * turns of its worker, R being the number of ready processes. The test
 * `every_ready_process_is_stepped_within_the_bound` checks this bound; with a fixed fair_every of 8 the test found the
 * bound for a deque to be exact: the last of 1,000 processes in a deque waited 15,999 turns, and the bound is 2 * 8
 * * 1,000.
 *
 * Picks brought forward. A process that returns CONTINUE makes the next pick due at once; timers and descriptors that
 * are due may then still run before the pick (worker.c). `fair_countdown` is the number of turns until the pick,
 * `fair_credit` the number by which it was brought forward.
 *
 * Series of picks. After a pick, a process that returned CONTINUE is the newest of the deque again. If its steps are
 * long (an interrupted loop in Lua takes milliseconds), each process queued before it would wait for one such step. The
 * same holds for a process with a long step that ends, wakes its parent, and so makes the parent spawn the next such
 * process. So a long step starts a series of picks, each brought forward: `fair_series`, one less than the option
 * fair_every. A process in the LIFO slot still runs after one pick. Processes that timers or I/O have woken keep their
 * turns (w->bypass_steps): if the first of them takes a long step, the others still run before the series. The tests
 * `queued_processes_do_not_each_wait_for_a_step_of_a_loop`, `a_process_woken_by_the_host_does_not_wait_for_all_loops`,
 * `queued_processes_do_not_each_wait_for_a_link_of_a_chain` and
 * `processes_woken_together_run_before_a_series_of_picks` check this.
 *
 * INVARIANT  fair_countdown + fair_credit <= fair_most. A pick sets their sum to fair_every. A turn takes one from
 * fair_countdown. A CONTINUE, a long step, and each pick of a series moves all but one of fair_countdown (all but two,
 * if the LIFO slot is full) to fair_credit. When n timers fire, they move n (at most all) from fair_credit back to
 * fair_countdown. While no process is queued, a pick would find nothing, and a clock reading may set fair_countdown to
 * up to fair_most (worker.c). So a pick comes at least every fair_most-th turn, with timers and without. The processes
 * woken by timers join the deque at its newest end. So the bound holds. Of k timers that are due at once, as many fire
 * as can run before the next pick; the others stay in their wheel, the earliest first. So they wait for the running
 * turn and for k / (fair_every - 1) picks, rounded up; with a fair_every of 1 they wait as other processes do.
 *
 * The LIFO slot. Its process is the next one that the worker takes. At a pick it stays in the slot and runs after the
 * picked process; in the deque, the processes that the picked one spawns would be above it, those that they spawn
 * above these, and so on. The turn after a pick is no pick: a process that returns CONTINUE while the slot is full does
 * not bring the pick forward (ready.c). Only with a fair_every of 1 does the process join the deque at a pick. The
 * process being stepped may have more turns before the process in the slot has its turn (w->rerun, the inline
 * completion loop); but if the slot is full, it leaves the last turn before the next pick to the process in the slot.
 * (An inline completion loop that began while the slot was empty may go on until the pick.) So the process in the slot
 * stays there at one pick at most, and waits fewer than 2 * fair_most turns; the bound includes them. The test
 * `the_process_in_the_lifo_slot_is_passed_over_at_one_fairness_pick_at_most` checks this. If timers fire after a long
 * step, the process in the slot joins the deque, below the processes that the timers wake, and has a turn before the
 * pick as they have (worker.c).
 *
 * How often to pick. Each pick starts something new before the work under way has ended: a tree of processes is then
 * built breadth-first (a million leaves: 126 ms and 36 MB with a pick every 8th turn, 83 ms and 7 MB every 64th). What
 * matters to waiting processes is time, not turns. So unless the option sets the interval, picks come every 8th turn or
 * every FLI_FAIR_NS, whichever is later, and at least every FLI_FAIR_MOST-th turn.
 *
 * Stealing restarts the count of turns for the stolen processes. The thief had nothing queued; but among the up to
 * FLI_DEQUE_STEAL_MAX processes stolen together, the younger ones run first. A process can be stolen more than once
 * only while workers keep running out of work. Fairness matters while all workers are busy, and then none steals. A
 * worker that pauses (throttle.c) moves its queue to the global queue, which restarts the count, too.
 *
 * A thief takes from the deque, and from the LIFO slot only if the deque is empty. It leaves a single queued process
 * alone while its worker makes progress: that worker is about to run it with warm caches. The thief takes the process
 * if that worker has finished no step for AGED_NS.
 * Design: docs/design/run-queues.md.
 */
#include "sched/find.h"
#include "base/assert.h"
#include "base/prng.h"
#include "port/clock.h"
#include "proc/log.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sched/throttle.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"

#define AGED_NS UINT64_C(20000)

/* Takes up to 1 + `more` processes from the global queue. Pushes all but the oldest to the deque, the newest first, so
 * that the second oldest is popped first. */
fli_proc *fli_find_global(fli_worker *w, uint32_t more)
{
    filch_sched *sched = w->sched;
    void        *batch[1 + FLI_GLOBAL_BATCH_MAX];
    if (fli_inject_count(&sched->global) == 0) return NULL;
    size_t n = fli_inject_take(&sched->global, batch, 1 + more);
    for (size_t i = n; i-- > 1;) {
        /* If there is no memory to grow the deque, the process goes back to the end of the global queue. */
        if (!fli_deque_push(&w->deque, batch[i])) fli_inject_put(&sched->global, batch[i]);
    }
    return n > 0 ? batch[0] : NULL;
}

bool fli_find_empty_slot(fli_worker *w)
{
    fli_proc *next = fli_lifo_slot_take(&w->lifo_slot);
    if (next != NULL && !fli_deque_push(&w->deque, next)) fli_inject_put(&w->sched->global, next);
    return next != NULL;
}

/* Brings the next pick forward: only `kept` turns come before it, and one more for the process in the LIFO slot if the
 * slot is full. */
static void bring_next_pick_forward(fli_worker *w, uint32_t kept)
{
    uint32_t turns = (fli_lifo_slot_is_full(&w->lifo_slot) ? 2 : 1) + kept;
    if (w->fair_countdown <= turns) return;
    w->saw_continue = true;
    w->fair_credit += w->fair_countdown - turns;
    w->fair_countdown = turns;
}

void fli_find_begin_series(fli_worker *w)
{
    uint64_t steps = fli_counters_steps(&w->local.counters);
    uint64_t kept = w->bypass_steps > steps ? w->bypass_steps - steps : 0;
    w->fair_series = w->sched->opt.fair_every - 1;
    bring_next_pick_forward(w, (uint32_t)kept);
}

fli_proc *fli_find_oldest(fli_worker *w)
{
    /* If every turn is a fairness pick, a process in the LIFO slot would never run. */
    if (FLI_UNLIKELY(w->fair_every == 1)) (void)fli_find_empty_slot(w);
    bool fair_local_next = w->fair_local_next;
    w->fair_local_next = !fair_local_next;
    w->fair_countdown = w->fair_every;
    w->fair_credit = 0;
    w->saw_continue = false;
    if (FLI_UNLIKELY(w->fair_series > 0)) {
        w->fair_series--;
        bring_next_pick_forward(w, 0);
    }
    fli_proc *p = fair_local_next ? fli_deque_take_oldest(&w->deque) : fli_find_global(w, 0);
    /* Prefetches the process that is now the oldest of the deque: a later pick takes it, and it is not in the cache
     * (docs/log/2026-11-births-and-ends.md). */
    const fli_proc *cold = fli_deque_guess_oldest(&w->deque);
    if (cold != NULL) {
        FLI_FETCH(&cold->state);
        FLI_FETCH(&cold->load);
    }
    if (p == NULL) p = fair_local_next ? fli_find_global(w, 0) : fli_deque_take_oldest(&w->deque);
    if (FLI_UNLIKELY(p == NULL)) w->fair_series = 0;
    return p;
}

/* Returns true if `victim`, the worker at `index`, has finished no step for AGED_NS. Stores the victim's count of steps
 * for the next call of this function. */
static bool is_stuck(fli_worker *w, uint32_t index, const fli_worker *victim)
{
    fli_victim_progress *seen = &w->victim_progress[index];
    uint64_t             steps = fli_counters_steps(&victim->local.counters);
    if (seen->steps != steps || seen->since_ns == 0) {
        *seen = (fli_victim_progress){ .steps = steps, .since_ns = w->clock_ns };
        return false;
    }
    return w->clock_ns - seen->since_ns >= AGED_NS;
}

/* Steals from the worker at `index`. Returns NULL if there is nothing to take. If another thread took the processes
 * first, sets *retry and returns NULL. `any`: see fli_find_far(). */
static fli_proc *steal(fli_worker *w, uint32_t index, bool any, bool *retry)
{
    fli_worker *victim = w->sched->workers[index];
    uint32_t    queued = fli_worker_queued(victim), count = 0;
    if (queued == 0 || (queued == 1 && !any && !is_stuck(w, index, victim))) return NULL;
    void *first = NULL;
    switch (fli_deque_steal_half_into(&victim->deque, &w->deque, &first, &count)) {
    case FLI_STEAL_EMPTY:
        first = fli_lifo_slot_take(&victim->lifo_slot);
        if (first == NULL) return NULL;
        count = 1;
        break;
    case FLI_STEAL_RETRY: *retry = true; return NULL;
    case FLI_STEAL_GOT: break;
    }
    fli_count(&w->local.counters.steals, 1);
    fli_count(&w->local.counters.stolen, count);
    fli_throttle_note_steal(w, count);
    return first;
}

/* Reports a step that has been running for longer than long_step_ns. Only the first worker that notices the step
 * reports it. */
static void report_overdue(fli_worker *w, fli_worker *victim)
{
    const filch_options *opt = &w->sched->opt;
    fli_worker_status   *status = &victim->status;
    uint64_t             serial = fli_load_rlx(&status->serial), began_ns = fli_load_rlx(&status->began_ns);
    if (serial == 0 || began_ns == 0 || w->clock_ns < began_ns + opt->long_step_ns) return;
    uint64_t reported = fli_load_rlx(&status->reported);
    if (reported == began_ns || !fli_cas_acqrel(&status->reported, &reported, began_ns)) return;
    fli_log(&w->sched->rt, FILCH_LOG_WARNING, (filch_pid){ w->sched->rt.node_id, serial },
            fli_type_name(fli_type_of(&w->sched->rt, serial)), FILCH_OK, "a step has been running for %llu us",
            (unsigned long long)((w->clock_ns - began_ns) / 1000));
    if (opt->on_long_step == NULL) return;
    opt->on_long_step(opt->on_long_step_user, (filch_pid){ w->sched->rt.node_id, serial },
                      fli_type_name(fli_type_of(&w->sched->rt, serial)), w->clock_ns - began_ns, 0);
}

fli_proc *fli_find_far(fli_worker *w, bool any, bool *retry)
{
    filch_sched *sched = w->sched;
    uint32_t     n = sched->worker_total, start = fli_prng_below(&w->prng, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = start + i < n ? start + i : start + i - n;
        if (sched->workers[index] == w) continue;
        if (sched->opt.long_step_ns != 0) report_overdue(w, sched->workers[index]);
        fli_proc *p = steal(w, index, any, retry);
        if (p != NULL) return p;
    }
    return NULL;
}

bool fli_find_visible(filch_sched *sched, uint32_t queued)
{
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        if (fli_worker_queued(sched->workers[i]) >= queued) return true;
    }
    return false;
}
