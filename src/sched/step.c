/* step.c - runs one process for one step: collects its events, calls the step function, dispatches its yields, settles
 * the process.
 *
 * The general path (step_slow):
 *   1. read the state word: KILL or a forced stop ends the process instead; CANCEL becomes the first event
 *   2. unstack the mailbox into the two lists of the process, and collect up to batch_max events from them
 *   3. call the step function
 *   4. free the events, dispatch the yields to their handlers
 *   5. by the status: queue the process again, settle it as IDLE or BLOCKED, upgrade it, or end it
 * From 1 to 5 the process is ACTIVE and belongs to this worker.
 *
 * INVARIANT  settle: a worker gives up a process only by a CAS that expects a word whose mailbox nodes it has all read.
 * INVARIANT  head: the node that the head of the word names is freed only after a CAS has replaced that head.
 * INVARIANT  close: a yield leaves the list of its process before the step that gets its completion.
 *
 * The fast paths. Each is the general path for one common case. step_once() and step_classify() choose; if a
 * precondition fails, nothing has been changed and the general path runs. All require a *clean* word (none of
 * SLOW_FLAGS, the scheduler open; step_classify() allows LIMITED if the mailbox drops no messages), and all but
 * step_sync_done() require steps that are neither timed nor simulated (worker.fast_steps). A recorded process fails
 * every precondition, because FLI_PROC_RECORDED is one of its flags.
 *
 *   path              precondition                       skips                       repeats        saves
 *   step_single       state ACTIVE_ONE, nothing pending  unstack, collect, release   settle, head   ping-pong 59 %,
 *                                                                                                   skynet 21 %
 *   step_several      only plain messages in mailbox     unstack, collect, release   settle, head   counting 28 %
 *   step_lone, first  must step, mailbox empty           unstack, collect, conclude  settle         spawn 74 %,
 *                                                                                                   skynet 37 %
 *   step_lone, async  completion of the only yield is    unstack, collect, conclude  settle, head,  4 % of a process
 *                     the only node in the mailbox                                   close          that sleeps once
 *   step_sync_done    completion of the only yield is    unstack, collect            close          yield 25 %
 *                     in the list, the mailbox empty
 *   inline_yield.c    as step_sync_done, value result    conclude, settle, dispatch  close          yield 66 %
 *   fli_finish_fast   DONE with a value; no yields,      the state DONE, notices,    settle         spawn 34 %,
 *                     extension, values, close           closing the mailbox                        skynet 18 %
 *   rerun_or_queue    events are pending, no fairness    push and pop of the queue   fairness       pipeline_yield 24 %
 *                     pick or clock read is due                                      of find.c      (one worker)
 *
 * "saves": by how much the instructions per operation of that line of `./dev bench --gate` grow without the path
 * (callgrind, gcc 12, x86-64, November 2026; the sleep is from docs/log/2026-11-a-sleep-is-one-line.md). The gate runs
 * without workers and so without rerun_or_queue; docs/design/mailbox-fast-paths.md says how that path was counted.
 *
 *   path              a test of the path, and a mutant (tools/mutants.txt) that this test notices
 *   step_single       bytes_test: one_byte_message_of_a_step_arrives_unchanged_at_every_size
 *                     mutant single_message_path_loses_the_last_word_of_bytes; by the simulator:
 *                     mutant single_message_path_with_other_events_pending
 *   step_several      fast_paths_test: messages_of_one_step_arrive_in_order_in_batches_of_at_most_batch_max
 *                     mutant batch_path_loses_undelivered_messages
 *   step_lone, first  fast_paths_test: earlier_notices_come_before_the_completion_of_the_only_yield
 *                     mutant first_step_goes_idle_over_new_events
 *   step_lone, async  fast_paths_test: a_message_before_an_awaited_completion_is_delivered_after_it
 *                     mutant async_completion_fast_path_skips_messages
 *   step_sync_done    fast_paths_test: earlier_notices_come_before_the_completion_of_the_only_yield
 *                     mutant sync_completion_path_loses_other_listed_events
 *   inline_yield.c    inline_yield_test: a_cancel_comes_before_the_completion
 *                     mutant inline_loop_ignores_new_events
 *   fli_finish_fast   fast_paths_test: a_process_may_end_at_its_first_message
 *                     mutant fast_exit_leaks_the_message_node
 *   rerun_or_queue    inline_yield_test: a_process_that_yields_without_end_does_not_keep_back_the_process_it_woke
 *                     mutant rerun_ignores_the_fairness_pick
 *
 * The simulator of src/sim takes all paths. A C++ exception may leave the step function on any path: torn.c. Design:
 * docs/design/mailbox-fast-paths.md.
 */
#include "sched/step.h"
#include "base/assert.h"
#include "dispatch/registry.h"
#include "payload/data.h"
#include "proc/limit.h"
#include "proc/log.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/find.h"
#include "sched/finish.h"
#include "sched/out.h"
#include "sched/ready.h"
#include "sched/report.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/stop.h"
#include "sched/worker.h"
#include "sync/lifo_slot.h"

/* Fast path of queueing a process that has undelivered events and must run again: puts it into w->rerun, and the worker
 * steps it next.
 *   Precondition: the worker has its own thread, so no tick counts its steps (may_rerun). Neither a fairness pick nor a
 *                 clock reading is due. If the LIFO slot is full, at least two turns are left before the pick: the
 *                 last one is for the process in the slot.
 *   Skips:        push to and pop from the local deque, and the wake-up of a worker that could steal the process.
 *   Repeats:      the INVARIANT of find.c: the turn is subtracted from fair_countdown and clock_countdown.
 *   General path: fli_ready_local(). */
static inline void rerun_or_queue(fli_worker *w, fli_proc *p)
{
    p->report_state = FILCH_STATE_READY;
    if (FLI_LIKELY(w->may_rerun && w->fair_countdown > 1u + fli_lifo_slot_is_full(&w->lifo_slot) &&
                   w->clock_countdown > 0)) {
        w->fair_countdown--;
        w->clock_countdown--;
        w->rerun = p;
        return;
    }
    (void)fli_ready_local(&w->local, p);
}

/* Settles the process as `state` (IDLE or BLOCKED). If an event arrives before the CAS, the process runs again
 * instead. */
static void settle_or_rerun(fli_worker *w, fli_proc *p, unsigned state)
{
    fli_runtime *rt = &w->sched->rt;
    do {
        /* After the CAS another worker may own the process, so the fields of the process get their final values before
         * the CAS. */
        uint32_t seen = p->head_taken, held = fli_mail_held_head(p);
        uint8_t  flags = p->flags;
        p->head_taken = 0;
        p->flags &= (uint8_t)~FLI_PROC_HEAD_HELD;
        p->report_state = state == FLI_IDLE ? FILCH_STATE_IDLE : FILCH_STATE_BLOCKED;
        if (fli_state_settle(&p->state, seen, state) == FLI_SETTLED) {
            if (held != 0) fli_node_give(rt, &w->local, fli_node_at(rt, held));
            return;
        }
        p->head_taken = seen;
        p->flags = flags;
        uint64_t word = fli_state_look(&p->state);
        if ((word & (FLI_CANCEL | FLI_KILL | FLI_ASK)) != 0) {
            /* report_state stays IDLE or BLOCKED: if the process is ended now, the stop report shows whether it was
             * idle or waiting. */
            (void)fli_ready_local(&w->local, p);
            return;
        }
        fli_mail_unstack(rt, &w->local, p, fli_word_head(word));
    } while (!fli_mail_has_pending(p, state));
    rerun_or_queue(w, p);
}

/* Settles the process, or runs it again if it has pending events. */
static inline void settle(fli_worker *w, fli_proc *p, unsigned state)
{
    if (fli_mail_has_pending(p, state)) rerun_or_queue(w, p);
    else settle_or_rerun(w, p, state);
}

void fli_step_wait(fli_worker *w, fli_proc *p)
{
    p->flags |= FLI_PROC_WAITING;
    settle(w, p, FLI_BLOCKED);
}

/* Calls the handler through the simulation. Not inlined, so that dispatch() keeps no register for this call. */
static __attribute__((noinline)) filch_err handle_simulated(fli_worker *w, const fli_handler *handler,
                                                            const filch_command *command, filch_receiver receiver)
{
    return w->sched->rt.sim->handle(&w->local, handler, command, receiver);
}

/* Calls the handler of every pending command. If a command is unknown, or its handler returns an error, completes the
 * yield with that error. */
static inline void dispatch(fli_worker *w, filch_out *out)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    fli_runtime *fast_rt = worker->fast_rt;
    worker->dispatching = true;
    worker->fast_rt = FLI_NO_FAST_RT;
    for (uint32_t i = 0; i < out->pending_count; i++) {
        fli_pending_command *call = &out->pending[i];
        filch_receiver       receiver = { w->out.ctx.sched, fli_yield_key(call->node), call->node->tag };
        const fli_handler   *handler = fli_handler_of(w, call->command.id);
        filch_err            err = FILCH_ECOMMAND;
        worker->inline_node = fast_rt == rt ? call->node : NULL;
        worker->inline_key = fast_rt == rt ? receiver.key : 0;
        if (FLI_UNLIKELY(rt->sim != NULL)) err = handle_simulated(w, handler, &call->command, receiver);
        else if (handler != NULL) err = handler->handle(handler->user, &call->command, receiver.tag, receiver);
        /* If the handler has completed the yield and then returns an error, the handler's completion counts and the
         * call of filch_complete() here has no effect. */
        if (FLI_UNLIKELY(err != FILCH_OK)) (void)!filch_complete(receiver, receiver.tag, filch_none(), err);
        if (fli_mail_has_inline_result(worker)) fli_mail_list_inline_result(worker);
        if (!fli_data_is_value_form(&call->command.data)) fli_data_free(&call->command.data);
    }
    worker->inline_key = 0;
    worker->inline_node = NULL;
    worker->dispatching = false;
    worker->fast_rt = fast_rt;
    fli_count(&worker->counters.yields, out->pending_count);
    out->pending_count = 0;
}

/* Closes the old instance; the process continues with the type and instance that the step has chosen. */
static void upgrade(fli_worker *w, fli_proc *p, filch_out *out)
{
    const filch_type *old = fli_proc_type(p);
    fli_callback_begin(&w->local);
    if (old->close != NULL) fli_instance_close(w, old, p->self, FILCH_OK);
    fli_callback_end(&w->local);
    fli_instance_free(w->sched, old, p->inline_state, p->self);
    p->self = out->self;
    fli_store_rlx(&p->type, out->type);
}

/* Ends the timing of a step. If the step was long: counts it, logs it and calls on_long_step. */
static void long_step_check(fli_worker *w, fli_proc *p)
{
    const filch_options *opt = &w->sched->opt;
    uint64_t             took_ns = fli_now(&w->sched->rt) - fli_load_rlx(&w->status.began_ns);
    fli_store_rlx(&w->status.began_ns, 0);
    if (took_ns < opt->long_step_ns) return;
    fli_count(&w->local.counters.long_steps, 1);
    fli_log(&w->sched->rt, FILCH_LOG_WARNING, (filch_pid){ w->sched->rt.node_id, w->local.serial },
            fli_type_name(fli_proc_type(p)), FILCH_OK, "a step took %llu us", (unsigned long long)(took_ns / 1000));
    if (opt->on_long_step == NULL) return;
    /* The callback is not part of the step: its yields are refused, and it cannot change the status that the step
     * chose. */
    fli_status status = w->out.status;
    w->local.closing = true;
    w->local.fast_rt = FLI_NO_FAST_RT;
    opt->on_long_step(opt->on_long_step_user, (filch_pid){ w->sched->rt.node_id, w->local.serial },
                      fli_type_name(fli_proc_type(p)), took_ns, 1);
    fli_callback_end(&w->local);
    w->out.status = status;
}

filch_err fli_step_call(fli_worker *w, fli_proc *p, uint32_t count)
{
    fli_simulator *sim = w->sched->rt.sim;
    return FLI_LIKELY(sim == NULL) ? fli_proc_type(p)->step(p->self, w->events, count, &w->out)
                                   : sim->step(&w->local, p, count);
}

/* Calls the step function of a step that is timed, recorded or simulated. */
static __attribute__((noinline)) filch_err run_step_checked(fli_worker *w, fli_proc *p, uint32_t count)
{
    bool timed = w->sched->opt.long_step_ns != 0, recorded = (p->flags & FLI_PROC_RECORDED) != 0;
    if (timed) fli_store_rlx(&w->status.began_ns, fli_now(&w->sched->rt));
    filch_err err = recorded ? w->sched->rt.record_ops->step(&w->local, p, count) : fli_step_call(w, p, count);
    if (timed) long_step_check(w, p);
    return err;
}

/* Resets the fields that a step writes, and shows the process in the worker's status. */
static inline void begin_step(fli_worker *w)
{
    fli_local *worker = &w->local;
    fli_out_begin(&w->out);
    worker->sends = 0;
    worker->pushed = 0;
    fli_store_rlx(&w->status.serial, worker->serial);
}

/* Calls the step function with the first `count` events of w->events. Returns the error that the step function
 * returned, or FILCH_OK; then the status is in w->out. */
static inline filch_err run_step(fli_worker *w, fli_proc *p, uint32_t count, bool recorded)
{
    begin_step(w);
    filch_err err = FLI_LIKELY(w->fast_steps && !recorded) ? fli_proc_type(p)->step(p->self, w->events, count, &w->out)
                                                           : run_step_checked(w, p, count);
    fli_count(&w->local.counters.steps, 1);
    return err;
}

/* Ends the process with the result of its step. The result is moved out of `out` first: the program's close() may have
 * kept the pointer to `out` and write another result there. */
static void conclude_done(fli_worker *w, fli_proc *p, filch_out *out)
{
    filch_data result = out->result;
    out->status = FLI_STATUS_NONE;
    fli_finish(w, p, FILCH_OK, &result);
}

void fli_step_conclude(fli_worker *w, fli_proc *p, filch_err err)
{
    filch_out *out = &w->out;
    err = fli_out_verdict(out, p->yield_count, err);
    if (FLI_UNLIKELY(err != FILCH_OK)) {
        filch_data detail = filch_none();
        if (out->status == FLI_STATUS_FAIL) {
            detail = out->result;
            out->status = FLI_STATUS_NONE;
        }
        /* The functions called next may free payloads, and so may call functions of the program. */
        fli_callback_begin(&w->local);
        fli_out_forget(out, err);
        fli_out_drop_pending(out, &w->local);
        fli_finish(w, p, err, &detail);
        return;
    }
    /* The status is read before dispatch(), because a handler may have kept `out` and change the status. */
    fli_status status = out->status;
    if (out->pending_count > 0) dispatch(w, out);
    p->flags &= (uint8_t)~FLI_PROC_WAITING;
    switch (status) {
    case FLI_STATUS_WAIT: fli_step_wait(w, p); break;
    case FLI_STATUS_IDLE: settle(w, p, FLI_IDLE); break;
    case FLI_STATUS_DONE: conclude_done(w, p, out); break;
    default:
        if (status == FLI_STATUS_UPGRADE) upgrade(w, p, out);
        out->status = FLI_STATUS_NONE;
        p->flags |= FLI_PROC_MUST_STEP;
        p->report_state = FILCH_STATE_READY;
        fli_ready_continue(w, p);
        break;
    }
}

/* Clears the CANCEL flag. Returns true if the step must begin with a cancel event. During a stop, fli_drain_cancel()
 * decides that. */
static bool take_cancel(fli_worker *w, fli_proc *p, uint64_t word)
{
    bool cancel = (word & FLI_CANCEL) != 0;
    if (cancel) fli_state_take_cancel(&p->state);
    if (FLI_LIKELY(fli_load_rlx(&w->sched->rt.phase) == FLI_OPEN)) return cancel;
    return fli_drain_cancel(w, p, word);
}

/* Adds the time since w->sample_ns to the histogram of queue waits. */
static void measure_wait(fli_worker *w)
{
    uint64_t waited = fli_now(&w->sched->rt) - w->sample_ns;
    w->sample_serial = 0;
    unsigned bucket = waited < 2 ? 0 : 63u - (unsigned)__builtin_clzll(waited);
    fli_count(&w->queue_wait[bucket < FILCH_WAIT_BUCKETS ? bucket : FILCH_WAIT_BUCKETS - 1], 1);
}

/* Returns true if the process must be ended instead of stepped. After the deadline of a stop (stop.force) this holds
 * also for a process without the flag KILL: a process that was spawned while the stop set the flags has no KILL. */
static bool must_end(fli_worker *w, uint64_t word)
{
    if (FLI_UNLIKELY((word & FLI_KILL) != 0)) return true;
    return FLI_UNLIKELY(fli_load_rlx(&w->sched->rt.phase) != FLI_OPEN) && fli_load_rlx(&w->sched->stop.force);
}

/* Ends a process because a process linked with it has failed. Called only if the process does not trap link
 * failures. */
static void go_down(fli_worker *w, fli_proc *p)
{
    filch_data reason = filch_int(fli_mail_link_reason(&w->sched->rt, p));
    fli_finish(w, p, FILCH_ELINK, &reason);
}

/* Called when p->last_worker is not the mark of this worker. If it is the mark of another worker, counts a remote event
 * (throttle.c). If it is FLI_MARK_SAMPLED, the queue wait of the process is being sampled: if this worker requested the
 * sample (w->sample_serial), measures the wait. In each case stores the mark of this worker: if FLI_MARK_SAMPLED
 * stayed, the next step would measure a wait that is over. */
static __attribute__((noinline)) void notice(fli_worker *w, fli_proc *p)
{
    if (p->last_worker != FLI_MARK_SAMPLED) w->local.remote_events++;
    else if (w->sample_serial == w->local.serial) measure_wait(w);
    p->last_worker = w->local.worker_mark;
}

/* Slow exit of a fast path, for a process that did not settle: concludes the step on the general path. `node` is the
 * node of the only event that the step got (NULL: none). `node` is still the head of the state word, so it must not be
 * freed yet (INVARIANT head). */
static void conclude_holding(fli_worker *w, fli_proc *p, fli_event_node *node, filch_err err)
{
    if (node != NULL) {
        p->head_taken = node->self;
        p->flags |= FLI_PROC_HEAD_HELD;
    }
    fli_step_conclude(w, p, err);
}

/* Slow exit of step_single(): the step did not go idle, or an event arrived before the CAS. Tries fli_finish_fast(); if
 * that fails, concludes the step on the general path. */
static __attribute__((noinline)) void step_single_slow(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node,
                                                       filch_err err)
{
    if (err == FILCH_OK && fli_finish_fast(w, p, word, node)) return;
    conclude_holding(w, p, node, err);
}

/* Slow half of has_no_pending(), for a process that went idle on another worker, or a process whose queue wait is being
 * sampled. */
static __attribute__((noinline)) bool has_no_pending_elsewhere(fli_worker *w, fli_proc *p)
{
    if (!fli_proc_has_no_pending(p)) return false;
    if (p->last_worker != w->local.worker_mark) notice(w, p);
    return true;
}

/* Returns true if the process, which is ACTIVE_ONE, has no pending event, list or flag besides the one message at the
 * mailbox head, so that step_single() may read that message where it is. */
static inline bool has_no_pending(fli_worker *w, fli_proc *p)
{
    return FLI_LIKELY(fli_proc_is_idle_word(p, w->idle_word)) || has_no_pending_elsewhere(w, p);
}

/* Fast path: one message, sent from a step of this scheduler to a process that was idle. The message is a value or
 * inline bytes, so there is nothing to free. `node` is the head of `word`. Returns false if the process has settled as
 * idle again; true if it may be in w->rerun.
 *   Precondition: a clean word (see the head of this file), state ACTIVE_ONE, has_no_pending().
 *   Skips:        fli_mail_unstack(), fli_mail_collect() and fli_mail_release(). The event is filled from the node in
 *                 the mailbox.
 *   Repeats:      INVARIANT settle by one CAS from `word`; INVARIANT head: the node is freed after that CAS.
 *   General path: step_slow(). */
static inline __attribute__((always_inline)) bool step_single(fli_worker *w, fli_proc *p, uint64_t word,
                                                              fli_event_node *node)
{
    fli_local *worker = &w->local;
    fli_event_fill_plain(node, &w->message);
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, &w->message, 1, &w->out);
    fli_count(&worker->counters.steps, 1);
    if (FLI_LIKELY(err == FILCH_OK && fli_out_is_idle(&w->out))) {
        /* report_state need not be set: it has been IDLE since the process last went idle. */
        if (FLI_LIKELY(fli_state_settle_one(&p->state, word) == FLI_SETTLED)) {
            fli_full_node_give(&w->sched->rt, worker, node);
            return false;
        }
    }
    step_single_slow(w, p, word, node, err);
    return true;
}

/* Fast path: the mailbox has only plain messages, or only value messages if it has a limit. Their nodes are the last
 * `count` of w->nodes, oldest first. The step gets up to batch_max of them, and the other messages stay in the mailbox.
 * If the process does not settle, the last delivered node is not freed (FLI_PROC_HEAD_HELD): this node marks where the
 * next step goes on.
 *   Precondition: a clean word (see the head of this file); fli_mail_take_plain() has found the nodes.
 *   Skips:        fli_mail_unstack(), fli_mail_collect() and fli_mail_release(). The events are filled from the nodes
 *                 in the mailbox.
 *   Repeats:      INVARIANT settle by one CAS from `word`; INVARIANT head: the last delivered node is freed when the
 *                 word has another head. The space of the messages in a limited mailbox is released before the settle.
 *   General path: step_slow(). */
static inline __attribute__((always_inline)) void step_several(fli_worker *w, fli_proc *p, uint64_t word,
                                                               uint32_t count, bool bytes)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    uint32_t max = w->sched->opt.batch_max, get = count < max ? count : max, remote = 0, held = fli_mail_held_head(p);
    fli_event_node **nodes = &w->nodes[FLI_NODES_ROOM(max) - count];
    for (uint32_t i = 0; i < get; i++) {
        if (bytes) fli_event_fill_plain(nodes[i], &w->messages[i]);
        else fli_event_fill_value(nodes[i], &w->messages[i]);
        remote += nodes[i]->sender_worker != worker->number;
    }
    worker->remote_events += remote;
    p->flags &= FLI_PROC_YIELDS_HEAP;
    p->head_taken = 0;
    if (held != 0) {
        /* Ends the list of messages at nodes[0], which was linked to the held node: the held node is freed here, so
         * torn.c must not reach it if the step throws. */
        nodes[0]->next = 0;
        /* The head of the mailbox is another node now, so the held node can be freed. */
        fli_node_give(rt, worker, fli_node_at(rt, held));
    }
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, w->messages, get, &w->out);
    fli_count(&worker->counters.steps, 1);
    fli_count(&w->throttle.batched, get - 1);
    if ((word & FLI_LIMITED) != 0 && fli_limit_release(p, fli_word_gen(word), get, 0)) rt->hooks.room(rt, p);
    for (uint32_t i = 0; bytes && i < get; i++) fli_event_free_plain(nodes[i], &w->messages[i]);
    bool idle = FLI_LIKELY(err == FILCH_OK && fli_out_is_idle(&w->out)), all = get == count;
    if (FLI_LIKELY(idle && all)) {
        p->report_state = FILCH_STATE_IDLE;
        if (FLI_LIKELY(fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED)) {
            fli_slab_give_many(&rt->nodes, &worker->nodes, (void *const *)nodes, count);
            return;
        }
    }
    p->head_taken = nodes[get - 1]->self;
    /* Keeps the other flags, because the step may have set some of them. */
    p->flags |= FLI_PROC_HEAD_HELD;
    fli_slab_give_many(&rt->nodes, &worker->nodes, (void *const *)nodes, get - 1);
    if (idle && !all) rerun_or_queue(w, p);
    else fli_step_conclude(w, p, err);
}

/* step_several_values() and step_several_bytes() each contain a compiled copy of step_several(), so that value messages
 * do not pay for the code that handles bytes. */
static __attribute__((noinline)) void step_several_values(fli_worker *w, fli_proc *p, uint64_t word, uint32_t count)
{
    step_several(w, p, word, count, false);
}

static __attribute__((noinline)) void step_several_bytes(fli_worker *w, fli_proc *p, uint64_t word, uint32_t count)
{
    step_several(w, p, word, count, true);
}

/* Fast path: the only event is the completion of the only yield, which the handler completed synchronously. The event
 * is in w->events[0]; `node` is the node of the yield, already closed. The inline completion loop does this step and
 * the next ones if three conditions hold: the result is a value; steps are neither timed nor simulated; w->out has room
 * for a yield.
 *   Precondition: a clean word (see the head of this file); fli_mail_take_sync_completion() has returned `node`.
 *   Skips:        fli_mail_unstack() and fli_mail_collect().
 *   Repeats:      INVARIANT close: fli_mail_take_sync_completion() has closed the yield.
 *   General path: step_slow(). */
static void step_sync_done(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    if (FLI_LIKELY(w->fast_steps && w->out.pending_room > 0 && fli_data_is_value_form(&w->events[0].data))) {
        fli_inline_yield_loop(w, p, word, node);
        return;
    }
    w->nodes[0] = node;
    w->given = 1;
    filch_err err = run_step(w, p, 1, false);
    w->given = 0;
    if (!fli_data_is_value_form(&w->events[0].data)) fli_data_free(&w->events[0].data);
    fli_full_node_give(&w->sched->rt, &w->local, node);
    fli_step_conclude(w, p, err);
}

/* Fast path for two kinds of steps. The first step of a process has no event (`node` NULL). The other kind has one
 * event, the asynchronous completion of the only yield, in w->events[0]; its node is alone in the mailbox (`node`, the
 * head of `word`). Typical: a child that computes and ends, a sleep that ends. Returns false if the process has settled
 * or ended; true if it may be in w->rerun.
 *   Precondition: a clean word (see the head of this file), no pending list or flag, no other node.
 *   Skips:        fli_mail_unstack(), fli_mail_collect(); and fli_step_conclude() if the process ends or goes idle.
 *   Repeats:      INVARIANT settle by one CAS from `word`; INVARIANT head: the node is freed after that CAS.
 *   General path: step_slow(). */
static inline __attribute__((always_inline)) bool step_lone(fli_worker *w, fli_proc *p, uint64_t word,
                                                            fli_event_node *node)
{
    filch_out *out = &w->out;
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, w->events, node != NULL, out);
    fli_count(&w->local.counters.steps, 1);
    if (node != NULL && !fli_data_is_value_form(&w->events[0].data)) fli_data_free(&w->events[0].data);
    if (FLI_LIKELY(err == FILCH_OK)) {
        if (FLI_LIKELY(fli_finish_fast(w, p, word, node))) return false;
        if (fli_out_is_idle(out)) {
            p->report_state = FILCH_STATE_IDLE;
            if (FLI_LIKELY(fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED)) {
                if (node != NULL) fli_full_node_give(&w->sched->rt, &w->local, node);
                return false;
            }
        }
    }
    conclude_holding(w, p, node, err);
    return true;
}

/* step_first() and step_async_done() each contain a compiled copy of step_lone(), because one copy shared by both would
 * cost 11 instructions more for each spawned process. */
static __attribute__((noinline)) bool step_first(fli_worker *w, fli_proc *p, uint64_t word)
{
    if (FLI_UNLIKELY(p->last_worker == FLI_MARK_SAMPLED)) notice(w, p);
    p->flags = 0;
    return step_lone(w, p, word, NULL);
}

static __attribute__((noinline)) bool step_async_done(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    return step_lone(w, p, word, node);
}

/* The general path: any step, or the end of a process that must not be stepped any more. */
static __attribute__((noinline)) void step_slow(fli_worker *w, fli_proc *p, uint64_t word)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    if (FLI_UNLIKELY(must_end(w, word))) {
        filch_data nothing = filch_none();
        bool       forced = fli_load_rlx(&w->sched->stop.force);
        if (forced) fli_stop_note(w->sched, p);
        else fli_stop_killed(w->sched);
        fli_finish(w, p, forced ? FILCH_ECANCELLED : FILCH_EKILLED, &nothing);
        return;
    }
    fli_mail_unstack(rt, worker, p, fli_word_head(word));
    bool cancel = take_cancel(w, p, word); /* during a stop, take_cancel() may unstack the mailbox a second time */
    if (FLI_UNLIKELY((p->flags & FLI_PROC_LINK_FAILED) != 0)) {
        go_down(w, p);
        return;
    }
    uint32_t count = fli_mail_collect(rt, p, cancel, w->events, w->nodes, w->sched->opt.batch_max);
    if (count == 0 && (p->flags & FLI_PROC_MUST_STEP) == 0) {
        /* No event can be delivered now. The process was woken only to trim its mailbox, or by the flag ASK, which has
         * no effect on it; or messages have arrived while the process waits for a completion. */
        settle(w, p, (p->flags & FLI_PROC_WAITING) != 0 ? FLI_BLOCKED : FLI_IDLE);
        return;
    }
    p->flags &= (uint8_t)~FLI_PROC_MUST_STEP;
    w->given = count;
    filch_err err = run_step(w, p, count, (p->flags & FLI_PROC_RECORDED) != 0);
    w->given = 0;
    if (count > 1) fli_count(&w->throttle.batched, count - 1);
    if (count > 0) fli_mail_release(rt, worker, p, w->events, w->nodes, count);
    fli_step_conclude(w, p, err);
}

/* Flags of the state word that only the general path handles. */
#define SLOW_FLAGS (FLI_KILL | FLI_CANCEL | FLI_ASK | FLI_LIMITED)

/* Returns true if only the general path may run the step. FLI_LIMITED alone is no reason for that, unless the mailbox
 * may drop messages: only the general path trims the mailbox and reports drops. */
static inline bool has_slow_flags(fli_proc *p, uint64_t word)
{
    if (FLI_LIKELY((word & SLOW_FLAGS) == 0)) return false;
    return (word & (SLOW_FLAGS & ~FLI_LIMITED)) != 0 || fli_limit_may_drop(p);
}

/* Chooses the path of a step for which step_once() has excluded step_single() and step_first(). Returns true if the
 * process may be in w->rerun, false if it has settled or ended. */
static inline bool step_classify(fli_worker *w, fli_proc *p, uint64_t word)
{
    fli_runtime    *rt = &w->sched->rt;
    bool            clean = !has_slow_flags(p, word) && fli_load_rlx(&rt->phase) == FLI_OPEN;
    fli_event_node *node;
    uint32_t        count, room = FLI_NODES_ROOM(w->sched->opt.batch_max);
    bool            bytes = false;
    if (FLI_UNLIKELY(p->last_worker == FLI_MARK_SAMPLED)) notice(w, p);
    if (clean && w->fast_steps && (count = fli_mail_take_plain(rt, p, word, w->nodes, room, &bytes)) > 0) {
        if (bytes) step_several_bytes(w, p, word, count);
        else step_several_values(w, p, word, count);
        return true;
    }
    if (clean && (node = fli_mail_take_sync_completion(rt, p, word, &w->events[0])) != NULL) {
        step_sync_done(w, p, word, node);
        return true;
    }
    if (clean && w->fast_steps && (node = fli_mail_take_async_completion(rt, p, word, &w->events[0])) != NULL) {
        return step_async_done(w, p, word, node);
    }
    step_slow(w, p, word);
    return true;
}

/* Runs one step of `p` by the fastest path that is allowed. `slow_mask` is what enter_stepping() returned. Returns true
 * if the process may be in w->rerun, false if it has settled or ended. */
static inline __attribute__((always_inline)) bool step_once(fli_worker *w, fli_proc *p, uint64_t slow_mask)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    uint64_t     word = fli_state_look(&p->state);
    worker->current = p;
    worker->serial = fli_serial(fli_word_gen(word), p->slot);
    bool clean = (word & slow_mask) == 0 && fli_load_rlx(&rt->phase) == FLI_OPEN;
    if (FLI_LIKELY(clean && (word & FLI_ONE_BIT) != 0 && has_no_pending(w, p))) {
        return step_single(w, p, word, fli_full_node_at(rt, fli_word_head(word)));
    }
    if (clean && p->flags == FLI_PROC_MUST_STEP && fli_mail_is_empty(p, word)) return step_first(w, p, word);
    return step_classify(w, p, word);
}

/* Begins a series of steps: functions that the steps call may take their fast paths (fli_local.fast_rt). Returns the
 * bits of a state word that rule out step_single() and step_first(): all bits if steps are timed or simulated, so that
 * no word is clean. */
static inline uint64_t enter_stepping(fli_worker *w)
{
    w->local.fast_rt = fli_fast_rt(&w->local);
    return w->fast_steps ? SLOW_FLAGS : UINT64_MAX;
}

/* Ends a series of steps: from now on this worker steps no process. */
static inline void leave_stepping(fli_worker *w)
{
    w->local.fast_rt = FLI_NO_FAST_RT;
    w->local.current = NULL;
    w->local.serial = 0;
    fli_store_rlx(&w->status.serial, 0);
}

void fli_step(fli_worker *w, fli_proc *p)
{
    uint64_t slow_mask = enter_stepping(w);
    do {
        w->rerun = NULL;
        p = step_once(w, p, slow_mask) ? w->rerun : NULL;
    } while (p != NULL);
    leave_stepping(w);
}

bool fli_step_on(fli_worker *w)
{
    bool     any = true;
    uint64_t slow_mask = enter_stepping(w);
    while (FLI_LIKELY(w->clock_countdown > 0)) {
        w->clock_countdown--;
        fli_proc *p = fli_find_near(w);
        any = p != NULL;
        if (FLI_UNLIKELY(!any)) break;
        if (FLI_UNLIKELY(step_once(w, p, slow_mask)) && w->rerun != NULL) {
            fli_step(w, w->rerun);
            slow_mask = enter_stepping(w);
        }
    }
    leave_stepping(w);
    return any;
}
