/* send_waiters.h - senders that wait for space in a full mailbox (FILCH_OVERFLOW_WAIT), in order of arrival. */
#ifndef FLI_DISPATCH_SEND_WAITERS_H
#define FLI_DISPATCH_SEND_WAITERS_H

#include <filch.h>

#include "proc/runtime.h"

/* FLI_SEND_WAITERS_SLICE: maximum number of senders that one retry admits. 64, because a step with the default
 * batch_max reads 64 messages and so makes space for 64. */
#ifdef FLI_SMALL
#define FLI_SEND_WAITERS_STRIPES 2
#define FLI_SEND_WAITERS_SLICE 3
#else
#define FLI_SEND_WAITERS_STRIPES 64
#define FLI_SEND_WAITERS_SLICE 64
#endif

/* The locks of the queues of waiting senders. Each receiver has its own queue (fli_proc.waiters); the lock of a stripe
 * protects the queues of the receivers with slots that belong to the stripe. */
typedef struct fli_send_waiters {
    struct {
        alignas(FLI_LINE) fli_mutex lock;
        uint64_t count; /* number of senders in the queues of this stripe; under the lock */
    } stripes[FLI_SEND_WAITERS_STRIPES];
} fli_send_waiters;

/* The messages that wait for one receiver, as a ring of nodes in order of arrival. */
typedef struct fli_waiting {
    uint32_t newest; /* the handle of the newest node, which has the oldest as its `next`; not used if `count` is 0 */
    uint32_t count;
} fli_waiting;

filch_err fli_send_waiters_init(fli_send_waiters *waiters);
/* Frees the locks. Thread: any, when no process is left. */
void fli_send_waiters_fini(fli_send_waiters *waiters);

/* The handler of FILCH_CMD_SEND: sends the message, or queues it until the mailbox has space. */
filch_err fli_send_waiters_send(fli_send_waiters *waiters, fli_runtime *rt, const filch_command *command,
                                filch_receiver receiver);

/* Sends the queued messages that fit into the mailbox of the process that uses slot `p` now, at most
 * FLI_SEND_WAITERS_SLICE, and completes their senders. Thread: any. */
void fli_send_waiters_retry(fli_send_waiters *waiters, fli_runtime *rt, fli_proc *p);

/* Takes the queue of waiting senders from slot `p` when the process of `p` has ended. The caller completes these
 * senders by fli_send_waiters_refuse(). Thread: the worker that ends the process. */
FILCH_MUST_USE fli_waiting fli_send_waiters_detach(fli_send_waiters *waiters, fli_proc *p);

/* Frees the oldest messages of a detached queue, at most `max`, and completes their senders with FILCH_EDEAD. Thread:
 * the thread that detached the queue, or to which the queue was passed. */
void fli_send_waiters_refuse(fli_runtime *rt, fli_waiting *detached, uint32_t max);

#endif
