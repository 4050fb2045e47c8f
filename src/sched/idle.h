/* idle.h - the state of idle workers, shared by search.c, parking.c and sentinel.c, and what the rest of the scheduler calls. */
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

/* A worker as one of the parked. Plain, under the idle lock; but `handoff` is atomic, and `timeout_at`, `sentinel_ns` and `backup_ns`
 * are used by the worker alone. What a handoff from a foreign thread needs is on one cache line. */
typedef struct fli_idle_worker {
    alignas(FLI_LINE) struct fli_worker *next, *prev; /* in the list of parked workers */
    fli_parker parker;      /* unparked once by the thread that takes the worker off the list, unless the worker is the poller */
    bool       is_parked;   /* it is in the list */
    bool       has_handoff; /* it was unparked with a `handoff`, and counts as working. Until it has looked there */
    /* The process it was unparked for.  writes: the unparking thread, under the idle lock, and the worker that takes it, by swap.
     * PAIR idle.handoff */
    FLI_ATOMIC(struct fli_proc *) handoff;
    uint64_t timeout_at;  /* its count of steps when it last woke by timeout; 0: it was unparked */
    uint64_t sentinel_ns; /* its next timeout as sentinel; doubles while nothing happens */
    uint64_t backup_ns;   /* how long after the sentinel's timeout its own is, as backup */
} fli_idle_worker;

typedef struct fli_idle {
    /* sentinel armed:1 | searching:16 | parked:16.  writes: any worker or submitter, by add.  PAIR idle.word */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* How long a search may be at present, at most option search_ns.  writes: workers that were unparked.  reads: workers;
     * relaxed: an old value makes one search longer or shorter. */
    FLI_ATOMIC(uint64_t) search_ns;
    alignas(FLI_LINE) fli_mutex lock;
    /* Plain, under lock. */
    struct fli_worker *parked;   /* the worker that parked last comes first, and is unparked first: its caches are warm */
    struct fli_worker *sentinel; /* see sentinel.c; NULL: none */
    uint64_t           sentinel_until_ns;
    /* When the timeout of the backup is; FLI_NEVER: there is none.  writes: under lock.  reads: workers; relaxed: an old value
     * makes them unpark one worker too many, or rely on a timeout that has just passed. */
    FLI_ATOMIC(uint64_t) backup_until_ns;
    /* No timeout for timers comes before.  writes: workers that read the clock.  reads: workers that park; relaxed: an old value
     * makes a timeout come a little earlier. */
    FLI_ATOMIC(uint64_t) timers_from_ns;
    struct fli_worker *backup;         /* see sentinel.c; NULL: none */
    struct fli_worker *poller;         /* the parked worker that sleeps in the poll call, not in its parker; NULL: none */
    bool               sentinel_armed; /* the timeout of the sentinel also looks after working workers */
    /* The worker threads are to return.  writes: under lock.  reads: also unparked workers without it; relaxed: PAIR parker.signal
     * orders it. */
    FLI_ATOMIC(bool) leaving;
} fli_idle;

filch_err fli_idle_init(fli_idle *idle);
void      fli_idle_fini(fli_idle *idle);

/* Searches and parks until there is a process to run. Returns it, or NULL if the thread must return. Thread: a worker. */
struct fli_proc *fli_idle_find(struct fli_worker *w);

/* Direct handoff: if all workers are parked, gives `p` to one and unparks it. Returns false if a worker is awake: queue `p`.
 * Thread: any. */
FILCH_MUST_USE bool fli_idle_handoff(filch_sched *sched, struct fli_proc *p);
/* Unparks a worker if none searches: a process was put in the global queue. Thread: any. */
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

/* Unparks a worker if that is worth it: a process was put in the deque or the LIFO slot of `w`. Thread: `w`. */
void fli_idle_notify_local(struct fli_worker *w);
/* Returns the idle word, as a hint: relaxed. A worker that queues at itself needs no more, see parking.c. */
static inline uint64_t fli_idle_look(fli_idle *idle)
{
    return fli_load_rlx(&idle->word);
}

/* Unparks all workers for good: their threads return. Thread: the stopping one, when no process is left. */
void fli_idle_leave(filch_sched *sched);

/* Returns how many workers are parked, as a hint. */
uint32_t fli_idle_parked(fli_idle *idle);

#endif
