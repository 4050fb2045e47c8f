/* relate.h - bytes become calls that relate processes: monitors, links, names, groups, cancels with a reason. */
#ifndef FILCH_FUZZ_RELATE_H
#define FILCH_FUZZ_RELATE_H

#include "fuzz/model.h"

/* A pid from anywhere. Gives its life, or NOBODY and what a message to it must be answered. */
int choose_pid(fuzz_bytes *in, filch_pid *pid, filch_err *otherwise);

/* 0, or a span of time up to for ever. */
uint64_t choose_span(fuzz_bytes *in);

/* One such call, checked. `out` is that of the step, or NULL outside. */
void relate_something(fuzz_bytes *in, filch_out *out);

/* To a group, now; and to a group or a name, as a yield. Both take the parcel as a call does. */
void broadcast_something(fuzz_bytes *in, parcel *p);
void yield_message(fuzz_bytes *in, filch_out *out, parcel *p);

/* The same as a yield. Not while memory is short: whether there was enough would be heard too late. */
void yield_tie(fuzz_bytes *in, filch_out *out);

#endif
