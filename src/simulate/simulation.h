/* simulation.h - the state of one simulated run, shared by these files:
 *
 *   simulate.c  a run from its scenario to its stop, and filch_sim_*
 *   turn.c      turns: which worker, which process, and where a step is interrupted
 *   faults.c    events from outside: late completions, faults, failed allocations
 *   notes.c     the record of the run: chart, hash, verdict
 *
 * INVARIANT  no choice depends on an address, on the real clock or on the order of a table keyed by pointers.
 * INVARIANT  an expression draws at most once, because the compiler chooses the order of two draws in one expression.
 */
#ifndef FLI_SIMULATE_SIMULATION_H
#define FLI_SIMULATE_SIMULATION_H

#include "base/prng.h"
#include "dispatch/registry.h"
#include "observe/chart.h"
#include "proc/runtime.h"

#define FLI_SIMULATED_WORKERS_MAX 64

/* An allocator that fails at random. The program may keep blocks after the end of the run, so this struct is freed
 * together with the last block. */
typedef struct fli_faulty_mem {
    fli_mem                mem; /* the allocator that serves the requests */
    struct fli_simulation *sim; /* not atomic: used by the simulation's thread alone. NULL: the run has ended */
    /* Number of allocated blocks, plus one while the run lasts: at 0 this struct is freed.  PAIR simulate.blocks */
    FLI_ATOMIC(uint64_t) blocks;
} fli_faulty_mem;

/* An event that comes from outside the processes, and will happen at due_ns. */
typedef struct fli_pending {
    enum { FLI_PENDING_LATER, FLI_PENDING_COMPLETION, FLI_PENDING_AGAIN } kind;
    uint64_t           due_ns;
    filch_sim_later_fn fn; /* for kind LATER */
    void              *arg;
    fli_event_node    *node; /* for kind COMPLETION: the node of the delayed completion, claimed and filled */
    /* for kind AGAIN: the receiver of a yield for which a second completion will be tried */
    filch_receiver receiver;
} fli_pending;

/* The process in a slot: its generation, and its number in the chart. */
typedef struct fli_occupant {
    uint32_t gen, number;
} fli_occupant;

/* Stages of a run. Faults and interruptions happen only in RUN. In OVER, nothing is added to chart and report. */
typedef enum fli_stage { FLI_STAGE_SETUP, FLI_STAGE_RUN, FLI_STAGE_CHECK, FLI_STAGE_STOP, FLI_STAGE_OVER } fli_stage;

typedef struct fli_simulation {
    fli_simulator        simulator; /* first member: rt.sim points here */
    filch_sched         *sched;
    const fli_upper_ops *upper; /* operations of upper modules, passed to fli_sched_make() */
    filch_sim_options    opt;
    fli_mem              mem;
    fli_faulty_mem      *faulty; /* NULL if option no_memory is not set */
    fli_prng             prng;
    fli_chart            chart;
    fli_stage            stage;
    filch_sim_report     report;
    /* Name of a function that the simulation refused; NULL: none. `refused`: the first such call by the simulation's
     * thread; `refused_elsewhere`: the last such call by another thread.  writes: any thread.  reads: the simulation.
     * Relaxed: the names are constant texts. */
    FLI_ATOMIC(const char *) refused;
    FLI_ATOMIC(const char *) refused_elsewhere;
    /* `oldest`: percent of turns in which the worker takes the oldest process of its deque. `far`: percent of turns in
     * which the worker takes a process from the global queue or from another worker. In all other turns the worker uses
     * the order of the scheduler. */
    uint32_t oldest, far;
    uint32_t interrupt; /* of 1000 scheduling points (fli_simulator.point), how many interrupt the step */
    uint32_t pace_ns;   /* upper limit of the virtual time of a turn */
    uint32_t depth;     /* number of interrupted steps on the stack */
    uint64_t turns;
    bool     busy[FLI_SIMULATED_WORKERS_MAX];          /* the worker is inside a step */
    uint64_t stalled_until[FLI_SIMULATED_WORKERS_MAX]; /* number of the turn until which the worker is stalled */
    /* The timer that is held back, and until when; 0: none. At most one timer is held back at a time: two timers could
     * hold each other back for ever. */
    uint64_t      held_timer, held_until_ns;
    fli_pending  *pending;
    uint32_t      pending_count, pending_room;
    fli_occupant *occupants; /* for each process slot: the process that the chart shows */
    uint32_t      occupant_room;
    uint32_t      numbers; /* the number that was given to the newest process of the chart */
} fli_simulation;

static inline fli_simulation *fli_simulation_of(const fli_runtime *rt)
{
    return (fli_simulation *)rt->sim;
}

static inline uint32_t fli_draw_below(fli_simulation *sim, uint32_t bound)
{
    return fli_prng_below(&sim->prng, bound);
}

static inline uint64_t fli_draw_span(fli_simulation *sim, uint64_t max_ns)
{
    return 1 + fli_prng_next(&sim->prng) % max_ns;
}

/* Returns true with probability per_mille / 1000. Draws nothing if per_mille is 0. */
static inline bool fli_draw_chance(fli_simulation *sim, uint32_t per_mille)
{
    return per_mille > 0 && fli_draw_below(sim, 1000) < per_mille;
}

static inline uint32_t fli_draw_one_of(fli_simulation *sim, const uint32_t *values, uint32_t count)
{
    return values[fli_draw_below(sim, count)];
}

/* ---- notes.c ---- */

static inline bool fli_simulation_writes(const fli_simulation *sim)
{
    return sim->stage != FLI_STAGE_OVER;
}

/* Returns the number under which the chart shows the process. */
uint32_t fli_simulation_number(const fli_simulation *sim, uint64_t serial);
void     fli_simulation_note(fli_simulation *sim, fli_chart_event event);
void     fli_simulation_fault(fli_simulation *sim, const char *text);
/* Sets the verdict of the run, unless it has one already. */
void fli_simulation_verdict(fli_simulation *sim, filch_sim_verdict verdict, const char *text);
/* The runtime calls these functions through fli_simulator.sent, spawned, ended and step. */
void      fli_simulation_sent(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err);
void      fli_simulation_spawned(fli_runtime *rt, const fli_local *worker, uint64_t serial, const filch_type *type);
void      fli_simulation_ended(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result);
filch_err fli_simulation_step(fli_local *worker, fli_proc *p, uint32_t count);

/* ---- faults.c ---- */

/* Adds an event from outside the processes to the pending events. Returns false if there is no memory. */
FILCH_MUST_USE bool fli_simulation_add(fli_simulation *sim, fli_pending item);
/* Returns the number of pending events that are due. */
uint32_t fli_simulation_due(const fli_simulation *sim);
/* Returns the time of the earliest pending event; FLI_NEVER if there is none. */
uint64_t fli_simulation_next_ns(const fli_simulation *sim);
/* Executes one of the pending events that are due: the one with index `nth`, counted from 0 in the order in which they
 * were added. */
void fli_simulation_happen(fli_simulation *sim, uint32_t nth);
/* Executes all pending events, due or not. */
void fli_simulation_settle(fli_simulation *sim);
/* Implements fli_simulator.completed (proc/runtime.h): adds the completion to the chart, and may delay it or plan a
 * second completion of the same yield. */
bool fli_simulation_completed(fli_runtime *rt, fli_event_node *node, uint32_t command);
/* Implements fli_simulator.timer_due (proc/runtime.h): returns FLI_NEVER if a timer that is due may fire now. Otherwise
 * holds the timer back, and returns the time until which it is held back. */
uint64_t fli_simulation_timer_due(fli_runtime *rt, uint64_t id, uint64_t next_ns);
/* Draws a limit, then a time up to this limit. The limit is one of the first `magnitudes` numbers of max_ns, max_ns /
 * 2, max_ns / 4 and so on, all equally likely. */
uint64_t fli_draw_magnitude(fli_simulation *sim, uint64_t max_ns, uint32_t magnitudes);
/* Implements fli_simulator.handle (proc/runtime.h): calls the handler of a command, or fails in its place. Adds the
 * yield to the chart. */
filch_err fli_simulation_handle(fli_local *worker, const fli_handler *handler, const filch_command *command,
                                filch_receiver receiver);
/* A filch_alloc_fn that fails at random; `user` is an fli_faulty_mem. */
void *fli_faulty_alloc(void *user, void *old, size_t old_size, size_t size);
void  fli_faulty_let_go(fli_faulty_mem *faulty);

/* ---- turn.c ---- */

/* First sets the verdict, if a call was refused or the run has done `steps_max` steps. Returns true if the run has no
 * violation. */
bool fli_simulation_goes_on(fli_simulation *sim);
/* Does one turn. Returns false if nothing can be done at this virtual time. */
bool fli_simulation_turn(fli_simulation *sim);
/* Does turns until `until_ns`. Returns true if it ended earlier because no timer and no event is pending. */
bool fli_simulation_play(fli_simulation *sim, uint64_t until_ns);
/* The runtime calls these functions through fli_simulator.point and refused. */
bool fli_simulation_point(fli_runtime *rt, fli_local *worker, const char *call);
void fli_simulation_refused(fli_runtime *rt, const char *call);

#endif
