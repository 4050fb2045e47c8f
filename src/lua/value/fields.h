/* fields.h - checks whether a walk over the fields of a table can go on after other code has run. */
#ifndef FLI_LUA_FIELDS_H
#define FLI_LUA_FIELDS_H

#include <lua.h>
#include <stdint.h>

/* To be called after a pause in a walk by lua_next over the table at index `table`, whose last key is at index `key`.
 * Raises the error "NAME: a table was changed while it was written" if lua_next would raise an error, which names no
 * function. Raises a memory error if memory is too short for the check. */
void fli_lua_check_next(lua_State *L, int table, int key, const char *name);
/* Returns a number for the key at index `key`, which has no metamethods. The sum of the numbers of all keys that were
 * written is compared by fli_lua_check_keys(). */
uint64_t fli_lua_key_number(lua_State *L, int key);
/* To be called after a walk over all fields of the table at index `table` during which there was a pause. Raises the
 * error of fli_lua_check_next() unless `sum` is the sum of the numbers of the keys that the table has now: if another
 * task has added fields, lua_next may have skipped fields, or have found fields twice. */
void fli_lua_check_keys(lua_State *L, int table, uint64_t sum, const char *name);
/* Raises the same error. */
int fli_lua_refuse_change(lua_State *L, const char *name);

#endif
