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

#endif
