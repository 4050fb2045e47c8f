/* step.c - one process, one step: collect its events, call it, dispatch what it yielded, let go of it.
 *
 *   1. look at the state word: killed? cancelled? anything new in the mailbox?
 *   2. collect up to batch_max events: system first, then answers, then (unless it waits) messages
 *   3. call step
 *   4. free the events, dispatch the yields
 *   5. by the status: queue again, settle to idle or blocked, upgrade, or end
 * From 1 to 5 the process is ACTIVE and this worker's own.
 */
#include "proc/log.h"
#include "proc/data.h"
#include "proc/mailbox.h"
#include "proc/yields.h"
#include "sched/finish.h"
#include "sched/record.h"
#include "sched/sched.h"
#include "sched/simulate.h"

/* It has something to see before it may rest. It would be the newest, and the next: no need to queue it, unless an
 * oldest one or the clock is due. */
static inline void rerun_or_queue(fli_worker *w, fli_proc *p)
{
    p->report_state = FILCH_STATE_READY;
    if (FLI_LIKELY(w->may_rerun && w->fair_countdown > 1 && w->clock_countdown > 0)) {
        w->fair_countdown--;
        w->clock_countdown--;
        w->rerun = p;
        return;
    }
    (void)fli_ready_local(&w->local, p);
}

/* Lets the process rest, unless something comes that it should see. */
static void rest(fli_worker *w, fli_proc *p, unsigned state)
{
    fli_runtime *rt = &w->sched->rt;
    do {
        /* Once settled it is somebody else's: put its fields in order first. */
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
            /* It was about to rest: if this is its end, that is what the report says. */
            (void)fli_ready_local(&w->local, p);
            return;
        }
        fli_mail_drain(rt, &w->local, p, fli_word_head(word));
    } while (!fli_mail_has_pending(p, state));
    rerun_or_queue(w, p);
}

static inline void settle(fli_worker *w, fli_proc *p, unsigned state)
{
    if (fli_mail_has_pending(p, state)) rerun_or_queue(w, p);
    else rest(w, p, state);
}

void fli_step_wait(fli_worker *w, fli_proc *p)
{
    p->flags |= FLI_PROC_WAITING;
    settle(w, p, FLI_BLOCKED);
}

/* Starts the work of every yield. An unknown command, and an error from its handler, become error events. */
static inline void dispatch(fli_worker *w, filch_out *out)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    fli_runtime *fast_rt = worker->fast_rt;
    worker->dispatching = true;
    worker->fast_rt = FLI_NO_FAST_RT;
    for (uint32_t i = 0; i < out->pending_count; i++) {
        fli_pending_command          *call = &out->pending[i];
        filch_receiver     receiver = { w->out.ctx.sched, fli_yield_key(call->node), call->node->tag };
        const fli_handler *handler = fli_handler_of(w, call->command.id);
        filch_err          err = FILCH_ECOMMAND;
        worker->inline_node = fast_rt == rt ? call->node : NULL;
        worker->inline_key = fast_rt == rt ? receiver.key : 0;
        if (FLI_UNLIKELY(rt->sim != NULL)) err = fli_simulate_handle(w, handler, &call->command, receiver);
        else if (handler != NULL) err = handler->handle(handler->user, &call->command, receiver.tag, receiver);
        /* A handler that completed and then returned an error said two things: the first one counts. */
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

/* Goes on as another type. */
static void upgrade(fli_worker *w, fli_proc *p, filch_out *out)
{
    const filch_type *old = fli_proc_type(p);
    fli_callback_begin(&w->local);
    if (old->close != NULL) old->close(p->self);
    fli_callback_end(&w->local);
    fli_instance_free(w->sched, old, p->inline_state, p->self);
    p->self = out->self;
    fli_store_rlx(&p->type, out->type);
}

static void long_step_check(fli_worker *w, fli_proc *p)
{
    const filch_options *opt = &w->sched->opt;
    uint64_t             took_ns = fli_now(&w->sched->rt) - fli_load_rlx(&w->status.began_ns);
    fli_store_rlx(&w->status.began_ns, 0);
    if (took_ns < opt->long_step_ns) return;
    fli_count(&w->local.counters.long_steps, 1);
    fli_log(&w->sched->rt, FILCH_LOG_WARNING, (filch_pid){ w->sched->rt.node_id, w->local.serial }, fli_type_name(fli_proc_type(p)),
            FILCH_OK, "a step took %llu us", (unsigned long long)(took_ns / 1000));
    if (opt->on_long_step == NULL) return;
    /* Whoever is told has no part in it: what he yields is refused, and the status is the step's. */
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
    return FLI_LIKELY(w->sched->rt.sim == NULL) ? fli_proc_type(p)->step(p->self, w->events, count, &w->out)
                                                : fli_simulate_step(w, p, count);
}

/* The call of a step that is watched, taped or simulated. */
static __attribute__((noinline)) filch_err run_step_checked(fli_worker *w, fli_proc *p, uint32_t count)
{
    bool timed = w->sched->opt.long_step_ns != 0, taped = (p->flags & FLI_PROC_RECORDED) != 0;
    if (timed) fli_store_rlx(&w->status.began_ns, fli_now(&w->sched->rt));
    filch_err err = taped ? fli_record_step(w, p, count) : fli_step_call(w, p, count);
    if (timed) long_step_check(w, p);
    return err;
}

static inline void begin_step(fli_worker *w)
{
    fli_local *worker = &w->local;
    fli_out_begin(&w->out);
    worker->sends = 0;
    worker->pushed = 0;
    fli_store_rlx(&w->status.serial, worker->serial);
}

/* Calls the step. The status is in w->out; an error ends the process. */
static inline filch_err run_step(fli_worker *w, fli_proc *p, uint32_t count, bool taped)
{
    begin_step(w);
    filch_err err = FLI_LIKELY(w->fast_steps && !taped) ? fli_proc_type(p)->step(p->self, w->events, count, &w->out)
                                                       : run_step_checked(w, p, count);
    fli_count(&w->local.counters.steps, 1);
    return err;
}

/* The result is taken out first: close, too, may have kept `out`, and write another one there. */
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
        fli_callback_begin(&w->local); /* what is freed now calls functions of the program */
        fli_out_forget(out);
        fli_out_drop_pending(out, &w->local);
        fli_finish(w, p, err, &detail);
        return;
    }
    fli_status status = out->status; /* that of the step, whatever a handler says that has kept `out` */
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

/* Takes the cancel flag. Returns true if the step begins with a cancel. In a stop, drain.c decides. */
static bool take_cancel(fli_worker *w, fli_proc *p, uint64_t word)
{
    bool cancel = (word & FLI_CANCEL) != 0;
    if (cancel) fli_state_take_cancel(&p->state);
    if (FLI_LIKELY(fli_load_rlx(&w->sched->rt.phase) == FLI_OPEN)) return cancel;
    return fli_drain_cancel(w, p, word);
}

static void measure_wait(fli_worker *w)
{
    uint64_t waited = fli_now(&w->sched->rt) - w->sample_ns;
    w->sample_serial = 0;
    unsigned bucket = waited < 2 ? 0 : 63u - (unsigned)__builtin_clzll(waited);
    fli_count(&w->queue_wait[bucket < FILCH_WAIT_BUCKETS ? bucket : FILCH_WAIT_BUCKETS - 1], 1);
}

/* Is it ended instead of stepped? One that was spawned while stop raised the KILL flags has none. */
static bool must_end(fli_worker *w, uint64_t word)
{
    if (FLI_UNLIKELY((word & FLI_KILL) != 0)) return true;
    return FLI_UNLIKELY(fli_load_rlx(&w->sched->rt.phase) != FLI_OPEN) && fli_load_rlx(&w->sched->stop.force);
}

/* A linked process has failed, and this one does not trap that. */
static void go_down(fli_worker *w, fli_proc *p)
{
    filch_data reason = filch_int(fli_mail_link_reason(&w->sched->rt, p));
    fli_finish(w, p, FILCH_ELINK, &reason);
}

/* A process that comes from another worker, with its lines; or one whose wait is measured. Whoever steps it takes the mark
 * from it: if that is not the one who set it, the wait is over all the same, and must not be measured at its next step. */
static __attribute__((noinline)) void notice(fli_worker *w, fli_proc *p)
{
    if (p->last_worker != FLI_MARK_SAMPLED) w->local.remote_events++;
    else if (w->sample_serial == w->local.serial) measure_wait(w);
    p->last_worker = w->local.worker_mark;
}

/* It does not go idle just like that: it ends just like that, or the long way. */
static __attribute__((noinline)) void step_single_slow(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node, filch_err err)
{
    if (err == FILCH_OK && fli_finish_fast(w, p, word, node)) return;
    p->head_taken = node->self;
    p->flags |= FLI_PROC_HEAD_HELD;
    fli_step_conclude(w, p, err);
}

/* Is it free, though it does not look so: it went idle at another worker, or its wait is measured? */
static __attribute__((noinline)) bool has_no_pending_elsewhere(fli_worker *w, fli_proc *p)
{
    if (!fli_proc_has_no_pending(p)) return false;
    if (p->last_worker != w->local.worker_mark) notice(w, p);
    return true;
}

/* Has a process that was ACTIVE_ONE nothing on its mind but the one message behind its word? */
static inline bool has_no_pending(fli_worker *w, fli_proc *p)
{
    return FLI_LIKELY(fli_proc_is_idle_word(p, w->idle_word)) || has_no_pending_elsewhere(w, p);
}

/* Most steps: one message from a neighbour to a process that had nothing else on its mind, and goes idle again. True: it
 * does not. */
static inline __attribute__((always_inline)) bool step_single(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    fli_local *worker = &w->local;
    fli_event_fill_value(node, &w->message);
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, &w->message, 1, &w->out);
    fli_count(&worker->counters.steps, 1);
    if (FLI_LIKELY(err == FILCH_OK && fli_out_is_idle(&w->out))) {
        /* `rest` is IDLE: it was so when it was called, and nobody has changed it. */
        if (FLI_LIKELY(fli_state_settle_one(&p->state, word) == FLI_SETTLED)) {
            fli_node_give(&w->sched->rt, worker, node);
            return false;
        }
    }
    step_single_slow(w, p, word, node, err);
    return true;
}

/* Several messages, and nothing else: the last `count` of w->nodes. What is more than it may get at once stays in the
 * mailbox: the last one that it got is held, and marks the place. */
static __attribute__((noinline)) void step_several(fli_worker *w, fli_proc *p, uint64_t word, uint32_t count)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    uint32_t     max = w->sched->opt.batch_max, get = count < max ? count : max, heard = 0, held = fli_mail_held_head(p);
    fli_event_node   **nodes = &w->nodes[FLI_NODES_ROOM(max) - count];
    for (uint32_t i = 0; i < get; i++) {
        fli_event_fill_value(nodes[i], &w->messages[i]);
        heard += nodes[i]->sender_worker != worker->number;
    }
    worker->remote_events += heard;
    p->flags = 0;
    p->head_taken = 0;
    if (held != 0) {
        nodes[0]->next = 0; /* the end of the list, for torn.c */
        fli_node_give(rt, worker, fli_node_at(rt, held)); /* the head has moved on from it */
    }
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, w->messages, get, &w->out);
    fli_count(&worker->counters.steps, 1);
    fli_count(&w->throttle.batched, get - 1);
    bool idle = FLI_LIKELY(err == FILCH_OK && fli_out_is_idle(&w->out)), all = get == count;
    if (FLI_LIKELY(idle && all)) {
        p->report_state = FILCH_STATE_IDLE;
        if (FLI_LIKELY(fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED)) {
            fli_slab_give_many(&rt->nodes, &worker->nodes, (void *const *)nodes, count);
            return;
        }
    }
    p->head_taken = nodes[get - 1]->self;
    p->flags |= FLI_PROC_HEAD_HELD; /* the step may have set others */
    fli_slab_give_many(&rt->nodes, &worker->nodes, (void *const *)nodes, get - 1);
    if (idle && !all) rerun_or_queue(w, p);
    else fli_step_conclude(w, p, err);
}

/* The other common one: the answer to its only yield. */
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
    fli_node_give(&w->sched->rt, &w->local, node);
    fli_step_conclude(w, p, err);
}

/* And one that came by post, alone: `node` is the head of `word`, as that of a single message. Many go to sleep once, or wait
 * for the world once, and then end. */
static __attribute__((noinline)) void step_async_done(fli_worker *w, fli_proc *p, uint64_t word, fli_event_node *node)
{
    filch_out *out = &w->out;
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, w->events, 1, out);
    fli_count(&w->local.counters.steps, 1);
    if (!fli_data_is_value_form(&w->events[0].data)) fli_data_free(&w->events[0].data);
    if (err == FILCH_OK && fli_out_is_idle(out)) {
        p->report_state = FILCH_STATE_IDLE;
        if (FLI_LIKELY(fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED)) {
            fli_node_give(&w->sched->rt, &w->local, node);
            return;
        }
    }
    step_single_slow(w, p, word, node, err);
}

/* The first step of a process to which nobody has sent anything yet; of many it is the only one. True: not of this one. */
static __attribute__((noinline)) bool step_first(fli_worker *w, fli_proc *p, uint64_t word)
{
    filch_out *out = &w->out;
    if (FLI_UNLIKELY(p->last_worker == FLI_MARK_SAMPLED)) notice(w, p);
    p->flags = 0;
    begin_step(w);
    filch_err err = fli_proc_type(p)->step(p->self, w->events, 0, out);
    fli_count(&w->local.counters.steps, 1);
    if (FLI_LIKELY(err == FILCH_OK)) {
        if (FLI_LIKELY(fli_finish_fast(w, p, word, NULL))) return false;
        if (fli_out_is_idle(out)) {
            p->report_state = FILCH_STATE_IDLE;
            if (FLI_LIKELY(fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED)) return false;
        }
    }
    fli_step_conclude(w, p, err);
    return true;
}

/* Any step, or the end instead of one. */
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
    fli_mail_drain(rt, worker, p, fli_word_head(word));
    bool cancel = take_cancel(w, p, word); /* in a stop, drains once more */
    if (FLI_UNLIKELY((p->flags & FLI_PROC_LINK_FAILED) != 0)) {
        go_down(w, p);
        return;
    }
    uint32_t count = fli_mail_collect(rt, p, cancel, w->events, w->nodes, w->sched->opt.batch_max);
    if (count == 0 && (p->flags & FLI_PROC_MUST_STEP) == 0) {
        /* Called for something that needs no step: room in its mailbox, or a message while it waits. */
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

#define SLOW_FLAGS (FLI_KILL | FLI_CANCEL | FLI_ASK | FLI_LIMITED)

/* Everything but a single message, and a first step. */
static inline void step_classify(fli_worker *w, fli_proc *p, uint64_t word)
{
    fli_runtime *rt = &w->sched->rt;
    bool         clean = (word & SLOW_FLAGS) == 0 && fli_load_rlx(&rt->phase) == FLI_OPEN;
    fli_event_node    *node;
    uint32_t     count;
    if (FLI_UNLIKELY(p->last_worker == FLI_MARK_SAMPLED)) notice(w, p);
    if (clean && w->fast_steps &&
        (count = fli_mail_take_values(rt, p, word, w->nodes, FLI_NODES_ROOM(w->sched->opt.batch_max))) > 0) {
        step_several(w, p, word, count);
        return;
    }
    if (clean && (node = fli_mail_take_sync_completion(rt, p, word, &w->events[0])) != NULL) step_sync_done(w, p, word, node);
    else if (clean && w->fast_steps && (node = fli_mail_take_async_completion(rt, p, word, &w->events[0])) != NULL) step_async_done(w, p, word, node);
    else step_slow(w, p, word);
}

/* Steps it. `odd`: what enter said. True: it may be the next again. */
static inline __attribute__((always_inline)) bool step_once(fli_worker *w, fli_proc *p, uint64_t slow_mask)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    uint64_t     word = fli_state_look(&p->state);
    worker->current = p;
    worker->serial = fli_serial(fli_word_gen(word), p->slot);
    bool clean = (word & slow_mask) == 0 && fli_load_rlx(&rt->phase) == FLI_OPEN;
    if (FLI_LIKELY(clean && (word & FLI_ONE_BIT) != 0 && has_no_pending(w, p))) {
        return step_single(w, p, word, fli_node_at(rt, fli_word_head(word)));
    }
    if (clean && p->flags == FLI_PROC_MUST_STEP && fli_mail_is_empty(p, word)) return step_first(w, p, word);
    step_classify(w, p, word);
    return true;
}

/* Somebody is being stepped here. The bits of a word that rule out the short way: all, if steps are watched. */
static inline uint64_t enter_stepping(fli_worker *w)
{
    w->local.fast_rt = fli_fast_rt(&w->local);
    return w->fast_steps ? SLOW_FLAGS : UINT64_MAX;
}

/* Nobody is any more. */
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
    bool any = true;
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
