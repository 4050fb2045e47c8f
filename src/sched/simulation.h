/* simulation.h - one simulated run, as the files that make it see it:
 *
 *   simulate.c        a run from its scenario to its stop, and filch_sim_*
 *   simulate_turn.c   turns: which worker, which process, and where a step is interrupted
 *   simulate_world.c  what comes from outside: late answers, faults, memory that is not there
 *   simulate_notes.c  what is written down: the chart, the hash, the verdict
 *
 * INVARIANT  nothing here depends on an address, on the real clock or on the order of a table keyed by pointers.
 * INVARIANT  two draws never stand in one expression: their order would be the compiler's choice.
 */
#ifndef FLI_SCHED_SIMULATION_H
#define FLI_SCHED_SIMULATION_H

#include "observe/chart.h"
#include "sched/simulate.h"

#define FLI_SIMULATED_WORKERS_MAX 64

/* The allocator with holes in it. Blocks that the program keeps may outlive the run: the last one frees this. */
typedef struct fli_faulty_mem {
    fli_mem                mem; /* the one behind */
    struct fli_simulation *sim; /* plain: whoever may fail is on the simulation's thread. NULL: the run is over */
    /* Blocks that are out, and one for the run.  PAIR simulate.blocks */
    FLI_ATOMIC(uint64_t) blocks;
} fli_faulty_mem;

/* Something that happens later. */
typedef struct fli_pending {
    enum { FLI_PENDING_LATER, FLI_PENDING_ANSWER, FLI_PENDING_AGAIN } kind;
    uint64_t           due_ns;
    filch_sim_later_fn fn; /* LATER */
    void              *arg;
    fli_event_node          *node;     /* ANSWER: claimed and filled */
    filch_receiver     receiver; /* AGAIN: was answered */
} fli_pending;

/* Who is in a slot: its number in the chart. */
typedef struct fli_occupant {
    uint32_t gen, number;
} fli_occupant;

/* Faults and interruptions are for RUN alone; from OVER on, nothing is written down. */
typedef enum fli_stage { FLI_STAGE_SETUP, FLI_STAGE_RUN, FLI_STAGE_CHECK, FLI_STAGE_STOP, FLI_STAGE_OVER } fli_stage;

typedef struct fli_simulation {
    fli_simulator     face; /* first: rt.sim points here */
    filch_sched      *sched;
    const fli_model_ops *model_ops;
    filch_sim_options opt;
    fli_mem           mem;
    fli_faulty_mem   *faulty; /* NULL without no_memory */
    fli_prng          prng;
    fli_chart         chart;
    fli_stage         stage;
    filch_sim_report  report;
    /* A call that was refused; NULL none. The first by the simulation's own thread, and by others.
     * writes: any thread.  reads: the simulation. Relaxed: constant texts. */
    FLI_ATOMIC(const char *) refused;
    FLI_ATOMIC(const char *) refused_elsewhere;
    /* How this seed chooses, of 100: the oldest of its own, somebody else's; otherwise as a worker would. */
    uint32_t      oldest, far;
    uint32_t      interrupt; /* per mille of points */
    uint32_t      pace_ns;   /* a turn takes up to so long */
    uint32_t      depth;     /* interrupted steps */
    uint64_t      turns;
    bool          busy[FLI_SIMULATED_WORKERS_MAX];          /* in the middle of a step */
    uint64_t      stalled_until[FLI_SIMULATED_WORKERS_MAX]; /* in turns */
    fli_pending  *pending;
    uint32_t      pending_count, pending_room;
    fli_occupant *occupants; /* by slot */
    uint32_t      occupant_room;
    uint32_t      numbers; /* given out */
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

/* True so often in a thousand. Draws nothing for a rate of zero. */
static inline bool fli_draw_chance(fli_simulation *sim, uint32_t per_mille)
{
    return per_mille > 0 && fli_draw_below(sim, 1000) < per_mille;
}

static inline uint32_t fli_draw_one_of(fli_simulation *sim, const uint32_t *values, uint32_t count)
{
    return values[fli_draw_below(sim, count)];
}

/* ---- simulate_notes.c ---- */

static inline bool fli_simulation_writes(const fli_simulation *sim)
{
    return sim->stage != FLI_STAGE_OVER;
}

/* The number of a process in the chart. */
uint32_t fli_simulation_number(const fli_simulation *sim, uint64_t serial);
void     fli_simulation_note(fli_simulation *sim, fli_chart_event event);
void     fli_simulation_fault(fli_simulation *sim, const char *text);
/* The first one counts. */
void fli_simulation_verdict(fli_simulation *sim, filch_sim_verdict verdict, const char *text);
/* fli_simulator.sent */
void fli_simulation_sent(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err);

/* ---- simulate_world.c ---- */

/* False: no memory. */
FILCH_MUST_USE bool fli_simulation_add(fli_simulation *sim, fli_pending item);
/* How many of what is pending are due; when the next one is; and the nth of them happens. */
uint32_t fli_simulation_due(const fli_simulation *sim);
uint64_t fli_simulation_next_ns(const fli_simulation *sim);
void     fli_simulation_happen(fli_simulation *sim, uint32_t nth);
/* Whatever is still pending happens now. */
void fli_simulation_settle(fli_simulation *sim);
/* fli_simulator.answered */
bool fli_simulation_answered(fli_runtime *rt, fli_event_node *node, uint32_t command);
/* A filch_alloc_fn; its user is an fli_faulty_mem. */
void *fli_faulty_alloc(void *user, void *old, size_t old_size, size_t size);
void  fli_faulty_let_go(fli_faulty_mem *faulty);

/* ---- simulate_turn.c ---- */

/* May there be another turn? Gives the verdict if something is wrong. */
bool fli_simulation_goes_on(fli_simulation *sim);
/* One turn. False: nothing can be done at this time. */
bool fli_simulation_turn(fli_simulation *sim);
/* Takes turns until `until_ns`, or until nothing can ever happen: then true. */
bool fli_simulation_play(fli_simulation *sim, uint64_t until_ns);
/* fli_simulator.point */
bool fli_simulation_point(fli_runtime *rt, fli_local *worker, const char *call);

#endif
