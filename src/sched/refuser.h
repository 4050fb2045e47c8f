/* refuser.h - completes the senders that waited for space in the mailbox of a process that has ended. */
#ifndef FLI_SCHED_REFUSER_H
#define FLI_SCHED_REFUSER_H

#include <filch.h>

#include "dispatch/send_waiters.h"

#define FLI_REFUSER_SLICE 1024 /* number of senders that one step completes, in about 0.1 ms */

/* Completes the senders of a detached queue with FILCH_EDEAD: the first FLI_REFUSER_SLICE at once, the others in later
 * steps of a process. Thread: the worker that ends the receiver. */
void fli_refuser_run(filch_sched *sched, fli_waiting detached);

#endif
