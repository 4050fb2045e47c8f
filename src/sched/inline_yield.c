/* inline_yield.c - the inline completion loop: a process yields, the handler completes the yield before it returns, the
 * process runs again with the result. No mailbox, no list, no queue.
 *
 * One iteration:
 *   1. call the step function with the completion; a spare node is ready for the next yield of the step
 *   2. if the step made one yield, with a value, and waits: set the node PENDING and call the handler
 *   3. if the handler has completed the yield and no other event has arrived: filch_complete has put the completion in
 *      worker->inline_result, where the next iteration reads it
 * If a condition of 2 or 3 fails, the loop ends and step.c goes on (leave_step() after 1, leave_handler() after 3).
 *
 * All iterations use the same node. It stays in the process's list of yields and keeps the fields that do not change
 * (its process, its position in this list). Its generation is incremented each time, so a receiver that was kept from
 * an earlier yield cannot claim it. From 2 on the node is PENDING like the node of any yield, and another thread that
 * has the receiver may claim it first.
 *
 * INVARIANT  when the loop ends, the node is PENDING, or in the list of completions, or freed.
 *
 * Each iteration is a turn: the loop ends when a fairness pick or a clock reading is due, or when a tick has used up
 * its steps. So the loop also ends soon after a stop has begun.
 * Not done here: steps that are timed, recorded or simulated.
 * Design: docs/design/yields.md.
 */
#include "base/assert.h"
#include "dispatch/registry.h"
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/find.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/step.h"
#include "sched/worker.h"
#include "sync/lifo_slot.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns how many iterations of the loop may follow its first iteration. If the LIFO slot is full, the last turn
 * before the fairness pick is for the process in the slot. */
static uint32_t steps_allowed(fli_worker *w)
{
    uint32_t turns = w->fair_countdown - 1, kept = fli_lifo_slot_is_full(&w->lifo_slot) && turns > 0;
    return least(least(turns - kept, w->clock_countdown), w->steps_left);
}

/* Begins the loop: fills those fields of the command, the node and the worker that have the same value in all
 * iterations. */
static void begin_loop(fli_worker *w, fli_proc *p, fli_event_node *node)
{
    fli_local           *worker = &w->local;
    filch_out           *out = &w->out;
    fli_pending_command *call = &out->pending[0];
    fli_out_begin(out);
    fli_store_rlx(&w->status.serial, worker->serial);
    out->spare = node;
    call->node = node;
    call->command.from = fli_ctx_self(&out->ctx);
    call->command.ctx = &out->ctx;
    worker->inline_node = node;
    p->yield_count = 1; /* the yield is outstanding again: its node is still the first in the list of yields */
}

/* Ends a loop of 1 + `more` iterations. */
static void end_loop(fli_worker *w, uint32_t more)
{
    w->fair_countdown -= more;
    /* If a step has set clock_countdown to 0 by fli_worker_noticed(), clock_countdown stays 0. */
    w->clock_countdown -= least(w->clock_countdown, more);
    if (!w->may_rerun) w->steps_left -= more;
    w->out.spare = NULL;
    w->local.inline_key = 0;
    w->local.inline_node = NULL;
    fli_count(&w->local.counters.steps, 1); /* counts the last step of the loop; inline_steps counts the others */
}

/* Sets the node PENDING: from now on the yield can be completed through its receiver. */
static inline void open_yield(fli_event_node *node, uint32_t pending, uint32_t command)
{
    node->command = (int32_t)command;
    node->data[0] = 0;
    fli_store_rel(&node->stamp, pending); /* PAIR node.claim, release half */
}

/* Returns the receiver of the yield. Compilers copy a receiver with 16-byte loads. If the first two fields were stored
 * by two 8-byte stores, such a load would wait until both stores are in the cache, which takes a fifth of the time of
 * an iteration. So these two fields are stored as one vector. */
static inline filch_receiver receiver_of(fli_worker *w, const fli_event_node *node, uint64_t key)
{
#if UINTPTR_MAX == UINT64_MAX
    typedef uint64_t pair __attribute__((vector_size(16)));
    static_assert(offsetof(filch_receiver, key) == 8 && offsetof(filch_receiver, tag) == 16, "a pair, and the tag");
    filch_receiver receiver = { .tag = node->tag };
    pair           first = { (uintptr_t)w->sched, key };
    memcpy(&receiver, &first, sizeof first);
    return receiver;
#else
    return (filch_receiver){ w->sched, key, node->tag };
#endif
}

/* Completes the yield with the error that its handler returned. Has no effect if the handler has already completed the
 * yield. dispatch() of step.c does the same. */
static __attribute__((noinline)) void complete_with_error(fli_worker *w, fli_event_node *node, uint32_t pending,
                                                          filch_err err)
{
    filch_receiver receiver = receiver_of(w, node, fli_yield_key_of(node, pending));
    (void)!filch_complete(receiver, receiver.tag, filch_none(), err);
}

/* Ends the loop after a step. The loop goes on only after a step that made exactly one yield, of a value and to a known
 * command, and waits. */
static __attribute__((noinline)) void leave_step(fli_worker *w, fli_proc *p, fli_event_node *node, uint32_t pending,
                                                 uint32_t more, filch_err err)
{
    filch_out *out = &w->out;
    end_loop(w, more);
    if (out->pending_count > 0 && out->pending[0].node == node) {
        open_yield(node, pending, out->pending[0].command.id);
    } else {
        fli_yield_close(&w->sched->rt, p, node);
        fli_full_node_give(&w->sched->rt, &w->local, node);
    }
    fli_step_conclude(w, p, err);
}

/* Ends the loop after the handler has returned: the yield is not completed yet, another event has arrived, or no
 * further iteration is allowed. */
static __attribute__((noinline)) void leave_handler(fli_worker *w, fli_proc *p, uint32_t more)
{
    fli_local *worker = &w->local;
    if (fli_mail_has_inline_result(worker)) fli_mail_list_inline_result(worker);
    end_loop(w, more);
    w->out.pending_count = 0;
    fli_count(&worker->counters.yields, 1);
    fli_step_wait(w, p);
}

/* Fast path of a step, its yield and the synchronous completion of this yield.
 *   Precondition: the precondition of step_sync_done() in step.c; the worker has fast_steps, the completion is a
 *                 value, and w->out has room for a yield without growing.
 *   Skips:        the list of completions and fli_mail_collect(); dispatch(); settling and queueing between two steps.
 *   Repeats:      INVARIANT close of step.c: the yield is not outstanding while its completion is delivered. After each
 *                 handler the state word is compared with `word`, so a new event ends the loop. Each iteration is
 *                 subtracted from the countdowns of find.c.
 *   General path: step_slow() of step.c, reached by leave_step() or leave_handler(). */
void fli_inline_yield_loop(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    fli_local           *worker = &w->local;
    filch_out           *out = &w->out;
    fli_pending_command *call = &out->pending[0];
    filch_step_fn        step = fli_proc_type(p)->step;
    uint32_t             left = steps_allowed(w), allowed = left;
    uint32_t pending = fli_load_rlx(&node->stamp) + FLI_STAMP_PENDING; /* the stamp of `node` is FREE now, so the sum
                                                                          is a PENDING stamp */
    begin_loop(w, p, node);
    for (;;) {
        out->status = FLI_STATUS_NONE;
        worker->sends = 0;
        worker->pushed = 0;
        filch_err err = step(p->self, worker->inline_result, 1, out);
        bool asks = err == FILCH_OK && out->status == FLI_STATUS_WAIT && out->pending_count == 1 && call->node == node;
        const fli_handler *handler = asks ? fli_handler_of(w, call->command.id) : NULL;
        if (FLI_UNLIKELY(handler == NULL)) {
            leave_step(w, p, node, pending, allowed - left, err);
            return;
        }
        uint64_t key = fli_yield_key_of(node, pending);
        open_yield(node, pending, call->command.id);
        worker->inline_result->tag = node->tag;
        worker->inline_key = key;
        worker->dispatching = true;
        worker->fast_rt = FLI_NO_FAST_RT;
        err = handler->handle(handler->user, &call->command, node->tag, receiver_of(w, node, key));
        if (FLI_UNLIKELY(err != FILCH_OK)) complete_with_error(w, node, pending, err);
        worker->dispatching = false;
        worker->fast_rt = worker->rt;
        bool came = fli_state_look(&p->state) != word;
        if (FLI_UNLIKELY(worker->inline_key != 0 || came || left == 0 || w->clock_countdown == 0)) {
            leave_handler(w, p, allowed - left);
            return;
        }
        left--;
        pending += FLI_STAMP_GENERATION;
        out->pending_count = 0;
        fli_count(&worker->counters.inline_steps, 1);
    }
}
