/* throttle.h - a worker that hears more from others than it works takes a nap. See throttle.c. */
#ifndef FLI_SCHED_THROTTLE_H
#define FLI_SCHED_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"

struct fli_worker;

/* What had been done by all workers at some time. */
typedef struct fli_throttle_mark {
    uint64_t ns, done, sent;
} fli_throttle_mark;

/* A worker's part. Plain but for one: its own. */
typedef struct fli_worker_throttle {
    uint64_t      remote_cost_ns;  /* for what it has heard from others */
    uint64_t      decayed_at_ns;  /* when it last paid */
    uint32_t      last_steal;     /* processes that it stole last; 0: looked after */
    uint32_t      weak_steals;     /* steals in a row that were not worth it */
    uint32_t      dead_steals;   /* of those, the last ones in a row that led to nothing at all */
    uint64_t      last_steal_at;  /* its count of steps then */
    uint64_t      backlog_sends;  /* messages that it sent to those who were ready already; it did nothing else since the first */
    uint32_t      backlog_steps; /* that sent so, since somebody last asked; */
    uint64_t      backlog_checked_at; /* and its count of steps then */
    fli_throttle_mark before;   /* not long ago, with everybody awake since */
    /* Events beyond the first of a step.  writes: the worker.  reads: any; relaxed, for a rate. */
    FLI_ATOMIC(uint64_t) batched;
} fli_worker_throttle;

/* A scheduler's part. */
typedef struct fli_throttle {
    FLI_ATOMIC(uint32_t) paused; /* workers.  writes: they, by add.  PAIR throttle.paused */
    /* How long the next nap is, before when there is none, and by how long a bad one puts off the next.  writes: who has
     * napped.  reads: workers; relaxed: an old one makes a nap a little too long, or one too many. */
    FLI_ATOMIC(uint64_t) pause_ns, backoff_until_ns, backoff_ns;
    /* When the last nap was over, and what all had done by then.  writes: who has napped.  reads: workers.
     * PAIR throttle.ended  Two naps that end at once may leave the time of one with the count of the other: one bad guess. */
    FLI_ATOMIC(uint64_t) ended_ns, ended_done, ended_sent;
    /* What was done per millisecond during the last nap, if that was clearly more than before it; else 0.  writes: who has
     * napped.  reads: workers; relaxed, a guess like the others. */
    FLI_ATOMIC(uint64_t) proven_rate;
    fli_mutex lock;               /* holds nothing; for `rouse` */
    fli_cond  resume;              /* everything is to stop */
} fli_throttle;

filch_err fli_throttle_init(fli_throttle *throttle);
void      fli_throttle_fini(fli_throttle *throttle);

/* Should the worker nap? Asked at readings of the clock. */
bool fli_throttle_is_due(struct fli_worker *w);

/* Notes a step that sent so many messages, and to nobody who had to be queued for it. */
static inline void fli_throttle_note_backlog(fli_worker_throttle *t, uint32_t sends)
{
    t->backlog_sends += sends;
    t->backlog_steps++;
}

/* Notes a steal; and, when the worker has run dry: should it nap because of how little that brought? */
void fli_throttle_note_steal(struct fli_worker *w, uint32_t count);
bool fli_throttle_steals_are_weak(struct fli_worker *w);

/* What is done per millisecond, before a nap and during it: was that nap good? */
bool fli_throttle_helped(uint32_t workers, uint64_t before, uint64_t during);

/* Hands over what is queued and waits. Thread: the worker, with no process in hand. */
void fli_throttle_pause(struct fli_worker *w);

/* Ends all naps. Thread: stop, after it has closed the door. */
void fli_throttle_end_all(filch_sched *sched);

#endif
