/* parking.c - parks workers that have found no work, and unparks them.
 *
 * No lost wake-up. A worker counts itself as parked, by a read-modify-write of the idle word, and then checks all
 * queues once more. A submitter queues its process, then does a read-modify-write of the same word and reads the
 * counts. The two read-modify-writes are ordered. If the submitter's read-modify-write is second, the submitter sees a
 * parked worker and no searching worker, and unparks a worker. If the worker's read-modify-write is second, the worker
 * has acquired what the submitter queued, and the worker's last check finds the process. (PAIR idle.word) A steal that
 * lost a race does not mean that there is no work: fli_find_far() sets *retry, and the worker searches again.
 *
 * No thundering herd. A submitter unparks at most one worker, and none while a worker searches. The last searcher that
 * finds work unparks the next one if there is more work (search.c). A worker that pushes to its local deque only reads
 * `hint`, a copy of what it needs of the word: whether a worker is parked, and whether the sentinel is armed. It may
 * read an old value, because it will run the process itself, so nothing is lost. It unparks another worker only if it
 * has more work than it can do in the time of a wake-up, or if no sentinel will check it. The hint is on a cache line
 * of its own, and changes only when the first worker parks, the last one is unparked, or the sentinel changes. The word
 * changes with every search: if pushes read the word, each search of one worker would cost every other worker a cache
 * miss (docs/design/scale.md).
 *
 * Direct handoff. While all workers are parked, only the worker that is unparked could find a queued process. So the
 * submitter takes a worker off the list, under the lock, stores the process in its `handoff`, and unparks it: no queue,
 * no search. That worker counts as working, not as searching, so no other thread relies on it: the next submitter sees
 * it awake and none searching, queues its process, and unparks another. What the submitter wrote is visible to the
 * unparked worker (PAIR parker.signal). If the unparked worker does not get a CPU, the process waits, unless another
 * worker wakes for a different reason, finds nothing else, and takes the process (search.c). Both workers take it by a
 * swap, so only one of them gets it (PAIR idle.handoff). The sentinel is chosen only if it is the only parked worker,
 * because its timeout is needed.
 *
 * Descriptors. While a process waits for a descriptor, one parked worker, the poller, sleeps in the system's poll call
 * instead of its parker, with the timeout it would have there. A worker that parks becomes the poller if there is none;
 * so there is a poller when all workers are parked. If the poller leaves to run a step while no sentinel will check it,
 * another worker is unparked and becomes the poller, because the step may be long. Whether a worker is the poller is
 * read under the lock, where workers are taken off the list; the wake descriptor of the poller stays readable until the
 * poller itself has cleared it. The poller delivers reports to its local deque, so no other thread is involved. Working
 * workers poll when they read the clock (worker.c), searching workers at each attempt.
 *
 * Not done here: searching (search.c), timeouts (sentinel.c).
 * Design: docs/design/parking.md.
 */
#include "sched/parking.h"

#include "base/assert.h"
#include "io/io.h"
#include "port/clock.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/stop.h"
#include "sched/throttle.h"
#include "sched/trim.h"
#include "sched/worker.h"
#include "sync/inject.h"

/* A worker unparks no other worker if the processes queued at it take less than this time. A wake-up costs the waking
 * thread 11 to 17 us and the parked one 33 to 58 us (2-core virtual machine). */
#define WORTH_WAKE_NS UINT64_C(25000)

filch_err fli_idle_init(fli_idle *idle)
{
    fli_atomic_init(&idle->word, 0);
    fli_atomic_init(&idle->hint, 0);
    fli_atomic_init(&idle->search_ns, FLI_NEVER);
    idle->parked = idle->sentinel = idle->backup = idle->poller = NULL;
    idle->sentinel_until_ns = FLI_NEVER;
    fli_atomic_init(&idle->timers_from_ns, 0);
    fli_atomic_init(&idle->backup_until_ns, FLI_NEVER);
    idle->sentinel_armed = false;
    fli_atomic_init(&idle->leaving, false);
    return fli_mutex_init(&idle->lock);
}

void fli_idle_fini(fli_idle *idle)
{
    fli_mutex_fini(&idle->lock);
}

uint32_t fli_idle_parked(fli_idle *idle)
{
    return fli_parked_in(fli_load_rlx(&idle->word));
}

static void list_parked_locked(fli_idle *idle, fli_worker *w)
{
    w->idle.is_parked = true;
    w->idle.prev = NULL;
    w->idle.next = idle->parked;
    if (idle->parked != NULL) idle->parked->idle.prev = w;
    idle->parked = w;
}

/* Takes `w` off the list of parked workers. `as` is FLI_SEARCHING_ONE if `w` searches from now on, 0 if it works. */
static inline void unlist_parked_as_locked(fli_idle *idle, fli_worker *w, uint64_t as)
{
    if (w->idle.prev != NULL) w->idle.prev->idle.next = w->idle.next;
    else idle->parked = w->idle.next;
    if (w->idle.next != NULL) w->idle.next->idle.prev = w->idle.prev;
    w->idle.is_parked = false;
    fli_sentinel_leave_locked(idle, w);
    (void)fli_add_acqrel(&idle->word, as - FLI_PARKED_ONE); /* PAIR idle.word */
    fli_idle_update_hint_locked(idle);
}

static void unlist_parked_locked(fli_idle *idle, fli_worker *w)
{
    unlist_parked_as_locked(idle, w, FLI_SEARCHING_ONE);
}

/* Ends the sleep of `w`, which has been taken off the list of parked workers. `polls`: `w` was the poller when it was
 * taken off. Needs no lock. */
static void unpark(filch_sched *sched, fli_worker *w, bool polls)
{
    if (polls) fli_io_wake(&sched->io);
    else fli_unpark(&w->idle.parker);
}

/* Returns the worker to unpark: the worker that parked last of those that are neither poller nor sentinel; if there is
 * none, the poller; if there is no poller either, the sentinel. Returns NULL if no worker is parked. */
static fli_worker *choose_locked(fli_idle *idle)
{
    for (fli_worker *w = idle->parked; w != NULL; w = w->idle.next) {
        if (w != idle->sentinel && w != idle->poller) return w;
    }
    fli_worker *w = idle->parked;
    return w != NULL && w == idle->sentinel && w->idle.next != NULL ? w->idle.next : w;
}

static bool all_parked(const filch_sched *sched)
{
    return fli_parked_in(fli_load_rlx(&sched->idle.word)) == sched->worker_count;
}

bool fli_idle_handoff(filch_sched *sched, fli_proc *p)
{
    fli_idle *idle = &sched->idle;
    if (!all_parked(sched)) return false; /* only a hint; checked again under the lock, where the count cannot change */
    fli_mutex_lock(&idle->lock);
    fli_worker *w = all_parked(sched) ? choose_locked(idle) : NULL;
    bool        polls = w != NULL && w == idle->poller;
    if (w != NULL) {
        fli_store_rel(&w->idle.handoff, p); /* PAIR idle.handoff, release half: publishes what made the process ready */
        w->idle.has_handoff = true;
        unlist_parked_as_locked(idle, w, 0);
    }
    fli_mutex_unlock(&idle->lock);
    if (w == NULL) return false;
    unpark(sched, w, polls);
    FLI_TALLY(&sched->rt, fli_current_worker(&sched->rt), wakes, 1);
    return true;
}

void fli_parking_wake_one(filch_sched *sched)
{
    fli_idle   *idle = &sched->idle;
    fli_worker *w = NULL;
    fli_mutex_lock(&idle->lock);
    if (fli_searching_in(fli_load_rlx(&idle->word)) == 0) w = choose_locked(idle);
    bool polls = w != NULL && w == idle->poller;
    if (w != NULL) unlist_parked_locked(idle, w);
    fli_mutex_unlock(&idle->lock);
    if (w == NULL) return;
    unpark(sched, w, polls);
    FLI_TALLY(&sched->rt, fli_current_worker(&sched->rt), wakes, 1);
}

void fli_idle_notify_global(filch_sched *sched)
{
    /* PAIR idle.word, both halves. The RMW adds 0; only its order with the RMW of a worker that is about to park
     * matters: if the worker's RMW comes first, this thread sees the worker as parked; otherwise the worker sees what
     * this thread has queued. */
    uint64_t word = fli_add_acqrel(&sched->idle.word, 0);
    if (fli_parked_in(word) > 0 && fli_searching_in(word) == 0) fli_parking_wake_one(sched);
}

bool fli_parking_is_worth_wake(fli_worker *w)
{
    uint32_t queued = fli_worker_queued(w);
    return queued >= 2 && queued * w->step_ns >= WORTH_WAKE_NS && !fli_throttle_is_pausing(w);
}

void fli_idle_notify_local(fli_worker *w)
{
    uint64_t hint = fli_idle_look(&w->sched->idle);
    if (FLI_LIKELY(fli_parked_in(hint) == 0)) return;
    if (fli_sentinel_watches(w, hint) && !fli_parking_is_worth_wake(w)) return;
    if (fli_searching_in(fli_load_rlx(&w->sched->idle.word)) == 0) fli_parking_wake_one(w->sched);
}

/* Sleeps as the poller in the system's poll call. Releases the idle lock during the sleep. Returns true if the sleep
 * ended because `until_ns` has passed: no descriptor was reported ready, and no thread has unparked `w`. */
static bool wait_in_poller(fli_worker *w, uint64_t until_ns, fli_io_batch *batch)
{
    fli_idle *idle = &w->sched->idle;
    idle->poller = w;
    fli_mutex_unlock(&idle->lock);
    fli_io_collect(&w->sched->io, until_ns, batch, UINT32_MAX);
    fli_mutex_lock(&idle->lock);
    idle->poller = NULL;
    return w->idle.is_parked && batch->count == 0 && until_ns != FLI_NEVER && fli_clock_ns() >= until_ns;
}

static fli_wake reason_unparked(fli_idle *idle)
{
    return fli_load_rlx(&idle->leaving) ? FLI_WAKE_LEAVE : FLI_WAKE_UNPARKED;
}

/* Leaves a spare node for the next message that a foreign thread sends. A foreign thread has no magazine, and would
 * otherwise lock the depot to take a node. The spare node is the one that this worker used last, so its cache line is
 * warm. */
static void leave_spare_node(fli_worker *w)
{
    fli_runtime *rt = &w->sched->rt;
    if (w->local.nodes.count == 0 || fli_load_rlx(&rt->spare_node) != NULL) return;
    fli_event_node *node = w->local.nodes.objects[--w->local.nodes.count];
    node = fli_swap_acqrel(&rt->spare_node, node); /* PAIR runtime.spare_node, release half */
    /* not NULL: since the check above, another worker has put a spare node there too */
    if (node != NULL) fli_node_give(rt, &w->local, node);
}

/* Returns a portion of the free memory to the system. Called with the idle lock held; releases the lock while it works.
 * `w` stays in the list of parked workers, but is not the poller. Returns true, with the lock held, if `w` is still
 * parked. Returns false, without the lock, if another thread has taken `w` off the list of parked workers. */
static bool return_memory(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    fli_mutex_unlock(&idle->lock);
    fli_trim_run(w->sched, fli_clock_ns());
    fli_mutex_lock(&idle->lock);
    if (w->idle.is_parked) return true;
    fli_mutex_unlock(&idle->lock);
    (void)fli_park(&w->idle.parker, FLI_NEVER); /* consumes the unpark by the thread that took `w` off the list */
    return false;
}

/* A thread that takes a worker off the list of parked workers unparks it exactly once, unless the worker is the poller.
 * So when fli_park() returns true, the worker knows without the lock that it is off the list. If fli_park() returns
 * false, because the timeout has passed, another thread may have taken the worker off the list and not unparked it yet.
 * Then the worker waits until that thread unparks it, because otherwise its next fli_park() would return at once. */
fli_wake fli_parking_park(fli_worker *w)
{
    filch_sched *sched = w->sched;
    fli_idle    *idle = &sched->idle;
    fli_wake     why = FLI_WAKE_UNPARKED;
    fli_io_batch batch = { .count = 0 };
    leave_spare_node(w);
    fli_trim_plan(sched);
    fli_mutex_lock(&idle->lock);
    list_parked_locked(idle, w);
    uint64_t sentinel = fli_sentinel_join_locked(w) ? FLI_SENTINEL : 0;
    /* PAIR idle.word, both halves: from here on a submitter sees this worker parked, or this worker sees what the
     * submitter queued. */
    (void)fli_add_acqrel(&idle->word, FLI_PARKED_ONE - FLI_SEARCHING_ONE + sentinel);
    fli_idle_update_hint_locked(idle);
    if (fli_inject_count(&sched->global) > 0 || fli_find_visible(sched, 2) || fli_load_rlx(&idle->leaving)) {
        unlist_parked_locked(idle, w);
        fli_mutex_unlock(&idle->lock);
        return reason_unparked(idle);
    }
    fli_count(&w->local.counters.sleeps, 1);
    if (fli_load_rlx(&sched->rt.phase) == FLI_CLOSING) fli_stop_nudge(sched);
    for (;;) {
        uint64_t until = fli_sentinel_deadline_locked(w);
        bool     late;
        if (fli_io_has_fds(&sched->io) && idle->poller == NULL) {
            late = wait_in_poller(w, until, &batch);
            /* A poller that got reports leaves the list of parked workers, unless another thread has taken it off. */
            if (batch.count > 0 && w->idle.is_parked) unlist_parked_locked(idle, w);
            if (!w->idle.is_parked) break;
        } else {
            fli_mutex_unlock(&idle->lock);
            if (fli_park(&w->idle.parker, until)) return reason_unparked(idle);
            fli_mutex_lock(&idle->lock);
            if (!w->idle.is_parked) {
                fli_mutex_unlock(&idle->lock);
                (void)fli_park(&w->idle.parker, FLI_NEVER);
                return reason_unparked(idle);
            }
            late = fli_clock_ns() >= until;
        }
        if (!late || !fli_sentinel_heeds_timeout_locked(w)) continue;
        if (fli_trim_due_ns(sched) <= until) {
            if (!return_memory(w)) return reason_unparked(idle);
            continue;
        }
        unlist_parked_locked(idle, w);
        why = FLI_WAKE_TIMEOUT;
        break;
    }
    if (fli_load_rlx(&idle->leaving)) why = FLI_WAKE_LEAVE;
    fli_mutex_unlock(&idle->lock);
    if (batch.count == 0) return why;
    w->clock_ns = fli_now(&sched->rt);
    fli_worker_begin_poll_interval(w, batch.count);
    fli_io_deliver(&sched->io, &batch);
    return why;
}

void fli_idle_leave(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    fli_mutex_lock(&idle->lock);
    fli_store_rlx(&idle->leaving, true);
    while (idle->parked != NULL) {
        fli_worker *w = idle->parked;
        unlist_parked_locked(idle, w);
        unpark(sched, w, w == idle->poller);
    }
    fli_mutex_unlock(&idle->lock);
}
