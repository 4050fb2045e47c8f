/* sched.h - the scheduler and its workers, as the files of this room see them. */
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
/* Turns of its worker within which a ready process is stepped, R processes being ready. Argued in find.c. */
#define FLI_FAIR_BOUND(sched, R) (2 * (uint64_t)(sched)->fair_most * ((uint64_t)(R) + 1 + (sched)->opt.global_batch))
/* While steps are short the oldest goes first less often, but about this often. */
#define FLI_FAIR_NS UINT64_C(2000)
#define FLI_FAIR_EVERY 8
#define FLI_FAIR_MOST 64

/* What others may see of a worker while it works. */
typedef struct fli_worker_status {
    /* writes: the worker. reads: any; relaxed, for reports and for deciding whether a queue is being worked on. */
    FLI_ATOMIC(uint64_t) serial;           /* the process being stepped, or that was the last; 0 none */
    FLI_ATOMIC(uint64_t) began_ns;         /* when, if steps are being watched */
    FLI_ATOMIC(uint64_t) reported;         /* the `began_ns` last reported as overdue.  writes: any worker, by CAS */
} fli_worker_status;

/* What a thief remembers of a victim that had a single process queued. */
typedef struct fli_victim_progress {
    uint64_t steps, since_ns;
} fli_victim_progress;

/* What the stopping thread has seen of a worker inside a step: stuck.c. Plain: that thread's own. */
typedef struct fli_stuck {
    uint64_t serial, steps;   /* the step it is about; serial 0: none */
    uint64_t cpu_ns;          /* CPU time of the thread when it was first seen in that step */
    uint64_t since_ns, asleep_ns; /* when that was, and when the thread was last seen not to sleep */
} fli_stuck;

struct fli_worker {
    fli_local    local; /* first: a worker is an fli_local */
    filch_sched *sched;
    fli_deque    deque;
    fli_lifo_slot lifo_slot; /* whom a step has sent to first: he is stepped before all in the deque */
    alignas(FLI_LINE) fli_worker_status status;

    /* Plain from here: the worker's own, except `idle`, which is under the idle lock. */
    alignas(FLI_LINE) fli_prng prng;
    fli_proc     *torn;        /* whose step was left by an exception (torn.c); NULL */
    bool          exit_untold;     /* one that is watched is ending, and its watchers have not been told (torn.c) */
    uint32_t      given;       /* events of the general path that its step has; 0 outside of it */
    fli_proc     *rerun;       /* the process just stepped, to be stepped again at once; NULL */
    uint64_t      idle_word;        /* how a process looks that went idle here: fli_proc_idle_word */
    bool          fast_steps;   /* steps are neither timed nor simulated */
    bool          may_rerun;     /* may it? A worker with a thread of its own may: nobody counts its steps */
    uint32_t      steps_left;       /* how many more a tick may take; threads: more than there are */
    uint32_t           handler_cache_id; /* the command last asked for */
    const fli_handler *handler_cache;    /* and its handler; NULL */
    uint32_t      fair_every;  /* adapts too, unless the host has said how often */
    uint32_t      fair_countdown;     /* turns until an oldest process goes first */
    uint32_t      fair_credit;   /* and by how many it comes early, because somebody goes on by himself: find.c */
    bool          saw_continue;      /* somebody has, since the last oldest one was taken */
    bool          fair_local_next;   /* and whose: the own deque's, or the global queue's */
    uint32_t      clock_countdown;    /* steps until the clock is read again */
    uint32_t      clock_interval; /* adapts to how long steps take */
    uint64_t      clock_ns;    /* last reading */
    uint32_t      poll_depth; /* descriptors are looked at again when no more than so many are queued, */
    uint64_t      poll_until_ns, poll_steps; /* or when this has come and so many steps are done: worker.c */
    uint64_t      step_ns;     /* how long a step takes, roughly */
    uint64_t      sample_serial, sample_ns; /* one queued process whose wait is being measured */
    uint32_t      sample_in; /* readings of the clock until the next */
    uint32_t      slow_push_from; /* from so many sends in one step on they are looked at twice before the deque; 0: take a sample */
    fli_victim_progress *victim_progress; /* by victim */
    filch_event   message;   /* the only one of a step, as most have; shaped (proc/mailbox.h) */
    filch_event  *messages;  /* batch_max of them, shaped */
    filch_event  *events;    /* as many, of any kind */
    fli_event_node    **nodes;     /* of either, and once more as many: FLI_NODES_ROOM */
    filch_out     out;
    fli_thread    thread;
    fli_worker_throttle    throttle;
    fli_idle_worker   idle;
    fli_stuck     stuck;
    FLI_ATOMIC(uint64_t) queue_wait[FILCH_WAIT_BUCKETS];
};

/* What the next report will tell. Under the stop's lock. */
typedef struct fli_losses {
    filch_straggler *stragglers;
    filch_loss      *losses;
    size_t           count, room, loss_count, loss_room, omitted;
    uint64_t         unread, writes, bytes, terminated;
} fli_losses;

typedef struct fli_stop {
    fli_mutex lock;
    fli_cond  changed; /* a worker ran dry, or (no workers) something became ready */
    /* Another stop is under way.  PAIR stop.owner */
    FLI_ATOMIC(bool) busy;
    /* The deadline has passed: every process is ended instead of stepped.  writes: stop. reads: workers; relaxed: the
     * KILL flag that follows is what counts, and the stopping thread itself, which must not start a step. */
    FLI_ATOMIC(bool) force;
    /* `patience_ns` has passed: a cancel overtakes the messages of a process that waits.  writes: stop. reads: workers;
     * relaxed: the ASK flag that follows is what counts. */
    FLI_ATOMIC(bool) hurry;
    /* FILCH_STOP_*.  writes: stop, before the phase.  reads: workers, after the phase; PAIR runtime.phase */
    FLI_ATOMIC(uint32_t) flags;
    fli_losses losses; /* under lock, down to ended_before */
    uint64_t   forced, killed;            /* ended by force so far: at the deadline, and by others before it */
    uint64_t   forced_told, polite_told;  /* of those that ended, in earlier reports */
    uint64_t   ended_before;              /* when the first stop began */
    /* Threads from outside that are in filch_spawn; and FLI_SPAWN_CLOSED.  writes: they, and stop.  PAIR spawn.closed */
    FLI_ATOMIC(uint32_t) foreign_spawns;
} fli_stop;

/* Stop has begun: whoever is in filch_spawn is waited for. */
#define FLI_SPAWN_CLOSED (UINT32_C(1) << 31)

struct filch_sched {
    fli_runtime     rt;  /* first: a filch_sched is an fli_runtime */
    filch_options   opt; /* plain: as given, with the defaults filled in */
    filch_registry *registry;
    uint64_t        program; /* that made it: a fork is another one */
    bool            learns;       /* how long to search: the host has not said */
    uint32_t        fair_most;    /* turns until the oldest goes first: opt.fair_every, or up to so many */
    uint32_t        worker_count; /* threads */
    uint32_t        worker_total; /* worker_count + 1: with the guest */
    fli_worker    **workers;
    fli_worker     *caller_worker; /* the last of `workers`: for filch_tick, and for the thread that stops */
    int             wake_fd; /* rung and cleared; -1 with workers */
    int             poll_fd; /* the same, or with I/O the poller that it is part of */
    fli_alarmfd     alarm;   /* what the host polls: poll_fd, or a timer is due.  Plain: under `ticking`, but for `poll` */
    /* The host polls it, so it is worth setting.  writes: filch_wake_fd. reads: ticks; relaxed: the first one rings the bell. */
    FLI_ATOMIC(bool) alarm_asked;
    /* A thread is inside filch_tick.  PAIR tick.owner */
    FLI_ATOMIC(bool) ticking;
    /* Something was queued since the last tick (no workers).  PAIR tick.signal */
    FLI_ATOMIC(bool) signalled;
    fli_idle     idle;
    fli_throttle     throttle;
    fli_inject   global;
    fli_timers   timers;
    fli_send_waiters send_waiters;
    fli_workpool workpool;
    fli_io       io;
    fli_stop     stop;
};

/* Returns true if a stop has begun whose cancels go behind the messages. */
static inline bool fli_stop_is_polite(filch_sched *sched)
{
    if (fli_load_acq(&sched->rt.phase) != FLI_CLOSING) return false; /* PAIR runtime.phase, acquire half */
    return (fli_load_rlx(&sched->stop.flags) & FILCH_STOP_CANCEL_FIRST) == 0;
}

static inline fli_worker *fli_worker_of(fli_local *worker)
{
    return (fli_worker *)worker;
}

/* How many are queued here? Thread: any; a guess for all but the worker. */
static inline uint32_t fli_worker_queued(fli_worker *w)
{
    return fli_deque_count(&w->deque) + fli_lifo_slot_is_full(&w->lifo_slot);
}

/* worker.c */
void fli_worker_run(void *worker);
/* Runs one ready process from near (own LIFO slot and deque, global queue). False: there is none. */
bool fli_worker_turn(fli_worker *w);
/* Reads the clock, fires what is due, and looks at descriptors if their round is over. */
void fli_worker_clock(fli_worker *w);
/* A step of this worker has read the clock. If it is long ago that the worker itself did, it will next. */
void fli_worker_noticed(fli_worker *w, uint64_t now_ns);
/* Descriptors have just been looked at: what they bring comes on top of what is queued now. */
void fli_worker_begin_poll_interval(fli_worker *w, uint32_t reports);

/* find.c */
/* Every so often the oldest goes first: it, or NULL. */
fli_proc *fli_find_oldest(fli_worker *w);
/* From the global queue, and up to `more` others for the own deque. */
fli_proc *fli_find_global(fli_worker *w, uint32_t more);
/* Looks at what is queued here, and at the global queue. */
static inline fli_proc *fli_find_near(fli_worker *w)
{
    fli_proc *p = NULL;
    if (FLI_UNLIKELY(--w->fair_countdown == 0)) p = fli_find_oldest(w);
    if (FLI_LIKELY(p == NULL)) p = fli_lifo_slot_take(&w->lifo_slot);
    if (p == NULL) p = fli_deque_pop(&w->deque);
    if (FLI_UNLIKELY(p == NULL)) p = fli_find_global(w, w->sched->opt.global_batch);
    return p;
}
/* Looks at the other workers too. *retry: somebody was faster, look again before sleeping. `any`: also single
 * processes that their worker is about to run. */
fli_proc *fli_find_far(fli_worker *w, bool any, bool *retry);
/* Does any worker have at least so many queued? Two: a thief could take one. */
bool fli_find_visible(filch_sched *sched, uint32_t queued);

/* ready.c */
void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p);
/* Queues a process on the worker's own deque. FILCH_OK. */
filch_err fli_ready_local(fli_local *worker, fli_proc *p);
/* The same for one that a step has sent to: if it is the first, it is the next. */
filch_err fli_ready_next(fli_local *worker, fli_proc *p);
/* The same for one that goes on by itself: those that its step made ready go first. */
void fli_ready_continue(fli_worker *w, fli_proc *p);
/* Whoever is queued next here has its wait measured. */
void fli_ready_sample(fli_worker *w);

/* Has somebody look at the clock: a timer was armed. Thread: any. */
void fli_ready_nudge(filch_sched *sched);

/* The handler of a command, or NULL. The last one asked for is at hand: registries do not change any more. */
static inline const fli_handler *fli_handler_of(fli_worker *w, uint32_t id)
{
    if (FLI_UNLIKELY(w->handler_cache_id != id)) {
        w->handler_cache = fli_registry_find(w->sched->registry, id);
        w->handler_cache_id = id;
    }
    return w->handler_cache;
}

/* inline_yield.c */
/* Steps a process with the answer in w->events[0], and again with each next one, for as long as nothing else comes up.
 * `word` is its state, `node` what the answer came in: the node of its only yield, which is over. */
void fli_inline_yield_loop(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node);

/* step.c */
/* What comes after a step that has been counted and whose events have been freed. `err` is what it returned. */
void fli_step_conclude(fli_worker *w, fli_proc *p, filch_err err);
/* Its yields have been dispatched, and it waits. */
void fli_step_wait(fli_worker *w, fli_proc *p);
void fli_step(fli_worker *w, fli_proc *p);
/* Steps what is near until the clock is due: true; or there is nothing: false. */
bool fli_step_on(fli_worker *w);
/* The call itself, with the first `count` of w->events. */
filch_err fli_step_call(fli_worker *w, fli_proc *p, uint32_t count);

/* spawn.c */
/* Makes an instance of `type`: memory, and init. `small` is room for one of FLI_STATE_INLINE bytes that it may use, or
 * NULL: an instance never moves, it may hold pointers into itself. */
filch_err fli_instance_make(filch_sched *sched, const filch_type *type, const filch_ctx *ctx, const char *method,
                            const filch_data *args, void *small, void **out);
void      fli_instance_free(filch_sched *sched, const filch_type *type, void *small, void *self);

/* filch_spawn with options that have been read. `relations` NULL: none. */
filch_err fli_spawn(filch_sched *sched, const filch_type *type, const filch_spawn_options *opt, const fli_birth *birth,
                    filch_pid *pid);
/* An older caller's shorter struct leaves the rest at their defaults; a newer one must not ask for what we cannot do. */
filch_err fli_spawn_options_read(const filch_spawn_options *given, filch_spawn_options *out);

/* What `local.fast_rt` is in a step that nobody records. */
static inline fli_runtime *fli_fast_rt(const fli_local *worker)
{
    return worker->rt->sim == NULL ? worker->rt : FLI_NO_FAST_RT;
}

/* From here to fli_callback_end code of the process, or of whoever hears of its end, runs outside of its step. What the step
 * was given takes nothing more: a yield would be dispatched after the step of somebody else. And nobody is shown as being
 * stepped, not this one and not the one before it: a close that takes its time is no step that does not return. */
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
/* Tells on_failure, which is not NULL. `related`: it may have a name. Lends `detail`. Thread: the worker that ends it. */
void fli_failure_tell(filch_sched *sched, uint64_t serial, const filch_type *type, bool related, filch_err error,
                      const filch_data *detail);

/* finish.c */
/* Ends a process that the worker owns. Frees `result`. */
void fli_finish(fli_worker *w, fli_proc *p, filch_err error, filch_data *result);

/* torn.c */
/* The guest's turn was left by an exception: the process that it stepped is torn. Thread: the one whose turn it was. */
void fli_torn_note(fli_worker *w);
/* Ends the torn process, if there is one. Thread: the guest's next turn. */
void fli_torn_mend(fli_worker *w);

/* drain.c */
/* Before the first collect of a step during a stop: takes ASK, and decides whether the step begins with a cancel. Messages
 * have been drained. Thread: the worker that owns the process. */
bool fli_drain_cancel(fli_worker *w, fli_proc *p, uint64_t word);

/* report.c */
/* Notes a process that is ended by force. Thread: the worker that owns it. */
void fli_stop_note(filch_sched *sched, fli_proc *p);
/* Counts a process that is killed by others, if a stop has begun. */
void fli_stop_killed(filch_sched *sched);
/* Notes messages that the process of `serial` has not read, and a write of it that was cut, if a stop has begun. Thread:
 * any. */
void fli_stop_unread(filch_sched *sched, uint64_t serial, uint32_t unread);
void fli_stop_cut(filch_sched *sched, uint64_t serial, uint64_t bytes);
/* Names the steps that have not returned. Returns how many there are. */
uint64_t fli_report_stuck(filch_sched *sched);
/* Moves what has been noted into the caller's report, or throws it away. */
void fli_report_give(filch_sched *sched, const filch_report *found, filch_report *out);
/* Returns false if `report` is too short even for the first version of this struct. */
bool     fli_report_is_sound(const filch_report *report);
uint64_t fli_report_ended(filch_sched *sched);

/* stuck.c */
typedef enum fli_verdict { FLI_VERDICT_WAIT, FLI_VERDICT_STUCK, FLI_VERDICT_STARVED } fli_verdict;
/* What one look at a worker inside a step says: `mood` and `cpu_ns` are those of its thread now. */
fli_verdict fli_stuck_judge(fli_stuck *seen, uint64_t now_ns, fli_thread_mood mood, uint64_t cpu_ns);
/* Looks at each worker. Returns FLI_VERDICT_WAIT if one of them should be waited for; otherwise whether steps are stuck.
 * *starved is how many of them the system does not run. Thread: stop, after the deadline; `began_ns` is when that was. */
fli_verdict fli_stuck_look(filch_sched *sched, uint64_t began_ns, uint64_t *starved);

/* stop.c */
/* Tells a waiting stop that something may have changed. */
void fli_stop_nudge(filch_sched *sched);
/* A thread from outside that was in filch_spawn when stop began leaves: the last that it does with the scheduler. */
void fli_stop_left(filch_sched *sched);
/* The steps of a stop, for a simulation that takes the turns in between itself: no more work, cancels for all; kills
 * for all; over, nobody is left. The last returns how many had to be forced. */
void     fli_stop_begin(filch_sched *sched);
/* Between them: those that have not been found or have lost their supervisor are asked; with `hurry` patience is over. */
void     fli_stop_round(filch_sched *sched, bool hurry);
void     fli_stop_force(filch_sched *sched);
uint64_t fli_stop_over(filch_sched *sched);

/* stats.c */
uint64_t fli_stats_alive(filch_sched *sched);
/* Returns true if there were as many as option `max_processes` at one moment during the call. Where processes end all the
 * time it may return false although there were always as many. */
bool fli_stats_is_full(filch_sched *sched);

/* create.c */
/* filch_sched_create; with `sim`, a scheduler for a simulation: its workers have no threads. */
filch_err fli_sched_make(filch_sched **out, const filch_options *options, fli_simulator *sim);
void fli_sched_free(filch_sched *sched);

/* builtin.c */
filch_err fli_builtin_registry(filch_registry **out);

#endif
