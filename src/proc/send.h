/* send.h - routing: from a pid and a payload to a message in a mailbox. */
#ifndef FLI_PROC_SEND_H
#define FLI_PROC_SEND_H

#include <filch.h>

#include "proc/runtime.h"

/* Makes the message of an owned payload. NULL: out of memory. */
FILCH_MUST_USE fli_event_node *fli_message_make(fli_runtime *rt, fli_local *worker, filch_pid from, const filch_data *owned);

/* Puts a message into the mailbox of `p`, if that has room. Takes `node` when it returns FILCH_OK.
 * `queued`: it has waited for room and is next. FILCH_EFULL: the policy is fail, wait or stop; nothing is counted. */
FILCH_MUST_USE filch_err fli_message_put(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen, fli_event_node *node,
                                         bool queued);

/* filch_send with everything said. Takes or shares `data` as filch_send does. */
FILCH_MUST_USE filch_err fli_send(fli_runtime *rt, fli_local *worker, filch_pid to, filch_pid from,
                                  const filch_data *data);

/* A step yields the message that its last send could not deliver, because the mailbox of `to` was full: counted by what comes of the yield, and
 * as refused no longer. Does nothing if that was not its last send. */
void fli_send_goes_on(fli_local *worker, filch_pid to);

/* Counts a send that was not accepted, under what the caller was told. */
void fli_send_refused(fli_runtime *rt, fli_local *worker, filch_err err);

#endif
