/* tables.c - table.insert, remove, move and unpack, and string.rep. In stock Lua they run inside C for a time that
 * depends on a length, and a metamethod may return 2^60 as the length. The versions here let other processes run while
 * they move elements.
 * Design: docs/design/lua/budgets.md. */
#include <lauxlib.h>
#include <limits.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

/* Largest number of elements that one call moves. A table with more elements takes over 2 GB, so a larger number
 * almost always comes from a false length. */
#define MOVES_MAX (UINT64_C(1) << 27)

/* Moves between two checks of the budget: a microsecond, or a millisecond if each move walks over 2,000 tables
 * (__index). */
enum { ROUNDS = 32 };

/* Raises an error if there are too many elements from `from` up to, not including, `end`. A length may be any number,
 * so the difference may exceed lua_Integer. */
static void check_moves(lua_State *L, lua_Integer from, lua_Integer end)
{
    if (end > from && (lua_Unsigned)end - (lua_Unsigned)from > MOVES_MAX) luaL_error(L, "too many elements to move");
}

/* Called after element `i` was moved: yields to other processes if that is due; `k` continues after element `i`. */
static inline void moved(lua_State *L, lua_Integer i, lua_KFunction k)
{
    if (i % ROUNDS == 0 && fli_lua_budget_due(L)) fli_lua_pause(L, (lua_KContext)i, k);
}

void fli_lua_check_table(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TTABLE) return;
    if (luaL_getmetafield(L, index, "__index") == LUA_TNIL) luaL_checktype(L, index, LUA_TTABLE);
    lua_pop(L, 1);
}

/* Continues table.insert(t, at, value). `i` is the index to be filled next; it decreases from the end of the table to
 * `at`. */
static int go_on_insert(lua_State *L, int status, lua_KContext i)
{
    lua_Integer at = lua_tointeger(L, 2);
    (void)status;
    while (i > at) {
        lua_geti(L, 1, i - 1);
        lua_seti(L, 1, i--);
        moved(L, i, go_on_insert);
    }
    lua_seti(L, 1, at);
    return 0;
}

static int table_insert(lua_State *L)
{
    fli_lua_check_table(L, 1);
    lua_Integer end = (lua_Integer)((lua_Unsigned)luaL_len(L, 1) + 1), at;
    switch (lua_gettop(L)) {
    case 2: lua_seti(L, 1, end); return 0;
    case 3:
        at = luaL_checkinteger(L, 2);
        fli_lua_check_arg(L, (lua_Unsigned)at - 1u < (lua_Unsigned)end, 2, "position out of bounds");
        check_moves(L, at, end);
        return go_on_insert(L, LUA_OK, (lua_KContext)end);
    default: return luaL_error(L, "wrong number of arguments to 'insert'");
    }
}

/* Continues table.remove. Stack: table, index of the removed value, size, the removed value. `at` is the index to be
 * filled next. */
static int go_on_remove(lua_State *L, int status, lua_KContext at)
{
    lua_Integer size = lua_tointeger(L, 3);
    (void)status;
    while (at < size) {
        lua_geti(L, 1, at + 1);
        lua_seti(L, 1, at++);
        moved(L, at, go_on_remove);
    }
    lua_pushnil(L);
    lua_seti(L, 1, at);
    return 1;
}

static int table_remove(lua_State *L)
{
    fli_lua_check_table(L, 1);
    lua_Integer size = luaL_len(L, 1), at = luaL_optinteger(L, 2, size);
    if (at != size) fli_lua_check_arg(L, (lua_Unsigned)at - 1u <= (lua_Unsigned)size, 2, "position out of bounds");
    lua_settop(L, 2);
    lua_pushinteger(L, size);
    lua_geti(L, 1, at);
    check_moves(L, at, size);
    return go_on_remove(L, LUA_OK, (lua_KContext)at);
}

/* Continues table.move in ascending order. The arguments of table.move are at stack indexes 1 to 5; the target table is
 * at 5. `i` elements have been moved so far. */
static int go_on_move_up(lua_State *L, int status, lua_KContext i)
{
    lua_Integer from = lua_tointeger(L, 2), count = lua_tointeger(L, 3) - from + 1, to = lua_tointeger(L, 4);
    (void)status;
    while (i < count) {
        lua_geti(L, 1, from + i);
        lua_seti(L, 5, to + i);
        moved(L, ++i, go_on_move_up);
    }
    return 1;
}

/* Continues table.move in descending order. `i` elements are left to be moved. */
static int go_on_move_down(lua_State *L, int status, lua_KContext i)
{
    lua_Integer from = lua_tointeger(L, 2), to = lua_tointeger(L, 4);
    (void)status;
    while (i > 0) {
        i--;
        lua_geti(L, 1, from + i);
        lua_seti(L, 5, to + i);
        moved(L, i, go_on_move_down);
    }
    return 1;
}

static int table_move(lua_State *L)
{
    lua_Integer from = luaL_checkinteger(L, 2), end = luaL_checkinteger(L, 3), to = luaL_checkinteger(L, 4);
    bool        same = lua_isnoneornil(L, 5);
    fli_lua_check_table(L, 1);
    lua_settop(L, 5);
    if (same) lua_pushvalue(L, 1), lua_replace(L, 5);
    fli_lua_check_table(L, 5);
    if (end < from) return 1;
    fli_lua_check_arg(L, from > 0 || end < LUA_MAXINTEGER + from, 3, "too many elements to move");
    lua_Integer count = end - from + 1;
    fli_lua_check_arg(L, to <= LUA_MAXINTEGER - count + 1, 4, "destination wrap around");
    check_moves(L, from, end);
    bool up = to > end || to <= from || (!same && !lua_compare(L, 1, 5, LUA_OPEQ));
    return up ? go_on_move_up(L, LUA_OK, 0) : go_on_move_down(L, LUA_OK, (lua_KContext)count);
}

/* Continues table.unpack(t, first, last). Stack: table, first, last, the values so far. `i` is the index to be read
 * next. */
static int go_on_unpack(lua_State *L, int status, lua_KContext i)
{
    lua_Integer first = lua_tointeger(L, 2), last = lua_tointeger(L, 3);
    (void)status;
    for (; i < last; moved(L, ++i, go_on_unpack)) lua_geti(L, 1, i);
    lua_geti(L, 1, last);
    return (int)(last - first + 1);
}

/* Replaces table.unpack of stock Lua, which reads up to 1,000,000 elements without a check of the budget, although one
 * read may walk over 2,000 tables (__index). */
static int table_unpack(lua_State *L)
{
    lua_Integer first = luaL_optinteger(L, 2, 1), last = luaL_opt(L, luaL_checkinteger, 3, luaL_len(L, 1));
    if (first > last) return 0;
    lua_Unsigned more = (lua_Unsigned)last - (lua_Unsigned)first;
    if (more >= INT_MAX) return luaL_error(L, "too many results to unpack");
    if (more >= ROUNDS) {
        lua_settop(L, 1);
        lua_pushinteger(L, first);
        lua_pushinteger(L, last);
    }
    if (!lua_checkstack(L, (int)more + 1)) return luaL_error(L, "too many results to unpack");
    if (more >= ROUNDS) return go_on_unpack(L, LUA_OK, (lua_KContext)first);
    /* few elements, the usual case */
    for (; first < last; first++) lua_geti(L, 1, first);
    lua_geti(L, 1, last);
    return (int)more + 1;
}

/* string.rep: fills the result by doubling. The size of the result is limited by the memory limit of the process. */
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
    /* The sizes of two existing strings are so small that their sum cannot overflow size_t. */
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
    { .library = "table", .name = "unpack", .fn = table_unpack },
    { .library = "string", .name = "rep", .fn = string_rep },
    { .name = NULL },
};
