/* lua_budget_test.c - a spent budget cannot be caught: whatever calls Lua code back, the worker is free again, and terminate
 * ends the process. One worker, so that a process that kept it would be noticed: the driver runs on the same one. */
#include "lua/world.h"

#define LOOP "while true do end"

static world w;

static int open_world(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.slice_ns = FILCH_MILLISECONDS(1);
    options.runaway_ns = FILCH_MILLISECONDS(2);
    options.memory_max = 8 << 20;
    world_open(&w, 1, &options);
    return 0;
}

/* Runs `chunk` as a process beside the driver, which sleeps some times on the same worker, terminates it and waits for its
 * end. `spent`: it must end by itself, since its budget is spent. */
static void drive(const char *chunk, bool spent)
{
    static char text[8192];
    snprintf(text, sizeof text,
             "local LOOP = function() " LOOP " end\n"
             "local pid = process.spawn_monitored(function() %s end)\n"
             "for i = 1, 3 do time.sleep('1ms') end\n"
             "if not %s then process.terminate(pid) end\n"
             "local notice = process.receive({ event = 'exit', pid = pid })\n"
             "return tostring(notice.error or notice.result)\n",
             chunk, spent ? "true" : "false");
    if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%s\n", chunk);
    world_run(&w, text);
    if (w.error != FILCH_OK) fail_msg("%s: %s", chunk, w.text);
    if (spent && strstr(w.text, "ran for too long") == NULL) fail_msg("%s: ended with %s", chunk, w.text);
}

/* Each loops in Lua code that C calls. */
static const char *const spent[] = {
    "error(setmetatable({}, { __tostring = LOOP }))",
    "local c <close> = setmetatable({}, { __close = LOOP }) error('x')",
    "local c <close> = setmetatable({}, { __close = LOOP }) process.exit(1)",
    "pcall(function() local c <close> = setmetatable({}, { __close = function() tostring(setmetatable({}, { __tostring = LOOP })) end })"
    " tostring(setmetatable({}, { __tostring = LOOP })) end) " LOOP,
    "xpcall(error, LOOP)",
    "xpcall(error, function() xpcall(error, LOOP) end)",
    "xpcall(function() tostring(setmetatable({}, { __tostring = LOOP })) end, LOOP)",
    "print(setmetatable({}, { __tostring = LOOP }))",
    "tostring(setmetatable({}, { __tostring = LOOP }))",
    "log.info(setmetatable({}, { __tostring = LOOP }))",
    "log.info('x', { k = setmetatable({}, { __tostring = LOOP }) })",
    "string.format('%s', setmetatable({}, { __tostring = LOOP }))",
    "string.gsub('x', 'x', setmetatable({}, { __index = LOOP }))",
    "table.concat(setmetatable({}, { __len = LOOP }))",
    "table.concat(setmetatable({}, { __index = LOOP, __len = function() return 1 end }))",
    "table.unpack(setmetatable({}, { __index = LOOP }), 1, 2)",
    "table.insert(setmetatable({}, { __newindex = LOOP }), 1)",
    "table.insert(setmetatable({}, { __len = LOOP }), 1)",
    "table.remove(setmetatable({}, { __len = LOOP }))",
    "table.move(setmetatable({}, { __index = LOOP }), 1, 2, 1)",
    "table.sort(setmetatable({}, { __len = LOOP }))",
    "table.sort(setmetatable({}, { __len = function() return 3 end, __index = LOOP }))",
    "local m = { __lt = LOOP } local t = {} for i = 1, 3 do t[i] = setmetatable({}, m) end table.sort(t)",
    "ipairs({})(setmetatable({}, { __index = LOOP }), 0)",
    "load(LOOP)",
    "process.send(process.self(), 1) process.receive(LOOP)",
    "process.send(process.self(), 1) process.receive(function() tostring(setmetatable({}, { __tostring = LOOP })) end)",
    "local co = coroutine.create(function() local c <close> = setmetatable({}, { __close = LOOP }) coroutine.yield() end)"
    " coroutine.resume(co) coroutine.close(co)",
    "coroutine.wrap(function() local c <close> = setmetatable({}, { __close = LOOP }) error('x') end)()",
    "return '1' + setmetatable({}, { __add = LOOP })",
    "task.spawn(function() tostring(setmetatable({}, { __tostring = LOOP })) end) time.sleep(60)",
};

TEST(a_loop_where_nothing_can_interrupt_it_ends_its_process)
{
    for (size_t i = 0; i < sizeof spent / sizeof spent[0]; i++) drive(spent[i], true);
}

/* Whatever is around it, and again and again. */
TEST(no_protected_call_catches_a_spent_budget)
{
    static const char *const around[] = {
        "while true do pcall(function() %s end) end",
        "while true do xpcall(function() %s end, function(e) return e end) end",
        "while true do coroutine.resume(coroutine.create(function() %s end)) end",
        "while true do pcall(coroutine.wrap(function() %s end)) end",
        "local t = task.spawn(function() pcall(function() %s end) end) pcall(t.await, t) " LOOP,
        "while true do pcall(table.sort, { 3, 2, 1 }, function() %s end) end",
        "while true do pcall(string.gsub, 'x', 'x', function() %s end) end",
        "while true do pcall(load, function() %s end) end",
        "for _ = 1, 1000 do local c <close> = setmetatable({}, { __close = LOOP }) pcall(function() %s end) end",
        "while true do coroutine.close(coroutine.create(function() end)) pcall(pcall, pcall, function() %s end) end",
    };
    static const char *const inside[] = {
        "local c <close> = setmetatable({}, { __close = LOOP }) tostring(setmetatable({}, { __tostring = LOOP }))",
        "error(setmetatable({}, { __tostring = LOOP })) ", /* caught as it is: goes round for ever, and is terminated */
        "table.concat(setmetatable({}, { __len = LOOP }))",
        "xpcall(error, LOOP)",
    };
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        for (size_t j = 0; j < sizeof inside / sizeof inside[0]; j++) {
            char chunk[1024];
            snprintf(chunk, sizeof chunk, around[i], inside[j]);
            drive(chunk, j != 1);
        }
    }
}

/* Where Lua can yield, a loop is no error: it goes on in slices, until it is terminated. */
TEST(loops_that_can_be_interrupted_go_on_until_they_are_terminated)
{
    static const char *const loops[] = {
        "while true do pcall(error, setmetatable({}, { __tostring = LOOP })) end",
        "pcall(LOOP)",
        "pcall(pcall, pcall, LOOP)",
        "xpcall(LOOP, print)",
        "coroutine.wrap(LOOP)()",
        "coroutine.resume(coroutine.create(function() coroutine.wrap(LOOP)() end))",
        "local c <close> = setmetatable({}, { __close = LOOP })",
        "pcall(function() local c <close> = setmetatable({}, { __close = LOOP }) error('x') end)",
        "local x = setmetatable({}, { __index = LOOP }).x",
        "for _ in pairs(setmetatable({}, { __pairs = LOOP })) do end",
        "task.spawn(LOOP) time.sleep(60)",
        "task.spawn(function() local c <close> = setmetatable({}, { __close = LOOP }) error('x') end):await()",
        "task.spawn(function() while true do task.spawn(function() end):await() end end):await()",
        "while true do process.spawn(function() end) end",
        "while true do process.exec(function() end) end",
        "while true do load('return 1')() end",
        "while true do collectgarbage() end",
        "while true do pcall(load, os.date) end", /* a reader without an instruction of Lua */
    };
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) drive(loops[i], false);
}

TEST(a_job_whose_error_cannot_be_told_ends_with_its_process)
{
    drive("work.run(function() error(setmetatable({}, { __tostring = function() " LOOP " end })) end)", false);
    drive("work.run(function() local c <close> = setmetatable({}, { __close = function() " LOOP " end }) error('x') end)", false);
    drive("work.run(function() while true do pcall(function() " LOOP " end) end end)", false);
}

TEST(the_failure_names_the_budget_and_has_its_own_code)
{
    world_run(&w, "tostring(setmetatable({}, { __tostring = function() " LOOP " end }))");
    same(w.error, FILCH_LUA_EBUDGET);
    has_text(w.text, "more than 2000 us");
    has_text(w.text, "stack traceback");
}

TEST(nothing_of_lua_runs_for_a_spent_budget)
{
    world_run(&w, "local mt = { __close = function() print('closed') end }\n"
                  "pcall(function()\n"
                  "  local c <close> = setmetatable({}, mt)\n"
                  "  pcall(function() local d <close> = setmetatable({}, mt)\n"
                  "    xpcall(function() tostring(setmetatable({}, { __tostring = function() " LOOP " end })) end, print) end)\n"
                  "end)\n");
    same(w.error, FILCH_LUA_EBUDGET);
    same(atomic_load(&w.printed_size), 0);
}

TEST(a_coroutine_that_is_being_closed_cannot_yield)
{
    world_passes(&w, "local co = coroutine.create(function()\n"
                     "  local c <close> = setmetatable({}, { __close = function() coroutine.yield(1) end })\n"
                     "  coroutine.yield()\n"
                     "end)\n"
                     "coroutine.resume(co)\n"
                     "local fine, why = coroutine.close(co)\n"
                     "assert(not fine and why:find('being closed', 1, true), why)\n");
}

TEST(budgets_without_end_and_of_zero_are_defined)
{
    static const uint64_t spans[] = { 0, UINT64_C(1) << 63, UINT64_MAX };
    for (size_t i = 0; i < 3; i++) {
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        world             other;
        options.slice_ns = spans[i];
        options.runaway_ns = spans[i];
        world_open(&other, 1, &options);
        world_passes(&other, "local t = {} for i = 1, 1000 do t[i] = -i end table.sort(t) assert(t[1] == -1000)");
        world_close(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_world, world_close_shared)
        T(a_loop_where_nothing_can_interrupt_it_ends_its_process),
        T(no_protected_call_catches_a_spent_budget),
        T(loops_that_can_be_interrupted_go_on_until_they_are_terminated),
        T(a_job_whose_error_cannot_be_told_ends_with_its_process),
        T(the_failure_names_the_budget_and_has_its_own_code),
        T(nothing_of_lua_runs_for_a_spent_budget),
        T(a_coroutine_that_is_being_closed_cannot_yield),
        cmocka_unit_test(budgets_without_end_and_of_zero_are_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
