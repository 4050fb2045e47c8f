/* answer.h - the answer to a tagged request to a supervisor. It is a payload that is allocated together with the
 * request, so that answering needs no memory, except for a list of children. See filch_child_answered(). */
#ifndef FLI_SUPERVISE_ANSWER_H
#define FLI_SUPERVISE_ANSWER_H

#include <filch.h>
#include <stdbool.h>

/* Allocates an empty answer as a shared payload. The payload is freed when filch_drop() drops the last reference to
 * it. */
filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out);
/* Allocates a list of children for fli_answer_fill(): `count` > 0 zeroed elements. Returns NULL if there is no
 * memory. */
filch_child_info *fli_answer_list(const filch_data *answer, size_t count);
/* Writes the result of the request into `answer`. Takes ownership of `list`, which has `count` elements or is NULL. If
 * the answer has a result already, because a process has forwarded the request to a second supervisor, leaves it
 * unchanged and frees the list. Returns true if the answer can be sent, false if another thread is writing it just
 * now. Thread: any that runs a supervisor. */
bool fli_answer_fill(const filch_data *answer, filch_pid pid, filch_err error, filch_child_info *list, size_t count);

#endif
