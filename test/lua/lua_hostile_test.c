/* lua_hostile_test.c - a process calls every function of the environment with hostile arguments (hostile.lua), again
 * and again. Another process on the same worker must get its turns, and then terminates the caller. A function without
 * a row in hostile.lua fails the test. The first tests check counts only; the last one measures the processor time of
 * the worker, and bench/lua_lateness measures delays. */
#include <time.h>

#include "lua/fixture.h"

/* Sanitizers make C code slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 20 };
#elif defined(__has_feature)
enum { SLOWER = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 20 : 1 };
#else
enum { SLOWER = 1 };
#endif

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

/* ---- processor time ------------------------------------------------------------------------------------------- */

/* The longest processor time that the worker used between two steps of the ticker, a process that runs on the only
 * worker every millisecond. Processor time is measured, because other programs on the machine delay the steps too. */
static atomic_ullong worst_ns;

static filch_err tick(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t       *before = self, now;
    struct timespec t;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (*before != 0 && now - *before > atomic_load(&worst_ns)) atomic_store(&worst_ns, now - *before);
    *before = now;
    filch_err err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS(1));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type ticker = { .name = "ticker", .size = sizeof(uint64_t), .step = tick };

static int open_default_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    options.log = drop_text;
    fixture_open(&w, 1, &options);
    ok(filch_spawn(w.sched, &ticker, NULL, NULL));
    return 0;
}

/* Returns the longest processor time for which a row of hostile.lua may occupy the worker. With the times of
 * docs/design/lua/budgets.md a row takes up to 57.5 ms: a slice of at most 7.5 ms, then 25 ms where Lua cannot yield,
 * then one call of at most 25 ms that cannot be interrupted. */
static uint64_t promised_ns(void)
{
    return FILCH_MILLISECONDS(100) * SLOWER;
}

/* Runs the row `name` for 120 ms. Returns the longest processor time for which it occupied the worker. */
static uint64_t occupied_ns(const char *name)
{
    char chunk[1024];
    atomic_store(&worst_ns, 0);
    snprintf(chunk, sizeof chunk,
             "local pid = process.spawn_monitored('hostile', '%s')\n"
             "if not process.receive({ event = 'exit', pid = pid }, '120ms') then\n"
             "  process.terminate(pid)\n"
             "  process.receive({ event = 'exit', pid = pid })\n"
             "end\n"
             "time.sleep('2ms')\n",
             name);
    fixture_passes(&w, chunk);
    return atomic_load(&worst_ns);
}

/* Runs all rows of hostile.lua with names in parentheses, except four. These rows contain, for example, loops in C that
 * call other functions, and patterns. A row fails the test if it occupies the worker for too long in three runs: on a
 * busy machine the thread of the watchdog may get no CPU for a while, and a virtual machine counts time for which it
 * was stopped. */
TEST(loops_in_c_leave_the_worker_within_the_promised_processor_time)
{
    char *names = names_of_rows(), *rest = names, *name, late[4096] = "";
    for (; (name = strsep(&rest, "\n")) != NULL;) {
        if (name[0] != '(' || strstr("(call) (call chain) (rehash) (collector)", name) != NULL) continue;
        uint64_t longest_ns = occupied_ns(name);
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%8.1f ms %s\n", (double)longest_ns / 1e6, name);
        for (int runs = 1; runs < 3 && longest_ns > promised_ns(); runs++) longest_ns = occupied_ns(name);
        if (longest_ns > promised_ns() && strlen(late) + strlen(name) + 32 < sizeof late)
            snprintf(late + strlen(late), sizeof late - strlen(late), " %s %llu ms", name,
                     (unsigned long long)longest_ns / 1000000);
    }
    free(names);
    if (late[0] != '\0') fail_msg("rows that kept the worker for too long:%s", late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_environment_function_has_a_hostile_call, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(other_processes_run_beside_every_hostile_call, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(loops_in_c_leave_the_worker_within_the_promised_processor_time,
                                        open_default_fixture, fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
