/* path.h - where a value is, in words: "message.users[3].callback". For errors about one value deep inside another. */
#ifndef FLI_LUA_PATH_H
#define FLI_LUA_PATH_H

#include <lua.h>
#include <stddef.h>

/* One table on the way to a value. Its key is on the Lua stack, at `key`; without one (0) it is the place `number`, or,
 * of a function's variable, `name`. */
typedef struct fli_lua_frame {
    const struct fli_lua_frame *up;
    const void                 *table;
    int                         key;
    lua_Integer                 number;
    const char                 *name;
} fli_lua_frame;

/* Writes `root` and the way from there. Allocates nothing; a long way is cut. */
void fli_lua_path(lua_State *L, const char *root, const fli_lua_frame *at, char *text, size_t room);

#endif
