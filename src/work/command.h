/* command.h - the work command: runs a blocking function on the pool and completes the yield with its result. */
#ifndef FLI_WORK_COMMAND_H
#define FLI_WORK_COMMAND_H

#include <filch.h>

#include "proc/runtime.h"
#include "work/pool.h"

/* Packs a function and its argument as the payload of the work command. */
filch_data fli_work_pack(filch_work_fn fn, void *arg);

/* Handles FILCH_CMD_WORK. `timer`: id of the timer for the deadline, or 0 for no deadline; the timer is stopped when
 * the function has returned. If fli_work_handle() returns an error, the caller must stop the timer. */
filch_err fli_work_handle(fli_workpool *pool, fli_runtime *rt, const filch_command *command, filch_receiver receiver,
                          uint64_t timer);

/* Cancels the outstanding yields of the process `serial` that have the tag `tag` and are completed by a job of the
 * pool, except commands on an open file. Completes each of these yields with FILCH_ECANCELLED. The data is 1 if the job
 * had not begun and was removed from its queue, 0 if the job runs. Returns how many yields it cancelled. Thread: the
 * worker that runs the process, inside a handler. */
uint32_t fli_work_cancel(fli_workpool *pool, fli_runtime *rt, uint64_t serial, uint64_t tag);

#endif
