/* fields_test.c - a table that is walked by lua_next and changes meanwhile. */
#include "lua/value/fields.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "support/check.h"

/* How many further requests for a block the allocator refuses. After a refusal Lua runs a collection and repeats the
 * request once. */
static int refusals;
enum { ONE_BLOCK = 2 };

static void *resize(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    if (size == 0) {
        free(old);
        return NULL;
    }
    if (refusals > 0 && (old == NULL || size > old_size)) {
        refusals--;
        return NULL;
    }
    return realloc(old, size);
}

/* Calls fli_lua_check_next() for a table without fields and the key "gone". Argument 1: number of requests that the
 * allocator refuses. */
static int check_gone(lua_State *L)
{
    lua_newtable(L);
    lua_pushliteral(L, "gone");
    refusals = (int)lua_tointeger(L, 1);
    fli_lua_check_next(L, 2, 3, "json.encode");
    return 0;
}

static int check(lua_State *L, int refuse)
{
    lua_settop(L, 0);
    lua_pushcfunction(L, check_gone);
    lua_pushinteger(L, refuse);
    int status = lua_pcall(L, 1, 0, 0);
    assert_int_equal(refusals, 0);
    return status;
}

TEST(a_key_that_is_gone_is_reported_as_a_change_of_the_table)
{
    lua_State *L = lua_newstate(resize, NULL);
    assert_int_equal(check(L, 0), LUA_ERRRUN);
    assert_string_equal(lua_tostring(L, -1), "json.encode: a table was changed while it was written");
    lua_close(L);
}

/* Regression: a memory error was reported as a change of the table, and so a protected call could catch it. */
TEST(a_check_without_memory_raises_a_memory_error)
{
    lua_State *L = lua_newstate(resize, NULL);
    assert_int_equal(check(L, ONE_BLOCK), LUA_ERRMEM);
    assert_int_equal(check(L, 0), LUA_ERRRUN);
    lua_close(L);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_gone_is_reported_as_a_change_of_the_table),
        cmocka_unit_test(a_check_without_memory_raises_a_memory_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
