/* null.h - values of JSON and MessagePack that Lua does not have: null, and a list that may be empty.
 *
 * null is one userdata per state, json.null; it counts as true in a condition, like every value except nil and false. A
 * list is a table with a special metatable, so that it is written as [] when it is empty; in all other respects it is
 * an ordinary table.
 * Page: docs/lua/reference.md.
 */
#ifndef FLI_LUA_NULL_H
#define FLI_LUA_NULL_H

#include <lua.h>
#include <stdbool.h>

/* Pushes null. Returns 1, so that this function can be used as a Lua function. May raise memory errors. */
int fli_lua_push_null(lua_State *L);
/* Returns true if the value at `index` is null. Needs one free slot on the stack; raises nothing. */
bool fli_lua_is_null(lua_State *L, int index);

/* Pushes the metatable of lists. May raise memory errors. */
void fli_lua_push_list_mark(lua_State *L);
/* Returns true if the table at `index` is marked as a list. Needs two free slots on the stack; raises nothing. */
bool fli_lua_is_list(lua_State *L, int index);
/* The Lua function list([table]): marks the table, or a new table, as a list, and returns it. */
int fli_lua_list(lua_State *L);

#endif
