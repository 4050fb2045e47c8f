/* record.h - the black box of a process: see record.c. Called only for processes that have one, but for the first. */
#ifndef FLI_SCHED_RECORD_H
#define FLI_SCHED_RECORD_H

#include "observe/blackbox.h"
#include "sched/sched.h"

/* Gives the new process `p` a recorder, if it is to have one. FILCH_ENOMEM. Thread: the spawner. */
FILCH_MUST_USE filch_err fli_record_begin(filch_sched *sched, fli_proc *p, const filch_type *type,
                                          const filch_spawn_options *opt);

/* Calls the step and writes down what it is given and what it does. */
filch_err fli_record_step(fli_worker *w, fli_proc *p, uint32_t count);

/* The process is over: hands out the recording if it failed, and frees it. */
void fli_record_ended(filch_sched *sched, fli_proc *p, uint64_t serial, filch_err error);

/* Frees the recorder of a process that never began. */
void fli_record_drop(fli_runtime *rt, fli_proc *p);

/* What a process is about to do, without the answer. The same words for recording and replay. */
fli_box_act fli_act_send(filch_pid to, const filch_data *data, bool deliver);
fli_box_act fli_act_raise(filch_pid pid, uint64_t flag);
fli_box_act fli_act_yield(uint32_t command, uint64_t tag, filch_pid target, const filch_data *data);
fli_box_act fli_act_relate(const fli_request *request);
fli_box_act fli_act_whereis(const char *name);
fli_box_act fli_act_spawn(const filch_type *type, const filch_spawn_options *options);
/* How its step ended. */
fli_box_outcome fli_outcome_of(const filch_out *out, filch_err error, uint64_t acts);

#endif
