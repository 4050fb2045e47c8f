/* finish.h - the last of a process: its slot goes back; and the end of one that nobody would hear of. See finish.c. */
#ifndef FLI_SCHED_FINISH_H
#define FLI_SCHED_FINISH_H

#include "proc/data.h"
#include "sched/sched.h"

/* Its word is FREE. `again`: it has generations left. */
static inline void fli_finish_slot(fli_worker *w, fli_proc *p, bool again)
{
    fli_local *worker = &w->local;
    if (FLI_LIKELY(again)) fli_slab_give(&w->sched->rt.procs, &worker->procs, p);
    else fli_slab_retire(&w->sched->rt.procs);
    /* PAIR finish.ended, release half: when stop has counted this one, nothing of it is left. One writer: no RMW. */
    fli_store_rel(&worker->counters.ended, fli_load_rlx(&worker->counters.ended) + 1);
}

/* fli_finish for most: no yields, nothing to close, and a value that nobody waits for. The step began with `word`, a calm
 * one, and with all the mail behind it: that was `node`, or nothing (NULL). False: not so, and nothing was changed.
 * Thread: the worker that owns it, by the short way: no tape, no simulation. */
FILCH_MUST_USE static inline bool fli_finish_fast(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    const filch_type *type = fli_proc_type(p);
    const filch_out  *out = &w->out;
    if (out->status != FLI_STATUS_DONE || out->pending_count != 0 || !fli_data_is_value_form(&out->result)) return false;
    if ((p->yield_count | p->flags) != 0 || type->close != NULL || p->values != NULL || p->ext != NULL) return false;
    if (FLI_UNLIKELY(!fli_state_exit(&p->state, word))) return false;
    if (node != NULL) fli_node_give(&w->sched->rt, &w->local, node);
    if (p->self != p->inline_state) fli_instance_free(w->sched, type, p->inline_state, p->self);
    fli_finish_slot(w, p, true);
    return true;
}

#endif
