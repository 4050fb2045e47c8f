/* lua_hostile_test.c - a process calls every function of the environment with hostile arguments (hostile.lua), again
 * and again. Another process on the same worker must get its turns, and then terminates the caller. A function without
 * a row in hostile.lua fails the test. The test checks counts only; bench/lua_lateness measures delays. */
#include "lua/fixture.h"

static fixture w;

static void drop_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
}

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    options.slice_ns = FILCH_MILLISECONDS(1);
    options.runaway_ns = FILCH_MILLISECONDS(2);
    options.log = drop_text;
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(every_environment_function_has_a_hostile_call)
{
    fixture_passes(&w, "local rows, missing = require('hostile').rows, {}\n"
                       "for name, value in pairs(_G) do\n"
                       "  if type(value) == 'function' and not rows[name] then missing[#missing + 1] = name end\n"
                       "  if type(value) == 'table' and name ~= '_G' then\n"
                       "    for field, f in pairs(value) do\n"
                       "      if type(f) == 'function' and not rows[name .. '.' .. field] then missing[#missing + 1] = "
                       "name .. '.' .. field end\n"
                       "    end\n"
                       "  end\n"
                       "end\n"
                       "assert(#missing == 0, 'no row in hostile.lua: ' .. table.concat(missing, ' '))\n");
}

/* Returns the names of all rows of hostile.lua, one per line. */
static char *names_of_rows(void)
{
    fixture_passes(&w, "local names = {}\n"
                       "for name in pairs(require('hostile').rows) do names[#names + 1] = name end\n"
                       "table.sort(names)\n"
                       "return table.concat(names, '\\n')\n");
    return strdup(w.text);
}

TEST(other_processes_run_beside_every_hostile_call)
{
    char *names = names_of_rows(), *rest = names, *name, chunk[1024];
    int   count = 0;
    for (; (name = strsep(&rest, "\n")) != NULL; count++) {
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%s\n", name);
        snprintf(chunk, sizeof chunk,
                 "local pid = process.spawn_monitored('hostile', '%s')\n"
                 "for i = 1, 3 do time.sleep('1ms') end\n"
                 "process.terminate(pid)\n"
                 "process.receive({ event = 'exit', pid = pid })\n",
                 name);
        /* if a row never ends, fixture_passes() fails after a timeout with a text that names the row */
        fixture_passes(&w, chunk);
    }
    assert_true(count > 150);
    free(names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_environment_function_has_a_hostile_call, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(other_processes_run_beside_every_hostile_call, open_fixture,
                                        fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
