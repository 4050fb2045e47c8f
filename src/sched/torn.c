/* torn.c - ends a process after a C++ exception has left its step, under filch_tick or under a stop without workers.
 * The process is called torn: it still belongs to caller_worker, and is somewhere in the middle of a step. It is
 * ended before caller_worker does anything else.
 *
 * It is not known which path of step.c the step was on. All paths leave the process in a state that fli_finish() can
 * end: the messages of step_single() and step_several() are still behind the state word, and so is an asynchronous
 * completion; the node of an inline completion loop is in `spare`, and the yields of the step are in the list of the
 * process.
 * Design: docs/design/shutdown.md.
 */
#include "sched/torn.h"
#include "base/assert.h"
#include "proc/ext.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/finish.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/worker.h"

/* Resets the worker to the state of a worker that neither steps nor ends a process. */
static void reset_worker(fli_worker *w)
{
    fli_local *worker = &w->local;
    w->rerun = NULL;
    w->given = 0;
    worker->rec_hooks = NULL;
    worker->current = NULL;
    worker->serial = 0;
    worker->closing = false;
    worker->fast_rt = FLI_NO_FAST_RT;
    w->close_error = FILCH_OK;
    w->in_close = false;
}

void fli_torn_note(fli_worker *w)
{
    w->torn = w->local.current;
    w->local.current = NULL;
    if (w->torn == NULL) reset_worker(w); /* NULL: on_exit has thrown, after its process had ended */
    fli_store_rlx(&w->status.serial, 0);
}

/* Frees the yields of the torn step, and the events that it got (w->given). */
static void forget_step(fli_worker *w, fli_proc *p)
{
    fli_local      *worker = &w->local;
    filch_out      *out = &w->out;
    fli_event_node *spare = out->spare; /* the node of an inline completion loop; NULL: none */
    bool            used = spare != NULL && out->pending_count > 0 && out->pending[0].node == spare;
    if (spare != NULL && !used) {
        fli_yield_close(worker->rt, p, spare);
        fli_full_node_give(worker->rt, worker, spare);
    }
    out->spare = NULL;
    worker->inline_key = 0;
    worker->inline_node = NULL;
    /* If filch_fail() called a `close` that threw, filch_fail() has not reset `fails`. */
    out->fails = FILCH_OK;
    fli_out_forget(out, FILCH_EKILLED);
    if (worker->dispatching)
        /* Some handlers have been called already, so the yields stay in the list of the process, and fli_finish()
         * abandons them. */
        out->pending_count = 0;
    else fli_out_drop_pending(out, worker);
    if (w->given > 0) fli_mail_release(&w->sched->rt, worker, p, w->events, w->nodes, w->given);
    worker->dispatching = false;
}

/* Does for a process that is DONE what an interrupted fli_finish() has left undone: sends the exit notices, and frees
 * the values and the extension. */
static void blank(fli_worker *w, fli_proc *p)
{
    fli_runtime  *rt = &w->sched->rt;
    filch_values *values = p->values;
    filch_data    nothing = filch_none();
    bool          exit_unnotified = w->exit_unnotified;
    w->exit_unnotified = false;
    if (exit_unnotified) rt->model_ops->ended(rt, w->local.serial, FILCH_EKILLED, &nothing);
    fli_ext_free(rt, p);
    p->values = NULL;
    if (values != NULL) filch_values_drop(values);
}

void fli_torn_mend(fli_worker *w)
{
    fli_proc *p = w->torn;
    if (FLI_LIKELY(p == NULL)) return;
    filch_data nothing = filch_none();
    fli_local *worker = &w->local;
    bool       ended = fli_word_state(fli_state_peek(&p->state)) == FLI_DONE;
    w->torn = w->rerun = NULL;
    worker->rec_hooks = NULL;
    worker->current = p;
    worker->serial = fli_proc_serial(p);
    fli_callback_begin(worker);
    if (ended) {
        /* `close` or a hook has thrown while the process was ending. The remaining items of fli_finish() are skipped;
         * blank() does only what the slot needs before it is used again. */
        blank(w, p);
        fli_callback_end(worker);
        fli_finish_slot(w, p, fli_state_free(&p->state));
    } else {
        forget_step(w, p);
        fli_finish(w, p, FILCH_EKILLED, &nothing);
    }
    reset_worker(w);
}
