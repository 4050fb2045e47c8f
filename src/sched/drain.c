/* drain.c - decides when a process gets its cancel during a stop. Runs on the worker that steps the process; stop.c has
 * the part of the stopping thread. Design: docs/design/shutdown.md.
 *
 * INVARIANT  a stop gives each process one cancel. The cancel comes behind the messages that were in the mailbox when
 *            the process was asked to end, or in front of them after `hurry` or with FILCH_STOP_CANCEL_FIRST.
 * INVARIANT  a process with a supervisor in this scheduler is asked to end by its supervisor, not here.
 */
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "sched/worker.h"

bool fli_stop_is_polite(filch_sched *sched)
{
    if (fli_load_acq(&sched->rt.phase) != FLI_CLOSING) return false; /* PAIR runtime.phase, acquire half */
    return (fli_load_rlx(&sched->stop.flags) & FILCH_STOP_CANCEL_FIRST) == 0;
}

/* Appends a cancel event to the messages of the process. Returns false if there is no memory for the node of the
 * event. */
static bool queue_cancel(fli_worker *w, fli_proc *p)
{
    fli_runtime    *rt = &w->sched->rt;
    fli_event_node *node = fli_node_take(rt, &w->local);
    filch_data      nothing = filch_none();
    if (node == NULL) return false;
    node->what = FLI_NODE_SYSTEM | FLI_NODE_AFTER_MESSAGES;
    node->notice = FILCH_EVENT_CANCEL;
    node->about = node->tag = 0;
    node->error = fli_mail_cancel_reason(p);
    fli_node_put_data(node, &nothing);
    fli_mail_append(rt, &p->messages, node);
    return true;
}

static bool is_supervised(fli_worker *w, uint64_t word)
{
    fli_runtime *rt = &w->sched->rt;
    return (word & FLI_HAS_RELATIONS) != 0 && rt->model_ops->supervised(rt, w->local.serial, 0);
}

/* Returns true if patience_ns has passed and the process waits for a completion. This process reads no messages, so a
 * cancel behind its messages would not be delivered. */
static bool is_late(fli_worker *w, const fli_proc *p)
{
    return (p->flags & FLI_PROC_WAITING) != 0 && fli_load_rlx(&w->sched->stop.hurry);
}

/* Called before a step of the process. Asks the process to end, unless there is a cancel from a supervisor in its
 * mailbox. Returns true if this step gets a cancel as its first event. Returns false if a cancel is in the list of
 * messages: either this function has appended it, or the cancel from the supervisor is there.
 *
 * All messages that were sent before the stop must come before the cancel. The worker may have read the state word
 * before the last of them arrived. So this function unstacks the mailbox again; the acquire load of the phase makes
 * visible all messages sent before the phase was set. */
static bool ask(fli_worker *w, fli_proc *p)
{
    fli_runtime *rt = &w->sched->rt;
    (void)fli_load_acq(&rt->phase); /* PAIR runtime.phase, acquire half */
    fli_mail_unstack(rt, &w->local, p, fli_word_head(fli_state_look(&p->state)));
    if ((p->flags & FLI_PROC_STOP_SENT) != 0)
        /* fli_mail_unstack() has found a cancel, sent by a supervisor that has ended since. */
        return false;
    p->flags |= FLI_PROC_STOP_SENT;
    if (p->messages == 0 || is_late(w, p) || !fli_stop_is_polite(w->sched)) return true;
    return !queue_cancel(w, p);
}

bool fli_drain_cancel(fli_worker *w, fli_proc *p, uint64_t word)
{
    bool cancel = (word & FLI_CANCEL) != 0, stop_sent = (p->flags & FLI_PROC_STOP_SENT) != 0;
    if ((word & FLI_ASK) != 0) fli_state_take_ask(&p->state);
    if (stop_sent) {
        if (cancel || is_late(w, p)) (void)fli_mail_advance_cancel(&w->sched->rt, p);
        return false;
    }
    if (cancel) {
        p->flags |= FLI_PROC_STOP_SENT;
        return true;
    }
    return !is_supervised(w, word) && ask(w, p);
}
