/* checks.h - luaL_argcheck, luaL_argexpected and luaL_addchar as functions. The macros ask for the value of a call that never
 * comes back, or that is never NULL: two branches in each place that no run can take. */
#ifndef FLI_LUA_CHECKS_H
#define FLI_LUA_CHECKS_H

#include <lauxlib.h>
#include <stdbool.h>

/* Raises "bad argument #arg to 'function' (message)" unless it is fine. */
static inline void fli_lua_check_arg(lua_State *L, bool fine, int arg, const char *message)
{
    if (!fine) luaL_argerror(L, arg, message);
}

/* The same, with what was expected and what has come. */
static inline void fli_lua_expect(lua_State *L, bool fine, int arg, const char *expected)
{
    if (!fine) luaL_typeerror(L, arg, expected);
}

static inline void fli_lua_add_char(luaL_Buffer *out, char c)
{
    if (out->n == out->size) (void)luaL_prepbuffsize(out, 1);
    out->b[out->n++] = c;
}

#endif
