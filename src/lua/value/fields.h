/* fields.h - checks whether a walk over the fields of a table can go on after other code has run. */
#ifndef FLI_LUA_FIELDS_H
#define FLI_LUA_FIELDS_H

#include <lua.h>
#include <stdint.h>

/* Call this function after each pause in a walk by lua_next over the table at index `table`. The key at index `key` is
 * the last one that the walk has visited. If the table no longer has this key, lua_next may fail with an error that
 * does not name the Lua function that was called; this function then raises "NAME: a table was changed while it was
 * written" instead. Raises a memory error if memory is too short for the check. */
void fli_lua_check_next(lua_State *L, int table, int key, const char *name);
/* Returns a number for the key at index `key`. The caller adds up the numbers of all keys that the walk visits, and
 * passes the sum to fli_lua_check_keys(). */
uint64_t fli_lua_key_number(lua_State *L, int key);
/* Call this function after a walk over all fields of the table at index `table`, if there was a pause in the walk.
 * `sum` is the sum of the numbers of the visited keys. Raises the error of fli_lua_check_next() if the keys that the
 * table has now have another sum: if another task has added fields, lua_next may have skipped fields, or visited fields
 * twice. */
void fli_lua_check_keys(lua_State *L, int table, uint64_t sum, const char *name);
/* Raises the error "NAME: a table was changed while it was written". */
int fli_lua_refuse_change(lua_State *L, const char *name);

#endif
