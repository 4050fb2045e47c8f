/* spawn.h - describes a process to be started, for process.spawn, process.exec, and the children of a supervisor. */
#ifndef FLI_LUA_SPAWN_H
#define FLI_LUA_SPAWN_H

#include "lua/process/proc.h"

/* What a spawn reads from its arguments. The function or name to run is on the stack at index `target`; its arguments
 * follow, up to index `last`. */
typedef struct fli_lua_plan {
    int                 target, last;
    size_t              memory_max;
    filch_spawn_options spawn;
} fli_lua_plan;

/* Returns the value of an option `name`, which is on top of the stack. Raises an error if the value is not a text, or
 * if the host's option `without` forbids programs to register names. */
const char *fli_lua_plan_name(lua_State *L);

/* Reads the value on top of the stack as the option `name`. The plan may keep a pointer into the value, which stays
 * alive because it is in the table of options. Returns false if there is no option with this name. Raises an error if
 * the value is not valid. */
bool fli_lua_plan_option(lua_State *L, fli_lua_plan *plan, const char *name);

/* Pushes the elements 1, 2, ... of the table at `table`: the function or name to run, and its arguments. Raises an
 * error if the first element is neither a function nor a name. */
void fli_lua_plan_elements(lua_State *L, fli_lua_plan *plan, int table);

/* Raises an error if the value at `target` is neither a function nor a name. */
void fli_lua_plan_check(lua_State *L, int target);

/* Fills in `start` from the plan: the code (one reference, which the caller drops, also on failure) and, encoded in
 * `bytes`, the upvalues and arguments. If the value at plan->target is nil, the code is the newest code of the file
 * that this process runs. Raises no Lua error. */
filch_err fli_lua_plan_start(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan, fli_lua_bytes *bytes,
                             fli_lua_start *start, fli_lua_refusal *why);

#endif
