/* complete.c - filch_complete: completes a yield, from any thread.
 *
 * The life of a yield: (1) filch_yield takes a node and adds it to the yields of the process, PENDING; (2) after the
 * step the worker calls the handler of the command with a receiver that contains the handle of the node and its
 * generation; (3) the first completion claims the node by CAS, fills it, and posts it to the process like a message;
 * (4) the next step gets the node as an event, and the node returns to the slab with a new generation. A second
 * completion finds the stamp changed at (3). A completion for a process that has ended finds the stamp changed by
 * the end, or the process dead when it posts. Design: docs/design/yields.md.
 */
#include "dispatch/complete.h"

#include "base/assert.h"
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"

static filch_err late(fli_runtime *rt, fli_local *worker, filch_err err)
{
    FLI_TALLY(rt, worker, late_completions, 1);
    return err;
}

/* Delivers the completion in `node`, which has been claimed and filled, to the process that yielded. Returns
 * FILCH_EDEAD if that process has ended; then the caller still owns the node. */
static filch_err post_completion(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    /* The caller is inside the handler of a yield of this process: the worker owns the process, so no wake-up is
     * needed. */
    if (worker != NULL && worker->dispatching && worker->serial == node->owner) {
        /* an inline result, which complete_inline() has stored earlier, must be delivered before this completion */
        if (fli_mail_has_inline_result(worker)) fli_mail_list_inline_result(worker);
        fli_mail_append(rt, &worker->current->completions, node);
        return FILCH_OK;
    }
    fli_proc *p = fli_proc_find(rt, node->owner);
    return fli_mail_post(rt, worker, p, fli_serial_gen(node->owner), node);
}

/* Fills the claimed node with an owned payload and delivers it. Errors: as post_completion(). */
static inline filch_err fill_and_post(fli_runtime *rt, fli_local *worker, fli_event_node *node, const filch_data *owned,
                                      filch_err error)
{
    fli_node_put_data(node, owned);
    uint32_t command = (uint32_t)node->command;
    node->error = error;
    bool held = FLI_UNLIKELY(rt->sim != NULL) && rt->sim->completed(rt, node, command);
    return held ? FILCH_OK : post_completion(rt, worker, node);
}

/* Synchronous completion with a value: completes the yield that is being dispatched, from inside its handler, and
 * stores the inline result. The worker owns the process, and also the node unless another thread has a copy of the
 * receiver. When the handler has returned, the worker reads and counts the result. Returns false if the yield is
 * already completed. */
static inline bool complete_inline(fli_local *worker, uint64_t kind, uint64_t first, uint64_t second, filch_err error)
{
    fli_event_node *node = worker->inline_node;
    uint32_t        stamp = fli_load_rlx(&node->stamp); /* the generation of the node does not change while its
                                                           handler runs */
    bool out = (stamp & FLI_STAMP_MASK) == FLI_STAMP_PENDING;
    if (FLI_UNLIKELY(!out || !fli_yield_claim_stamp(node, stamp))) return false;
    worker->inline_result->error = error;
    fli_value_put(&worker->inline_result->data, kind, first, second);
    worker->inline_key = 0;
    return true;
}

/* General path of filch_complete(), which has already checked the tag of the receiver. */
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
    err = fill_and_post(rt, worker, node, &owned, error);
    if (err != FILCH_OK) {
        fli_yield_drop(rt, worker, node);
        fli_data_undo(&data, &owned);
        FLI_TALLY(rt, worker, abandoned, 1); /* the end of the process did not count this yield as abandoned, because it
                                                was claimed before */
        return late(rt, worker, err);
    }
    FLI_TALLY(rt, worker, completions, 1);
    return FILCH_OK;
}

void fli_complete_claimed(fli_runtime *rt, fli_event_node *node, filch_data value, filch_err error)
{
    fli_local *worker = fli_current_worker(rt);
    filch_err  err = fill_and_post(rt, worker, node, &value, error);
    FLI_ASSERT(err == FILCH_OK); /* the process lives: this worker runs it */
    FLI_TALLY(rt, worker, completions, 1);
}

static __attribute__((noinline)) filch_err complete_later(filch_sched *sched, uint64_t key, uint64_t kind,
                                                          uint64_t first, uint64_t second, filch_err error)
{
    filch_receiver receiver = { .sched = sched, .key = key };
    return filch_complete_any(receiver, filch_value((filch_kind)kind, first, second), error);
}

/* Fast path of filch_complete() for payloads in value form. filch_complete() has checked the tag.
 *   Precondition: the caller is the handler of the yield with this key, which the worker is dispatching
 *                 (worker->inline_key, which is 0 in recorded and simulated steps), and the yield is PENDING.
 *   Skips:        the checks for simulation and phase; filling the node and posting it: the result stays in the worker.
 *   Repeats:      the claim of the node by CAS, which only one completion wins (PAIR node.claim).
 *   General path: filch_complete_any(). */
filch_err filch_complete_value(filch_sched *sched, uint64_t key, uint64_t kind, uint64_t first, uint64_t second,
                               filch_err error)
{
    fli_local *worker = fli_current_get();
    if (FLI_LIKELY(worker != NULL && worker->inline_key == key && (filch_sched *)worker->rt == sched && key != 0 &&
                   complete_inline(worker, kind, first, second, error))) {
        return FILCH_OK;
    }
    return complete_later(sched, key, kind, first, second, error);
}

extern inline filch_err filch_complete(filch_receiver receiver, uint64_t tag, filch_data data, filch_err error);
