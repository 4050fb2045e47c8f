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
    FLI_CALL_REQUEST, /* send `data` to `to`; the first message that comes back is the reply */
    FLI_CALL_SEND,    /* send `data` to `to`, and wait until its mailbox has space for it */
    FLI_CALL_END      /* wait until `to` ends */
} fli_hostcall_kind;

/* Whether the process that serves the call may use ask_arg, which the waiting thread lends.
 * NOT_CALLED: the process has not called `ask` yet. Next: RUNNING, set by the process; or OVER, set by the waiting
 * thread at its deadline.
 * RUNNING: the process is inside `ask`. Next: OVER, set by the process.
 * OVER: the process does not touch ask_arg any more. Final. */
enum { FLI_ASK_NOT_CALLED, FLI_ASK_RUNNING, FLI_ASK_OVER };

typedef struct fli_hostcall {
    /* not atomic, like all fields down to on_exit_user: set before the process that serves the call exists */
    fli_mem      mem;
    filch_sched *sched; /* used only by the process that serves the call */
    uint32_t     kind;
    filch_pid    to;
    filch_data   data;     /* payload of the message; owned */
    uint64_t     until_ns; /* time at which the wait ends with FILCH_EDEADLINE; FILCH_FOREVER: never */
    /* function that the process calls to send the request, instead of sending `data`; NULL: none */
    filch_ask_fn  ask;
    void         *ask_arg;
    filch_exit_fn on_exit; /* for filch_spawn_wait: the on_exit hook of the caller */
    void         *on_exit_user;
    /* FLI_ASK_*: whether the serving process may use ask_arg, which the waiting thread lends.  writes: the waiting
     * thread and the serving process, by CAS; the process also by a store when `ask` has returned.  PAIR call.ask */
    FLI_ATOMIC(uint32_t) ask_state;
    /* Number of holders of this struct: the waiting thread, and the process or on_exit hook that serves it.  writes:
     * both holders, by subtraction.  PAIR call.refs */
    FLI_ATOMIC(uint32_t) refs;
    fli_parker           done; /* signalled once, when `err`, `detail`, `ended` and `reply` are final */
    /* `err`, `detail`, `ended` and `reply` are not atomic.  writes: the process or on_exit hook that serves the call,
     * before it signals `done`.  reads: the waiting thread, after `done` was signalled. */
    filch_err   err;    /* outcome of the wait; FILCH_OK: `ended` and `reply` are valid */
    const char *detail; /* if `err` is FILCH_EINVAL: filch_err_detail() of the worker that found the error */
    filch_err   ended;  /* error with which the awaited process has ended */
    filch_data  reply;  /* the reply, or the result of the process; owned */
} fli_hostcall;

/* Returns FILCH_OK if the calling thread may wait for processes of `sched`. FILCH_ESTATE: the thread is a worker of any
 * scheduler, or `sched` has no workers or is simulated. */
FILCH_MUST_USE filch_err fli_hostcall_check(filch_sched *sched, const char *name);

/* Allocates a call that has one reference, that of the calling thread. `data` NULL: the message has no payload. */
FILCH_MUST_USE filch_err fli_hostcall_create(filch_sched *sched, fli_hostcall_kind kind, uint64_t deadline_ns,
                                             const filch_data *data, fli_hostcall **out);
/* Drops a reference; dropping the last one frees the call. */
void fli_hostcall_drop(fli_hostcall *call);
/* Signals `done`, because the outcome is final, and drops the reference of the process or on_exit hook that serves the
 * call. Thread: that process or hook. */
void fli_hostcall_finish(fli_hostcall *call);
/* Waits for the outcome and returns it. If it is FILCH_OK, moves the call's `ended` and `reply` to *ended and *reply
 * (either pointer may be NULL). Drops the reference of the waiting thread. */
filch_err fli_hostcall_wait(fli_hostcall *call, filch_err *ended, filch_data *reply);

#endif
