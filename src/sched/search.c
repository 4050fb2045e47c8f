/* search.c - what a worker does when it has nothing to run: it searches, then parks (parking.c), then searches again.
 *
 * A search is a row of attempts. Each attempt checks timers and descriptors, the worker's own queues, the global queue,
 * and other workers. After each of the first spin_tight attempts the worker executes a pause instruction; after each of
 * the next spin_yield attempts it yields its time slice. If it is then the only worker that searches, it goes on until
 * search_ns has passed, about the time that parking and unparking would cost.
 * If work arrives seldom, searches find nothing, and the search time shrinks to 0. Otherwise the searches would keep a
 * CPU busy; and a system that prefers threads that ran little would start the worker later (measured without a runtime:
 * 5 us to wake a thread that runs 2 us each time, 13 us if it runs 20 us).
 *
 * The first attempt is made before the worker counts as searching. Most first attempts find work, and then the worker
 * has written no shared word. No other thread relies on an uncounted worker, so nothing is lost if its first attempt
 * misses a process: either the worker counts as searching later, or a submitter has seen no searching worker and has
 * unparked one.
 *
 * INVARIANT  a worker counts as searching in the idle word from start_searching() to stop_searching(), except
 *            while it is parked.
 * Design: docs/design/parking.md.
 */
#include "base/assert.h"
#include "clock/timers.h"
#include "port/clock.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/parking.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/throttle.h"
#include "sched/worker.h"
#include "sync/inject.h"

/* A worker shortens the search time if its park lasted more than LONG_PARK times option search_ns. */
#define LONG_PARK 4
/* A worker that woke by timeout and has run fewer steps than this since then makes one attempt to find work, and parks
 * again. */
#define BRIEF_STEPS 1024

static void start_searching(fli_idle *idle)
{
    (void)fli_add_acqrel(&idle->word, FLI_SEARCHING_ONE); /* PAIR idle.word */
}

/* Unparks another worker if there is more work than the process that `w` has found. `idle`: the idle word or the hint.
 * Precondition: a worker is parked. Processes in the global queue, and timers that would fire late, always count as
 * more work. With a sentinel, a single process queued at a worker does not count, because the sentinel will check that
 * worker; with `own_only`, only processes queued at `w` count. Without a sentinel, a worker is unparked to take even a
 * single process, or to become the sentinel: otherwise the process, timers and descriptors would wait as long as the
 * worker that owns the process stays in a step. */
static void wake_for_more(fli_worker *w, uint64_t idle, bool own_only)
{
    filch_sched *sched = w->sched;
    bool         has_sentinel = fli_sentinel_watches(w, idle), more;
    if (has_sentinel) more = own_only ? fli_parking_is_worth_wake(w) : fli_find_visible(sched, 2);
    else more = fli_find_visible(sched, 1) || fli_sentinel_is_needed(sched);
    if (w->needs_help) more = true;
    if (more || fli_inject_count(&sched->global) > 0 || fli_sentinel_misses_timers(sched)) fli_parking_wake_one(sched);
}

/* Ends a search that has found work. The last searcher unparks another worker if there is more work. If `w` woke by
 * timeout, its work comes from a few timers and is in its local deque: a second worker is seldom worth its wake-up. */
static void stop_searching(fli_worker *w)
{
    uint64_t word = fli_add_acqrel(&w->sched->idle.word, (uint64_t)0 - FLI_SEARCHING_ONE) - FLI_SEARCHING_ONE;
    fli_sentinel_worked(w);
    if (fli_searching_in(word) == 0 && fli_parked_in(word) > 0) wake_for_more(w, word, w->idle.timeout_at != 0);
}

/* Called when the first attempt of `w` has found work. At that time `w` does not count as searching yet. */
static void end_first_attempt(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    uint64_t  hint = fli_idle_look(idle);
    fli_sentinel_worked(w);
    if (fli_parked_in(hint) > 0 && fli_searching_in(fli_load_rlx(&idle->word)) == 0) wake_for_more(w, hint, true);
}

/* Takes the direct handoff of the worker `from`. Returns NULL if there is none. Thread: any worker. */
static fli_proc *take_handoff(fli_worker *from)
{
    if (fli_load_rlx(&from->idle.handoff) == NULL) return NULL;
    return fli_swap_acqrel(&from->idle.handoff, NULL); /* PAIR idle.handoff, acquire half */
}

/* Takes a direct handoff from a worker that was unparked but has not got a CPU yet. Returns NULL if there is none. */
static fli_proc *steal_handoff(fli_worker *w)
{
    fli_proc *p = NULL;
    for (uint32_t i = 0; p == NULL && i < w->sched->worker_count; i++) {
        if (w->sched->workers[i] != w) p = take_handoff(w->sched->workers[i]);
    }
    return p;
}

/* Makes one attempt to find a process. Returns NULL if it found none. Sets *retry if another thread won the race for a
 * process: then there may be more work. */
static fli_proc *search_once(fli_worker *w, bool *retry)
{
    fli_worker_clock(w);
    fli_proc *p = fli_find_near(w);
    return p != NULL ? p : fli_find_far(w, false, retry);
}

/* Adapts the search time after `w` was parked for `parked_for_ns`. If the park was no longer than option search_ns, a
 * search of that length would have found the work: sets the search time to search_ns. If the park was longer than
 * LONG_PARK times search_ns, the search before it was useless: divides the search time by four. */
static void adapt_search(fli_worker *w, uint64_t parked_for_ns)
{
    if (!w->sched->learns) return;
    FLI_ATOMIC(uint64_t) *search = &w->sched->idle.search_ns;
    uint64_t              most = w->sched->opt.search_ns, now = fli_load_rlx(search);
    uint64_t              next = now;
    if (parked_for_ns <= most) next = most;
    else if (parked_for_ns / LONG_PARK > most) next = now < most ? now / 4 : most / 4;
    /* Stored only if the value changes, because all searching workers read this cache line. */
    if (next != now) fli_store_rlx(search, next);
}

/* Executes a pause instruction, or yields the time slice, between two attempts: see the head of this file. Returns
 * false if it is time to park. */
static bool keep_searching(fli_worker *w, uint32_t attempts, uint64_t began_ns)
{
    const filch_options *opt = &w->sched->opt;
    /* During a stop the worker parks at once, however long a search the options allow. */
    if (fli_load_rlx(&w->sched->rt.phase) != FLI_OPEN) return false;
    uint64_t search_ns = fli_load_rlx(&w->sched->idle.search_ns);
    bool     in_vain = search_ns < opt->search_ns;
    if (in_vain && w->clock_ns - began_ns >= search_ns) return false;
    if (in_vain || attempts <= opt->spin_tight) {
        fli_thread_pause();
        return true;
    }
    if (attempts > (uint64_t)opt->spin_tight + opt->spin_yield) {
        bool alone = fli_searching_in(fli_load_rlx(&w->sched->idle.word)) == 1;
        if (!alone || w->clock_ns - began_ns > opt->search_ns) return false;
        fli_thread_pause();
        return true;
    }
    fli_thread_yield();
    return true;
}

/* Returns true if the worker woke by timeout and has run few steps since. Such a worker parks after one attempt: its
 * next work comes with its next timeout, and a search until then would keep a CPU busy for nothing. */
static bool is_brief(const fli_worker *w)
{
    return w->idle.timeout_at != 0 && fli_counters_steps(&w->local.counters) - w->idle.timeout_at < BRIEF_STEPS;
}

/* Called when `w` was unparked for a handoff, which happens only if all workers are parked. Unparks another worker if a
 * sentinel is needed and none will check `w`. */
static void on_full_idle_wake(fli_worker *w)
{
    filch_sched *sched = w->sched;
    uint64_t     word = fli_idle_look(&sched->idle);
    if (fli_parked_in(word) > 0 && !fli_sentinel_watches(w, word) && fli_sentinel_is_needed(sched))
        fli_parking_wake_one(sched);
}

/* Takes the process for which `w` was unparked (direct handoff), without a search and without checking timers first.
 * Returns NULL if another worker has taken that process; then `w` counts as searching. */
static fli_proc *take_handoff_or_search(fli_worker *w, uint64_t parked_ns)
{
    w->idle.has_handoff = false;
    fli_proc *p = take_handoff(w);
    if (p == NULL) {
        start_searching(&w->sched->idle);
        return NULL;
    }
    w->clock_ns = fli_now(&w->sched->rt);
    adapt_search(w, w->clock_ns - parked_ns);
    w->idle.timeout_at = 0;
    fli_sentinel_worked(w);
    on_full_idle_wake(w);
    return p;
}

fli_proc *fli_idle_find(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    uint32_t  attempts = 0;
    bool      brief = is_brief(w);
    if (FLI_UNLIKELY(w->may_rerun && fli_throttle_steals_are_weak(w))) fli_throttle_pause(w);
    bool      retry = false;
    fli_proc *p = search_once(w, &retry);
    if (p != NULL) {
        end_first_attempt(w);
        return p;
    }
    start_searching(idle);
    uint64_t began_ns = w->clock_ns;
    for (;;) {
        while (p == NULL && (retry || (!brief && keep_searching(w, ++attempts, began_ns)))) {
            retry = false;
            p = search_once(w, &retry);
        }
        if (p == NULL) p = steal_handoff(w);
        if (p != NULL) {
            stop_searching(w);
            return p;
        }
        uint64_t parked_ns = w->clock_ns;
        fli_timers_set_away(&w->sched->timers, w->local.index, true);
        fli_wake why = fli_parking_park(w);
        fli_timers_set_away(&w->sched->timers, w->local.index, false);
        if (w->idle.has_handoff && (p = take_handoff_or_search(w, parked_ns)) != NULL) return p;
        brief = why == FLI_WAKE_TIMEOUT;
        w->surveys_timers = true;
        w->idle.timeout_at = brief ? fli_counters_steps(&w->local.counters) : 0;
        fli_sentinel_woke(w, brief);
        attempts = 0;
        began_ns = fli_clock_ns();
        if (why == FLI_WAKE_UNPARKED) adapt_search(w, began_ns - parked_ns);
        if (why == FLI_WAKE_LEAVE) {
            (void)fli_add_acqrel(&idle->word, (uint64_t)0 - FLI_SEARCHING_ONE); /* PAIR idle.word */
            return NULL;
        }
        retry = false;
        p = search_once(w, &retry);
    }
}
