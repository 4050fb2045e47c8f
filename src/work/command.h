/* command.h - the work command: a function that blocks, run on the pool, whose result completes the yield. */
#ifndef FLI_WORK_COMMAND_H
#define FLI_WORK_COMMAND_H

#include <filch.h>

#include "proc/runtime.h"
#include "work/pool.h"

/* What filch_yield_work puts into the command. */
filch_data fli_work_pack(filch_work_fn fn, void *arg);

/* The handler of FILCH_CMD_WORK. `timer`: its deadline's, abandoned when the function has returned; 0: none. On an error
 * the timer is still the caller's. */
filch_err fli_work_handle(fli_workpool *pool, fli_runtime *rt, const filch_command *command, filch_receiver receiver,
                          uint64_t timer);

#endif
