/* ready.c - queues a process that became ready, and decides whether a parked worker is woken for it.
 *
 * Where a process is queued:
 *   - woken by a step: the LIFO slot of the worker, if it is empty; then the process runs next. Otherwise the local
 *     deque. The data of the process has just been written by this CPU
 *   - woken by the worker between steps (timers, I/O): the local deque; those that timers wake together are pushed
 *     in reverse order, so that the earliest runs first
 *   - woken by a foreign thread: the global queue; or, while all workers are parked, direct handoff to one of them
 *     (parking.c)
 *   - continuing by itself (filch_continue): the local deque, below the processes that its step woke; or the global
 *     queue, if it sends to processes that are queued already, or if its step is a fan-out that would starve others
 * Thieves see the deque, the LIFO slot and the global queue: no process waits where only one worker can take it.
 * Design: docs/design/run-queues.md.
 */
#include "sched/ready.h"
#include "base/assert.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "sched/throttle.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"

/* A step counts as a fan-out from this number of sends on. If other processes are queued, the processes woken by the
 * sends from this number on go to the global queue. In the local deque, which runs the newest first, they would all run
 * before the processes queued earlier: with 10,000 messages sent in a row, the 99th percentile of the latency of other
 * processes was 86 ms instead of 0.3 ms (bench/lua/crash.c). */
#define FANOUT_MIN 33
/* If the average step takes at most this time, the processes that a fan-out wakes stay in the local deque: their steps
 * end soon, and the global queue would reduce their throughput by a fifth. */
#define FANOUT_STEP_NS 500

/* Starts the measurement of one queue wait, requested by fli_ready_sample(): sets p->last_worker to FLI_MARK_SAMPLED,
 * and restores the ordinary push functions. Each step reads last_worker, so the next step of `p` finds this value and
 * ends the measurement (notice() in step.c). Thread: the worker that owns `p`, which is not queued yet. */
static void take_sample(fli_worker *w, fli_proc *p)
{
    w->slow_push_from = FANOUT_MIN;
    w->local.ready = fli_ready_next;
    p->last_worker = FLI_MARK_SAMPLED;
    w->sample_serial = fli_proc_serial(p);
    w->sample_ns = fli_now(&w->sched->rt);
}

/* Puts `p` into the global queue because there is no memory to grow the deque. The global queue needs no memory: it
 * links processes. */
static void push_global_fallback(fli_worker *w, fli_proc *p)
{
    fli_inject_put(&w->sched->global, p);
    fli_idle_notify_global(w->sched);
}

/* Pushes to the local deque, which may have to grow. */
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

/* Slow half of fli_ready_local() and fli_ready_next(): unparks a worker if the queued work is worth a wake-up. */
static __attribute__((noinline)) filch_err notify_pushed(fli_worker *w)
{
    fli_idle_notify_local(w);
    return FILCH_OK;
}

/* Puts `p` at the end of the global queue. Need not call fli_idle_notify_global(): this worker itself takes from the
 * global queue, so the process cannot be lost. */
static filch_err push_global(fli_worker *w, fli_proc *p)
{
    fli_inject_put(&w->sched->global, p);
    fli_idle_notify_local(w);
    return FILCH_OK;
}

/* Returns true if three conditions hold: the current step is a fan-out, the average step of this worker is long, and
 * the deque holds processes that were queued before the current step. */
static bool starves_others(fli_worker *w)
{
    if (w->local.sends < FANOUT_MIN || w->step_ns <= FANOUT_STEP_NS) return false;
    return fli_deque_count(&w->deque) > w->local.pushed;
}

/* Pushes a process woken by a step that has made at least `slow_push_from` sends: takes a sample if one is requested,
 * and pushes to the global queue if the step is a fan-out that starves other processes. */
static __attribute__((noinline)) filch_err push_checked(fli_worker *w, fli_proc *p)
{
    if (w->slow_push_from == FLI_PUSH_SAMPLE) take_sample(w, p);
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
    /* No worker is woken if no worker is parked, or if a sentinel is armed and `p` is the only process queued at this
     * worker. */
    if (FLI_LIKELY((word & FLI_SENTINEL) != 0 ? fli_deque_is_empty(&w->deque) : fli_parked_in(word) == 0))
        return FILCH_OK;
    return notify_pushed(w);
}

/* The function in `local.ready` while a sample is requested: takes the sample, and then pushes the process as usual. */
static filch_err ready_sampled(fli_local *worker, fli_proc *p)
{
    take_sample(fli_worker_of(worker), p);
    return fli_ready_next(worker, p);
}

/* Replaces `local.ready` and lowers `slow_push_from`, so that the next push, by a step or between steps, takes the slow
 * path. So ordinary pushes need not check whether a sample is due. take_sample() restores both fields. */
void fli_ready_sample(fli_worker *w)
{
    w->slow_push_from = FLI_PUSH_SAMPLE;
    w->local.ready = ready_sampled;
}

void fli_ready_continue(fli_worker *w, fli_proc *p)
{
    uint32_t pushed = w->local.pushed;
    /* `woke` is also true if this step woke no process, but was a fairness pick that left a process in the LIFO slot.
     * Then, too, the process in the slot runs next, and the next pick is not brought forward. */
    bool woke = fli_lifo_slot_is_full(&w->lifo_slot) || pushed > 0;
    if (woke && !starves_others(w)) {
        if (FLI_LIKELY(fli_deque_push_under(&w->deque, p, fli_deque_mark(&w->deque) - pushed)))
            fli_idle_notify_local(w);
        else push_global_fallback(w, p);
    } else if (w->local.sends == 0) {
        /* `p` is now the newest process in the deque and would run again at once. So the fairness pick is brought
         * forward. If the step was long, further picks follow (worker.c begins a series). */
        (void)fli_ready_local(&w->local, p);
        w->saw_continue = true;
        w->fair_credit += w->fair_countdown - 1;
        w->fair_countdown = 1;
    } else {
        /* `p` sent only to processes that were queued already, or its step is a fan-out that starves others. `p` goes
         * to the end of the global queue: in the deque it would run before its receivers, and would send more and more
         * messages. */
        if (!woke) fli_throttle_note_backlog(&w->throttle, w->local.sends);
        /* After FLI_CONTENDED_MIN contended sends since its last clock reading, the worker reads the clock before the
         * next step. If many workers send to one mailbox, a step takes milliseconds; without this reading the worker
         * would join a pause (throttle.c) only after up to CLOCK_INTERVAL_MAX such steps. */
        if (FLI_UNLIKELY(w->local.contended_sends >= FLI_CONTENDED_MIN)) w->clock_countdown = 0;
        (void)push_global(w, p);
    }
}

/* For a scheduler without workers: makes the descriptor that the program polls readable, at most once until the next
 * tick. */
static void signal_host(filch_sched *sched)
{
    /* PAIR tick.signal, both halves: the tick that finds `signalled` set sees what this thread queued. */
    if (!fli_swap_acqrel(&sched->signalled, true)) fli_wakefd_signal(sched->wake_fd);
    if (fli_load_rlx(&sched->rt.phase) == FLI_CLOSING) fli_stop_nudge(sched);
}

void fli_ready_nudge(filch_sched *sched)
{
    if (sched->worker_count > 0) fli_idle_notify_global(sched);
    else signal_host(sched);
}

void fli_ready_gather(fli_worker *w)
{
    w->gathered_count = 0;
    w->gathers = true;
}

void fli_ready_push_gathered(fli_worker *w)
{
    w->gathers = false;
    while (w->gathered_count > 0) (void)fli_ready_local(&w->local, w->gathered[--w->gathered_count]);
}

/* Queues a process that a timer or a report of the poller has woken, or keeps it for fli_ready_push_gathered(). */
static void ready_between_steps(fli_worker *w, fli_proc *p)
{
    if (w->gathers && w->gathered_count < FLI_GATHERED_MAX) w->gathered[w->gathered_count++] = p;
    else (void)fli_ready_local(&w->local, p);
}

void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    filch_sched *sched = (filch_sched *)rt;
    if (worker != NULL) {
        /* `p` was woken by a step (worker->current is set), or between steps. */
        if (worker->current != NULL) (void)worker->ready(worker, p);
        else ready_between_steps(fli_worker_of(worker), p);
        return;
    }
    if (sched->worker_count > 0 && fli_idle_handoff(sched, p)) return;
    fli_inject_put(&sched->global, p);
    if (sched->worker_count > 0) fli_idle_notify_global(sched);
    else signal_host(sched);
}
