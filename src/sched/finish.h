/* finish.h - ends processes. See finish.c. */
#ifndef FLI_SCHED_FINISH_H
#define FLI_SCHED_FINISH_H

#include "base/assert.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/worker.h"

/* Gives back the slot of `p`, which is in the state FREE, and counts the process as ended. `again`: the slot has
 * generations left and may be used again; without it the slot is retired. */
static inline void fli_finish_slot(fli_worker *w, fli_proc *p, bool again)
{
    fli_local *worker = &w->local;
    if (FLI_LIKELY(again)) fli_slab_give(&w->sched->rt.procs, &worker->procs, p);
    else fli_slab_retire(&w->sched->rt.procs);
    /* PAIR finish.ended, release half: a stop that has counted this process as ended knows that nothing of it is left.
     * No RMW, because only this worker writes the counter. */
    fli_store_rel(&worker->counters.ended, fli_load_rlx(&worker->counters.ended) + 1);
}

/* Fast path of fli_finish(): ends a process that has nothing to close, abandon or report, in one CAS. `word` is the
 * state word with which the step began; it is clean (step.c). The step got all events of the mailbox: the event of
 * `node`, or no event (`node` NULL).
 *   Precondition: status DONE with a value; no yields, flags, values, extension or close; no relations; neither
 *                 recorded nor simulated.
 *   Skips:        the state DONE, closing the mailbox, notices, on_exit.
 *   Repeats:      INVARIANT settle of step.c: the CAS is from `word`, so no event has arrived since.
 *   General path: fli_finish().
 * Returns false if a precondition fails; then nothing was changed. Thread: the worker that owns the process. */
FILCH_MUST_USE static inline bool fli_finish_fast(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    const filch_type *type = fli_proc_type(p);
    const filch_out  *out = &w->out;
    if (out->status != FLI_STATUS_DONE || out->pending_count != 0 || !fli_data_is_value_form(&out->result))
        return false;
    if ((p->yield_count | p->flags) != 0 || type->close != NULL || p->values != NULL || p->ext != NULL) return false;
    if (FLI_UNLIKELY(!fli_state_exit(&p->state, word))) return false;
    if (node != NULL) fli_full_node_give(&w->sched->rt, &w->local, node);
    if (p->self != p->inline_state) fli_instance_free(w->sched, type, p->inline_state, p->self);
    fli_finish_slot(w, p, true);
    return true;
}

/* Ends a process that the worker owns. Takes ownership of `result`. */
void fli_finish(fli_worker *w, fli_proc *p, filch_err error, filch_data *result);

/* Calls the function `close` of `type`, which must not be NULL, for the instance `self`. During the call
 * filch_close_error() returns `error`, and filch_close_unread() counts unread messages of the process that the worker
 * owns. */
void fli_instance_close(fli_worker *w, const filch_type *type, void *self, filch_err error);

/* ---- failure.c ---- */

/* Calls the function in option on_failure, which must not be NULL. `related`: the process has relations, so it may have
 * a name. `detail` is lent to the callback. Thread: the worker that ends the process. */
void fli_failure_notify(filch_sched *sched, uint64_t serial, const filch_type *type, bool related, filch_err error,
                        const filch_data *detail);

#endif
