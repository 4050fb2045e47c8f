/* relate.h - turns bytes into calls about relations: monitors, links, names, groups, cancels with a reason. */
#ifndef FILCH_FUZZ_RELATE_H
#define FILCH_FUZZ_RELATE_H

#include "fuzz/model.h"

/* Chooses any pid. Returns the index of its process, or NO_PROC; then *otherwise is the result that a send to that pid
 * must have. */
int choose_pid(fuzz_bytes *in, filch_pid *pid, filch_err *otherwise);

/* Returns 0, or a time span up to FILCH_FOREVER. */
uint64_t choose_span(fuzz_bytes *in);

/* Makes one call about relations and checks its result. `out` is that of the current step; NULL outside of a step. */
void relate_something(fuzz_bytes *in, filch_out *out);

/* broadcast_something() sends to a group by a call, yield_message() sends to a group or a name by a yield. Each calls
 * payload_sent() for `p`. */
void broadcast_something(fuzz_bytes *in, payload *p);
void yield_message(fuzz_bytes *in, filch_out *out, payload *p);

/* Yields one command about relations, chosen by `in`: it makes or removes a relation, cancels or terminates a process,
 * or lists the members of a group. Does nothing while allocations fail, because the model must know the result before
 * the completion arrives. */
void yield_tie(fuzz_bytes *in, filch_out *out);

#endif
