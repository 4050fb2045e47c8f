/* lua_values.h - compares two Lua values deeply, for fuzzers that write and read them. */
#ifndef FILCH_FUZZ_LUA_VALUES_H
#define FILCH_FUZZ_LUA_VALUES_H

#include <lauxlib.h>
#include <lua.h>

#include "lua/message/blob.h"
#include "lua/message/codec.h"
#include "lua/value/null.h"

static inline size_t lua_field_count(lua_State *L, int table)
{
    size_t count = 0;
    for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) count++;
    return count;
}

static inline bool lua_is_same(lua_State *L, int a, int b);

/* Returns true if both tables have the same keys with equal values. A key that is a table or a pid of another node is
 * decoded as a new object and cannot be looked up, so keys of these kinds are only counted. */
static inline bool lua_is_same_table(lua_State *L, int a, int b)
{
    if (lua_rawequal(L, a, b)) return true;
    if (lua_field_count(L, a) != lua_field_count(L, b)) return false;
    int top = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, a) != 0; lua_settop(L, top + 1)) {
        if (lua_istable(L, top + 1) || lua_type(L, top + 1) == LUA_TUSERDATA) continue;
        lua_pushvalue(L, top + 1);
        lua_rawget(L, b);
        if (!lua_is_same(L, top + 2, top + 3)) return false;
    }
    return true;
}

static inline bool lua_is_same(lua_State *L, int a, int b)
{
    filch_pid one = { 0, 0 }, other = { 0, 0 };
    luaL_checkstack(L, 8, NULL);
    if (lua_type(L, a) != lua_type(L, b)) return false;
    switch (lua_type(L, a)) {
    case LUA_TTABLE: return lua_is_same_table(L, a, b);
    case LUA_TUSERDATA:
        if (fli_lua_is_null(L, a)) return fli_lua_is_null(L, b);
        if (fli_lua_to_blob(L, a) != NULL) return fli_lua_to_blob(L, b) != NULL && lua_compare(L, a, b, LUA_OPEQ);
        if (!fli_lua_to_pid(L, a, &one) || !fli_lua_to_pid(L, b, &other)) return false;
        return one.node == other.node && one.serial == other.serial;
    case LUA_TNUMBER: {
        lua_Number x = lua_tonumber(L, a), y = lua_tonumber(L, b);
        return lua_isinteger(L, a) == lua_isinteger(L, b) && (lua_rawequal(L, a, b) || (x != x && y != y));
    }
    default: return lua_rawequal(L, a, b);
    }
}

#endif
