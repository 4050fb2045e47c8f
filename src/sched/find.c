/* find.c - where the next process comes from.
 *
 *   1. the own LIFO slot and deque, newest first: it is warm, and what it talks to is near
 *   2. the global queue: one, and up to `global_batch` more for the own deque
 *   3. another worker, in random order: half of its deque in one CAS
 *
 * Fairness. That order alone starves: a process that always continues is always the newest. So every `fair_every`-th
 * turn takes an *oldest* one instead, in turn from the own deque and from the global queue. A deque's oldest end only
 * loses, so a process with n older ones in its deque is stepped within 2 * fair_every * (n + 1) turns of that worker;
 * one with n before it in the global queue leaves that within the same number, and joins a deque with at most
 * `global_batch` others moved along. In all, a ready process is stepped within
 *
 *     FLI_FAIR_BOUND(R) = 2 * fair_most * (R + 1 + global_batch)
 *
 * turns of its worker, R being the processes that are ready. The test `every_ready_process_is_stepped_within_the_bound`
 * holds it to that; with a fixed fair_every of 8 it found the first part exact: the last of 1,000 in a deque waited
 * 15,999 turns of 2 * 8 * 1,000.
 *
 * Whoever goes on by himself calls the oldest before its time, and timers that are due, and those whom descriptors report,
 * may go before it after all (worker.c). `fair_countdown` counts the turns until the oldest goes first, `fair_credit` those by
 * which it was called early.
 * A process in the LIFO slot is the next that its worker looks for: then it is stepped, or, if an oldest one goes first, joins
 * the deque before that is taken. Before it only the one that is being stepped may have more turns (step.c's go_on, a
 * rally), none of them beyond the oldest's: fewer than fair_every, for which the bound has room.
 *
 * INVARIANT  fair_countdown + fair_credit <= fair_every, as it was when an oldest one went first. A turn takes one from fair_countdown; a
 * call moves all but one to fair_credit; timers that fire move back as many as there are of them, at most what is there.
 * So the oldest goes first at least every fair_every-th turn, with timers and without, and what they make ready joins the
 * newest end: the bound stands. Beside processes that loop for ever, k timers that are due at once wait for the turn that
 * runs and for k / (fair_every - 1) of the oldest's, rounded up; with a fair_every of 1, in line with everybody.
 *
 * How often is often enough? Each oldest one that goes first opens something new before what is under way has ended: a
 * tree of processes is then built in its breadth (a million leaves: 126 ms and 36 MB at every 8th turn, 83 ms and 7 MB
 * at every 64th). What the waiting feel is time. So where the host has not said how often, it is every 8th turn or every
 * FLI_FAIR_NS, whichever is later, and at least every FLI_FAIR_MOST-th.
 *
 * Being stolen starts the count again: a thief had nothing left, but among the up to FLI_DEQUE_STEAL_MAX that come
 * along, those that were younger are now the older ones. Only workers that keep running dry can do that to a process
 * more than once; as long as they are all busy nobody steals, and that is when fairness counts.
 *
 * A thief takes from the deque; from the LIFO slot only if that is empty. It leaves a single queued process alone if its worker
 * is making progress: that one is about to run it, warm. It takes it when the worker has not finished a step for AGED_NS.
 * Design: docs/design/run-queues.md.
 */
#include "port/clock.h"
#include "proc/log.h"
#include "sched/sched.h"

#define AGED_NS UINT64_C(20000)

/* Takes from the global queue: the oldest for now, more for the own deque, so that the next oldest pops first. */
fli_proc *fli_find_global(fli_worker *w, uint32_t more)
{
    filch_sched *sched = w->sched;
    void        *batch[1 + FLI_GLOBAL_BATCH_MAX];
    if (fli_inject_count(&sched->global) == 0) return NULL;
    size_t n = fli_inject_take(&sched->global, batch, 1 + more);
    for (size_t i = n; i-- > 1;) {
        /* No memory to grow the deque: back it goes, to the end of the line. */
        if (!fli_deque_push(&w->deque, batch[i])) fli_inject_put(&sched->global, batch[i]);
    }
    return n > 0 ? batch[0] : NULL;
}

/* The next one joins the others first: where the oldest is called turn after turn, its turn would not come. */
fli_proc *fli_find_oldest(fli_worker *w)
{
    fli_proc *next = fli_lifo_slot_take(&w->lifo_slot);
    if (next != NULL && !fli_deque_push(&w->deque, next)) fli_inject_put(&w->sched->global, next);
    bool      fair_local_next = w->fair_local_next;
    w->fair_local_next = !fair_local_next;
    w->fair_countdown = w->fair_every;
    w->fair_credit = 0;
    w->saw_continue = false;
    fli_proc *p = fair_local_next ? fli_deque_take_oldest(&w->deque) : fli_find_global(w, 0);
    /* The next oldest is cold, and there are turns enough to fetch it: docs/design/mailbox-fast-paths.md. */
    const fli_proc *cold = fli_deque_guess_oldest(&w->deque);
    if (cold != NULL) {
        FLI_FETCH(&cold->state);
        FLI_FETCH(&cold->load);
    }
    if (p != NULL) return p;
    return fair_local_next ? fli_find_global(w, 0) : fli_deque_take_oldest(&w->deque);
}

/* Has the victim finished no step for a while? Remembers what it saw. */
static bool is_stuck(fli_worker *w, uint32_t index, const fli_worker *victim)
{
    fli_victim_progress *seen = &w->victim_progress[index];
    uint64_t      steps = fli_counters_steps(&victim->local.counters);
    if (seen->steps != steps || seen->since_ns == 0) {
        *seen = (fli_victim_progress){ .steps = steps, .since_ns = w->clock_ns };
        return false;
    }
    return w->clock_ns - seen->since_ns >= AGED_NS;
}

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

/* Reports a step that is still running and should not be. Once per step, whoever notices first. */
static void report_overdue(fli_worker *w, fli_worker *victim)
{
    const filch_options *opt = &w->sched->opt;
    fli_worker_status      *status = &victim->status;
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
