/* iterators.c - ipairs and utf8.codes. Programs can call the iterators that these functions return with any arguments,
 * so the iterators check the budget too: stock Lua's iterators convert a text to a number, or skip bytes, in time
 * proportional to a length. */
#include <lauxlib.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"

static int go_on_ipairs(lua_State *L, int status, lua_KContext ctx)
{
    lua_Integer i = luaL_checkinteger(L, 2);
    (void)status, (void)ctx;
    i = (lua_Integer)((lua_Unsigned)i + 1);
    lua_pushinteger(L, i);
    return lua_geti(L, 1, i) == LUA_TNIL ? 1 : 2;
}

static int next_element(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_ipairs);
    return go_on_ipairs(L, LUA_OK, 0);
}

FLI_LUA_RETURNING(next_element)

static int base_ipairs(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushcfunction(L, returning_next_element);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    return 3;
}

static int go_on_codes(lua_State *L, int status, lua_KContext lax)
{
    (void)status;
    return fli_lua_self(L)->lua->names.stock_next_code[lax](L);
}

static int next_code(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_codes);
    return go_on_codes(L, LUA_OK, 0);
}

static int next_lax_code(lua_State *L)
{
    fli_lua_budget_enter(L, 1, go_on_codes);
    return go_on_codes(L, LUA_OK, 1);
}

FLI_LUA_RETURNING(next_code)
FLI_LUA_RETURNING(next_lax_code)

static int utf8_codes(lua_State *L)
{
    bool lax = lua_toboolean(L, 2);
    int  count = fli_lua_self(L)->lua->names.stock_utf8_codes(L);
    lua_pushcfunction(L, lax ? returning_next_lax_code : returning_next_code);
    lua_replace(L, -1 - count);
    return count;
}

const fli_lua_member fli_lua_iterator_members[] = {
    { .name = "ipairs", .fn = base_ipairs },
    { .library = "utf8", .name = "codes", .fn = utf8_codes },
    { .name = NULL },
};
