/* simulate.h - calls from the scheduler into a simulation of it. Precondition: rt.sim is set, except for
 * fli_simulate_refuses(). */
#ifndef FLI_SCHED_SIMULATE_H
#define FLI_SCHED_SIMULATE_H

#include "sched/sched.h"

/* Adds the events of the step to the chart and calls the step. */
filch_err fli_simulate_step(fli_worker *w, fli_proc *p, uint32_t count);
/* Adds the yield to the chart and calls its handler, unless an error is injected instead. Returns FILCH_ECOMMAND if
 * `handler` is NULL. */
filch_err fli_simulate_handle(fli_worker *w, const fli_handler *handler, const filch_command *command,
                              filch_receiver receiver);
void      fli_simulate_spawned(filch_sched *sched, const fli_local *worker, uint64_t serial, const filch_type *type);
void      fli_simulate_ended(filch_sched *sched, uint64_t serial, filch_err error, const filch_data *result);

/* Called by functions that a simulation does not support. Returns true in a simulation; then the report names `call`.
 * Thread: any. */
bool fli_simulate_refuses(filch_sched *sched, const char *call);

#endif
