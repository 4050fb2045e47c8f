/* refuser.c - see refuser.h.
 *
 * A million senders may wait for one receiver. If the receiver ends, completing all of them at once would hold its
 * worker for a tenth of a second. So a process completes them, one slice in each step, beside the other processes of
 * the scheduler. The process is an ordinary one: it is counted, other workers may run it, and a stop waits for it.
 *
 * If no process can be spawned (no memory, the limit of processes is reached, the scheduler is being stopped by force),
 * all senders are completed at once. If the process is ended early, its `close` completes the senders that are left.
 *
 * INVARIANT  each detached queue has one owner, which completes every sender in it once: fli_refuser_run(), and after
 *            the spawn has succeeded the process.
 */
#include "sched/refuser.h"

#include "proc/runtime.h"

typedef struct refuser {
    fli_runtime *rt;
    fli_waiting  left;
} refuser;

static filch_err refuser_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(refuser *)self = *(const refuser *)filch_as_ptr(args);
    return FILCH_OK;
}

/* Completes one slice of senders. Ignores all events, also a cancel: the process ends by itself when no sender is
 * left. */
static filch_err refuser_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    refuser *me = self;
    (void)events;
    (void)count;
    fli_send_waiters_refuse(me->rt, &me->left, FLI_REFUSER_SLICE);
    return me->left.count > 0 ? filch_continue(out) : filch_done(out, filch_none());
}

static void refuser_close(void *self)
{
    refuser *me = self;
    fli_send_waiters_refuse(me->rt, &me->left, UINT32_MAX);
}

static const filch_type refuser_type = {
    .name = "filch.refuse", .size = sizeof(refuser), .init = refuser_init, .step = refuser_step, .close = refuser_close
};

void fli_refuser_run(filch_sched *sched, fli_waiting detached)
{
    refuser start = { (fli_runtime *)sched, detached };
    fli_send_waiters_refuse(start.rt, &start.left, FLI_REFUSER_SLICE);
    if (start.left.count == 0) return;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(&start);
    opt.blackbox = FILCH_BLACKBOX_OFF;
    if (filch_spawn(sched, &refuser_type, &opt, NULL) != FILCH_OK) refuser_close(&start);
}
