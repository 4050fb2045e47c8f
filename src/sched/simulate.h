/* simulate.h - where the scheduler meets a simulation of it. Called only when rt.sim is set, but for the last. */
#ifndef FLI_SCHED_SIMULATE_H
#define FLI_SCHED_SIMULATE_H

#include "sched/sched.h"

/* Writes down what the step is given, and calls it. */
filch_err fli_simulate_step(fli_worker *w, fli_proc *p, uint32_t count);
/* Writes down the yield, and calls its handler, unless that is to fail. `handler` may be NULL: FILCH_ECOMMAND. */
filch_err fli_simulate_handle(fli_worker *w, const fli_handler *handler, const filch_command *command,
                              filch_receiver receiver);
void      fli_simulate_spawned(filch_sched *sched, const fli_local *worker, uint64_t serial, const filch_type *type);
void      fli_simulate_ended(filch_sched *sched, uint64_t serial, filch_err error, const filch_data *result);

/* True in a simulation, for calls that make no sense there: the report will name it. Thread: any. */
bool fli_simulate_refuses(filch_sched *sched, const char *call);

#endif
