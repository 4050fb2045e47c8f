/* task.h - tasks that a program starts, for other parts that start some: see task.c. */
#ifndef FLI_LUA_TASK_H
#define FLI_LUA_TASK_H

#include "lua/process/proc.h"

/* Starts the function at `function`, which the values above it are the arguments of: they are popped, and the task is
 * pushed. */
fli_lua_task *fli_lua_task_start(lua_State *L, fli_lua_proc *p, int function);
/* The task at `index`; NULL: it is none. */
fli_lua_task *fli_lua_to_task(lua_State *L, int index);
/* Asks it to end. Returns false if it has ended already. */
bool fli_lua_task_cancel(fli_lua_proc *p, fli_lua_task *task);

#endif
