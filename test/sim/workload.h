/* workload.h - what the whole-runtime simulation runs: small programs on the public API that know what must come out. */
#ifndef FILCH_TEST_SIM_WORKLOAD_H
#define FILCH_TEST_SIM_WORKLOAD_H

#include <stdint.h>

#include <filch.h>

typedef struct workload {
    const char *name;
    const char *about;
    /* Runs inside the simulation, as its first thread: creates schedulers, works, stops them, and calls fli_sim_fail
     * when something is not as promised. `size` scales it: roughly messages. */
    void (*run)(uint32_t workers, uint32_t size);
} workload;

extern const workload workloads[];
extern const unsigned workload_count;

/* In lanes.c. */
void run_lanes(uint32_t workers, uint32_t size);

/* Before each run: nothing is left of the one before. */
void workload_reset(void);

/* Looks at everything the running workload's scheduler holds (sim/check.h). No point of the simulation. */
void workload_check(void);
/* The same, when everybody waits. */
void workload_rest(void);

/* The allocator of the running workload: counts, and fails when the seed says so. */
void    *workload_alloc(void *user, void *old, size_t old_size, size_t size);
void     workload_alloc_reset(uint32_t fail_per_mille);
uint64_t workload_alloc_live(void);

/* The options of a scheduler with so many workers: its allocator, and small numbers drawn from the seed. */
filch_options workload_options(uint32_t workers);

/* ---- hosts.c ---- */

void workload_hosts(uint32_t workers, uint32_t size);

/* ---- crowd.c ---- */

void workload_crowd(uint32_t workers, uint32_t size);

#endif
