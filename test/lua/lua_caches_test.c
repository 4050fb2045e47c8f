/* lua_caches_test.c - what the host stores to start processes faster is used: without it the programs would run the
 * same, only slower. */
#include <lua.h>

#include "lua/fixture.h"
#include "lua/host/code.h"
#include "lua/host/host.h"

static fixture w;
static size_t  most_refs, template_count; /* results of look_at_codes() */

/* The `print` function of the fixture: looks at the cached code while the process of the test is inside its step and no
 * other process lives. */
static void look_at_codes(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    for (size_t i = 0; i < FLI_LUA_BUCKETS; i++) {
        for (fli_lua_code *code = w.lua->code[i]; code != NULL; code = code->next) {
            size_t refs = fli_load_acq(&code->refs);
            if (refs > most_refs) most_refs = refs;
            if (fli_load_acq(&code->template) != NULL) template_count++;
        }
    }
}

/* The process starts one function a hundred times. The cache of the process has eight entries: if the function were not
 * found there, all entries would hold it. */
TEST(a_function_started_again_is_found_and_its_state_is_copied)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.log = look_at_codes;
    fixture_open(&w, 1, &options);
    most_refs = template_count = 0;
    fixture_passes(&w, "local function f(x) return x end\n"
                       "for i = 1, 100 do assert(process.exec(f, i) == i) end\n"
                       "log.error('look')\n");
    assert_true(most_refs >= 2);
    if (w.lua->proto_word != 0) assert_true(most_refs < 6);
    if (w.lua->seed_offset != 0) same(template_count, 1);
    fixture_close(&w);
}

/* An `open` function of the host, which calls a library function for longer than a script could. */
static void call_library_functions(lua_State *L, void *user)
{
    (void)user;
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "floor");
    for (int i = 0; i < 1000000; i++) {
        lua_pushvalue(L, -1);
        lua_pushinteger(L, i);
        lua_call(L, 1, 0);
    }
    lua_pop(L, 2);
}

/* While an `open` function of the host runs, no budget is spent. The new states stay equal, so that further states are
 * copied from a template. */
TEST(an_open_function_may_call_library_functions_and_states_are_still_copied)
{
    static const uint32_t watches[] = { FILCH_LUA_WATCH_THREAD, FILCH_LUA_WATCH_COUNT, FILCH_LUA_WATCH_NONE };
    for (size_t i = 0; i < sizeof watches / sizeof watches[0]; i++) {
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        options.log = look_at_codes;
        options.watch = watches[i];
        options.runaway_ns = FILCH_MILLISECONDS(5);
        options.open = call_library_functions;
        fixture_open(&w, 1, &options);
        most_refs = template_count = 0;
        fixture_passes(&w, "local function f(x) return x end\n"
                           "for i = 1, 5 do assert(process.exec(f, i) == i) end\n"
                           "log.error('look')\n");
        if (w.lua->seed_offset != 0) same(template_count, 1);
        fixture_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_started_again_is_found_and_its_state_is_copied),
        cmocka_unit_test(an_open_function_may_call_library_functions_and_states_are_still_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
