/* runtime.h - what the modules below sched know of a scheduler: its memory, node id, counters, and how to queue a
 * process. sched/sched.h puts fli_runtime first in filch_sched, so a filch_sched pointer is also an fli_runtime
 * pointer. */
#ifndef FLI_PROC_RUNTIME_H
#define FLI_PROC_RUNTIME_H

#include <stdalign.h>

#include <filch.h>

#include "base/assert.h"
#include "base/mem.h"
#include "observe/counters.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "proc/node.h"
#include "proc/proc.h"
#include "sync/slab.h"

typedef struct fli_runtime fli_runtime;

typedef struct fli_local fli_local;

#define FLI_NAME_ROOM 256 /* bytes of the longest name with its NUL */

/* A request to src/model, made by a public call or by a yield. Unused fields are zero. */
typedef struct fli_request {
    uint32_t  op;     /* FILCH_CMD_* */
    filch_err reason; /* for a cancel: its reason */
    filch_pid from;   /* the process that monitors, unmonitors, links, unlinks or broadcasts */
    filch_pid target;
    uint64_t  tag;          /* for a monitor or group watch: the event's tag; for an unmonitor: the monitor's number;
                               for a cancel: its deadline in ns */
    const char       *name; /* name of a process or a group */
    const filch_data *data;
    uint64_t          given; /* result. For a monitor: its number; for a broadcast: the number of members that
                                accepted the message */
} fli_request;

/* Relations and context that a process has from its first step on, in addition to its spawn options. */
typedef struct fli_birth {
    uint32_t              relations; /* FILCH_SPAWN_* bits that relate the process to `parent` */
    uint64_t              tag;
    filch_pid             parent;
    const char           *name;
    const filch_receiver *exec; /* the yield that is completed with the result of the process; NULL: none */
    filch_values *values; /* the values of the new process, if they contain a deadline or a scope; otherwise NULL */
} fli_birth;

/* Operations of src/model that lower modules call. src/model passes its table when it creates a scheduler
 * (fli_sched_make); lower modules neither include its headers nor name its functions. */
typedef struct fli_model_ops {
    /* Called when a process with HAS_RELATIONS has ended with `error` and `result`. The slot of the process is not free
     * yet. */
    void (*ended)(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result);
    /* Makes the relations of a new process and then opens it: FREE -> ACTIVE. On an error the process is not opened. */
    filch_err (*birth)(fli_runtime *rt, fli_proc *p, uint64_t serial, const fli_birth *birth, bool limited);
    filch_err (*relate)(fli_runtime *rt, fli_request *request);
    /* Returns true if a living process of this runtime has this name. */
    bool (*is_named)(fli_runtime *rt, const char *name);
    /* Finds the process with this name. FILCH_EDEAD: there is none. */
    filch_err (*whereis)(fli_runtime *rt, const char *name, filch_pid *pid);
    /* Writes a name of an ending process, with its NUL, to name[0 .. FLI_NAME_ROOM). Returns false if it has none. */
    bool (*name_of)(fli_runtime *rt, uint64_t serial, char *name);
    /* Sets relation_bytes and given_bytes of *info for the process. Sets nothing if the process has ended. */
    void (*relation_bytes)(fli_runtime *rt, uint64_t serial, filch_info *info);
    /* The handler of the commands of src/model. */
    filch_err (*handle)(fli_runtime *rt, const filch_command *command, filch_receiver receiver);
    /* Returns the node id (filch_pid.node) of host number `host`. */
    uint64_t (*node_of)(fli_runtime *rt, uint32_t host);
    /* Returns true if the process `serial` is supervised: by the process with serial `by` of this runtime, or by any
     * process of this runtime if `by` is 0. */
    bool (*supervised)(fli_runtime *rt, uint64_t serial, uint64_t by);
    /* Called when the scheduler is destroyed and no process is left. When this function returns, no other host uses
     * the scheduler. */
    void (*fini)(fli_runtime *rt);
} fli_model_ops;

/* Hooks that replace the public functions of the same names during a step that is recorded (record/record.c records
 * each call) or replayed (record/replay.c returns the recorded results). During every other step fli_local.rec_hooks is
 * NULL. */
typedef struct fli_rec_hooks {
    filch_err (*send)(fli_local *worker, filch_pid to, filch_pid from, const filch_data *data, bool deliver);
    filch_err (*set_flag)(fli_local *worker, filch_pid pid, uint64_t flag);
    filch_err (*yield)(fli_local *worker, filch_out *out, uint32_t command, uint64_t tag, filch_pid target,
                       const filch_data *data);
    filch_err (*spawn)(fli_local *worker, const filch_type *type, const filch_spawn_options *options, filch_pid *pid);
    filch_err (*relate)(fli_local *worker, struct fli_request *request);
    filch_err (*whereis)(fli_local *worker, const char *name, filch_pid *pid);
} fli_rec_hooks;

/* Operations of src/record that sched calls for processes that are recorded. src/model passes this table, together with
 * its own table, to fli_sched_make() when it creates a scheduler. */
typedef struct fli_record_ops {
    /* Gives the new process `p` a recorder, if the options request one. Called if option `on_blackbox` is set. Errors:
     * FILCH_ENOMEM. Thread: the spawner. */
    filch_err (*begin)(fli_runtime *rt, fli_proc *p, const filch_type *type, const filch_spawn_options *opt);
    /* Calls the step function of a recorded process, and records the events of the step and the calls that the step
     * makes. */
    filch_err (*step)(fli_local *worker, fli_proc *p, uint32_t count);
    /* Called when a recorded process has ended. If its error is none of FILCH_OK, FILCH_ECANCELLED and FILCH_EKILLED,
     * passes the recording to option `on_blackbox`. Frees the recorder. */
    void (*ended)(fli_runtime *rt, fli_proc *p, uint64_t serial, filch_err error);
    /* Frees the recorder of `p`. Requires that `p` has a recorder. */
    void (*drop)(fli_runtime *rt, fli_proc *p);
} fli_record_ops;

/* The tables of the modules above sched, for fli_sched_make. */
typedef struct fli_upper_ops {
    const fli_model_ops  *model;
    const fli_record_ops *record;
} fli_upper_ops;

/* Value of fli_local.fast_rt while fast paths are not allowed. The value differs from every scheduler and from NULL,
 * so that the comparison `fast_rt == sched` also refuses a NULL scheduler. */
#define FLI_NO_FAST_RT ((fli_runtime *)(uintptr_t)1)

/* The part of a worker that modules below sched use; the first field of fli_worker, sched's struct of a worker.
 * fli_current_worker() returns the fli_local of the calling thread. */
struct fli_local {
    fli_runtime *rt;
    /* the process that the worker handles now (a step, the yields or the end of the process), or the last such process;
     * NULL: the worker is not in its step loop */
    fli_proc    *current;
    uint64_t     serial;  /* serial of `current`: the `from` of its messages */
    fli_runtime *fast_rt; /* `rt` while fast paths are allowed: inside a step that is neither recorded nor
                             simulated, outside handlers and `close`; otherwise FLI_NO_FAST_RT */
    /* Queues a process that the current step has just woken. Always returns FILCH_OK, so that a sender can tail-call
     * it. Not atomic: only this worker uses the pointer. sched/ready.c switches it between several functions. */
    filch_err (*ready)(fli_local *worker, fli_proc *p);
    /* a handler is running: a completion for `current` goes to the list of completions without a push */
    bool dispatching;
    bool closing;             /* a callback outside a step runs (`close`, on_exit, a payload's free function): yields
                                 are refused */
    uint8_t  worker_mark;     /* mark of this worker, which it stores in fli_proc.last_worker: see fli_worker_mark */
    uint32_t remote_events;   /* messages and processes received from other workers since throttle.c last read this
                                 counter */
    uint32_t sends, pushed;   /* in the current step: messages sent, and processes pushed to the local deque */
    uint32_t contended_sends; /* sends with a failed first CAS, since throttle.c last read this counter */
    /* Sends in the current step from which filch_should_yield() returns 1: option send_budget, or 0 after many
     * contended sends. See fli_contended_send(). */
    uint32_t send_limit;
    uint32_t index; /* index of the worker in arrays with one element per worker */
    /* index plus one; stored in fli_event_node.sender_worker of the messages that this worker sends */
    uint32_t number;
    /* Key of the yield of the running handler, if its synchronous completion may be stored as the inline result; 0 if
     * it may not, or if the yield has been completed. */
    uint64_t inline_key;
    /* node of the yield for which a handler runs or ran last; NULL: none, or its result is already in the list of
     * completions */
    fli_event_node *inline_node;
    filch_event    *inline_result; /* event that takes the inline result: the value of a synchronous completion. Not
                                      atomic: the pointer is set once */
    fli_rec_hooks *rec_hooks;      /* hooks of the current step if it is recorded or replayed; otherwise NULL */
    fli_magazine   nodes, procs, short_nodes;
    fli_magazine   relations; /* spare relations of the runtime's model; empty without a model */
    /* The worker of another scheduler that the thread was running when it began to run this worker: a step of that
     * worker ticks, stops, simulates or replays this scheduler. NULL: none. Not atomic: only that thread uses it, while
     * this worker is its current worker. */
    fli_local *outer;
    alignas(FLI_LINE) fli_counters counters;
};

/* A worker pauses for contention only if it has made at least this many contended sends since its last clock reading
 * (sched/throttle.c). */
#ifdef FLI_SMALL
#define FLI_CONTENDED_MIN 1
#else
#define FLI_CONTENDED_MIN 32
#endif

/* Counts a send with a failed first CAS. After many of them filch_should_yield() returns 1, so that the step ends and
 * the worker reads its clock and may pause (sched/throttle.c, which resets `send_limit`). */
static inline void fli_contended_send(fli_local *worker)
{
    if (++worker->contended_sends >= FLI_CONTENDED_MIN) worker->send_limit = 0;
}

/* Phase of the shutdown.  writes: the thread that stops the scheduler.  reads: any.  PAIR runtime.phase */
enum { FLI_OPEN, FLI_CLOSING, FLI_CLOSED };

/* Functions of upper modules that lower modules call. sched sets them before the first process exists. */
typedef struct fli_hooks {
    /* Queues the process `p`, which has just become ACTIVE. `worker` is the calling worker of this runtime; NULL: the
     * caller is a foreign thread. */
    void (*ready)(fli_runtime *rt, fli_local *worker, fli_proc *p);
    /* Stops the timer with the id `cookie`. Called when a process ends with an outstanding yield, if the handler stored
     * this id in the yield's node; and when a job with a deadline has finished. */
    void (*abandon)(fli_runtime *rt, uint64_t cookie);
    /* Called when an alarm (fli_timers_alarm) is due. `cookie` is the number that was passed when the alarm was set. */
    void (*alarm)(fli_runtime *rt, uint64_t cookie);
    /* Returns the number of ticks that a ticker's message stands for. */
    uint64_t (*ticks)(fli_runtime *rt, uint64_t ticker);
    /* Called when the mailbox of `p` has space again and senders wait for it. */
    void (*room)(fli_runtime *rt, fli_proc *p);
    /* Called when a process has ended while senders waited for space in its mailbox. Its slot is not free yet. */
    void (*no_room)(fli_runtime *rt, fli_proc *p);
    /* Called when a write that the process had started ends with `bytes` bytes not written. */
    void (*cut)(fli_runtime *rt, uint64_t serial, uint64_t bytes);
} fli_hooks;

struct fli_handler;

/* Hooks of a simulation (simulate/simulate.c). NULL in an ordinary runtime. */
typedef struct fli_simulator {
    uint64_t now_ns; /* virtual clock. Not atomic: one thread runs the simulation */
    /* Scheduling point: called before a call that affects other processes, so that the simulation may run them first.
     * `worker` is NULL on a thread that does not belong to the simulation: then the call is refused, and the
     * simulation's report names `call`. Returns false if the call is refused. Thread: any. */
    bool (*point)(fli_runtime *rt, fli_local *worker, const char *call);
    /* Called after a message was sent from `from` to `to`: the send has returned `err`. */
    void (*sent)(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err);
    /* Called when the yield of `command` has completed: `node` is claimed and filled. Returns true if the simulation
     * takes the node, to push it later. */
    bool (*completed)(fli_runtime *rt, fli_event_node *node, uint32_t command);
    /* Adds the events of the step to the chart of the simulation, and calls the step function. */
    filch_err (*step)(fli_local *worker, fli_proc *p, uint32_t count);
    /* Adds the yield to the chart of the simulation. Then calls its handler, or returns an injected error instead.
     * Returns FILCH_ECOMMAND if `handler` is NULL. */
    filch_err (*handle)(fli_local *worker, const struct fli_handler *handler, const filch_command *command,
                        filch_receiver receiver);
    void (*spawned)(fli_runtime *rt, const fli_local *worker, uint64_t serial, const filch_type *type);
    void (*ended)(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result);
    /* Called when a one-shot timer is due. `id` identifies the timer; `next_ns` is the time of the earliest other
     * timer, FLI_NEVER if there is none. Returns the later time at which the timer is due again, or FLI_NEVER if it
     * fires now. */
    uint64_t (*timer_due)(fli_runtime *rt, uint64_t id, uint64_t next_ns);
    /* Called when a function that a simulation does not support was called: the report names `call`. Thread: any. */
    void (*refused)(fli_runtime *rt, const char *call);
} fli_simulator;

struct fli_runtime {
    fli_mem               mem; /* not atomic, like all fields down to `host`: set when the scheduler is created */
    fli_simulator        *sim; /* the simulation; NULL: the scheduler uses real threads and the real clock */
    uint64_t              node_id;
    size_t                payload_max;
    fli_hooks             hooks;
    filch_route_fn        route;
    void                 *route_user;
    filch_log_fn          on_log; /* NULL: no log hook */
    void                 *on_log_user;
    const fli_model_ops  *model_ops;  /* NULL in tests of lower modules */
    const fli_record_ops *record_ops; /* NULL in tests of lower modules */
    uint32_t              host;       /* number of this runtime among the hosts of its model */
    /* The model of this runtime; NULL: not created yet.  writes: src/model, once, on first use.  PAIR runtime.model */
    FLI_ATOMIC(struct fli_model *) model;
    FLI_ATOMIC(uint32_t)           phase;
    fli_slab                       nodes, procs, short_nodes;
    /* A node that a worker leaves for the next message of a foreign thread; NULL: none.  writes: a worker before it
     * parks, and the sender that takes the node, by swap.  PAIR runtime.spare_node */
    alignas(FLI_LINE) FLI_ATOMIC(fli_event_node *) spare_node;
    fli_counters foreign; /* counters of all foreign threads; changed by atomic read-modify-writes */
};

/* Returns the calling thread's worker if it is one of this runtime; otherwise NULL. */
static inline fli_local *fli_current_worker(const fli_runtime *rt)
{
    fli_local *worker = fli_current_get();
    return worker != NULL && worker->rt == rt ? worker : NULL;
}

/* Makes `worker` the current worker of the calling thread, which may be inside a step of another scheduler, until
 * fli_current_leave(). */
static inline void fli_current_enter(fli_local *worker)
{
    worker->outer = fli_current_get();
    fli_current_set(worker);
}

static inline void fli_current_leave(const fli_local *worker)
{
    fli_current_set(worker->outer);
}

/* Returns true if the calling thread runs a worker of this runtime: its current worker, or a worker with a step that
 * has led to the current worker. Such a thread must not wait for the end of a step of this runtime, because the step
 * may be its own. */
static inline bool fli_current_is_inside(const fli_runtime *rt)
{
    for (const fli_local *worker = fli_current_get(); worker != NULL; worker = worker->outer) {
        if (worker->rt == rt) return true;
    }
    return false;
}

/* Returns the runtime's time: the clock, or the virtual clock of a simulation. */
static inline uint64_t fli_now(const fli_runtime *rt)
{
    return FLI_LIKELY(rt->sim == NULL) ? fli_clock_ns() : rt->sim->now_ns;
}

/* Called by functions that a simulation does not support. Returns true in a simulation; then the report names `call`.
 * Thread: any. */
static inline bool fli_simulator_refuses(fli_runtime *rt, const char *call)
{
    if (FLI_LIKELY(rt->sim == NULL)) return false;
    rt->sim->refused(rt, call);
    return true;
}

/* Adds to a counter: with an ordinary add on a worker, with an atomic read-modify-write on a foreign thread. */
#define FLI_TALLY(runtime, worker, name, n)                             \
    do {                                                                \
        if ((worker) != NULL) fli_count(&(worker)->counters.name, (n)); \
        else fli_add_rlx(&(runtime)->foreign.name, (n));                \
    } while (0)

/* Returns the node of a handle that does not name a short node. */
static inline fli_event_node *fli_full_node_at(fli_runtime *rt, uint32_t handle)
{
    return fli_slab_at_size(&rt->nodes, handle, sizeof(fli_event_node));
}

static inline fli_event_node *fli_short_node_at(fli_runtime *rt, uint32_t handle)
{
    return fli_slab_at_size(&rt->short_nodes, handle & ~FLI_SHORT_BIT, FLI_SHORT_NODE_SIZE);
}

/* Returns the node of a handle, short or full. */
static inline fli_event_node *fli_node_at(fli_runtime *rt, uint32_t handle)
{
    return (handle & FLI_SHORT_BIT) != 0 ? fli_short_node_at(rt, handle) : fli_full_node_at(rt, handle);
}

/* Returns the node of a handle, short or full, for a walk along a list of nodes: `block` speeds up the lookup (see
 * fli_slab_next). */
static inline fli_event_node *fli_node_next(fli_runtime *rt, fli_slab_block *block, uint32_t handle)
{
    /* block->number is never the number of a block of short nodes. So the short bit is tested only when the walk enters
     * another block, and a walk inside one block pays nothing for this test. */
    if (FLI_UNLIKELY((handle >> FLI_SLAB_FIRST_BITS) + 1 != block->number && (handle & FLI_SHORT_BIT) != 0))
        return fli_short_node_at(rt, handle);
    return fli_slab_next(&rt->nodes, block, handle, sizeof(fli_event_node));
}

FILCH_MUST_USE static inline fli_event_node *fli_node_take(fli_runtime *rt, fli_local *worker)
{
    return fli_slab_take(&rt->nodes, worker != NULL ? &worker->nodes : NULL);
}

/* Gives a node that is not short back to its slab. */
static inline void fli_full_node_give(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    fli_slab_give(&rt->nodes, worker != NULL ? &worker->nodes : NULL, node);
}

/* Gives a node, short or full, back to its slab. */
static inline void fli_node_give(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    if (!fli_node_is_short(node)) fli_full_node_give(rt, worker, node);
    else fli_slab_give(&rt->short_nodes, worker != NULL ? &worker->short_nodes : NULL, node);
}

/* Returns the control block in the slot of `serial`, whether that process is alive or not; NULL if the slot was never
 * used. */
static inline fli_proc *fli_proc_find(fli_runtime *rt, uint64_t serial)
{
    return fli_slab_find_size(&rt->procs, fli_serial_slot(serial), sizeof(fli_proc));
}

/* Returns the type of a process that is alive or has just ended; for reports. */
static inline const filch_type *fli_type_of(fli_runtime *rt, uint64_t serial)
{
    fli_proc *p = fli_proc_find(rt, serial);
    return p != NULL ? fli_proc_type(p) : NULL;
}

/* Returns FILCH_OK and stores the control block in *out if `pid` belongs to this runtime and its process is alive. The
 * process may end before the caller uses the control block. Otherwise returns FILCH_EDEAD or FILCH_EFOREIGN. */
FILCH_MUST_USE static inline filch_err fli_pid_find(fli_runtime *rt, filch_pid pid, fli_proc **out)
{
    if (pid.node != rt->node_id) return pid.serial == 0 ? FILCH_EDEAD : FILCH_EFOREIGN;
    fli_proc *p = fli_proc_find(rt, pid.serial);
    if (p == NULL || !fli_word_lives(fli_state_peek(&p->state), fli_serial_gen(pid.serial))) return FILCH_EDEAD;
    *out = p;
    return FILCH_OK;
}

#endif
