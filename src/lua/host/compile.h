/* compile.h - text to code within a bound: Lua's parser cannot be interrupted, and takes a time that grows with the
 * square of some texts (80,000 times `a and`: ten seconds). */
#ifndef FLI_LUA_COMPILE_H
#define FLI_LUA_COMPILE_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

/* The words that lead to a jump forward; all that wait for one label are walked over inside one statement of the
 * parser. */
enum { FLI_LUA_JUMPS_MAX = 4096 };

/* As luaL_loadbufferx with mode "t". Fails when it has taken `limit_ns` of processor time (0: no limit), or with more
 * jumps than FLI_LUA_JUMPS_MAX if there is a limit. */
int fli_lua_compile(lua_State *L, const char *text, size_t size, const char *name, uint64_t limit_ns);

#endif
