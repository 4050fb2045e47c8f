/* idle.h - running dry: who searches, who sleeps, and who is woken. See idle.c. */
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

/* A worker's place among the sleepers. Plain: under the idle lock, but for `handed`, and for `alarmed_at`, `watch_ns`
 * and `backup_ns`, the worker's own. What a call from outside needs is on one line. */
typedef struct fli_idle_worker {
    alignas(FLI_LINE) struct fli_worker *next, *prev; /* among those asleep */
    fli_parker           parker; /* rung once by whoever takes it from among the sleepers, unless it was the poller */
    bool               is_parked;
    bool               has_handoff; /* it was raised to work, with `handed`: it does not search. Until it has seen that */
    /* The process that it was raised for.  writes: who raises it, under the idle lock, and whoever takes it, by swap.
     * PAIR idle.handoff */
    FLI_ATOMIC(struct fli_proc *) handoff;
    uint64_t           timeout_at; /* the worker's own: its count of steps when the alarm last woke it; 0: it was called */
    uint64_t           sentinel_ns; /* how long it sleeps while it is the watch; doubles while nothing happens */
    uint64_t           backup_ns; /* and how long after the watch's alarm, while it stands in for it */
} fli_idle_worker;

typedef struct fli_idle {
    /* watched:1 | searching:16 | asleep:16.  writes: any worker or submitter, by add.  PAIR idle.word */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* How long a search has been worth while of late; the option is the most.  writes: workers that were called from
     * their sleep.  reads: workers.  Relaxed: a guess. */
    FLI_ATOMIC(uint64_t) search_ns;
    alignas(FLI_LINE) fli_mutex lock;
    /* Plain, under lock. */
    struct fli_worker *parked; /* the one that fell asleep last is the first to be woken: its caches are warm */
    struct fli_worker *sentinel;    /* the sleeper that wakes by itself for timers and stuck workers */
    uint64_t           sentinel_until_ns;
    /* When the stand-in's alarm rings; FLI_NEVER: there is none.  writes: under lock.  reads: workers, relaxed: a hint
     * that is a little old makes them wake somebody too many, or leaves it to an alarm that has just rung. */
    FLI_ATOMIC(uint64_t) backup_until_ns;
    /* No alarm for timers rings before.  writes: workers that look at the clock.  reads: who sets an alarm.  relaxed: one
     * that is read too old wakes somebody a little earlier. */
    FLI_ATOMIC(uint64_t) timers_from_ns;
    struct fli_worker *backup;   /* and the one that takes over if the watch is called to work */
    struct fli_worker *poller;   /* the sleeper that waits for descriptors, not for its bell */
    bool               sentinel_armed; /* the watch's alarm also looks after working workers; `watched` in the word */
    FLI_ATOMIC(bool) leaving; /* writes: under lock.  reads: also workers that were called; relaxed, the bell orders it */
} fli_idle;

filch_err fli_idle_init(fli_idle *idle);
void      fli_idle_fini(fli_idle *idle);

/* Searches, sleeps, searches ... until there is a process to run. NULL: time to leave. Thread: a worker. */
struct fli_proc *fli_idle_find(struct fli_worker *w);

/* If everybody sleeps: wakes one, and leaves `p` with it. False: somebody is awake, queue it. Thread: any. */
FILCH_MUST_USE bool fli_idle_handoff(filch_sched *sched, struct fli_proc *p);
/* Something was put in the global queue by a thread that will not run it. Thread: any. */
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

/* Something was put in the worker's own deque, or in the LIFO slot beside it. Thread: that worker. */
void fli_idle_notify_local(struct fli_worker *w);
/* A look at the word, for the three above. Relaxed: a hint, see idle.c. */
static inline uint64_t fli_idle_look(fli_idle *idle)
{
    return fli_load_rlx(&idle->word);
}

/* So many timers were due when the worker looked at its clock: if several, the next may wait a little. Thread: it. */
void fli_idle_note_timers(struct fli_worker *w, uint32_t timers);

/* Until when whoever has nothing else to do may sleep on the timers; FLI_NEVER: there is none. Thread: any. */
uint64_t fli_idle_timer_ns(filch_sched *sched);

/* Everybody out. Thread: stop, when no process is left. */
void fli_idle_leave(filch_sched *sched);

/* How many sleep. A hint. */
uint32_t fli_idle_parked(fli_idle *idle);

#endif
