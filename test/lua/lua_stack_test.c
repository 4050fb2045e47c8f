/* lua_stack_test.c - calls from C into Lua, nested as deep as Lua allows, fit on the smallest C stack of a worker.
 *
 * Lua allows 200 nested C calls; the bytes of each depend on the C function. The rows in stack.lua nest every function
 * of the environment that calls back into Lua, and C code that recurses inside such a nest. They run on threads with
 * the smallest stack, so a row that needs more than the stack ends the test by a signal. A row may use at most ROW_MAX
 * bytes, because the new code of an upgrade may nest calls on top of those of the old code. */
#include <lauxlib.h>
#include <lua.h>
#include <pthread.h>

#include "lua/fixture.h"
#include "port/thread.h"

/* CLOSE_MAX is CLOSE_STACK_MAX of src/lua/preempt/budget.c: how many bytes of the C stack a chain of coroutine closes
 * may use, as one row of stack.lua does. Sanitizers make the frames of C functions larger. */
enum { CLOSE_MAX = 128 << 10 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROW_MAX = FLI_THREAD_STACK_MIN / 2 + CLOSE_MAX };
#else
enum { ROW_MAX = FLI_THREAD_STACK_MIN / 4 + CLOSE_MAX };
#endif

static fixture    w;
static uintptr_t  base, lowest; /* addresses on the C stack, which grows down: where a row began, and the lowest seen */
static size_t     most_used;
static char       most_name[128];
static atomic_int levels_seen;

/* Lua functions for stack.lua. here(): notes how much of the stack is used. */
static int here(lua_State *L)
{
    uintptr_t at = (uintptr_t)__builtin_frame_address(0);
    (void)L;
    if (at < lowest) lowest = at;
    return 0;
}

/* clear(): a row begins. */
static int clear(lua_State *L)
{
    (void)L;
    lowest = base = (uintptr_t)__builtin_frame_address(0);
    return 0;
}

/* report(name, levels): the row `name` of stack.lua has ended; it nested `levels` calls. */
static int report(lua_State *L)
{
    size_t used = base - lowest;
    int    levels = (int)luaL_checkinteger(L, 2);
    if (getenv("FILCH_ROWS") != NULL && levels > 1)
        fprintf(stderr, "%7zu bytes, %3d levels: %s\n", used, levels, luaL_checkstring(L, 1));
    if (levels > atomic_load(&levels_seen)) atomic_store(&levels_seen, levels);
    if (used > most_used) {
        most_used = used;
        snprintf(most_name, sizeof most_name, "%s", luaL_checkstring(L, 1));
    }
    return 0;
}

static void add_functions(lua_State *L, void *user)
{
    static const luaL_Reg all[] = { { "here", here }, { "clear", clear }, { "report", report }, { NULL, NULL } };
    (void)user;
    luaL_setfuncs(L, all, 0);
}

static void drop_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
}

static int open_fixture(void **state)
{
    pthread_attr_t    attr;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, FLI_THREAD_STACK_MIN), 0);
    assert_int_equal(pthread_setattr_default_np(&attr), 0);
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    options.open = add_functions;
    options.log = drop_text;
    options.watch = FILCH_LUA_WATCH_NONE; /* no watchdog: a slow row of stack.lua is not interrupted */
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(calls_nested_as_deep_as_lua_allows_fit_on_the_stack_of_a_worker)
{
    fixture_passes(&w, "local names = {}\n"
                       "for name in pairs(require('stack').rows) do names[#names + 1] = name end\n"
                       "return table.concat(names, '\\n')\n");
    char *names = strdup(w.text), *rest = names, *name, chunk[256];
    while ((name = strsep(&rest, "\n")) != NULL) {
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%s\n", name);
        snprintf(chunk, sizeof chunk, "require('stack').rows['%s']()", name);
        most_used = 0;
        atomic_store(&levels_seen, 0);
        fixture_passes(&w, chunk);
        if (atomic_load(&levels_seen) < 50) fail_msg("%s: no calls were nested", name);
        if (most_used > ROW_MAX) fail_msg("%s: %s uses %zu bytes of the stack", name, most_name, most_used);
    }
    free(names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_nested_as_deep_as_lua_allows_fit_on_the_stack_of_a_worker, open_fixture,
                                        fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
