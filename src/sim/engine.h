/* engine.h - many virtual threads on one, switched at every call that touches the machine, by choices that come from a
 * seed. The same seed gives the same run.
 *
 * The rest of the runtime is compiled against src/sim/seam/port instead of src/port: same names, and every one of
 * them is a *point* at which the engine may go on with another thread. Time is virtual: it moves a little at every
 * point, and jumps to the next alarm when everybody waits.
 *
 * Two ways to choose (each finds what the other misses):
 *   random walk  at a random point go on with a random thread; how often is itself drawn from the seed
 *   PCT          every thread has a priority, the highest runs; at `depth` - 1 random points the running one drops to
 *                the bottom
 *
 * When nobody can run and nobody has an alarm, a wake-up was lost: that ends the run as a violation, without any
 * time-out.
 */
#ifndef FLI_SIM_ENGINE_H
#define FLI_SIM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fli_sim_strategy { FLI_SIM_RANDOM, FLI_SIM_PCT } fli_sim_strategy;

typedef struct fli_sim_config {
    uint64_t         seed;
    fli_sim_strategy strategy;
    uint32_t         depth;         /* PCT; 0: 3 */
    uint64_t         length;        /* PCT: points in a run, roughly; the changes fall into them. 0: 20000 */
    uint32_t         switch_mean;   /* random walk: points between switches on average; 0: drawn from the seed */
    uint64_t         point_max;     /* a run that takes more is stuck; 0: 50 million */
    uint32_t         spurious;      /* of 1000 waits on a condition that end for no reason */
    uint32_t         weak_fail;     /* of 1000 weak compare-and-swaps that fail for no reason */
    uint32_t         no_thread;     /* of 1000 threads that cannot be started */
    uint32_t         stall;         /* of 1000 switches after which the thread left is not chosen for long */
    uint32_t         clock_jump;    /* of 1000 readings before which the clock jumps ahead */
    uint32_t         check_every;   /* calls `check` at every so many switches; 0: never */
    void           (*check)(void);  /* looks at everything; must not reach a point */
    void           (*rest)(void);   /* the same, when everybody waits and time is about to jump; NULL: nothing */
    bool             trace;         /* write every point to `trace_line` */
    void (*trace_line)(void *user, uint64_t point, uint32_t thread, const char *what);
    void *trace_user;
} fli_sim_config;

typedef enum fli_sim_verdict {
    FLI_SIM_OK,
    FLI_SIM_DEADLOCK, /* nobody can run: a lost wake-up */
    FLI_SIM_ENDLESS,  /* point_max: somebody goes round for ever */
    FLI_SIM_FAILED    /* fli_sim_fail */
} fli_sim_verdict;

typedef struct fli_sim_result {
    fli_sim_verdict verdict;
    const char     *why;      /* static text; NULL if OK */
    uint64_t        points;   /* how many there were */
    uint64_t        switches;
    uint64_t        hash;     /* of all choices: equal for equal runs */
    uint64_t        time_ns;  /* virtual */
} fli_sim_result;

/* Runs `body(arg)` as virtual thread 0 until it and all it started have ended. After a violation the other threads are
 * dropped where they stand; what they held is lost. Thread: one at a time in a program. */
fli_sim_result fli_sim_run(const fli_sim_config *config, void (*body)(void *arg), void *arg);

/* Inside a run: this must not be. Does not return. */
void fli_sim_fail(const char *why) __attribute__((noreturn));
/* Inside a run: a number below `bound`, from the seed. */
uint32_t fli_sim_choose(uint32_t bound);
/* Inside a run: true `per_mille` times in a thousand. */
bool fli_sim_chance(uint32_t per_mille);
/* Faults, by the rates of the config: a weak compare-and-swap fails, a wait ends for no reason, no thread is to be had. */
bool fli_sim_weak_fails(void);
bool fli_sim_spurious(void);
bool fli_sim_no_thread(void);
/* How many points there have been in this run. */
uint64_t fli_sim_points(void);
/* Are we inside a run? Outside, points do nothing. */
bool fli_sim_running(void);

/* ---- for the seam ---- */

/* Points left before the engine wants to choose. Counted down by every point, so that a point in between costs next to
 * nothing. */
extern uint64_t fli_sim_credit;
void            fli_sim_decide(const char *what);

static inline void fli_sim_point(const char *what)
{
    if (__builtin_expect(--fli_sim_credit == 0, 0)) fli_sim_decide(what);
}

uint64_t fli_sim_now_ns(void);
/* The running thread lets others go first: it has nothing to do but look again. */
void  fli_sim_yield(const char *what);
void *fli_sim_here_get(void);
void  fli_sim_here_set(void *here);

/* Threads that wait are in a list kept by what they wait for. */
typedef struct fli_sim_queue {
    struct fli_sim_thread *first;
} fli_sim_queue;

/* Blocks the running thread until fli_sim_wake, or until `until_ns`. False: time is up. */
bool fli_sim_block(fli_sim_queue *queue, uint64_t until_ns, const char *what);
/* Makes one of them ready (chosen by the seed), or all. True: there was one. */
bool fli_sim_wake(fli_sim_queue *queue, bool all);

uint32_t fli_sim_thread_start(void (*run)(void *arg), void *arg);
void     fli_sim_thread_join(uint32_t thread);

#endif
