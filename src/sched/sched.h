/* sched.h - the scheduler and its workers, as the files of this module see them. */
#ifndef FLI_SCHED_SCHED_H
#define FLI_SCHED_SCHED_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/assert.h"
#include "base/prng.h"
#include "clock/timers.h"
#include "dispatch/registry.h"
#include "dispatch/send_waiters.h"
#include "io/io.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/out.h"
#include "sched/throttle.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"
#include "work/pool.h"

typedef struct fli_worker fli_worker;

#define FLI_GLOBAL_BATCH_MAX 256
#define FLI_BATCH_MAX 1024
#define FLI_NODES_ROOM(batch_max) (2 * (batch_max))
/* Upper bound, in turns of a worker, on the wait of a process in the deque of that worker or in the global queue, while
 * R processes are ready. find.c derives the formula. */
#define FLI_FAIR_BOUND(sched, R) (2 * (uint64_t)(sched)->fair_most * ((uint64_t)(R) + 1 + (sched)->opt.global_batch))
/* A fairness pick comes every FLI_FAIR_EVERY turns. While steps are short it comes less often: about every FLI_FAIR_NS,
 * but at least every FLI_FAIR_MOST turns. */
#define FLI_FAIR_NS UINT64_C(2000)
#define FLI_FAIR_EVERY 8
#define FLI_FAIR_MOST 64

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

/* A step that the stopping thread has found running, see stuck.c. Not atomic: used by the stopping thread alone. */
typedef struct fli_stuck {
    uint64_t serial, steps; /* identify the step: its process, and the count of steps of its worker; serial 0: none */
    uint64_t cpu_ns;        /* CPU time of the worker's thread when the step was first seen */
    uint64_t since_ns, asleep_ns; /* `since_ns`: when the step was first seen. `asleep_ns`: the last time at which its
                                     thread was seen awake */
} fli_stuck;

struct fli_worker {
    fli_local     local; /* first member: a pointer to a worker is also one to its fli_local */
    filch_sched  *sched;
    fli_deque     deque;
    fli_lifo_slot lifo_slot; /* the first process woken by the current step. Runs before the deque; thieves may take it
                                if the deque is empty */
    alignas(FLI_LINE) fli_worker_status status;

    /* Not atomic from here on: used by the worker alone, except `idle` (under the idle lock) and `stuck` (stopping
     * thread). */
    alignas(FLI_LINE) fli_prng prng;
    fli_proc *torn;        /* the process whose step a C++ exception has left (torn.c); NULL: none */
    bool      exit_untold; /* the ending process has relations that have not been notified of its exit yet (torn.c) */
    uint32_t  given;       /* number of events in w->events that torn.c must free if a C++ exception leaves the running
                              step */

    /* Steps: step.c. */
    fli_proc          *rerun;      /* the process just stepped, to be stepped again without a queue; NULL: none */
    uint64_t           idle_word;  /* value of fli_proc_idle_word() for a process that went idle on this worker */
    bool               fast_steps; /* steps are neither timed nor simulated: fast paths are allowed */
    bool               may_rerun;  /* `rerun` may be used: the worker has its own thread, so no tick counts its steps */
    uint32_t           steps_left; /* steps that the running tick may still take; worker threads: UINT32_MAX */
    uint32_t           handler_cache_id; /* id of the command whose handler was looked up last */
    const fli_handler *handler_cache;    /* the handler of handler_cache_id; NULL: unknown command */

    /* Fairness: find.c. */
    uint32_t fair_every;     /* turns between two fairness picks; adapts to the length of steps, unless option
                                fair_every is set */
    uint32_t fair_countdown; /* turns until the next fairness pick */
    uint32_t fair_credit;    /* turns by which a CONTINUE has brought the next pick forward. So many processes woken
                                by timers or I/O may run before the pick (worker.c) */
    bool saw_continue;       /* a process has returned CONTINUE since the last pick */
    bool fair_local_next;    /* the next fairness pick tries the local deque first; false: the global queue first */

    /* Fields for clock readings and polls: worker.c. */
    uint32_t clock_countdown; /* steps until the clock is read */
    uint32_t clock_interval;  /* steps between two clock readings; adapts to how long steps take */
    uint64_t clock_ns;        /* time of the last clock reading */
    uint32_t poll_depth;      /* a poll is due when the deque has at most this many processes */
    uint64_t poll_until_ns;   /* a poll is also due at this time, if the worker's count of steps has reached
                                 poll_steps */
    uint64_t poll_steps;      /* the worker's count of steps before which poll_until_ns has no effect */
    uint64_t step_ns;         /* average time of a step between the last two clock readings */

    /* Measures how long processes wait in a queue, one process at a time: ready.c. */
    uint64_t sample_serial, sample_ns;    /* the process being measured, and when it was queued; serial 0: none */
    uint32_t sample_in;                   /* number of clock readings until the next sample of a queue wait */
    uint32_t slow_push_from;              /* from this number of sends in one step on, a push takes push_checked();
                                             FLI_PUSH_SAMPLE: every push does */
    fli_victim_progress *victim_progress; /* progress of every worker, by index */
    filch_event          message;         /* the event of step_single(), prefilled (proc/mailbox.h) */
    filch_event         *messages;        /* batch_max events of step_several(), prefilled */
    filch_event         *events;          /* batch_max events, for all paths but step_single() and step_several() */
    fli_event_node     **nodes;           /* array of FLI_NODES_ROOM(batch_max) pointers: the nodes of the events that a
                                             step gets */
    filch_out            out;
    fli_thread           thread;
    fli_worker_throttle  throttle;
    fli_idle_worker      idle;
    fli_stuck            stuck;                          /* used by the stopping thread */
    FLI_ATOMIC(uint64_t) queue_wait[FILCH_WAIT_BUCKETS]; /* histogram of queue waits: bucket i has 2^i to 2^(i+1) ns */
};

/* Marker value in `slow_push_from`: every push takes push_checked(), because a sample of a queue wait is due. */
#define FLI_PUSH_SAMPLE 0

/* What the next stop report will contain. Used under the lock of fli_stop. */
typedef struct fli_losses {
    filch_straggler *stragglers;
    filch_loss      *losses;
    size_t           count, room, loss_count, loss_room, omitted;
    uint64_t         unread, writes, bytes, terminated;
} fli_losses;

typedef struct fli_stop {
    fli_mutex lock;
    fli_cond  changed; /* signalled when a worker has parked, a spawn has ended, or (without workers) a process became
                          ready */
    /* A thread is inside a stop.  PAIR stop.owner */
    FLI_ATOMIC(bool) busy;
    /* The deadline has passed: every process is ended instead of stepped.  writes: the stopping thread, which also runs
     * steps. reads: workers; relaxed: a worker need not act before it sees the KILL flag, which is set after `force`.
     */
    FLI_ATOMIC(bool) force;
    /* `patience_ns` has passed: a cancel is delivered before the messages of a process that waits.  writes: the
     * stopping thread. reads: workers; relaxed: a worker need not act before it sees the ASK flag, which is set after
     * `hurry`. */
    FLI_ATOMIC(bool) hurry;
    /* Flags FILCH_STOP_* of the stop.  writes: the stopping thread, before it sets rt.phase. reads: workers, after they
     * have read rt.phase. PAIR runtime.phase */
    FLI_ATOMIC(uint32_t) flags;
    fli_losses           losses; /* the fields from `losses` to `ended_before` are used under `lock` */
    uint64_t             forced; /* processes ended by force since the stop began, because the deadline had passed */
    uint64_t forced_told, polite_told; /* processes that earlier reports have counted as ended. `forced_told`: by
                                          force. `polite_told`: without force */
    uint64_t ended_before;             /* count of ended processes when the first stop began */
    /* Bits 0 to 30: count of foreign threads inside filch_spawn. Bit 31: FLI_SPAWN_CLOSED.  writes: these threads and
     * the stopping one. PAIR spawn.closed */
    FLI_ATOMIC(uint32_t) foreign_spawns;
} fli_stop;

/* Bit of `foreign_spawns`: a stop has begun, so no foreign thread may begin a spawn. The stop waits for the threads
 * that are inside filch_spawn. */
#define FLI_SPAWN_CLOSED (UINT32_C(1) << 31)

struct filch_sched {
    fli_runtime     rt;  /* first member: a pointer to a filch_sched is also one to its fli_runtime */
    filch_options   opt; /* the options as given, with the defaults filled in */
    filch_registry *registry;
    uint64_t        program;   /* fli_program_self() of the program that created the scheduler; a forked child has
                                  another value */
    bool         learns;       /* the search time adapts, because option search_ns is 0 */
    uint32_t     fair_most;    /* the largest fair_every of a worker */
    uint32_t     worker_count; /* number of worker threads */
    uint32_t     worker_total; /* worker_count + 1: caller_worker is counted */
    fli_worker **workers;
    fli_worker  *caller_worker; /* the last of `workers`: used by the thread that ticks or stops */
    int          wake_fd;       /* becomes readable when work is queued, and is cleared by a tick; -1 if the
                                   scheduler has workers */
    int         poll_fd;        /* with I/O the descriptor of the poller, which contains wake_fd; otherwise wake_fd */
    fli_alarmfd alarm;          /* the descriptor that the host polls: readable if poll_fd is, or if a timer is due.
                                   Not atomic: used under `ticking`, except the field `poll` */
    /* The host has called filch_wake_fd, so ticks set the alarm.  writes: filch_wake_fd.  reads: ticks; relaxed:
     * the first call of filch_wake_fd signals the host, so a tick follows it. */
    FLI_ATOMIC(bool) alarm_asked;
    /* A thread is inside filch_tick.  PAIR tick.owner */
    FLI_ATOMIC(bool) ticking;
    /* Without workers: work was queued since the last tick.  PAIR tick.signal */
    FLI_ATOMIC(bool) signalled;
    fli_idle         idle;
    fli_throttle     throttle;
    fli_inject       global;
    fli_timers       timers;
    fli_send_waiters send_waiters;
    fli_workpool     workpool;
    fli_io           io;
    fli_stop         stop;
};

/* Returns true if a stop has begun that delivers each cancel behind the messages of the process (no
 * FILCH_STOP_CANCEL_FIRST). */
static inline bool fli_stop_is_polite(filch_sched *sched)
{
    if (fli_load_acq(&sched->rt.phase) != FLI_CLOSING) return false; /* PAIR runtime.phase, acquire half */
    return (fli_load_rlx(&sched->stop.flags) & FILCH_STOP_CANCEL_FIRST) == 0;
}

static inline fli_worker *fli_worker_of(fli_local *worker)
{
    return (fli_worker *)worker;
}

/* Returns how many processes are queued at the worker. Thread: any; exact only for the worker itself. */
static inline uint32_t fli_worker_queued(fli_worker *w)
{
    return fli_deque_count(&w->deque) + fli_lifo_slot_is_full(&w->lifo_slot);
}

/* worker.c */
/* The main function of a worker thread. */
void fli_worker_run(void *worker);
/* Does one turn: steps the process that fli_find_near() returns. Returns false if there is none. */
bool fli_worker_turn(fli_worker *w);
/* Reads the clock, fires due timers, and polls descriptors if their poll interval is over. */
void fli_worker_clock(fli_worker *w);
/* A step of this worker has read the clock as `now_ns`. If that is more than 1 ms after the worker's own last reading,
 * makes the worker read the clock after this step. */
void fli_worker_noticed(fli_worker *w, uint64_t now_ns);
/* Begins a poll interval. Called after a poll that found `reports` reports, before they are delivered. */
void fli_worker_begin_poll_interval(fli_worker *w, uint32_t reports);

/* find.c */
/* The fairness pick: returns the oldest process of the local deque or of the global queue, in turn (fair_local_next).
 * Returns NULL if both are empty. */
fli_proc *fli_find_oldest(fli_worker *w);
/* Returns the oldest process of the global queue, and moves up to `more` others to the local deque. Returns NULL
 * if the global queue is empty. */
fli_proc *fli_find_global(fli_worker *w, uint32_t more);
/* Returns the next process of this worker: the fairness pick if it is due, the LIFO slot, the local deque, the global
 * queue; or NULL. */
static inline fli_proc *fli_find_near(fli_worker *w)
{
    fli_proc *p = NULL;
    if (FLI_UNLIKELY(--w->fair_countdown == 0)) p = fli_find_oldest(w);
    if (FLI_LIKELY(p == NULL)) p = fli_lifo_slot_take(&w->lifo_slot);
    if (p == NULL) p = fli_deque_pop(&w->deque);
    if (FLI_UNLIKELY(p == NULL)) p = fli_find_global(w, w->sched->opt.global_batch);
    return p;
}
/* Steals from another worker. Returns NULL if it got nothing. Sets *retry if another thread took a process first: then
 * the caller searches again before it parks. With `any`, takes also a single process that its worker is about to
 * run. */
fli_proc *fli_find_far(fli_worker *w, bool any, bool *retry);
/* Returns true if a worker has at least `queued` processes queued. */
bool fli_find_visible(filch_sched *sched, uint32_t queued);

/* ready.c */
/* Queues a process that became ready; `worker` is the calling worker of this scheduler, or NULL. Thread: any. */
void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p);
/* Pushes to the local deque. Returns FILCH_OK. Thread: the worker. */
filch_err fli_ready_local(fli_local *worker, fli_proc *p);
/* Queues a process that the current step has woken: in the LIFO slot if the slot is empty, otherwise in the local
 * deque. */
filch_err fli_ready_next(fli_local *worker, fli_proc *p);
/* Queues a process that returned CONTINUE, behind the processes that its step has woken. */
void fli_ready_continue(fli_worker *w, fli_proc *p);
/* Requests one sample of a queue wait: the next process queued by this worker is measured. */
void fli_ready_sample(fli_worker *w);

/* Wakes a worker, or the host of a scheduler without workers, because a timer was armed that may be the next to fire.
 * Thread: any. */
void fli_ready_nudge(filch_sched *sched);

/* Returns the handler of a command, or NULL. Caches the handler looked up last, because a registry in use does not
 * change. */
static inline const fli_handler *fli_handler_of(fli_worker *w, uint32_t id)
{
    if (FLI_UNLIKELY(w->handler_cache_id != id)) {
        w->handler_cache = fli_registry_find(w->sched->registry, id);
        w->handler_cache_id = id;
    }
    return w->handler_cache;
}

/* inline_yield.c */
/* Runs the inline completion loop of inline_yield.c. The completion is in w->events[0]; `word` is the state of the
 * process, and `node` the node of its only yield, which has been closed. */
void fli_inline_yield_loop(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node);

/* step.c */
/* Steps 4 and 5 of the general path (step.c): dispatches the yields of a step and acts on its status. The step has been
 * counted and its events freed; `err` is what the step returned. */
void fli_step_conclude(fli_worker *w, fli_proc *p, filch_err err);
/* Settles a process as BLOCKED, after its yields have been dispatched. */
void fli_step_wait(fli_worker *w, fli_proc *p);
/* Steps the process, and steps it again as long as each step leaves it in w->rerun. */
void fli_step(fli_worker *w, fli_proc *p);
/* Steps the processes that fli_find_near() returns, one after the other. Returns true when a clock reading is due,
 * false when there is no process. */
bool fli_step_on(fli_worker *w);
/* Calls the step function with the first `count` of w->events, through the simulator if there is one. */
filch_err fli_step_call(fli_worker *w, fli_proc *p, uint32_t count);

/* spawn.c */
/* Allocates an instance of `type` and calls its init. An instance of up to FLI_STATE_INLINE bytes is put at `small`,
 * unless `small` is NULL. An instance is never moved, because it may hold pointers into itself. */
filch_err fli_instance_make(filch_sched *sched, const filch_type *type, const filch_ctx *ctx, const char *method,
                            const filch_data *args, void *small, void **out);
void      fli_instance_free(filch_sched *sched, const filch_type *type, void *small, void *self);

/* Spawns a process with options that have been checked. `birth`: relations, name and values of the process; NULL:
 * none. */
filch_err fli_spawn(filch_sched *sched, const filch_type *type, const filch_spawn_options *opt, const fli_birth *birth,
                    filch_pid *pid);
/* Copies the options of a caller compiled against an older or newer filch.h: missing fields get their defaults, unknown
 * fields must be zero. */
filch_err fli_spawn_options_read(const filch_spawn_options *given, filch_spawn_options *out);

/* Returns the value of `local.fast_rt` during a step that is not recorded. */
static inline fli_runtime *fli_fast_rt(const fli_local *worker)
{
    return worker->rt->sim == NULL ? worker->rt : FLI_NO_FAST_RT;
}

/* fli_callback_begin() and fli_callback_end() enclose calls of the program's functions outside a step: close, on_exit,
 * functions that free payloads. In between, the `out` of the last step refuses yields, because such a yield would be
 * dispatched after the step of another process. The status shows no process, so that a long close is not taken for a
 * step that does not return. */
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

/* failure.c */
/* Calls option on_failure, which is not NULL. `related`: the process has relations, so it may have a name. `detail` is
 * lent to the callback. Thread: the worker that ends the process. */
void fli_failure_tell(filch_sched *sched, uint64_t serial, const filch_type *type, bool related, filch_err error,
                      const filch_data *detail);

/* finish.c */
/* Ends a process that the worker owns. Takes ownership of `result`. */
void fli_finish(fli_worker *w, fli_proc *p, filch_err error, filch_data *result);

/* torn.c */
/* A C++ exception has left a step of caller_worker: notes its process as torn. Thread: the one that uses
 * caller_worker. */
void fli_torn_note(fli_worker *w);
/* Ends the torn process, if there is one. Thread: the next one that uses caller_worker. */
void fli_torn_mend(fli_worker *w);

/* drain.c */
/* Clears ASK, and returns true if the step that is about to begin gets a cancel first. Called during a stop, when the
 * mailbox has been drained and no event collected. Thread: the worker that owns the process. */
bool fli_drain_cancel(fli_worker *w, fli_proc *p, uint64_t word);

/* report.c */
/* Notes a process that is ended by force, for the report. Thread: the worker that owns the process. */
void fli_stop_note(filch_sched *sched, fli_proc *p);
/* Counts a process that is ended by filch_terminate, if a stop has begun. */
void fli_stop_killed(filch_sched *sched);
/* If a stop has begun: notes `unread` messages that the process `serial` has not read. Thread: any. */
void fli_stop_unread(filch_sched *sched, uint64_t serial, uint32_t unread);
/* If a stop has begun: notes a write of the process `serial` that ended with `bytes` not written. Thread: any. */
void fli_stop_cut(filch_sched *sched, uint64_t serial, uint64_t bytes);
/* Adds to the report each process that is in a step that has not returned. Returns how many there are. */
uint64_t fli_report_stuck(filch_sched *sched);
/* Moves the noted entries into the caller's report, or frees them if `out` is NULL. */
void fli_report_give(filch_sched *sched, const filch_report *found, filch_report *out);
/* Returns false if `report` is too short even for the first version of this struct. */
bool     fli_report_is_sound(const filch_report *report);
uint64_t fli_report_ended(filch_sched *sched);

/* stuck.c */
typedef enum fli_verdict { FLI_VERDICT_WAIT, FLI_VERDICT_STUCK, FLI_VERDICT_STARVED } fli_verdict;
/* Judges a step that has not returned. `mood` and `cpu_ns` are the state and the CPU time of its thread now. */
fli_verdict fli_stuck_judge(fli_stuck *seen, uint64_t now_ns, fli_thread_mood mood, uint64_t cpu_ns);
/* Judges the step of each worker. Returns FLI_VERDICT_WAIT if the stop should wait for one of these steps, otherwise
 * FLI_VERDICT_STUCK. *starved is the number of steps on threads that the system does not run. `began_ns`: when the
 * force began or the last process ended. Thread: the stopping one, after the deadline. */
fli_verdict fli_stuck_look(filch_sched *sched, uint64_t began_ns, uint64_t *starved);

/* stop.c */
/* Wakes a waiting stop: processes may have ended or become ready. */
void fli_stop_nudge(filch_sched *sched);
/* Called when a foreign thread leaves filch_spawn and a stop has begun since it entered. The thread must not use the
 * scheduler afterwards. */
void fli_stop_left(filch_sched *sched);
/* The next four functions are the phases of a stop. A simulation calls them one by one and runs the processes in
 * between. */
/* Closes the scheduler to spawns and messages of foreign threads, and asks every process to end. */
void fli_stop_begin(filch_sched *sched);
/* Asks every process again to end: some were still being spawned at the last call, or have lost their supervisor since.
 * `hurry`: patience_ns has passed. */
void fli_stop_round(filch_sched *sched, bool hurry);
/* Kills every process that is left. */
void fli_stop_force(filch_sched *sched);
/* Ends the stop when no process is left. Returns how many processes were ended by force. */
uint64_t fli_stop_over(filch_sched *sched);

/* stats.c */
/* Returns the number of processes that have not ended, including those whose on_exit still runs. */
uint64_t fli_stats_alive(filch_sched *sched);
/* Returns true if the number of processes was at option `max_processes` at some moment during the call. May return
 * false although the limit was reached, if processes end and are spawned all the time. */
bool fli_stats_is_full(filch_sched *sched);

/* create.c */
/* Creates a scheduler that calls the modules above sched through `upper`. With `sim` it is a scheduler for a
 * simulation: its workers have no threads. */
filch_err fli_sched_make(filch_sched **out, const filch_options *options, fli_simulator *sim,
                         const fli_upper_ops *upper);
void      fli_sched_free(filch_sched *sched);

/* builtin.c */
filch_err fli_builtin_registry(filch_registry **out);

#endif
