/* runtime.h - what the lower rooms know of a scheduler: its memory, its name, its counters, and how to make a process
 * ready. sched/sched.h puts this first in filch_sched, so a filch_sched is an fli_runtime. */
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

#define FLI_NAME_ROOM 256 /* of the longest name and its NUL */

/* Something asked of the model: by a call, or by a yield. What is not needed is zero. */
typedef struct fli_request {
    uint32_t          op;     /* FILCH_CMD_* */
    filch_err         reason; /* of a cancel */
    filch_pid         who;    /* the one that watches, joins, is named, or asks */
    filch_pid         target;
    uint64_t          tag;    /* of a monitor or watch; of an unmonitor what the monitor gave; of a cancel its deadline */
    const char       *name;   /* of a process or group */
    const filch_data *data;
    uint64_t          given;  /* out: of a monitor, its number; of a broadcast, how many got it */
} fli_request;

/* What a process is born with, besides its options. */
typedef struct fli_birth {
    uint32_t        relations; /* FILCH_SPAWN_* with `parent` */
    uint64_t        tag;
    filch_pid       parent;
    const char     *name;
    const filch_receiver *exec; /* gets the result when it ends */
    filch_values   *values; /* with a deadline or scopes; NULL: none */
} fli_birth;

/* What the lower rooms ask of src/model. It defines the table below; they never include its headers. */
typedef struct fli_model_ops {
    /* A HAS_RELATIONS process has ended, with this result. Its slot is not free yet. */
    void (*ended)(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result);
    /* Makes the relations of a process that is complete but not open yet, and opens it. An error: it is not open. */
    filch_err (*birth)(fli_runtime *rt, fli_proc *p, uint64_t serial, const fli_birth *birth, bool limited);
    filch_err (*relate)(fli_runtime *rt, fli_request *request);
    /* Does a process have this name? */
    bool (*is_named)(fli_runtime *rt, const char *name);
    /* Writes a name of the process that is ending, with its NUL, to name[0 .. FLI_NAME_ROOM). False: it has none. */
    bool (*name_of)(fli_runtime *rt, uint64_t serial, char *name);
    /* The handler of the model's commands. */
    filch_err (*handle)(fli_runtime *rt, const filch_command *command, filch_receiver receiver);
    /* The node of another host: filch_pid.node. */
    uint64_t (*node_of)(fli_runtime *rt, uint32_t host);
    /* Returns true if a process of this runtime supervises `serial`: the process `by`, or with 0 any process. */
    bool (*supervised)(fli_runtime *rt, uint64_t serial, uint64_t by);
    /* The scheduler goes away: when this returns, no other host uses it any more. Thread: no process is left. */
    void (*fini)(fli_runtime *rt);
} fli_model_ops;

extern const fli_model_ops fli_model_table;

/* Stands between the process being stepped and all others: sched/record.c writes down what it does, sched/replay.c
 * answers in their place. Each function is called instead of the public one it is named after. Most steps have none. */
typedef struct fli_rec_hooks {
    filch_err (*send)(fli_local *worker, filch_pid to, filch_pid from, const filch_data *data, bool deliver);
    filch_err (*set_flag)(fli_local *worker, filch_pid pid, uint64_t flag);
    filch_err (*yield)(fli_local *worker, filch_out *out, uint32_t command, uint64_t tag, filch_pid target,
                       const filch_data *data);
    filch_err (*spawn)(fli_local *worker, const filch_type *type, const filch_spawn_options *options, filch_pid *pid);
    filch_err (*relate)(fli_local *worker, struct fli_request *request);
    filch_err (*whereis)(fli_local *worker, const char *name, filch_pid *pid);
} fli_rec_hooks;

/* Nobody's runtime; and not NULL, which somebody may pass for a scheduler: one comparison refuses that too. */
#define FLI_NO_FAST_RT ((fli_runtime *)(uintptr_t)1)

/* What a worker keeps for itself. First in sched's fli_worker; the thread finds it by fli_current_worker. */
struct fli_local {
    fli_runtime *rt;
    fli_proc    *current;    /* being stepped, dispatched or closed, or the last that was; NULL when it stops stepping */
    uint64_t     serial;     /* of `current`: what its sends carry as `from` */
    fli_runtime *fast_rt;      /* `rt` while what is asked needs no second look: by a step, no tape, no simulation, no handler,
                                no close; else FLI_NO_FAST_RT */
    /* Takes a process that a step on this worker has just woken. Always FILCH_OK: for a last call. Plain: sched sets it; not
     * always the same (sched/ready.c). */
    filch_err  (*ready)(fli_local *worker, fli_proc *p);
    bool         dispatching; /* answers to `current` may go straight to its own list */
    bool         closing;    /* no step runs, but `close`, or whoever hears of its end, or frees what nobody reads: no yields */
    uint8_t      worker_mark;       /* what those have in `last` that were stepped here: the index, as far as it tells */
    uint32_t     remote_events;      /* messages and processes that came from other workers, since somebody last asked (sched/throttle.c) */
    uint32_t     sends, pushed; /* in this step: messages sent, and processes put in the own deque */
    uint32_t     index;      /* of the worker, for what is kept once per worker */
    uint32_t     number;     /* the index plus one: what its messages carry */
    /* The yield whose handler runs, if its answer may take the short way: its key, or 0 when it has been answered; */
    uint64_t     inline_key;
    fli_event_node    *inline_node; /* its node; NULL: there is none, or its answer is in the list */
    filch_event *inline_result;     /* where the answer is until then. Plain: always the same */
    fli_rec_hooks    *rec_hooks;       /* of the step that runs; NULL almost always */
    fli_magazine nodes, procs;
    alignas(FLI_LINE) fli_counters counters;
    /* The last send of a step that a full mailbox refused: to which process, and which send of which step it was. See fli_send_goes_on. */
    uint64_t refused_serial, refused_step;
    uint32_t refused_send;
};

/* How far shutdown has come.  writes: stop. reads: any.  PAIR runtime.phase */
enum { FLI_OPEN, FLI_CLOSING, FLI_CLOSED };

/* What the lower rooms ask of the upper ones. sched fills it in before any process exists. */
typedef struct fli_hooks {
    /* Takes a process that just became ACTIVE; `worker` is the calling worker of this runtime or NULL. */
    void (*ready)(fli_runtime *rt, fli_local *worker, fli_proc *p);
    /* A yield or timer whose process has ended, by the number its handler left in the node. */
    void (*abandon)(fli_runtime *rt, uint64_t cookie);
    /* An alarm that one of them has set rings, with the number it left. */
    void (*alarm)(fli_runtime *rt, uint64_t cookie);
    /* How many ticks a ticker's message stands for. */
    uint64_t (*ticks)(fli_runtime *rt, uint64_t ticker);
    /* There is room again in the mailbox of `p`, and senders wait for it. */
    void (*room)(fli_runtime *rt, fli_proc *p);
    /* The process has ended, and senders wait for room in its mailbox. */
    void (*no_room)(fli_runtime *rt, uint64_t serial);
    /* A write of the process was begun and ends with so many bytes left. */
    void (*cut)(fli_runtime *rt, uint64_t serial, uint64_t bytes);
} fli_hooks;

/* What a simulation (sched/simulate.c) decides and wants to hear of. Ordinary runtimes have none. */
typedef struct fli_simulator {
    uint64_t now_ns; /* its clock. Plain: one thread runs the simulation */
    /* Somebody is about to act on other processes: they may go first. `worker` is NULL on threads that have no business
     * here. False: refused, and `call` is named in the report. Thread: any. */
    bool (*point)(fli_runtime *rt, fli_local *worker, const char *call);
    /* A message was sent, or not. */
    void (*sent)(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err);
    /* The yield of `command` has been answered: `node` is claimed and filled. True: takes it, to hand it over later. */
    bool (*answered)(fli_runtime *rt, fli_event_node *node, uint32_t command);
} fli_simulator;

struct fli_runtime {
    fli_mem         mem; /* plain: set at create, down to `phase` */
    fli_simulator  *sim; /* NULL: threads and the real clock */
    uint64_t        node_id;
    size_t          payload_max;
    fli_hooks       hooks;
    filch_route_fn  route;
    void           *route_user;
    filch_log_fn    on_log; /* NULL: none */
    void           *on_log_user;
    const fli_model_ops *model_ops; /* &fli_model_table; NULL in tests of lower rooms */
    uint32_t             host;      /* which one of its model */
    /* src/model's own.  writes: once, by whoever needs it first.  PAIR runtime.model */
    FLI_ATOMIC(struct fli_model *) model;
    FLI_ATOMIC(uint32_t) phase;
    fli_slab     nodes, procs;
    /* A node for a message from outside.  writes: a worker that goes to sleep, and whoever takes it, by swap.
     * PAIR runtime.spare_node */
    alignas(FLI_LINE) FLI_ATOMIC(fli_event_node *) spare_node;
    fli_counters foreign; /* counted by threads the runtime does not know, with read-modify-writes */
};

/* The calling thread's worker, if it is one of this runtime's; else NULL. */
static inline fli_local *fli_current_worker(const fli_runtime *rt)
{
    fli_local *worker = fli_current_get();
    return worker != NULL && worker->rt == rt ? worker : NULL;
}

/* The runtime's time. */
static inline uint64_t fli_now(const fli_runtime *rt)
{
    return FLI_LIKELY(rt->sim == NULL) ? fli_clock_ns() : rt->sim->now_ns;
}

/* Adds to a counter, on the cheap if we are a worker. */
#define FLI_TALLY(runtime, worker, name, n)                               \
    do {                                                                \
        if ((worker) != NULL) fli_count(&(worker)->counters.name, (n));     \
        else fli_add_rlx(&(runtime)->foreign.name, (n));                \
    } while (0)

static inline fli_event_node *fli_node_at(fli_runtime *rt, uint32_t handle)
{
    return fli_slab_at_size(&rt->nodes, handle, sizeof(fli_event_node));
}

FILCH_MUST_USE static inline fli_event_node *fli_node_take(fli_runtime *rt, fli_local *worker)
{
    return fli_slab_take(&rt->nodes, worker != NULL ? &worker->nodes : NULL);
}

static inline void fli_node_give(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    fli_slab_give(&rt->nodes, worker != NULL ? &worker->nodes : NULL, node);
}

/* The control block a serial names, alive or not; NULL if there never was one. */
static inline fli_proc *fli_proc_find(fli_runtime *rt, uint64_t serial)
{
    return fli_slab_find_size(&rt->procs, fli_serial_slot(serial), sizeof(fli_proc));
}

/* The type of a process that runs, or ran a moment ago; for reports. */
static inline const filch_type *fli_type_of(fli_runtime *rt, uint64_t serial)
{
    fli_proc *p = fli_proc_find(rt, serial);
    return p != NULL ? fli_proc_type(p) : NULL;
}

/* FILCH_OK and the control block if `pid` is of this runtime and was alive a moment ago. */
FILCH_MUST_USE static inline filch_err fli_pid_find(fli_runtime *rt, filch_pid pid, fli_proc **out)
{
    if (pid.node != rt->node_id) return pid.serial == 0 ? FILCH_EDEAD : FILCH_EFOREIGN;
    fli_proc *p = fli_proc_find(rt, pid.serial);
    if (p == NULL || !fli_word_lives(fli_state_peek(&p->state), fli_serial_gen(pid.serial))) return FILCH_EDEAD;
    *out = p;
    return FILCH_OK;
}

#endif
