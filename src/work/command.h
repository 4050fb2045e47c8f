/* command.h - the work command: runs a blocking function on the pool and completes the yield with its result. */
#ifndef FLI_WORK_COMMAND_H
#define FLI_WORK_COMMAND_H

#include <filch.h>

#include "proc/runtime.h"
#include "work/pool.h"

/* Packs a function and its argument as the payload of the work command. */
filch_data fli_work_pack(filch_work_fn fn, void *arg);

/* The handler of FILCH_CMD_WORK. `timer`: the timer of its deadline, abandoned when the function has returned; 0:
 * none. On an error the caller keeps the timer. */
filch_err fli_work_handle(fli_workpool *pool, fli_runtime *rt, const filch_command *command, filch_receiver receiver,
                          uint64_t timer);

#endif
