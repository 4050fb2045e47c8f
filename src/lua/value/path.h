/* path.h - writes the path of a value, such as "message.users[3].callback", for errors about a value deep inside
 * another.
 * Design: docs/design/lua/messages.md. */
#ifndef FLI_LUA_PATH_H
#define FLI_LUA_PATH_H

#include <lua.h>
#include <stddef.h>

/* One table on the path to a value. The key in that table is on the Lua stack at index `key`. If `key` is 0, the key is
 * the position `number` or, for a variable of a function, the name `name`. */
typedef struct fli_lua_frame {
    const struct fli_lua_frame *up;
    const void                 *table;
    int                         key;
    lua_Integer                 number;
    const char                 *name;
} fli_lua_frame;

/* Writes `root` and the path from `root` to the value. Allocates nothing; a long path is cut off. */
void fli_lua_path(lua_State *L, const char *root, const fli_lua_frame *at, char *text, size_t room);

#endif
