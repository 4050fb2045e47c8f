/* compile.h - compiles text within a time limit. The limit is needed because Lua's parser cannot be interrupted, and
 * for some texts its time grows with the square of the length (80,000 times `a and`: ten seconds). */
#ifndef FLI_LUA_COMPILE_H
#define FLI_LUA_COMPILE_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

/* Limit for the number of the words `goto` and `break` in a text. At each label the parser walks over all jumps to this
 * label, and the time limit cannot be checked during the walk. */
enum { FLI_LUA_JUMPS_MAX = 4096 };

/* Works like luaL_loadbufferx with mode "t". Fails if compiling takes more than `limit_ns` of processor time (0: no
 * limit), or, with a limit, if the text has more than FLI_LUA_JUMPS_MAX jumps. */
int fli_lua_compile(lua_State *L, const char *text, size_t size, const char *name, uint64_t limit_ns);

#endif
