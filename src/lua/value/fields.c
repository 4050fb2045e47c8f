/* fields.c - see fields.h. */
#include "lua/value/fields.h"

#include <lauxlib.h>

static int take_next(lua_State *L)
{
    (void)lua_next(L, 1);
    return 0;
}

int fli_lua_refuse_change(lua_State *L, const char *name)
{
    return luaL_error(L, "%s: a table was changed while it was written", name);
}

void fli_lua_check_next(lua_State *L, int table, int key, const char *name)
{
    luaL_checkstack(L, 4, NULL);
    lua_pushcfunction(L, take_next);
    lua_pushvalue(L, table);
    lua_pushvalue(L, key);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) (void)fli_lua_refuse_change(L, name);
}
