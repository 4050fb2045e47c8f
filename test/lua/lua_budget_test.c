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
    "process.send(process.self(), 1) process.receive(function() tostring(setmetatable({}, { __tostring = LOOP })) end)",
    ("local co = coroutine.create(function() local c <close> = setmetatable({}, { __close = LOOP }) coroutine.yield() end)"
     " coroutine.resume(co) coroutine.close(co)"),
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
        "local t = task.spawn(function() pcall(function() %s end) end) pcall(t.await, t) while true do end",
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
        "process.send(process.self(), 1) process.receive(LOOP)",
        "process.send(process.self(), { 1 }) process.receive({ LOOP })",
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

/* Each is one call of C that takes tens of milliseconds at least. */
static const char *const long_calls[] = {
    "local t = {} for i = 1, 150000 do t[i] = (i * 7919) % 150001 end begin() table.sort(t) for i = 2, #t do assert(t[i - 1] <= t[i]) end",
    ("local t = {} for i = 1, 60000 do t[i] = (i * 7919) % 60013 end begin() table.sort(t, function(a, b) return a > b end)\n"
     "for i = 2, #t do assert(t[i - 1] >= t[i]) end"),
    "local s = ('x'):rep(1000000) begin() local r, n = s:gsub('x', 'yz') assert(n == 1000000 and #r == 2000000)",
    "local s = ('x'):rep(300000) begin() local r, n = s:gsub('x', string.upper) assert(n == 300000 and r == ('X'):rep(300000))",
    "local s = ('x'):rep(3000000) begin() assert(s:find('[^x]') == nil)",
    "local s = ('ab'):rep(1000000) .. 'c' begin() assert(s:match('[ab]c') == 'bc')",
    "local s = ('x'):rep(3000000) .. 'y' begin() for w in s:gmatch('[^x]') do assert(w == 'y') end",
    "local t = {} for i = 1, 200000 do t[i] = i end begin() for i = 1, 20 do table.insert(t, 1, 0) end assert(t[21] == 1 and #t == 200020)",
    "local t = {} for i = 1, 200000 do t[i] = i end begin() for i = 1, 20 do assert(table.remove(t, 1) == i) end assert(t[1] == 21)",
    "local t = {} for i = 1, 200000 do t[i] = i end begin() for i = 1, 20 do table.move(t, 1, 199999, 2) end assert(t[200000] == 199980)",
    "local t = {} for i = 1, 150000 do t[i] = i end begin() for i = 1, 5 do assert(#table.concat(t, ',') == 1038894) end",
    "local t = {} for i = 1, 60000 do t[i] = {} end begin() for i = 1, 10 do collectgarbage() end assert(#t == 60000)",
    "local t = {} for i = 1, 100000 do t[i] = i end begin() assert(#json.encode(t) == 588896)",
    "local t = {} for i = 1, 30000 do t['k' .. i] = { i } end begin() assert(json.decode(json.encode(t)).k7[1] == 7)",
    "local t = {} for i = 1, 100000 do t[i] = i end local s = json.encode(t) begin() assert(#json.decode(s) == 100000)",
    "local t = {} for i = 1, 200000 do t[i] = { i } end begin() assert(#msgpack.encode(t) > 600000)",
    ("local t = {} for i = 1, 100000 do t[i] = { k = i } end local s = msgpack.encode(t) begin()\n"
     "for i = 1, 3 do assert(msgpack.decode(s)[77].k == 77) assert(msgpack.decode(blob.new(s))[78].k == 78) end"),
    /* the same hash for all keys: each one takes as long as all before it */
    ("local t = {} for i = 1, 20000 do t[i] = '\\xD3' .. (string.pack('>i8', i * 32767)) .. '\\1' end\n"
     "local s = '\\xDE' .. string.pack('>I2', 20000) .. table.concat(t) t = nil begin() assert(msgpack.decode(s)[32767] == 1)"),
    "for i = 1, 20000 do process.send(process.self(), i) end begin() for i = 1, 20 do assert(process.receive('none', 0) == nil) end",
};

/* A call of C that takes long lets the process beside it run: it is seen to, before the call has come to its end. */
TEST(long_calls_of_c_let_others_run)
{
    for (size_t i = 0; i < sizeof long_calls / sizeof long_calls[0]; i++) {
        static char text[4096];
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%s\n", long_calls[i]);
        snprintf(text, sizeof text,
                 "local me = process.self()\n"
                 "local pid = process.spawn_monitored { function()\n"
                 "  local function begin() process.send(me, 'begin') end\n"
                 "  %s\n"
                 "  process.send(me, 'end')\n"
                 "end, memory = '64MB' }\n"
                 "local seen, ticks = false, 0\n"
                 "while true do\n"
                 "  local m = process.receive(seen and '1ms' or '60s')\n"
                 "  if m == 'begin' then seen = true elseif m == nil then ticks = ticks + 1 else break end\n"
                 "  assert(type(m) ~= 'table', m and m.error)\n"
                 "end\n"
                 "return ticks\n",
                 long_calls[i]);
        world_passes(&w, text);
        if (w.number < 2) fail_msg("%lld ticks beside %s", (long long)w.number, long_calls[i]);
    }
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

/* Texts for which Lua's parser takes seconds. */
TEST(compiling_comes_to_an_end)
{
    world_passes(&w, "local function why(text) local f, why = load(text) assert(f == nil) return why end\n"
                     "assert(why('return ' .. ('a and '):rep(40000) .. 'a'):find('too long to compile', 1, true))\n"
                     "assert(why('if a then ' .. ('elseif a then '):rep(18000) .. 'end'):find('too long to compile', 1, true))\n"
                     "assert(why(('goto x '):rep(5000) .. '::x::'):find('goto or break', 1, true))\n"
                     "assert(why('while a do ' .. ('break '):rep(5000) .. 'end'):find('goto or break', 1, true))\n"
                     "assert(why((' '):rep(300000)):find('larger than', 1, true))\n"
                     "assert(load(('goto x '):rep(1000) .. '::x::'))\n"
                     "assert(load('return ' .. ('a and '):rep(100) .. '5')() == nil)\n"
                     "local n = 0 assert(load(function() n = n + 1 return n == 1 and 'return ' or n < 100 and 'a and ' or n == 100 and 'a' or nil end))\n");
}

TEST(a_sort_keeps_the_order_of_equal_elements_and_a_table_whose_sort_fails)
{
    world_passes(&w, "for n = 0, 70 do\n"
                     "  local t = {} for i = 1, n do t[i] = { i, (i * 7) % 5 } end\n"
                     "  table.sort(t, function(a, b) return a[2] < b[2] end)\n"
                     "  for i = 2, n do local a, b = t[i - 1], t[i] assert(a[2] < b[2] or a[2] == b[2] and a[1] < b[1]) end\n"
                     "end\n"
                     "local t = { 3, 1, 'x', 2 }\n"
                     "assert(not pcall(table.sort, t)) assert(t[1] == 3 and t[2] == 1 and t[3] == 'x' and t[4] == 2)\n"
                     "assert(not pcall(table.sort, { 1, 2 }, 5)) assert(not pcall(table.sort, 5))\n"
                     "assert(not pcall(table.sort, setmetatable({}, { __len = function() return 1 << 40 end })))\n");
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

/* With a budget for thousands of levels of calls. */
static int open_patient_world(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.runaway_ns = FILCH_SECONDS(10);
    world_open(&w, 1, &options);
    return 0;
}

/* Coroutines in a row, each with a variable whose __close `ends` the next one, %d levels of pcall in between. */
#define CHAIN                                                                                              \
    "local levels, deepest, refused = %d, 0, nil\n"                                                         \
    "local function nested(n, f) if n == 0 then return f() end local fine, why = pcall(nested, n - 1, f)\n" \
    "  if not fine then error(why, 0) end end\n"                                                            \
    "local next\n"                                                                                          \
    "for i = 9000, 1, -1 do\n"                                                                              \
    "  local after = next\n"                                                                                \
    "  local closing = setmetatable({}, { __close = function()\n"                                           \
    "    deepest = deepest + 1\n"                                                                           \
    "    if after then nested(levels, function()\n"                                                         \
    "      local fine, why = pcall(%s, after)\n"                                                            \
    "      if not fine and not refused then refused = why end\n"                                            \
    "    end) end\n"                                                                                        \
    "  end })\n"                                                                                            \
    "  next = %s\n"                                                                                         \
    "end\n"

TEST(coroutines_that_close_each_other_in_a_row_are_refused_and_not_a_crash)
{
    static const int levels[] = { 0, 3, 150 };
    for (size_t i = 0; i < 3; i++) {
        static char text[4096];
        int         size = snprintf(text, sizeof text, CHAIN, levels[i], "coroutine.close",
                                    "coroutine.create(function() local c <close> = closing coroutine.yield() end) coroutine.resume(next)");
        snprintf(text + size, sizeof text - (size_t)size,
                 "assert(coroutine.close(next))\n"
                 "assert(deepest < 9000 and refused:find('C stack overflow', 1, true), refused)\n");
        (void)world_start(&w, text, 64 << 20);
        until(atomic_load(&w.over));
        if (w.error != FILCH_OK) fail_msg("%d levels: %s", levels[i], w.text);
        /* the error of a coroutine closes it */
        size = snprintf(text, sizeof text, CHAIN, levels[i], "(function(f) return f() end)",
                        "coroutine.wrap(function() local c <close> = closing coroutine.yield() error('x') end) next()");
        snprintf(text + size, sizeof text - (size_t)size, "assert(not pcall(next))\nassert(deepest < 9000, deepest)\n");
        (void)world_start(&w, text, 64 << 20);
        until(atomic_load(&w.over));
        if (w.error != FILCH_OK) fail_msg("%d levels: %s", levels[i], w.text);
    }
}

/* What is left to be closed when a process fails is closed outside of all of its calls. */
TEST(a_process_that_fails_closes_its_variables_however_deep_it_was)
{
    char text[4096];
    int  size = snprintf(text, sizeof text, CHAIN, 3, "coroutine.close",
                         "coroutine.create(function() local c <close> = closing coroutine.yield() end) coroutine.resume(next)");
    snprintf(text + size, sizeof text - (size_t)size,
             "local last <close> = setmetatable({}, { __close = function() coroutine.close(next) print(deepest > 10 and 'closed') end })\n"
             "nested(100, function() error('x') end)\n");
    (void)world_start(&w, text, 64 << 20);
    until(atomic_load(&w.over));
    same(w.error, FILCH_LUA_EERROR);
    has_text(w.text, "x");
    has_text(w.printed, "closed");
}

TEST(a_few_coroutines_may_close_each_other)
{
    world_passes(&w, "local closed, next = 0, nil\n"
                     "for i = 1, 10 do\n"
                     "  local after = next\n"
                     "  local mine = setmetatable({}, { __close = function() closed = closed + 1 if after then assert(coroutine.close(after)) end end })\n"
                     "  next = coroutine.create(function() local c <close> = mine coroutine.yield() end)\n"
                     "  coroutine.resume(next)\n"
                     "end\n"
                     "assert(coroutine.close(next) and closed == 10)\n");
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
        T(long_calls_of_c_let_others_run),
        T(the_failure_names_the_budget_and_has_its_own_code),
        T(nothing_of_lua_runs_for_a_spent_budget),
        T(compiling_comes_to_an_end),
        T(a_sort_keeps_the_order_of_equal_elements_and_a_table_whose_sort_fails),
        T(a_coroutine_that_is_being_closed_cannot_yield),
        cmocka_unit_test_setup_teardown(coroutines_that_close_each_other_in_a_row_are_refused_and_not_a_crash, open_patient_world, world_close_shared),
        cmocka_unit_test_setup_teardown(a_process_that_fails_closes_its_variables_however_deep_it_was, open_patient_world, world_close_shared),
        T(a_few_coroutines_may_close_each_other),
        cmocka_unit_test(budgets_without_end_and_of_zero_are_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
