/* send_waiters.h - senders that wait for space in a full mailbox (FILCH_OVERFLOW_WAIT), in order of arrival. */
#ifndef FLI_DISPATCH_SEND_WAITERS_H
#define FLI_DISPATCH_SEND_WAITERS_H

#include <filch.h>

#include "proc/runtime.h"

#define FLI_SEND_WAITERS_SHARDS 16

typedef struct fli_waiter fli_waiter;

typedef struct fli_send_waiters {
    struct {
        alignas(FLI_LINE) fli_mutex lock;
        /* waiters for all receivers of this shard, oldest first; protected by the shard's lock */
        fli_waiter *first, *last;
    } shards[FLI_SEND_WAITERS_SHARDS];
} fli_send_waiters;

filch_err fli_send_waiters_init(fli_send_waiters *waiters);
/* Frees the queues. Thread: any, when no process is left. */
void fli_send_waiters_fini(fli_send_waiters *waiters);

/* The handler of FILCH_CMD_SEND: sends the message, or queues it until the mailbox has space. */
filch_err fli_send_waiters_send(fli_send_waiters *waiters, fli_runtime *rt, const filch_command *command,
                                filch_receiver receiver);

/* Sends the queued messages that fit into the mailbox of the process that uses slot `p` now, and completes their
 * senders. Thread: any. */
void fli_send_waiters_retry(fli_send_waiters *waiters, fli_runtime *rt, fli_proc *p);

/* Completes with FILCH_EDEAD all senders that wait for the process `serial`, which has ended. */
void fli_send_waiters_refuse(fli_send_waiters *waiters, fli_runtime *rt, uint64_t serial);

#endif
