/* fields.c - see fields.h. */
#include "lua/value/fields.h"

#include <lauxlib.h>
#include <string.h>

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
    int status = lua_pcall(L, 2, 0, 0);
    if (status == LUA_ERRMEM) (void)lua_error(L); /* raises a memory error again as a memory error */
    if (status != LUA_OK) (void)fli_lua_refuse_change(L, name);
}

uint64_t fli_lua_key_number(lua_State *L, int key)
{
    lua_Number number;
    uint64_t   bits = 0;
    switch (lua_type(L, key)) {
    case LUA_TNUMBER:
        number = lua_tonumber(L, key);
        if (lua_isinteger(L, key)) bits = (uint64_t)lua_tointeger(L, key);
        else memcpy(&bits, &number, sizeof bits);
        break;
    case LUA_TBOOLEAN: bits = (uint64_t)lua_toboolean(L, key); break;
    default: bits = (uintptr_t)lua_topointer(L, key); break;
    }
    bits = (bits ^ (bits >> 32)) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9u;
    return bits ^ (bits >> 32);
}

void fli_lua_check_keys(lua_State *L, int table, uint64_t sum, const char *name)
{
    for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) sum -= fli_lua_key_number(L, lua_gettop(L) - 1);
    if (sum != 0) (void)fli_lua_refuse_change(L, name);
}
