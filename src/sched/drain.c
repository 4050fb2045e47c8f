/* drain.c - when a stop cancels a process: the part of the worker that steps it. The part of the stopping thread is stop.c; the design is
 * docs/design/shutdown.md.
 *
 * INVARIANT  the stop gives a process one cancel. It comes behind the messages that were in the mailbox when the process was
 *            asked, or in front of them after `hurry` or with FILCH_STOP_CANCEL_FIRST.
 * INVARIANT  a process with a supervisor in this scheduler is asked by its supervisor, not here.
 */
#include "proc/mailbox.h"
#include "sched/sched.h"

/* Puts a cancel behind the messages. Returns false if there was no memory for it. */
static bool queue_cancel(fli_worker *w, fli_proc *p)
{
    fli_runtime *rt = &w->sched->rt;
    fli_event_node    *node = fli_node_take(rt, &w->local);
    filch_data   nothing = filch_none();
    if (node == NULL) return false;
    node->what = FLI_NODE_SYSTEM | FLI_NODE_AFTER_MESSAGES;
    node->notice = FILCH_EVENT_CANCEL;
    node->about = node->tag = 0;
    node->error = FILCH_ECANCELLED;
    fli_node_put_data(node, &nothing);
    fli_mail_append(rt, &p->messages, node);
    return true;
}

static bool is_supervised(fli_worker *w, uint64_t word)
{
    fli_runtime *rt = &w->sched->rt;
    return (word & FLI_HAS_RELATIONS) != 0 && rt->model_ops->supervised(rt, w->local.serial, 0);
}

/* Returns true if patience_ns is over and the process waits: it reads no messages, so a cancel behind them would not arrive. */
static bool is_late(fli_worker *w, const fli_proc *p)
{
    return (p->flags & FLI_PROC_WAITING) != 0 && fli_load_rlx(&w->sched->stop.hurry);
}

/* Asks a process that has not been asked yet. Returns true if the step begins with a cancel.
 *
 * The word that this step began with may be older than the stop. Messages that were sent before the stop, and arrived after that
 * word was read, are drained first: the phase is read by acquire in between, so all that was sent before it was set is seen. */
static bool ask(fli_worker *w, fli_proc *p)
{
    fli_runtime *rt = &w->sched->rt;
    (void)fli_load_acq(&rt->phase); /* PAIR runtime.phase, acquire half */
    fli_mail_drain(rt, &w->local, p, fli_word_head(fli_state_look(&p->state)));
    if ((p->flags & FLI_PROC_STOP_SENT) != 0) return false; /* among these messages was the cancel of a supervisor that has ended since */
    p->flags |= FLI_PROC_STOP_SENT;
    if (p->messages == 0 || is_late(w, p) || !fli_stop_is_polite(w->sched)) return true;
    return !queue_cancel(w, p);
}

bool fli_drain_cancel(fli_worker *w, fli_proc *p, uint64_t word)
{
    bool cancel = (word & FLI_CANCEL) != 0, told = (p->flags & FLI_PROC_STOP_SENT) != 0;
    if ((word & FLI_ASK) != 0) fli_state_take_ask(&p->state);
    if (told) {
        if (cancel || is_late(w, p)) (void)fli_mail_advance_cancel(&w->sched->rt, p);
        return false;
    }
    if (cancel) {
        p->flags |= FLI_PROC_STOP_SENT;
        return true;
    }
    return !is_supervised(w, word) && ask(w, p);
}
