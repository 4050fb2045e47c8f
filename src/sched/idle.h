/* idle.h - the state of idle workers, shared by search.c, parking.c and sentinel.c, and the functions that the rest of
 * the scheduler calls. */
#ifndef FLI_SCHED_IDLE_H
#define FLI_SCHED_IDLE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/assert.h"
#include "port/atomic.h"
#include "port/thread.h"

struct fli_worker;
struct fli_proc;

/* The part of a worker that parking uses. The fields are used under the idle lock, with these exceptions: `parker` and
 * `handoff` need no lock; the worker reads and clears `has_handoff` after it was unparked, without the lock;
 * `timeout_at`, `sentinel_ns` and `backup_ns` are used by the worker alone. The fields that a handoff from a foreign
 * thread needs are on one cache line. */
typedef struct fli_idle_worker {
    alignas(FLI_LINE) struct fli_worker *next, *prev; /* neighbours in the list of parked workers */
    fli_parker parker; /* a thread that takes the worker off the list of parked workers unparks it by this parker,
                          exactly once; not used while the worker is the poller */
    bool is_parked;    /* the worker is in the list of parked workers */
    bool has_handoff;  /* the worker was unparked with a process in `handoff`, so it counts as working; cleared when
                          the worker reads `handoff` */
    /* The process for which the worker was unparked.  writes: the unparking thread, under the idle lock, and the worker
     * that takes the process, by swap. PAIR idle.handoff */
    FLI_ATOMIC(struct fli_proc *) handoff;
    uint64_t timeout_at;  /* the worker's count of steps when it last woke by timeout; 0: an unpark woke it last */
    uint64_t sentinel_ns; /* length of the worker's next timeout as sentinel; doubles each time the worker wakes by
                             timeout */
    uint64_t backup_ns;   /* delay between the sentinel's timeout and this worker's timeout, when this worker is the
                             backup */
} fli_idle_worker;

typedef struct fli_idle {
    /* Bits 0 to 15: count of parked workers. Bits 16 to 31: count of searching workers. Bit 32: the sentinel is armed.
     * writes: any worker or submitter, by add.  PAIR idle.word */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* No worker wakes for timers before this time.  writes: workers that read the clock.  reads: workers that park;
     * relaxed: an old value makes a timeout come a little earlier. */
    FLI_ATOMIC(uint64_t) timers_from_ns;

    /* This cache line is read at each push and each search, and written seldom.
     * hint: FLI_PARKED_ONE: at least one worker is parked. FLI_SENTINEL: the sentinel is armed.  writes: under lock,
     * only if the value changes.  reads: workers that push to their local deque; relaxed: a hint (parking.c). */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) hint;
    /* How long a search may last at present; at most option search_ns.  writes: workers that were unparked.  reads:
     * workers; relaxed: an old value makes one search longer or shorter. */
    FLI_ATOMIC(uint64_t) search_ns;
    /* The time at which the backup wakes by timeout; FLI_NEVER: there is no backup.  writes: under lock.  reads:
     * workers; relaxed: with an old value a worker unparks one worker too many, or relies on a timeout that has just
     * passed. */
    FLI_ATOMIC(uint64_t) backup_until_ns;

    alignas(FLI_LINE) fli_mutex lock;
    /* The fields from here on are used under `lock`, except the atomic one. */
    struct fli_worker *parked;   /* list of the parked workers; the worker that parked last comes first, because its
                                    caches are warm: see choose_locked() in parking.c */
    struct fli_worker *sentinel; /* the worker that is the sentinel (sentinel.c); NULL: none */
    uint64_t           sentinel_until_ns;
    struct fli_worker *backup; /* the worker that is the backup (sentinel.c); NULL: none */
    struct fli_worker *poller; /* the parked worker that sleeps in the poll call, not in its parker; NULL:
                                  none */
    bool sentinel_armed; /* true: the sentinel, when it wakes by timeout, also checks the workers that are working */
    /* The worker threads must return.  writes: under lock.  reads: under lock; unparked workers read it without the
     * lock; relaxed, because PAIR parker.signal orders that read. */
    FLI_ATOMIC(bool) leaving;
} fli_idle;

filch_err fli_idle_init(fli_idle *idle);
void      fli_idle_fini(fli_idle *idle);

/* Searches and parks until there is a process to run. Returns that process, or NULL if the thread must return. Thread:
 * a worker. */
struct fli_proc *fli_idle_find(struct fli_worker *w);

/* Direct handoff: if all workers are parked, gives `p` to one and unparks it. Returns false if a worker is awake; then
 * the caller queues `p`. Thread: any. */
FILCH_MUST_USE bool fli_idle_handoff(filch_sched *sched, struct fli_proc *p);
/* Called when a process was put in the global queue: unparks a worker if none searches. Thread: any. */
void fli_idle_notify_global(filch_sched *sched);

#define FLI_PARKED_ONE (UINT64_C(1))
#define FLI_SEARCHING_ONE (UINT64_C(1) << 16)
#define FLI_SENTINEL (UINT64_C(1) << 32)

static inline uint32_t fli_parked_in(uint64_t word)
{
    return (uint32_t)(word & 0xffffu);
}

static inline uint32_t fli_searching_in(uint64_t word)
{
    return (uint32_t)(word / FLI_SEARCHING_ONE) & 0xffffu;
}

/* Called when a process was put in the deque or the LIFO slot of `w`: unparks a worker if that is worth its cost.
 * Thread: `w`. */
void fli_idle_notify_local(struct fli_worker *w);
/* Returns whether a worker is parked (FLI_PARKED_ONE) and whether the sentinel is armed (FLI_SENTINEL), by a relaxed
 * load, as a hint. A hint is enough for a worker that has pushed to its local deque: parking.c explains why. */
static inline uint64_t fli_idle_look(fli_idle *idle)
{
    return fli_load_rlx(&idle->hint);
}

/* Called under the idle lock after a change of the parked count or of the bit FLI_SENTINEL: copies them to the hint. */
static inline void fli_idle_update_hint_locked(fli_idle *idle)
{
    uint64_t word = fli_load_rlx(&idle->word);
    uint64_t hint = (word & FLI_SENTINEL) | (fli_parked_in(word) > 0 ? FLI_PARKED_ONE : 0);
    if (fli_load_rlx(&idle->hint) != hint) fli_store_rlx(&idle->hint, hint);
}

/* Unparks all workers, and makes their threads return. Thread: the stopping one, when no process is left. */
void fli_idle_leave(filch_sched *sched);

/* Returns how many workers are parked, as a hint. */
uint32_t fli_idle_parked(fli_idle *idle);

#endif
