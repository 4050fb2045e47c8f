/* throttle.h - pauses a worker while messages from other workers cost more than its work is worth. See throttle.c. */
#ifndef FLI_SCHED_THROTTLE_H
#define FLI_SCHED_THROTTLE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"

struct fli_worker;

/* The counts of all workers together at the time `ns`. `done`: events received by steps. `sent`: messages sent. */
typedef struct fli_throttle_mark {
    uint64_t ns, done, sent;
} fli_throttle_mark;

/* The throttle fields of one worker. Used by the worker alone, except `follows` and `batched`. */
typedef struct fli_worker_throttle {
    uint64_t remote_cost_ns; /* cost of remote events; a leaky bucket: elapsed time is subtracted */
    uint64_t decayed_at_ns;  /* when elapsed time was last subtracted from remote_cost_ns */
    uint32_t last_steal;     /* number of processes taken by the last steal; 0: that steal has been judged */
    uint32_t weak_steals;    /* number of consecutive steals that led to few steps */
    uint32_t dead_steals;    /* number of consecutive weak steals that led to no more steps than stolen processes */
    uint64_t last_steal_at;  /* the worker's count of steps at the last steal */
    uint64_t backlog_sends;  /* messages sent to receivers that were already runnable; 0 again after a step that did
                                anything else */
    uint32_t backlog_steps;  /* number of steps that sent only to receivers that were already runnable, since the
                                last check of the backlog */
    uint64_t          sent;  /* the worker's count of sent messages at the last clock reading */
    uint64_t          backlog_checked_at; /* the worker's count of steps at the last check of the backlog */
    fli_throttle_mark before; /* the mark from which the rate before a pause is measured; no worker has been paused
                                 since the mark was taken */
    bool contended;           /* many of the worker's sends before the last clock reading were contended */
    /* The worker sleeps in its parker until a pause of another worker ends. A thread that clears `follows` unparks the
     * worker.
     * writes: the worker, and threads that end the pause, by swap.  PAIR throttle.follows */
    FLI_ATOMIC(bool) follows;
    /* Number of events received beyond the first event of each step.  writes: the worker.  reads: any; relaxed, for a
     * rate. */
    FLI_ATOMIC(uint64_t) batched;
} fli_worker_throttle;

/* The throttle fields of a scheduler. */
typedef struct fli_throttle {
    /* This cache line is read by workers at each clock reading, and written twice for each pause.
     * until_ns: end of the pause under way, or of the last pause; a worker that starts a pause sets it by CAS, so that
     * there is one pause at a time (PAIR throttle.until). 0: the last pause was ended early. active: how many workers
     * stay awake in a pause.  writes: the worker that starts or ends a pause.  reads: workers; relaxed: with an old
     * value a worker joins a pause later, or sleeps until the planned end of a pause that has been ended early. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) until_ns;
    FLI_ATOMIC(uint32_t) active;
    alignas(FLI_LINE) FLI_ATOMIC(uint32_t) paused; /* count of paused workers.  writes: a worker that pauses, by add.
                                    PAIR throttle.paused */
    /* pause_ns: length of the next pause. backoff_until_ns: no pause begins before this time. backoff_ns: length of the
     * next back-off, which follows a pause that did not help.
     * writes: workers after a pause.  reads: workers; relaxed: an old value makes a pause too long, or makes one pause
     * too many. */
    FLI_ATOMIC(uint64_t) pause_ns, backoff_until_ns, backoff_ns;
    /* When the last pause ended, and the counts `done` and `sent` of all workers at that time.  writes: workers after a
     * pause.  reads: workers. PAIR throttle.ended. If two pauses end at the same time, the time of one pause may be
     * stored with the counts of the other; then one decision about a pause may be wrong. */
    FLI_ATOMIC(uint64_t) ended_ns, ended_done, ended_sent;
    /* Events received per millisecond during the last pause, if this rate was at least 1.5 times the rate before the
     * pause; otherwise 0.  writes: workers after a pause.  reads: workers; relaxed: an estimate. */
    FLI_ATOMIC(uint64_t) proven_rate;
    fli_mutex            lock;   /* guards no data; needed to wait for `resume` */
    fli_cond             resume; /* signalled when a stop has begun: all pauses end */
} fli_throttle;

filch_err fli_throttle_init(fli_throttle *throttle);
void      fli_throttle_fini(fli_throttle *throttle);

/* Returns true if the worker should pause. Called at each clock reading. */
bool fli_throttle_is_due(struct fli_worker *w);

/* Begins a new count of contended sends: filch_should_yield() follows option send_budget again. */
void fli_throttle_forget_contended(struct fli_worker *w);

/* Notes a step that sent `sends` messages, all to receivers that were already runnable. */
static inline void fli_throttle_note_backlog(fli_worker_throttle *t, uint32_t sends)
{
    t->backlog_sends += sends;
    t->backlog_steps++;
}

/* Notes a steal of `count` processes. */
void fli_throttle_note_steal(struct fli_worker *w, uint32_t count);
/* Judges the last steal of the worker. Called when the worker has nothing to run. Returns true if the worker should
 * pause, because its last steals led to too few steps or because it must join a pause. */
bool fli_throttle_steals_are_weak(struct fli_worker *w);

/* Returns true if a pause helped. `before` and `during`: events received per millisecond before and during the
 * pause. */
bool fli_throttle_helped(uint64_t before, uint64_t during);

/* Returns true if a pause (of any worker) was under way at the last clock reading of `w`. The result may be outdated.
 * Thread: the worker `w`. */
bool fli_throttle_is_pausing(struct fli_worker *w);

/* Moves the processes queued at `w` to the global queue, and pauses `w`. Does neither if all other workers are paused.
 * Thread: the worker, between steps. */
void fli_throttle_pause(struct fli_worker *w);

/* Ends all pauses. Thread: the stopping one, after the phase is CLOSING. */
void fli_throttle_end_all(filch_sched *sched);

#endif
