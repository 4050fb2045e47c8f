/* fields.h - checks whether a walk over the fields of a table can go on after other code has run. */
#ifndef FLI_LUA_FIELDS_H
#define FLI_LUA_FIELDS_H

#include <lua.h>

/* To be called after a pause in a walk by lua_next over the table at index `table`, whose last key is at index `key`.
 * Raises the error "NAME: a table was changed while it was written" if lua_next would raise an error, which names no
 * function. */
void fli_lua_check_next(lua_State *L, int table, int key, const char *name);
/* Raises the same error. */
int fli_lua_refuse_change(lua_State *L, const char *name);

#endif
