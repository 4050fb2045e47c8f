/* inline_yield.c - a process asks, the handler answers before it returns, the process asks again.
 *
 * What most yields are. One round is a step, a look at what it left, and the call of the handler:
 *
 *   1. step it with the answer; there is a spare node for its next yield
 *   2. has it yielded once, a value, and does it wait? The yield is out: call the handler
 *   3. has he answered, and has nothing else come? Then the answer is the next event; filch_complete has put it there
 * The node is the same one all the time. It stays in the process's list of yields, and keeps what does not change (whose
 * it is, where in the list); a generation goes by with each round, so whoever kept a receiver claims nothing. From 2 on
 * it is PENDING like any other, and a thread that got hold of the receiver may be the first to claim it.
 *
 * INVARIANT  before step.c goes on with the process, the node is out, or among its answers, or given back.
 *
 * A rally takes turns like any others: it ends when the oldest is due, or the clock, or when a tick has had its steps.
 * That is soon, and early enough to find that everything stops.
 * Not done here: steps that are watched, taped or simulated.
 * Design: docs/design/yields.md.
 */
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/yields.h"
#include "sched/sched.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How many rounds may follow the first. */
static uint32_t steps_allowed(const fli_worker *w)
{
    return least(least(w->fair_countdown - 1, w->clock_countdown), w->steps_left);
}

static void begin_loop(fli_worker *w, fli_proc *p, fli_event_node *node)
{
    fli_local *worker = &w->local;
    filch_out *out = &w->out;
    fli_pending_command  *call = &out->pending[0];
    fli_out_begin(out);
    fli_store_rlx(&w->status.serial, worker->serial);
    out->spare = node;
    call->node = node;
    call->command.from = fli_ctx_self(&out->ctx);
    call->command.target = (filch_pid){ 0, 0 };
    call->command.ctx = &out->ctx;
    worker->inline_node = node;
    p->yield_count = 1; /* where it was, first in the list */
}

/* The end of a rally of so many rounds besides the first. */
static void end_loop(fli_worker *w, uint32_t more)
{
    w->fair_countdown -= more;
    w->clock_countdown -= least(w->clock_countdown, more); /* a step may have said that the clock is due */
    if (!w->may_rerun) w->steps_left -= more;
    w->out.spare = NULL;
    w->local.inline_key = 0;
    w->local.inline_node = NULL;
    fli_count(&w->local.counters.steps, 1); /* the last one; the others were rounds */
}

/* The yield is out. */
static inline void open_yield(fli_event_node *node, uint32_t pending, uint32_t command)
{
    node->command = (int32_t)command;
    node->data[0] = 0;
    fli_store_rel(&node->stamp, pending); /* PAIR node.claim, release half */
}

/* Compilers copy a receiver in vectors of 16 bytes. Written in words of 8, the first of them would make the processor
 * wait until both words are in the cache: a fifth of a round. */
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

/* As in dispatch: a handler that completed and then returned an error said two things, and the first one counts. */
static __attribute__((noinline)) void complete_with_error(fli_worker *w, fli_event_node *node, uint32_t pending, filch_err err)
{
    filch_receiver receiver = receiver_of(w, node, fli_yield_key_of(node, pending));
    (void)!filch_complete(receiver, receiver.tag, filch_none(), err);
}

/* The step did something else. */
static __attribute__((noinline)) void leave_step(fli_worker *w, fli_proc *p, fli_event_node *node, uint32_t pending,
                                                 uint32_t more, filch_err err)
{
    filch_out *out = &w->out;
    end_loop(w, more);
    if (out->pending_count > 0 && out->pending[0].node == node) {
        open_yield(node, pending, out->pending[0].command.id);
    } else {
        fli_yield_close(&w->sched->rt, p, node);
        fli_node_give(&w->sched->rt, &w->local, node);
    }
    fli_step_conclude(w, p, err);
}

/* The answer is for later, or there is none. */
static __attribute__((noinline)) void leave_handler(fli_worker *w, fli_proc *p, uint32_t more)
{
    fli_local *worker = &w->local;
    if (fli_mail_has_inline_result(worker)) fli_mail_list_inline_result(worker);
    end_loop(w, more);
    w->out.pending_count = 0;
    fli_count(&worker->counters.yields, 1);
    fli_step_wait(w, p);
}

void fli_inline_yield_loop(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    fli_local    *worker = &w->local;
    filch_out    *out = &w->out;
    fli_pending_command     *call = &out->pending[0];
    filch_step_fn step = fli_proc_type(p)->step;
    uint32_t      left = steps_allowed(w), allowed = left;
    uint32_t      pending = fli_load_rlx(&node->stamp) + FLI_STAMP_PENDING; /* it is FREE */
    begin_loop(w, p, node);
    for (;;) {
        out->status = FLI_STATUS_NONE;
        worker->sends = 0;
        worker->pushed = 0;
        filch_err err = step(p->self, worker->inline_result, 1, out);
        bool      asks = err == FILCH_OK && out->status == FLI_STATUS_WAIT && out->pending_count == 1 && call->node == node;
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
