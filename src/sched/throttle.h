/* throttle.h - pauses a worker while messages from other workers cost more than its work is worth. See throttle.c. */
#ifndef FLI_SCHED_THROTTLE_H
#define FLI_SCHED_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"

struct fli_worker;

/* What all workers together had done at a point in time. */
typedef struct fli_throttle_mark {
    uint64_t ns, done, sent;
} fli_throttle_mark;

/* A worker's part. Plain, used by the worker alone, except `batched`. */
typedef struct fli_worker_throttle {
    uint64_t remote_cost_ns;     /* cost of remote events; a leaky bucket: time that passes is subtracted */
    uint64_t decayed_at_ns;      /* when time was last subtracted */
    uint32_t last_steal;         /* processes taken by the last steal; 0: that steal has been judged */
    uint32_t weak_steals;        /* steals in a row that led to few steps */
    uint32_t dead_steals;        /* of those, the last ones in a row that led to no step but those of the stolen processes */
    uint64_t last_steal_at;      /* its count of steps at the last steal */
    uint64_t backlog_sends;      /* messages sent to receivers that were already runnable, since the last step that did anything else */
    uint32_t backlog_steps;      /* steps that sent only such messages, since the last check */
    uint64_t backlog_checked_at; /* its count of steps at the last check */
    fli_throttle_mark before;    /* a recent mark; no worker has been paused since */
    /* Events beyond the first one of each step.  writes: the worker.  reads: any; relaxed, for a rate. */
    FLI_ATOMIC(uint64_t) batched;
} fli_worker_throttle;

/* A scheduler's part. */
typedef struct fli_throttle {
    FLI_ATOMIC(uint32_t) paused; /* count of paused workers.  writes: they, by add.  PAIR throttle.paused */
    /* Length of the next pause; before when there is none; by how long the next pause that does not help delays the one after it.
     * writes: workers after a pause.  reads: workers; relaxed: an old value makes a pause too long, or one too many. */
    FLI_ATOMIC(uint64_t) pause_ns, backoff_until_ns, backoff_ns;
    /* When the last pause ended, and what all workers had done by then.  writes: workers after a pause.  reads: workers.
     * PAIR throttle.ended  Two pauses that end at once may leave the time of one with the counts of the other: one wrong guess. */
    FLI_ATOMIC(uint64_t) ended_ns, ended_done, ended_sent;
    /* What was done per millisecond during the last pause, if that was 1.5 times as much as before it; else 0.  writes: workers
     * after a pause.  reads: workers; relaxed: a guess. */
    FLI_ATOMIC(uint64_t) proven_rate;
    fli_mutex lock;   /* guards no data: for `resume` */
    fli_cond  resume; /* a stop has begun: all pauses end */
} fli_throttle;

filch_err fli_throttle_init(fli_throttle *throttle);
void      fli_throttle_fini(fli_throttle *throttle);

/* Returns true if the worker should pause. Called at each clock reading. */
bool fli_throttle_is_due(struct fli_worker *w);

/* Notes a step that sent `sends` messages, all to receivers that were already runnable. */
static inline void fli_throttle_note_backlog(fli_worker_throttle *t, uint32_t sends)
{
    t->backlog_sends += sends;
    t->backlog_steps++;
}

/* Notes a steal of `count` processes. */
void fli_throttle_note_steal(struct fli_worker *w, uint32_t count);
/* Judges the last steal; called when the worker has nothing to run. Returns true if the worker should pause because its steals led
 * to too few steps. */
bool fli_throttle_steals_are_weak(struct fli_worker *w);

/* Returns true if a pause helped, by what was done per millisecond before it and during it. */
bool fli_throttle_helped(uint32_t workers, uint64_t before, uint64_t during);

/* Moves what is queued to the global queue, and pauses. Thread: the worker, between steps. */
void fli_throttle_pause(struct fli_worker *w);

/* Ends all pauses. Thread: the stopping one, after the phase is CLOSING. */
void fli_throttle_end_all(filch_sched *sched);

#endif
