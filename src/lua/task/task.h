/* task.h - starts and cancels tasks, for other C code: see task.c. */
#ifndef FLI_LUA_TASK_H
#define FLI_LUA_TASK_H

#include "lua/process/proc.h"

/* Starts a task for the function at stack index `function`; the values above it are the arguments. Pops function and
 * arguments, and pushes the task. */
fli_lua_task *fli_lua_task_start(lua_State *L, fli_lua_proc *p, int function);
/* Returns the task at `index`, or NULL if the value is not a task. */
fli_lua_task *fli_lua_to_task(lua_State *L, int index);
/* Requests the task to end. Returns false if it has ended already. */
bool fli_lua_task_cancel(fli_lua_proc *p, fli_lua_task *task);

#endif
