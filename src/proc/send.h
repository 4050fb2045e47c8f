/* send.h - turns a pid and a payload into a message in a mailbox. */
#ifndef FLI_PROC_SEND_H
#define FLI_PROC_SEND_H

#include <filch.h>

#include "proc/runtime.h"

/* Makes the node of a message from `from` with the payload `owned`, which owns its bytes. Returns NULL if out of
 * memory. */
FILCH_MUST_USE fli_event_node *fli_message_make(fli_runtime *rt, fli_local *worker, filch_pid from,
                                                const filch_data *owned);

/* Pushes a message to the mailbox of `p`, if the mailbox has space. Takes `node` if the result is FILCH_OK. `queued`:
 * the message has waited for space and is the next of the waiting messages. FILCH_EFULL: the mailbox is full and its
 * policy is fail, wait or stop; no counter of refused sends was changed. */
FILCH_MUST_USE filch_err fli_message_put(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen,
                                         fli_event_node *node, bool queued);

/* filch_send() with the sender `from` given by the caller. Takes over, copies or shares `data` as filch_send() does. */
FILCH_MUST_USE filch_err fli_send(fli_runtime *rt, fli_local *worker, filch_pid to, filch_pid from,
                                  const filch_data *data);

/* Adds 1 to the counter of sends that were refused with the error `err`. */
void fli_send_refused(fli_runtime *rt, fli_local *worker, filch_err err);

#endif
