/* tables.c - table.insert, remove and move, string.rep: stock Lua's run for as long as a length says, inside C, and a
 * metamethod may say 2^60. */
#include <lauxlib.h>
#include <string.h>

#include "lua/checks.h"
#include "lua/libs.h"
#include "lua/proc.h"

/* More elements than a table of the largest memory can hold: only a lying length comes here. */
#define MOVES_MAX (UINT64_C(1) << 27)

/* From `from` up to `end`, without it. A length may be any number, so the distance may be more than an integer holds. */
static void check_moves(lua_State *L, lua_Integer from, lua_Integer end)
{
    if (end > from && (lua_Unsigned)end - (lua_Unsigned)from > MOVES_MAX) luaL_error(L, "too many elements to move");
}

static void check_table(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TTABLE) return;
    if (luaL_getmetafield(L, index, "__index") == LUA_TNIL) luaL_checktype(L, index, LUA_TTABLE);
    lua_pop(L, 1);
}

static int table_insert(lua_State *L)
{
    check_table(L, 1);
    lua_Integer end = (lua_Integer)((lua_Unsigned)luaL_len(L, 1) + 1), at;
    switch (lua_gettop(L)) {
    case 2: at = end; break;
    case 3:
        at = luaL_checkinteger(L, 2);
        fli_lua_check_arg(L, (lua_Unsigned)at - 1u < (lua_Unsigned)end, 2, "position out of bounds");
        check_moves(L, at, end);
        for (lua_Integer i = end; i > at; i--) {
            lua_geti(L, 1, i - 1);
            lua_seti(L, 1, i);
        }
        break;
    default: return luaL_error(L, "wrong number of arguments to 'insert'");
    }
    lua_seti(L, 1, at);
    return 0;
}

static int table_remove(lua_State *L)
{
    check_table(L, 1);
    lua_Integer size = luaL_len(L, 1), at = luaL_optinteger(L, 2, size);
    if (at != size) fli_lua_check_arg(L, (lua_Unsigned)at - 1u <= (lua_Unsigned)size, 2, "position out of bounds");
    lua_geti(L, 1, at);
    check_moves(L, at, size);
    for (; at < size; at++) {
        lua_geti(L, 1, at + 1);
        lua_seti(L, 1, at);
    }
    lua_pushnil(L);
    lua_seti(L, 1, at);
    return 1;
}

static int table_move(lua_State *L)
{
    lua_Integer from = luaL_checkinteger(L, 2), end = luaL_checkinteger(L, 3), to = luaL_checkinteger(L, 4);
    int         target = !lua_isnoneornil(L, 5) ? 5 : 1;
    check_table(L, 1);
    check_table(L, target);
    if (end >= from) {
        fli_lua_check_arg(L, from > 0 || end < LUA_MAXINTEGER + from, 3, "too many elements to move");
        lua_Integer count = end - from + 1;
        fli_lua_check_arg(L, to <= LUA_MAXINTEGER - count + 1, 4, "destination wrap around");
        check_moves(L, from, end);
        if (to > end || to <= from || (target != 1 && !lua_compare(L, 1, target, LUA_OPEQ))) {
            for (lua_Integer i = 0; i < count; i++) {
                lua_geti(L, 1, from + i);
                lua_seti(L, target, to + i);
            }
        } else {
            for (lua_Integer i = count - 1; i >= 0; i--) {
                lua_geti(L, 1, from + i);
                lua_seti(L, target, to + i);
            }
        }
    }
    lua_pushvalue(L, target);
    return 1;
}

/* Filled by doubling; what it may become is a matter of the process's memory. */
static int string_rep(lua_State *L)
{
    size_t      size, between;
    const char *text = luaL_checklstring(L, 1, &size);
    lua_Integer count = luaL_checkinteger(L, 2);
    const char *separator = luaL_optlstring(L, 3, "", &between);
    if (count <= 0 || size + between == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    /* No sum of two strings that are there comes near the end of size_t. */
    if (size + between > (SIZE_MAX / 4) / (size_t)count) return luaL_error(L, "resulting string too large");
    size_t      unit = size + between, total = unit * (size_t)count - between, done = unit < total ? unit : total;
    luaL_Buffer buffer;
    char       *at = luaL_buffinitsize(L, &buffer, total);
    memcpy(at, text, size);
    if (done > size) memcpy(at + size, separator, done - size);
    while (done < total) {
        size_t more = done < total - done ? done : total - done;
        memcpy(at + done, at, more);
        done += more;
    }
    luaL_pushresultsize(&buffer, total);
    return 1;
}

const fli_lua_member fli_lua_table_members[] = {
    { .library = "table", .name = "insert", .fn = table_insert },
    { .library = "table", .name = "remove", .fn = table_remove },
    { .library = "table", .name = "move", .fn = table_move },
    { .library = "string", .name = "rep", .fn = string_rep },
    { .name = NULL },
};
