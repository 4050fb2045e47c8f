/* complete.c - filch_complete: the answer to a yield, from any thread.
 *
 * The life of a yield: (1) filch_yield takes a node and lists it with the process, PENDING; (2) after the step the
 * worker calls the command's handler with a receiver that names the node and its generation; (3) the first completion
 * claims the node by CAS, fills it, and posts it to its process like a message; (4) the next step gets it as an event,
 * and the node goes back to the slab with a new generation. A second completion finds the stamp changed at (3); one
 * for a process that has ended finds it changed by the end, or finds the process dead when it posts.
 * Design: docs/design/yields.md.
 */
#include <filch.h>

#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"

static filch_err late(fli_runtime *rt, fli_local *worker, filch_err err)
{
    FLI_TALLY(rt, worker, late_completions, 1);
    return err;
}

/* Hands over a claimed and filled node. */
static filch_err hand_over(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    /* Inside its own handler the process is ours: no need to knock. */
    if (worker != NULL && worker->dispatching && worker->serial == node->owner) {
        if (fli_mail_has_inline_result(worker)) fli_mail_list_inline_result(worker); /* it came first */
        fli_mail_append(rt, &worker->current->completions, node);
        return FILCH_OK;
    }
    fli_proc *p = fli_proc_find(rt, node->owner);
    return fli_mail_post(rt, worker, p, fli_serial_gen(node->owner), node);
}

/* Fast path of a synchronous completion: the handler completes the yield of the current process before it returns.
 * Precondition: `key` is worker->inline_key. The worker owns the process, and the node too unless another thread has
 * the receiver, so the node is claimed by a CAS. The worker finds and counts the result when the handler has returned.
 */
static inline bool complete_here(fli_local *worker, uint64_t kind, uint64_t first, uint64_t second, filch_err error)
{
    fli_event_node *node = worker->inline_node;
    uint32_t        stamp = fli_load_rlx(&node->stamp); /* the generation cannot change while the handler runs */
    bool            out = (stamp & FLI_STAMP_MASK) == FLI_STAMP_PENDING;
    if (FLI_UNLIKELY(!out || !fli_yield_claim_stamp(node, stamp))) return false;
    worker->inline_result->error = error;
    fli_value_put(&worker->inline_result->data, kind, first, second);
    worker->inline_key = 0;
    return true;
}

/* Completes a yield; filch_complete() has checked the tag of the receiver. */
filch_err filch_complete_any(filch_receiver receiver, filch_data data, filch_err error)
{
    if (receiver.sched == NULL || receiver.key == 0)
        return filch_invalid("receiver is not one that a handler was given");
    fli_runtime *rt = (fli_runtime *)receiver.sched;
    fli_local   *worker = fli_current_worker(rt);
    if (rt->sim != NULL && !rt->sim->point(rt, worker, "filch_complete")) return FILCH_ESTATE;
    if (fli_load_acq(&rt->phase) == FLI_CLOSED) return FILCH_ECLOSED; /* PAIR runtime.phase, acquire half */
    filch_data owned;
    filch_err  err = FILCH_OK;
    if (FLI_LIKELY(fli_data_is_value(&data))) {
        owned = data;
    } else {
        if (!fli_yield_is_pending(rt, receiver.key)) return late(rt, worker, FILCH_ESTALE);
        err = fli_data_own(&rt->mem, rt->payload_max, &data, &owned);
        if (err != FILCH_OK) return err;
    }
    fli_event_node *node;
    if (!fli_yield_claim(rt, receiver.key, &node)) {
        fli_data_undo(&data, &owned);
        return late(rt, worker, FILCH_ESTALE);
    }
    fli_node_put_data(node, &owned);
    uint32_t command = (uint32_t)node->command;
    node->error = error;
    bool held = FLI_UNLIKELY(rt->sim != NULL) && rt->sim->answered(rt, node, command);
    if (!held) err = hand_over(rt, worker, node);
    if (err != FILCH_OK) {
        fli_yield_drop(rt, worker, node);
        fli_data_undo(&data, &owned);
        FLI_TALLY(rt, worker, abandoned, 1); /* ours before its process ended, which therefore has not counted it */
        return late(rt, worker, err);
    }
    FLI_TALLY(rt, worker, completions, 1);
    return FILCH_OK;
}

static __attribute__((noinline)) filch_err complete_later(filch_sched *sched, uint64_t key, uint64_t kind,
                                                          uint64_t first, uint64_t second, filch_err error)
{
    filch_receiver receiver = { .sched = sched, .key = key };
    return filch_complete_any(receiver, filch_value((filch_kind)kind, first, second), error);
}

/* Completes a yield with a value; filch_complete() has checked the tag of the receiver. */
filch_err filch_complete_value(filch_sched *sched, uint64_t key, uint64_t kind, uint64_t first, uint64_t second,
                               filch_err error)
{
    fli_local *worker = fli_current_get();
    if (FLI_LIKELY(worker != NULL && worker->inline_key == key && (filch_sched *)worker->rt == sched && key != 0 &&
                   complete_here(worker, kind, first, second, error))) {
        return FILCH_OK;
    }
    return complete_later(sched, key, kind, first, second, error);
}

extern inline filch_err filch_complete(filch_receiver receiver, uint64_t tag, filch_data data, filch_err error);
