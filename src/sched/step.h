/* step.h - steps processes. See step.c and inline_yield.c. */
#ifndef FLI_SCHED_STEP_H
#define FLI_SCHED_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "dispatch/registry.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sched/worker.h"

/* ---- step.c ---- */

/* Dispatches the yields of a step and acts on its status (items 4 and 5 of the list at the head of step.c). The caller
 * has already freed the events of the step. Precondition: the step has been counted. `err`: the error that the step
 * function returned. */
void fli_step_conclude(fli_worker *w, fli_proc *p, filch_err err);
/* Settles a process as BLOCKED, after its yields have been dispatched. */
void fli_step_wait(fli_worker *w, fli_proc *p);
/* Steps the process `p`. Steps it again as long as each step leaves a process in w->rerun. */
void fli_step(fli_worker *w, fli_proc *p);
/* Steps the processes that fli_find_near() returns, one after the other. Returns true when a clock reading is due,
 * false when there is no process. */
bool fli_step_on(fli_worker *w);
/* Calls the step function with the first `count` of w->events, through the simulator if there is one. */
filch_err fli_step_call(fli_worker *w, fli_proc *p, uint32_t count);

/* Returns the handler of a command, or NULL if the command is unknown. Caches the result of the last lookup; a registry
 * in use does not change. */
static inline const fli_handler *fli_handler_of(fli_worker *w, uint32_t id)
{
    if (FLI_UNLIKELY(w->handler_cache_id != id)) {
        w->handler_cache = fli_registry_find(w->sched->registry, id);
        w->handler_cache_id = id;
    }
    return w->handler_cache;
}

/* ---- inline_yield.c ---- */

/* Runs the inline completion loop of inline_yield.c. The completion is in w->events[0]; `word` is the state word of the
 * process. `node` is the node of its only yield; that yield is no longer outstanding (fli_yield_close). */
void fli_inline_yield_loop(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node);

#endif
