/* worker.h - a worker: the thread that steps processes, and all that it has of its own. */
#ifndef FLI_SCHED_WORKER_H
#define FLI_SCHED_WORKER_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/out.h"
#include "sched/stuck.h"
#include "sched/throttle.h"
#include "sync/deque.h"
#include "sync/lifo_slot.h"

typedef struct fli_worker fli_worker;

#define FLI_BATCH_MAX 1024
#define FLI_GATHERED_MAX 64
#define FLI_NODES_ROOM(batch_max) (2 * (batch_max))

/* The part of a worker that other threads may read. */
typedef struct fli_worker_status {
    /* writes: the worker.  reads: any; relaxed: for reports, and to see whether the worker makes progress. */
    FLI_ATOMIC(uint64_t) serial;   /* serial of the process being stepped, or of the last process stepped; 0: none */
    FLI_ATOMIC(uint64_t) began_ns; /* start time of the running step, if steps are timed; 0: steps are not timed, or no
                                      step runs */
    FLI_ATOMIC(uint64_t) reported; /* the `began_ns` of the last step that was reported as overdue. writes: any worker,
                                      by CAS */
} fli_worker_status;

/* What a worker remembers of another worker. `steps`: the other worker's count of steps at the last check. `since_ns`:
 * since when that count is unchanged. */
typedef struct fli_victim_progress {
    uint64_t steps, since_ns;
} fli_victim_progress;

struct fli_worker {
    fli_local     local; /* first member: a pointer to a worker is also a pointer to its fli_local */
    filch_sched  *sched;
    fli_deque     deque;
    fli_lifo_slot lifo_slot; /* the first process woken by the current step. Runs before the deque; thieves may take it
                                if the deque is empty */
    alignas(FLI_LINE) fli_worker_status status;

    /* From here on the fields are used by the worker alone, except `throttle` and `idle` (throttle.h and idle.h say
     * how), `stuck` (used by the thread that stops the scheduler), and queue_wait (other threads read it for
     * statistics). */
    alignas(FLI_LINE) fli_prng prng;
    fli_proc *torn;            /* a C++ exception has left the step of this process (torn.c); NULL: none */
    bool      exit_unnotified; /* exit notices of the ending process have not been sent yet (torn.c) */
    bool      in_close;        /* `close` of an instance runs */
    filch_err close_error;     /* while `close` runs: the error with which the process ends; otherwise FILCH_OK */
    uint32_t  given; /* number of events in w->events that torn.c must free if a C++ exception leaves the running
                        step */

    /* Steps: step.c. */
    fli_proc *rerun;            /* the process just stepped, to be stepped again without a queue; NULL: none */
    uint64_t  idle_word;        /* value of fli_proc_idle_word() for a process that went idle on this worker */
    bool      fast_steps;       /* steps are neither timed nor simulated: fast paths are allowed */
    bool      may_rerun;        /* `rerun` may be used: the worker has its own thread, so no tick counts its steps */
    uint32_t  steps_left;       /* how many steps the running tick may still run; UINT32_MAX for worker threads */
    uint32_t  handler_cache_id; /* id of the command for which a handler was looked up last */
    const struct fli_handler *handler_cache; /* the handler of handler_cache_id; NULL: unknown command */

    /* Fairness: find.c. */
    uint32_t fair_every;     /* turns between two fairness picks; adapts to the length of steps, unless option
                                fair_every is set */
    uint32_t fair_countdown; /* turns until the next fairness pick */
    uint32_t fair_credit;    /* turns by which the next fairness pick was brought forward; as many processes woken by
                                timers or I/O may still run before that pick (worker.c) */
    uint32_t fair_series;    /* fairness picks left in the series that follows a long step */
    uint64_t bypass_steps;   /* the processes that timers or I/O woke last have had their turns when the worker's count
                                of steps reaches this value; a series of picks begins after that (worker.c, find.c) */
    bool saw_continue;    /* the next fairness pick was brought forward: a process has returned CONTINUE, or a series of
                             picks is under way */
    bool fair_local_next; /* true: the next fairness pick tries the local deque first; false: the global queue */

    /* Fields for clock readings and polls: worker.c. */
    uint32_t clock_countdown; /* steps until the clock is read */
    uint32_t clock_interval;  /* steps between two clock readings; adapts to how long steps take */
    uint64_t clock_steps;     /* the worker's count of steps at the last clock reading that ended an interval */
    uint64_t clock_ns;        /* time of the last clock reading */
    uint32_t poll_depth;      /* a poll is due when the deque has at most this many processes */
    uint64_t poll_until_ns;   /* a poll is also due at this time, if the worker's count of steps has reached
                                 poll_steps */
    uint64_t poll_steps;      /* below this count of steps of the worker, poll_until_ns has no effect */
    uint64_t step_ns;         /* average time of a step between the last two clock readings */

    /* Fields for timers: worker.c. */
    uint32_t timers_depth;    /* timers may fire when the deque has at most this many processes */
    uint64_t timers_until_ns; /* timers may also fire from this time on, if the worker's count of steps has reached
                                 timers_steps */
    uint64_t timers_steps;    /* the worker's count of steps before which timers_until_ns has no effect */
    bool surveys_timers; /* the worker was parked: clock readings look at the timers of all workers, until all that were
                            due have fired */
    bool      needs_help;    /* more timers are due than this worker may fire, and they are late */
    bool      had_long_step; /* fli_worker_noticed() has found a long step since the worker's last clock reading */
    bool      gathers;       /* timers are being fired: the processes that they wake go to `gathered` */
    uint32_t  gathered_count;
    fli_proc *gathered[FLI_GATHERED_MAX]; /* in the order in which they were woken */

    /* Fields that measure how long processes wait in a queue, one process at a time: ready.c. */
    uint64_t sample_serial, sample_ns;    /* serial of the process being measured (0: none), and when it was queued */
    uint32_t sample_in;                   /* number of clock readings until the next sample of a queue wait */
    uint32_t slow_push_from;              /* when a step has made this many sends, its pushes take
                                             push_checked(); FLI_PUSH_SAMPLE: every push takes it */
    fli_victim_progress *victim_progress; /* what this worker knows of the progress of each worker, by index */
    filch_event          message;         /* the event of step_single(), prefilled (proc/mailbox.h) */
    filch_event         *messages;        /* batch_max events of step_several(), prefilled */
    filch_event         *events;          /* batch_max events, for all paths but step_single() and step_several() */
    fli_event_node     **nodes;           /* the nodes found for a step, at most FLI_NODES_ROOM(batch_max); the
                                             step gets the events of at most batch_max of these nodes */
    filch_out            out;
    fli_thread           thread;
    fli_worker_throttle  throttle;
    fli_idle_worker      idle;
    fli_stuck            stuck;                          /* used by the thread that stops the scheduler */
    FLI_ATOMIC(uint64_t) queue_wait[FILCH_WAIT_BUCKETS]; /* histogram: bucket i counts waits of 2^i to 2^(i+1) ns */
};

/* Marker value in `slow_push_from`: every push takes push_checked(), because a sample of a queue wait is due. */
#define FLI_PUSH_SAMPLE 0

static inline fli_worker *fli_worker_of(fli_local *worker)
{
    return (fli_worker *)worker;
}

/* Returns how many processes are queued at the worker. Thread: any; exact only for the worker itself. */
static inline uint32_t fli_worker_queued(fli_worker *w)
{
    return fli_deque_count(&w->deque) + fli_lifo_slot_is_full(&w->lifo_slot);
}

/* ---- worker.c ---- */

/* The main function of a worker thread. */
void fli_worker_run(void *worker);
/* Does one turn: steps the process that fli_find_near() returns. Returns false if there is none. */
bool fli_worker_turn(fli_worker *w);
/* Called when fli_worker_turn() has returned false. Fires timers that were due at the last clock reading, except timers
 * that only other workers may fire, until a process is queued. Returns true if a process is queued; false if no such
 * timer is left. */
bool fli_worker_fire_due(fli_worker *w);
/* Reads the clock, fires due timers, and polls descriptors if their poll interval is over. */
void fli_worker_clock(fli_worker *w);
/* Called when a step of this worker has read the clock as `now_ns`. If that is more than 1 ms after the worker's own
 * last reading, makes the worker read the clock after this step. */
void fli_worker_noticed(fli_worker *w, uint64_t now_ns);
/* Begins a poll interval. Called after a poll that found `reports` reports, before they are delivered. */
void fli_worker_begin_poll_interval(fli_worker *w, uint32_t reports);

/* ---- calls of the program's functions outside a step ---- */

/* Returns the value that `local.fast_rt` has during a step that is not recorded. */
static inline fli_runtime *fli_fast_rt(const fli_local *worker)
{
    return worker->rt->sim == NULL ? worker->rt : FLI_NO_FAST_RT;
}

/* fli_callback_begin() and fli_callback_end() enclose calls of the program's functions outside a step: close, on_exit,
 * functions that free payloads. Between the two calls the `out` of the last step refuses yields, because such a yield
 * would be dispatched after the step of another process. Between them the worker's status also shows no process, so
 * that a long close is not taken for a step that does not return. */
static inline void fli_callback_begin(fli_local *worker)
{
    worker->closing = true;
    worker->fast_rt = FLI_NO_FAST_RT;
    fli_store_rlx(&fli_worker_of(worker)->status.serial, 0);
}

static inline void fli_callback_end(fli_local *worker)
{
    worker->closing = false;
    worker->fast_rt = fli_fast_rt(worker);
}

#endif
