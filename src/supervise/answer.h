/* answer.h - the answer to an order that was given with a tag: a payload made together with the order, so that answering
 * needs no memory. See filch_child_answered. */
#ifndef FLI_SUPERVISE_ANSWER_H
#define FLI_SUPERVISE_ANSWER_H

#include <filch.h>

/* Makes the payload. It is freed when the last holder drops it (filch_drop). */
filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out);
/* Writes what it says. Thread: the supervisor, before it is sent. */
void fli_answer_fill(const filch_data *answer, filch_pid pid, filch_err error);

#endif
