/* simulate.h - simulated runs of a scheduler, for src/model/entry.c. Design: docs/SIMULATION.md. */
#ifndef FLI_SIMULATE_SIMULATE_H
#define FLI_SIMULATE_SIMULATE_H

#include <filch.h>

#include "proc/runtime.h"

/* Does what filch_sim_sweep() promises. `upper`: the functions through which the simulated schedulers call the modules
 * above sched. */
filch_err fli_sim_sweep(const fli_upper_ops *upper, const filch_sim_options *options, uint64_t first, uint64_t count,
                        filch_sim_fn scenario, void *user, filch_sim_report *report);

#endif
