/* workload.h - the workloads of the whole-runtime simulation: small programs on the public API that check their own
 * results. */
#ifndef FILCH_TEST_SIM_WORKLOAD_H
#define FILCH_TEST_SIM_WORKLOAD_H

#include <stdint.h>

#include <filch.h>

typedef struct workload {
    const char *name;
    const char *about;
    /* Runs as the first thread of the simulation: creates schedulers, works, stops them, and calls fli_sim_fail() if a
     * result is wrong. `size` scales the work: roughly the number of messages. */
    void (*run)(uint32_t workers, uint32_t size);
} workload;

extern const workload workloads[];
extern const unsigned workload_count;

/* Defined in lanes.c. */
void run_lanes(uint32_t workers, uint32_t size);

/* Called before each run: resets the state of the previous run. */
void workload_reset(void);

/* Checks all data of the scheduler of the running workload (sim/check.h). The simulator does not switch threads during
 * the check. */
void workload_check(void);
/* Calls fli_check_rest() for the scheduler of the running workload. Called when every thread waits and the next event
 * is a timeout. */
void workload_rest(void);

/* The allocator of the running workload. It counts the bytes in use, which workload_alloc_live() returns, and fails at
 * random, as drawn from the seed. */
void    *workload_alloc(void *user, void *old, size_t old_size, size_t size);
void     workload_alloc_reset(uint32_t fail_per_mille);
uint64_t workload_alloc_live(void);

/* Returns the options of a scheduler with `workers` workers: workload_alloc, and small numbers drawn from the seed. */
filch_options workload_options(uint32_t workers);

/* ---- hosts.c ---- */

void workload_hosts(uint32_t workers, uint32_t size);

/* ---- crowd.c ---- */

void workload_crowd(uint32_t workers, uint32_t size);

#endif
