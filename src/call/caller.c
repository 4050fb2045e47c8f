/* caller.c - the process that serves a wait, and the public functions that wait.
 *
 * The wait is served by a process because a request needs a pid for the reply, a monitor for the receiver's end, a
 * place in the queue of senders that wait for space, and an end when the scheduler stops. All of that exists for
 * processes.
 *
 * INVARIANT  the process finishes its call exactly once, in close, whichever way it ends.
 *
 * Completions and notices are delivered before messages (docs/ARCHITECTURE.md). So a deadline, a cancel or the
 * receiver's EXIT does not end the wait at once: the process first takes LAST_STEPS steps, in which it gets a reply
 * that arrived earlier. That reply wins.
 */
#include "call/caller.h"

#include "proc/runtime.h"

enum { TAG_SENT = 1, TAG_DEADLINE, TAG_EXIT };

/* After `reason` is set, the process takes this many steps, to get a reply that is in its mailbox already: of two
 * successive steps at least one gets the oldest waiting message (filch_step_fn). A step with a cancel may get no
 * message, so it is not counted. */
enum { LAST_STEPS = 2 };
/* At most this many steps with a cancel are left uncounted. Further steps with a cancel are counted, so that a receiver
 * that cancels this process again and again cannot keep it from ending. */
enum { CANCEL_STEPS = 8 };

typedef struct caller {
    fli_hostcall *call;
    filch_err     reason; /* why the wait ends, unless a reply has arrived earlier; FILCH_OK: it does not end yet */
    uint8_t       begun;
    uint8_t       last_steps;   /* number of counted steps since `reason` was set: see LAST_STEPS */
    uint8_t       cancel_steps; /* number of steps with a cancel that were not counted: see CANCEL_STEPS */
    uint8_t       decided;      /* call->err is set */
} caller;

static filch_err caller_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    caller *me = self;
    (void)ctx;
    (void)method;
    me->call = filch_as_ptr(args);
    return FILCH_OK;
}

/* Returns FILCH_ECLOSED if the scheduler is stopping, because a stop cancels and finally kills every process; otherwise
 * `reason`. */
static filch_err why(const caller *me, filch_err reason)
{
    fli_runtime *rt = (fli_runtime *)me->call->sched;
    return fli_load_acq(&rt->phase) != FLI_OPEN ? FILCH_ECLOSED : reason; /* PAIR runtime.phase, acquire half */
}

/* Ends the wait with the outcome `err`. The process itself ends without an error, because the counter of failed
 * processes is meant for processes of the program. */
static filch_err over(caller *me, filch_out *out, filch_err err)
{
    /* A stop may end the receiver, and this process may get the EXIT event before its own cancel. The outcome is
     * FILCH_ECLOSED then too, not FILCH_EDEAD. */
    me->call->err = err == FILCH_EDEAD ? why(me, FILCH_EDEAD) : err;
    if (err == FILCH_EINVAL) me->call->detail = filch_err_detail();
    me->decided = 1;
    return filch_done(out, filch_none());
}

/* Calls call->ask, the program's function that sends the request. Called in a step of this process, so that this
 * process is the sender and gets the reply. */
static filch_err ask(fli_hostcall *call, filch_sched *sched)
{
    uint32_t ask_state = FLI_ASK_NOT_CALLED;
    /* PAIR call.ask, both halves: if the CAS succeeds, the waiting thread is still there, and stays until `ask` has
     * returned. */
    if (!fli_cas_acqrel(&call->ask_state, &ask_state, FLI_ASK_RUNNING)) return FILCH_EDEADLINE;
    filch_err err = call->ask(sched, call->to, call->ask_arg);
    fli_store_rel(&call->ask_state, FLI_ASK_OVER); /* PAIR call.ask, release half: `ask` no longer uses the argument */
    return err;
}

static filch_err begin_call(caller *me, filch_out *out)
{
    fli_hostcall *call = me->call;
    filch_sched  *sched = filch_out_sched(out);
    uint64_t      now_ns = fli_now((fli_runtime *)sched);
    me->begun = 1;
    filch_err err = FILCH_OK;
    if (call->until_ns != FILCH_FOREVER) {
        err = filch_yield_sleep(out, TAG_DEADLINE, call->until_ns > now_ns ? call->until_ns - now_ns : 0);
    }
    if (err == FILCH_OK && call->kind != FLI_CALL_SEND) {
        uint64_t ref = 0;
        err = filch_monitor(sched, filch_ctx_self(filch_out_ctx(out)), call->to, TAG_EXIT, &ref);
        /* ref is 0 if `to` had already ended, so that no monitor was made. The error of the EXIT event cannot show
         * this, because a process may itself fail with FILCH_EDEAD. */
        if (err == FILCH_OK && ref == 0 && call->kind == FLI_CALL_END) err = FILCH_EDEAD;
        /* The receiver is on another node and cannot be monitored. The request is still sent, because the route
         * function may reach the receiver. */
        if (err == FILCH_EFOREIGN && call->kind == FLI_CALL_REQUEST) err = FILCH_OK;
    }
    if (err == FILCH_OK && call->ask != NULL) err = ask(call, sched);
    else if (err == FILCH_OK && call->kind != FLI_CALL_END) err = filch_yield_send(out, TAG_SENT, call->to, call->data);
    return err == FILCH_OK ? filch_idle(out) : over(me, out, err);
}

/* Ends the wait, because `event` is the awaited message or EXIT event. Copies its data and error to the call. */
static filch_err answered(caller *me, filch_out *out, const filch_event *event)
{
    filch_err err = filch_keep(&event->data, &me->call->reply);
    me->call->ended = event->error;
    return over(me, out, err);
}

/* Returns the reason for which `event` ends the wait if no reply has arrived earlier; FILCH_OK: it does not end the
 * wait. */
static filch_err reason_of(const caller *me, const filch_event *event)
{
    bool request = me->call->kind == FLI_CALL_REQUEST;
    if (event->type == FILCH_EVENT_CANCEL) return why(me, FILCH_ECANCELLED);
    if (event->type == FILCH_EVENT_EXIT && request) return FILCH_EDEAD;
    if (event->type != FILCH_EVENT_YIELD || event->tag != TAG_DEADLINE) return FILCH_OK;
    /* FILCH_ENOMEM: there was no memory for the sleep until the deadline */
    return event->error != FILCH_OK ? event->error : FILCH_EDEADLINE;
}

/* Returns true if the event ends the wait at once; then *status is the value that the step must return. */
static bool decides(caller *me, filch_out *out, const filch_event *event, filch_err *status)
{
    bool request = me->call->kind == FLI_CALL_REQUEST;
    if (event->type == (request ? FILCH_EVENT_MESSAGE : FILCH_EVENT_EXIT)) {
        *status = answered(me, out, event);
        return true;
    }
    if (event->type != FILCH_EVENT_YIELD || event->tag != TAG_SENT) return false;
    if (event->error == FILCH_OK && request) return false;
    *status = over(me, out, event->error);
    return true;
}

static filch_err caller_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    caller   *me = self;
    filch_err status = FILCH_OK;
    bool      cancelled = false;
    for (size_t i = 0; i < count; i++) {
        if (decides(me, out, &events[i], &status)) return status;
        if (me->reason == FILCH_OK) me->reason = reason_of(me, &events[i]);
        cancelled = cancelled || events[i].type == FILCH_EVENT_CANCEL;
    }
    if (me->reason == FILCH_OK) return me->begun ? filch_idle(out) : begin_call(me, out);
    if (cancelled && me->cancel_steps < CANCEL_STEPS) me->cancel_steps++;
    else me->last_steps++;
    return me->last_steps < LAST_STEPS ? filch_continue(out) : over(me, out, me->reason);
}

static void caller_close(void *self)
{
    caller *me = self;
    if (!me->decided) me->call->err = why(me, FILCH_EKILLED);
    fli_hostcall_finish(me->call);
}

static const filch_type caller_type = {
    .name = "filch.call", .size = sizeof(caller), .init = caller_init, .step = caller_step, .close = caller_close
};

filch_err fli_caller_run(filch_sched *sched, fli_hostcall *call, filch_err *ended, filch_data *reply)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(call);
    opt.blackbox = FILCH_BLACKBOX_OFF;
    fli_store_rlx(&call->refs, 2); /* relaxed: the process, which will hold the other reference, does not exist yet */
    filch_err err = filch_spawn(sched, &caller_type, &opt, NULL);
    if (err == FILCH_OK) return fli_hostcall_wait(call, ended, reply);
    fli_store_rlx(&call->refs, 1);
    fli_hostcall_drop(call);
    return err;
}
