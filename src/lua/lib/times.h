/* times.h - spans of time as Lua programs write them: seconds as a number, or a text as "1.5s", "200ms", "2m". */
#ifndef FLI_LUA_TIMES_H
#define FLI_LUA_TIMES_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct fli_lua_proc;

/* The span at `index` in nanoseconds; raises a Lua error if it is none. Infinity is FLI_LUA_NEVER. */
uint64_t fli_lua_check_span(lua_State *L, int index);
/* When the timeout at `index` ends; FLI_LUA_NEVER if there is none, or nil or false. Raises if it is no span. */
uint64_t fli_lua_deadline(lua_State *L, const struct fli_lua_proc *p, int index);
/* The same as check_span; false if it is none. */
bool fli_lua_to_span(lua_State *L, int index, uint64_t *span_ns);

#endif
