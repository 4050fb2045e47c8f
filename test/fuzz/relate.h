/* relate.h - turns bytes into calls about relations: monitors, links, names, groups, cancels with a reason. */
#ifndef FILCH_FUZZ_RELATE_H
#define FILCH_FUZZ_RELATE_H

#include "fuzz/model.h"

/* Chooses any pid. Returns its life, or NOBODY with the result of a message to it in *otherwise. */
int choose_pid(fuzz_bytes *in, filch_pid *pid, filch_err *otherwise);

/* Returns 0, or a time span up to FILCH_FOREVER. */
uint64_t choose_span(fuzz_bytes *in);

/* Makes one call about relations and checks it. `out` is that of the step, or NULL outside. */
void relate_something(fuzz_bytes *in, filch_out *out);

/* Send to a group at once; and to a group or a name by a yield. Both take the parcel as a call does. */
void broadcast_something(fuzz_bytes *in, parcel *p);
void yield_message(fuzz_bytes *in, filch_out *out, parcel *p);

/* Makes a relation by a yield. Not while memory is short: the result would come too late for the model. */
void yield_tie(fuzz_bytes *in, filch_out *out);

#endif
