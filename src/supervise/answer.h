/* answer.h - the answer to a tagged request to a supervisor. It is a payload that is allocated together with the
 * request, so that answering needs no memory. See filch_child_answered(). */
#ifndef FLI_SUPERVISE_ANSWER_H
#define FLI_SUPERVISE_ANSWER_H

#include <filch.h>

/* Creates the payload. It is freed when its last holder calls filch_drop(). */
filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out);
/* Writes the result into the payload. Thread: the supervisor, before it sends the payload. */
void fli_answer_fill(const filch_data *answer, filch_pid pid, filch_err error);

#endif
