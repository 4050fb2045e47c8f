/* null.c - see null.h. */
#include "lua/value/null.h"

#include <lauxlib.h>

static const char null_key, list_key; /* addresses used as registry keys */

static int null_text(lua_State *L)
{
    lua_pushliteral(L, "null");
    return 1;
}

int fli_lua_push_null(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &null_key) == LUA_TUSERDATA) return 1;
    lua_pop(L, 1);
    (void)lua_newuserdatauv(L, 0, 0);
    lua_createtable(L, 0, 3);
    lua_pushliteral(L, "null");
    lua_setfield(L, -2, "__name");
    lua_pushcfunction(L, null_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &null_key);
    return 1;
}

bool fli_lua_is_null(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA) return false;
    const void *value = lua_touserdata(L, index);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &null_key);
    bool is = lua_touserdata(L, -1) == value;
    lua_pop(L, 1);
    return is;
}

void fli_lua_push_list_mark(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &list_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "list");
    lua_setfield(L, -2, "__name");
    /* hides the metatable: a program could put __gc into it, and so give every list a finalizer */
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &list_key);
}

bool fli_lua_is_list(lua_State *L, int index)
{
    if (!lua_getmetatable(L, index)) return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &list_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is;
}

int fli_lua_list(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) lua_settop(L, 0), lua_newtable(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (fli_lua_is_list(L, 1)) return 1;
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
    fli_lua_push_list_mark(L);
    lua_setmetatable(L, 1);
    return 1;
}
