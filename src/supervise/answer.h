/* answer.h - the answer to a tagged request to a supervisor. It is a payload that is allocated together with the
 * request, so that answering needs no memory. See filch_child_answered(). */
#ifndef FLI_SUPERVISE_ANSWER_H
#define FLI_SUPERVISE_ANSWER_H

#include <filch.h>

/* Allocates an empty answer as a shared payload. The payload is freed when its last holder calls filch_drop(). */
filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out);
/* Writes the result of the request into the answer. Thread: the supervisor, before it sends the answer. */
void fli_answer_fill(const filch_data *answer, filch_pid pid, filch_err error);

#endif
