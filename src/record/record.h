/* record.h - the black box of a process: see record.c and replay.c.
 * Page: docs/BLACKBOX.md. */
#ifndef FLI_RECORD_RECORD_H
#define FLI_RECORD_RECORD_H

#include "observe/blackbox.h"
#include "proc/runtime.h"

/* The operations that sched calls: see fli_record_ops in proc/runtime.h. */
extern const fli_record_ops fli_record_table;

/* Does what filch_blackbox_replay() promises. `upper`: the functions through which the scheduler of the replay calls
 * the modules above sched. */
filch_err fli_blackbox_replay(const fli_upper_ops *upper, const void *bytes, size_t size, const filch_type *type,
                              filch_blackbox_report *report);

/* Each fli_rec_call_*() function describes one call that a process makes, without its result. Recording and replay use
 * these descriptions. */
fli_rec_call fli_rec_call_send(filch_pid to, const filch_data *data, bool deliver);
fli_rec_call fli_rec_call_set_flag(filch_pid pid, uint64_t flag);
fli_rec_call fli_rec_call_yield(uint32_t command, uint64_t tag, filch_pid target, const filch_data *data);
fli_rec_call fli_rec_call_relate(const fli_request *request);
fli_rec_call fli_rec_call_whereis(const char *name);
fli_rec_call fli_rec_call_spawn(const filch_type *type, const filch_spawn_options *options);
/* Describes how a step ended: its status or `error`, and its number of calls. */
fli_rec_result fli_rec_result_of(const filch_out *out, filch_err error, uint64_t calls);

#endif
