/* ready.c - a process became ready: where it is queued, and who is told.
 *
 * A worker queues on its own deque: what it just wrote to is warm. The first one that a step sends to goes to the LIFO slot beside
 * it, if that is free, and is the next. Everybody else uses the global queue, and so does a worker for a process that goes
 * on sending to somebody who waits in a queue already, and for all but the first of a crowd that one step sends to; but
 * while all workers sleep, one is woken with the process in hand (idle.c). All of them stay in sight of thieves; there is
 * no private corner that only one worker may empty.
 */
#include "port/wakefd.h"
#include "sched/sched.h"

/* A step that sends to so many others: the rest of them wait in line, if somebody else does. On the own deque,
 * newest first, they would bury him: beside 10,000 messages sent in a row, the 99th percentile of others was 86 ms
 * instead of 0.3 (bench/lua/crash.c). */
#define FANOUT_MIN 33
/* Steps that take less on the average are no burden, however many there are; and waiting in line costs them a fifth. */
#define FANOUT_STEP_NS 500

/* Now and then (worker.c) one process's wait in the queue is measured. It is marked for whoever steps it:
 * most steps need not ask. Thread: the owner; it is not queued yet. */
static void take_sample(fli_worker *w, fli_proc *p)
{
    w->slow_push_from = FANOUT_MIN;
    w->local.ready = fli_ready_next;
    p->last_worker = FLI_MARK_SAMPLED;
    w->sample_serial = fli_proc_serial(p);
    w->sample_ns = fli_now(&w->sched->rt);
}

/* No memory to grow the deque: the global queue needs none. */
static void push_global_fallback(fli_worker *w, fli_proc *p)
{
    fli_inject_put(&w->sched->global, p);
    fli_idle_notify_global(w->sched);
}

static __attribute__((noinline)) filch_err push_slow(fli_worker *w, fli_proc *p)
{
    if (FLI_LIKELY(fli_deque_push(&w->deque, p))) {
        w->local.pushed++;
        fli_idle_notify_local(w);
    } else {
        push_global_fallback(w, p);
    }
    return FILCH_OK;
}

static __attribute__((noinline)) filch_err notify_pushed(fli_worker *w)
{
    fli_idle_notify_local(w);
    return FILCH_OK;
}

/* Nobody need be told: we come to the global queue ourselves. */
static filch_err push_global(fli_worker *w, fli_proc *p)
{
    fli_inject_put(&w->sched->global, p);
    fli_idle_notify_local(w);
    return FILCH_OK;
}

/* Does this step send to a crowd, and would that bury somebody who was queued before it? */
static bool starves_others(fli_worker *w)
{
    if (w->local.sends < FANOUT_MIN || w->step_ns <= FANOUT_STEP_NS) return false;
    return fli_deque_count(&w->deque) > w->local.pushed;
}

static __attribute__((noinline)) filch_err push_checked(fli_worker *w, fli_proc *p)
{
    if (w->slow_push_from == 0) take_sample(w, p);
    return starves_others(w) ? push_global(w, p) : push_slow(w, p);
}

filch_err fli_ready_local(fli_local *worker, fli_proc *p)
{
    fli_worker *w = fli_worker_of(worker);
    uint32_t    before;
    if (FLI_UNLIKELY(worker->sends >= w->slow_push_from)) return push_checked(w, p);
    if (FLI_UNLIKELY(!fli_deque_try_push(&w->deque, p, &before))) return push_slow(w, p);
    worker->pushed++;
    uint64_t word = fli_idle_look(&w->sched->idle);
    bool     alone = before == 0 && !fli_lifo_slot_is_full(&w->lifo_slot);
    return FLI_LIKELY((word & FLI_SENTINEL) != 0 ? alone : fli_parked_in(word) == 0) ? FILCH_OK : notify_pushed(w);
}

filch_err fli_ready_next(fli_local *worker, fli_proc *p)
{
    fli_worker *w = fli_worker_of(worker);
    if (FLI_UNLIKELY(!fli_lifo_slot_put(&w->lifo_slot, p))) return fli_ready_local(worker, p);
    uint64_t word = fli_idle_look(&w->sched->idle);
    /* Told need be nobody where nobody sleeps, or where one watches over us and this is all that is queued here. */
    if (FLI_LIKELY((word & FLI_SENTINEL) != 0 ? fli_deque_is_empty(&w->deque) : fli_parked_in(word) == 0)) return FILCH_OK;
    return notify_pushed(w);
}

static filch_err ready_sampled(fli_local *worker, fli_proc *p)
{
    take_sample(fli_worker_of(worker), p);
    return fli_ready_next(worker, p);
}

/* Whom a step wakes is queued by another function until then; who comes by fli_ready_local, by another bound. So nobody asks for
 * each process whether a sample is due. */
void fli_ready_sample(fli_worker *w)
{
    w->slow_push_from = 0;
    w->local.ready = ready_sampled;
}

void fli_ready_continue(fli_worker *w, fli_proc *p)
{
    uint32_t pushed = w->local.pushed;
    bool     woke = fli_lifo_slot_is_full(&w->lifo_slot) || pushed > 0;
    if (woke && !starves_others(w)) {
        /* Who was woken took the sample, if one was due: the LIFO slot, too, was filled since the clock was last read, for a
         * worker empties it before it begins with another. */
        FLI_ASSERT(w->slow_push_from != 0);
        if (FLI_LIKELY(fli_deque_push_under(&w->deque, p, fli_deque_mark(&w->deque) - pushed))) fli_idle_notify_local(w);
        else push_global_fallback(w, p);
    } else if (w->local.sends == 0) {
        /* It would be the newest, and run again at once. The oldest goes first. */
        (void)fli_ready_local(&w->local, p);
        w->saw_continue = true;
        w->fair_credit += w->fair_countdown - 1;
        w->fair_countdown = 1;
    } else {
        /* It sent to somebody who was ready already, and waits somewhere in a queue, or to a crowd: to the end of the
         * line, or it would send on and on. */
        if (!woke) fli_throttle_note_backlog(&w->throttle, w->local.sends);
        (void)push_global(w, p);
    }
}

/* Without workers: make the descriptor readable, once until the next tick. */
static void signal_host(filch_sched *sched)
{
    /* PAIR tick.signal, both halves: what we queued is seen by the tick that finds the bell rung. */
    if (!fli_swap_acqrel(&sched->signalled, true)) fli_wakefd_ring(sched->wake_fd);
    if (fli_load_rlx(&sched->rt.phase) == FLI_CLOSING) fli_stop_nudge(sched);
}

void fli_ready_nudge(filch_sched *sched)
{
    if (sched->worker_count > 0) fli_idle_notify_global(sched);
    else signal_host(sched);
}

void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    filch_sched *sched = (filch_sched *)rt;
    if (worker != NULL) {
        /* By a step, or between steps: a timer that was due, a report of I/O. */
        (void)(worker->current != NULL ? worker->ready(worker, p) : fli_ready_local(worker, p));
        return;
    }
    if (sched->worker_count > 0 && fli_idle_handoff(sched, p)) return;
    fli_inject_put(&sched->global, p);
    if (sched->worker_count > 0) fli_idle_notify_global(sched);
    else signal_host(sched);
}
