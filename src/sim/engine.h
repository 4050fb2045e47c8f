/* engine.h - runs many virtual threads on one real thread and switches between them at calls into the port, by choices
 * drawn from a seed. The same seed gives the same run.
 *
 * The rest of the runtime is compiled against src/sim/seam/port instead of src/port: the same names, and each call is
 * a *point* at which the engine may switch to another thread. Time is virtual: it advances by 20 ns at each point, and
 * jumps to the next alarm when all threads are blocked.
 *
 * Two strategies (each finds bugs that the other misses):
 * - random walk: switches at random points to random threads; the mean distance is drawn from the seed too
 * - PCT: each thread has a priority and the highest one runs; at `depth` - 1 random points the running thread gets the
 *   lowest priority
 *
 * When no thread can run and none has an alarm, a wake-up was lost: the run ends as a violation at once, without a
 * time-out.
 * Design: docs/design/testing.md.
 */
#ifndef FLI_SIM_ENGINE_H
#define FLI_SIM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fli_sim_strategy { FLI_SIM_RANDOM, FLI_SIM_PCT } fli_sim_strategy;

typedef struct fli_sim_config {
    uint64_t         seed;
    fli_sim_strategy strategy;
    uint32_t         depth; /* PCT: number of priority changes plus 1; 0 means 3 */
    /* PCT (random priorities of threads): expected number of scheduling points of a run, over which the changes of
     * priorities are spread; 0 means 20000 */
    uint64_t length;
    /* random walk: mean number of scheduling points between two choices of a thread; 0: drawn from the seed */
    uint32_t switch_mean;
    uint64_t point_max; /* a run with more scheduling points counts as endless; 0 means 50 million */
    uint32_t spurious;  /* of 1000 waits on a condition, how many end spuriously */
    uint32_t weak_fail; /* of 1000 weak compare-and-swaps, how many fail spuriously */
    uint32_t no_thread; /* of 1000 attempts to start a thread, how many fail */
    /* of 1000 switches from one thread to another, how many stall the first thread for a while (random walk only) */
    uint32_t stall;
    uint32_t clock_jump;  /* before how many of 1000 clock readings the virtual clock jumps ahead */
    uint32_t check_every; /* number of switches between two calls of `check`; 0: `check` is never called */
    /* checks invariants; must not call functions of the port, because each of these calls is a scheduling point */
    void (*check)(void);
    void (*rest)(void); /* checks invariants when all threads are blocked and time is about to jump; may be NULL */
    bool trace;         /* true: each scheduling point is reported by a call of `trace_line` */
    void (*trace_line)(void *user, uint64_t point, uint32_t thread, const char *what);
    void *trace_user;
} fli_sim_config;

typedef enum fli_sim_verdict {
    FLI_SIM_OK,
    FLI_SIM_DEADLOCK, /* no thread can run and none has an alarm: a lost wake-up */
    FLI_SIM_ENDLESS,  /* point_max was reached: a thread loops for ever */
    FLI_SIM_FAILED    /* fli_sim_fail was called */
} fli_sim_verdict;

typedef struct fli_sim_result {
    fli_sim_verdict verdict;
    const char     *why;    /* why the run ended (static text); NULL if the verdict is FLI_SIM_OK */
    uint64_t        points; /* number of scheduling points of the run */
    uint64_t        switches;
    uint64_t        hash;    /* hash of all choices: equal for equal runs */
    uint64_t        time_ns; /* virtual time in ns at the end of the run */
} fli_sim_result;

/* Runs `body(arg)` as virtual thread 0 until thread 0 and all threads that were started in the run have ended. After a
 * violation, all threads that have not ended are abandoned, and their resources leak. Thread: any, but only one run at
 * a time in a program. */
fli_sim_result fli_sim_run(const fli_sim_config *config, void (*body)(void *arg), void *arg);

/* Called inside a run: ends the run with the verdict FLI_SIM_FAILED and the text `why`. Does not return. */
void fli_sim_fail(const char *why) __attribute__((noreturn));
/* Called inside a run: returns a number below `bound`, drawn from the seed. */
uint32_t fli_sim_choose(uint32_t bound);
/* Called inside a run: returns true with probability per_mille / 1000. */
bool fli_sim_chance(uint32_t per_mille);
/* Return true if a fault must be injected now, with the probability given in the config. fli_sim_weak_fails(): the next
 * weak compare-and-swap must fail. fli_sim_spurious(): the next wait must end spuriously. fli_sim_no_thread(): the next
 * start of a thread must fail. */
bool fli_sim_weak_fails(void);
bool fli_sim_spurious(void);
bool fli_sim_no_thread(void);
/* Returns the number of scheduling points that this run has passed so far. */
uint64_t fli_sim_points(void);
/* Returns true if called inside a run. Outside a run, fli_sim_point() has no effect. */
bool fli_sim_running(void);

/* ---- functions for the port in src/sim/seam ---- */

/* Number of scheduling points left until the engine chooses the next thread. Each scheduling point decrements it, so
 * that a point without a choice costs only one decrement. */
extern uint64_t fli_sim_credit;
void            fli_sim_decide(const char *what);

static inline void fli_sim_point(const char *what)
{
    if (__builtin_expect(--fli_sim_credit == 0, 0)) fli_sim_decide(what);
}

uint64_t fli_sim_now_ns(void);
/* Called by a thread that spins: the engine prefers other threads. */
void  fli_sim_yield(const char *what);
void *fli_sim_current_get(void);
void  fli_sim_current_set(void *worker);
void *fli_sim_inside_get(void);
void  fli_sim_inside_set(void *call);

/* A queue of waiting threads; part of the object that the threads wait for. */
typedef struct fli_sim_queue {
    struct fli_sim_thread *first;
} fli_sim_queue;

/* Blocks the running thread until fli_sim_wake() or until `until_ns`. Returns false if `until_ns` was reached. */
bool fli_sim_block(fli_sim_queue *queue, uint64_t until_ns, const char *what);
/* Makes a waiting thread, drawn from the seed, ready; if `all`, makes all waiting threads ready. Returns true if a
 * thread was waiting. */
bool fli_sim_wake(fli_sim_queue *queue, bool all);

uint32_t fli_sim_thread_start(void (*run)(void *arg), void *arg);
void     fli_sim_thread_join(uint32_t thread);

#endif
