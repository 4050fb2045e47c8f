/* spawn.h - what is to be started, as Lua says it: process.spawn, process.exec, and the children of a supervisor. */
#ifndef FLI_LUA_SPAWN_H
#define FLI_LUA_SPAWN_H

#include "lua/process/proc.h"

/* What a start is made of. What to run is on the stack at `target`, its arguments behind it up to `last`. */
typedef struct fli_lua_plan {
    int                 target, last;
    size_t              memory_max;
    filch_spawn_options spawn;
} fli_lua_plan;

/* Takes the option `name`, whose value is on top of the stack; what it refers to stays in the table it is from. False:
 * there is no such option. Raises if the value is wrong. */
bool fli_lua_plan_option(lua_State *L, fli_lua_plan *plan, const char *name);

/* Pushes the elements 1, 2, ... of the table at `table`: what to run, and its arguments. Raises if the first cannot be
 * run. */
void fli_lua_plan_elements(lua_State *L, fli_lua_plan *plan, int table);

/* Raises if what is at `target` cannot be run. */
void fli_lua_plan_check(lua_State *L, int target);

/* Fills in `start`: the code (one reference, the caller's, also when it fails) and, in `bytes`, what it takes along.
 * Nil as what to run is the newest code of the file that this process runs. Raises nothing. */
filch_err fli_lua_plan_start(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan, fli_lua_bytes *bytes,
                             fli_lua_start *start, fli_lua_refusal *why);

#endif
