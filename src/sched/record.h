/* record.h - the black box of a process: see record.c. Precondition: the process has a recorder, except for
 * fli_record_begin() and fli_record_drop(). */
#ifndef FLI_SCHED_RECORD_H
#define FLI_SCHED_RECORD_H

#include "observe/blackbox.h"
#include "sched/sched.h"

/* Gives the new process `p` a recorder, if the options request one. Errors: FILCH_ENOMEM. Thread: the spawner. */
FILCH_MUST_USE filch_err fli_record_begin(filch_sched *sched, fli_proc *p, const filch_type *type,
                                          const filch_spawn_options *opt);

/* Calls the step and records its events and its calls. */
filch_err fli_record_step(fli_worker *w, fli_proc *p, uint32_t count);

/* Called when the process has ended. If it failed, passes the recording to option `on_blackbox`. Frees the recorder. */
void fli_record_ended(filch_sched *sched, fli_proc *p, uint64_t serial, filch_err error);

/* Frees the recorder of a process, if it has one. */
void fli_record_drop(fli_runtime *rt, fli_proc *p);

/* The fli_act_*() functions describe a call of a process, without its result. Recording and replay use them. */
fli_box_act fli_act_send(filch_pid to, const filch_data *data, bool deliver);
fli_box_act fli_act_raise(filch_pid pid, uint64_t flag);
fli_box_act fli_act_yield(uint32_t command, uint64_t tag, filch_pid target, const filch_data *data);
fli_box_act fli_act_relate(const fli_request *request);
fli_box_act fli_act_whereis(const char *name);
fli_box_act fli_act_spawn(const filch_type *type, const filch_spawn_options *options);
/* Describes how a step ended. */
fli_box_outcome fli_outcome_of(const filch_out *out, filch_err error, uint64_t acts);

#endif
