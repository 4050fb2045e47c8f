/* call.h - one wait of a thread that is not a worker: what the thread waits for, and where the outcome is stored.
 *
 * INVARIANT  a call has two holders: the waiting thread and the process (or on_exit hook) that serves it. The last
 *            holder to drop the call frees it, so neither holder needs to know whether the other still exists.
 * INVARIANT  after the process exists, the waiting thread uses nothing of the scheduler: stop may free the scheduler as
 *            soon as the process has been closed.
 * Design: docs/design/host-threads.md.
 */
#ifndef FLI_CALL_CALL_H
#define FLI_CALL_CALL_H

#include <filch.h>

#include "base/mem.h"
#include "port/atomic.h"
#include "port/thread.h"

typedef enum fli_hostcall_kind {
    FLI_CALL_REQUEST, /* send `data`; the first message back is the reply */
    FLI_CALL_SEND,    /* send `data`, and wait for space in the mailbox */
    FLI_CALL_END      /* wait until `to` ends */
} fli_hostcall_kind;

/* Which side may use ask_arg.
 * NOT_CALLED: the process has not called `ask` yet. Next: RUNNING, set by the process; or OVER, set by the waiting
 * thread at its deadline.
 * RUNNING: the process is inside `ask`. Next: OVER, set by the process.
 * OVER: the process does not touch ask_arg any more. Final. */
enum { FLI_ASK_NOT_CALLED, FLI_ASK_RUNNING, FLI_ASK_OVER };

typedef struct fli_hostcall {
    fli_mem       mem;   /* not atomic: the fields before ask_state are set before the process exists */
    filch_sched  *sched; /* used by the process only */
    uint32_t      kind;
    filch_pid     to;
    filch_data    data;     /* payload of the message; owned */
    uint64_t      until_ns; /* FILCH_FOREVER: no deadline */
    filch_ask_fn  ask;      /* function that sends the request instead of `data`; NULL: none */
    void         *ask_arg;
    filch_exit_fn on_exit; /* for filch_spawn_wait: the on_exit hook of the caller */
    void         *on_exit_user;
    /* FLI_ASK_*: whether the process may use ask_arg, which the waiting thread lends.  writes: thread and process, by
     * CAS; the process also by a store when `ask` has returned.  PAIR call.ask */
    FLI_ATOMIC(uint32_t) ask_state;
    /* Number of holders of this struct: the waiting thread, and the process or on_exit hook that serves it.  writes:
     * both holders, by subtraction.  PAIR call.refs */
    FLI_ATOMIC(uint32_t) refs;
    fli_parker           done; /* signalled once, when the four fields below are final */
    /* The four fields below are not atomic.  writes: the process, before it unparks the thread.  reads: the waiting
     * thread, afterwards. */
    filch_err   err;    /* outcome of the wait */
    const char *detail; /* filch_err_detail() of the worker, if the outcome is FILCH_EINVAL */
    filch_err   ended;  /* error with which the awaited process has ended */
    filch_data  reply;  /* the reply, or the result of the process; owned */
} fli_hostcall;

/* Returns FILCH_OK if this thread may wait for processes of `sched`. FILCH_ESTATE: this thread is a worker, or the
 * scheduler has no workers. */
FILCH_MUST_USE filch_err fli_hostcall_check(filch_sched *sched, const char *name);

/* Makes a call with one holder. `data` NULL: no payload. */
FILCH_MUST_USE filch_err fli_hostcall_create(filch_sched *sched, fli_hostcall_kind kind, uint64_t deadline_ns,
                                             const filch_data *data, fli_hostcall **out);
/* Drops a reference; dropping the last one frees the call. */
void fli_hostcall_drop(fli_hostcall *call);
/* Wakes the waiting thread, because the outcome is final, and drops the caller's reference. Thread: the process or
 * on_exit hook that serves the call. */
void fli_hostcall_finish(fli_hostcall *call);
/* Waits for the outcome, moves it to `ended` and `reply` (either may be NULL), and drops the thread's reference. */
filch_err fli_hostcall_wait(fli_hostcall *call, filch_err *ended, filch_data *reply);

#endif
