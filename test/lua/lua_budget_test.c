/* lua_budget_test.c - the error of a spent budget cannot be caught: whatever C code calls Lua code back, the worker
 * becomes free, and terminate ends the process. There is one worker, on which the driver runs too. So a process that
 * kept the worker would be noticed. */
#include <lauxlib.h>
#include <lua.h>

#include "lua/fixture.h"

#define LOOP "while true do end"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.slice_ns = FILCH_MILLISECONDS(1);
    options.runaway_ns = FILCH_MILLISECONDS(2);
    options.memory_max = 8 << 20;
    fixture_open(&w, 1, &options);
    return 0;
}

/* Runs `chunk` as a process, started by another process, the driver. The driver sleeps a few times on the same worker,
 * terminates the process and waits for its end. If `spent` is true, the driver does not terminate the process: the
 * process must end because its budget is spent. */
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
    fixture_run(&w, text);
    if (w.error != FILCH_OK) fail_msg("%s: %s", chunk, w.text);
    if (spent && strstr(w.text, "too long") == NULL) fail_msg("%s: ended with %s", chunk, w.text);
}

/* Each chunk runs an endless loop in Lua code that is called by C code, where Lua cannot be interrupted. */
static const char *const spent[] = {
    "error(setmetatable({}, { __tostring = LOOP }))",
    "pcall(function() local c <close> = setmetatable({}, { __close = function() tostring(setmetatable({}, { __tostring "
    "= LOOP })) end })"
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
    ("local t = {} for i = 1, 1900 do t = setmetatable({}, { __index = t }) end\n"
     "tostring(setmetatable({}, { __tostring = function() table.unpack(t, 1, 40000) return '' end }))"),
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
    ("local co = coroutine.create(function() local c <close> = setmetatable({}, { __close = LOOP }) coroutine.yield() "
     "end)"
     " coroutine.resume(co) coroutine.close(co)"),
    "return '1' + setmetatable({}, { __add = LOOP })",
    /* stock Lua looks for a function to call, without an end, and runs no instruction */
    "local t = {} setmetatable(t, { __call = t }) t()",
    "local t = {} setmetatable(t, { __call = t }) while true do pcall(t) end",
    "local t = {} setmetatable(t, { __call = t }) while true do pcall(pcall, t) end",
    "local t = {} setmetatable(t, { __call = t }) while true do xpcall(t, print) end",
    "local t = {} setmetatable(t, { __call = t }) while true do coroutine.resume(coroutine.create(function() t() end)) "
    "end",
    "local t = {} setmetatable(t, { __call = t }) while true do pcall(coroutine.wrap(function() t() end)) end",
    "local t = {} setmetatable(t, { __call = t }) local c <close> = setmetatable({}, { __close = t }) error('x')",
    "local t = {} setmetatable(t, { __call = t }) return -setmetatable({}, { __unm = t })",
    "local t = {} setmetatable(t, { __call = t }) task.spawn(function() t() end):await()",
    /* If the watchdog has to wait for a processor, one call may end before the watchdog finds the step late. So the
     * call is repeated. */
    "local t = type for i = 1, 40000 do t = setmetatable({}, { __call = t }) end while true do t() end",
    "task.spawn(function() tostring(setmetatable({}, { __tostring = LOOP })) end) time.sleep(60)",
    /* the loop is inside table.move, which executes no Lua instruction, so no hook checks the budget */
    ("local from, to = setmetatable({}, { __index = type }), setmetatable({}, { __newindex = type })"
     " tostring(setmetatable({}, { __tostring = function() table.move(from, 1, 1 << 26, 1, to) return 'x' end }))"),
};

TEST(an_uninterruptible_loop_ends_its_process)
{
    for (size_t i = 0; i < sizeof spent / sizeof spent[0]; i++) drive(spent[i], true);
}

/* Tries each chunk inside each kind of protected call, nested and repeated. */
TEST(pcall_does_not_catch_an_exhausted_budget)
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
        /* pcall catches this error object without converting it to a text, so no budget is spent: the loop around pcall
         * continues until the process is terminated */
        "error(setmetatable({}, { __tostring = LOOP })) ",
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

/* Where Lua can yield, an endless loop is no error: the process that runs the loop continues in slices until it is
 * terminated. */
TEST(an_interruptible_loop_runs_until_it_is_terminated)
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
        "local c <close> = setmetatable({}, { __close = LOOP }) error('x')",
        "local c <close> = setmetatable({}, { __close = LOOP }) process.exit(1)",
        "local c <close> = setmetatable({}, { __close = setmetatable({}, { __call = LOOP }) }) error('x')",
        "coroutine.wrap(function() local c <close> = setmetatable({}, { __close = LOOP }) error('x') end)()",
        "local x = setmetatable({}, { __index = LOOP }).x",
        "for _ in pairs(setmetatable({}, { __pairs = LOOP })) do end",
        "task.spawn(LOOP) time.sleep(60)",
        "task.spawn(function() local c <close> = setmetatable({}, { __close = LOOP }) error('x') end):await()",
        "task.spawn(function() while true do task.spawn(function() end):await() end end):await()",
        "while true do process.spawn(function() end) end",
        "while true do process.exec(function() end) end",
        "while true do load('return 1')() end",
        "while true do collectgarbage() end",
        /* the reader passed to load is a C function, so it executes no Lua instruction */
        "while true do pcall(load, os.date) end",
    };
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) drive(loops[i], false);
}

/* Most instructions of each loop are in metamethods, where Lua cannot yield, but the loop leaves each metamethod
 * soon. */
TEST(a_loop_with_metamethods_is_interrupted_between_them)
{
    static const char *const loops[] = {
        "local sum = 0 for i, v in ipairs(setmetatable({}, { __index = function(t, i) if i < 1500000 then return i end "
        "end })) do sum = sum + v end\n"
        "assert(sum == 1499999 * 750000)",
        "local t = setmetatable({}, { __tostring = function() local n = 0 for i = 1, 30 do n = n + i end return 'x' "
        "end })\n"
        "for i = 1, 300000 do assert(tostring(t) == 'x') end",
        /* only one of 5,000 instructions is at a place where Lua can yield */
        "local t = setmetatable({}, { __tostring = function() local n = 0 for i = 1, 5000 do n = n + i end return 'x' "
        "end })\n"
        "for i = 1, 3000 do assert(tostring(t) == 'x') end",
    };
    for (size_t i = 0; i < 3; i++) fixture_passes(&w, loops[i]);
}

/* Opens a fixture with a slice of 20 ms, so that the watchdog rarely checks in the microseconds in which the old state
 * runs between two upgrades. */
static int open_long_slice_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.slice_ns = FILCH_MILLISECONDS(20);
    options.runaway_ns = FILCH_MILLISECONDS(2);
    fixture_open(&w, 1, &options);
    return 0;
}

/* The new code loops until its budget is spent. When the upgrade has failed, the slice of the process is over, but the
 * watchdog has set its hook only in the state of the new code. The old code must be interrupted nevertheless: only then
 * the other task of the old code runs. */
TEST(a_process_is_interrupted_after_a_late_upgrade_that_failed)
{
    fixture_passes(&w, "for i = 1, 3 do\n"
                       "  local ran = false\n"
                       "  task.spawn(function() ran = true end)\n"
                       "  process.upgrade('broken.loops')\n"
                       "  assert(ran)\n"
                       "end\n");
}

TEST(a_job_with_an_endless_error_handler_ends_with_its_process)
{
    drive("work.run(function() error(setmetatable({}, { __tostring = function() " LOOP " end })) end)", false);
    drive("work.run(function() local c <close> = setmetatable({}, { __close = function() " LOOP
          " end }) error('x') end)",
          false);
    drive("work.run(function() while true do pcall(function() " LOOP " end) end end)", false);
}

/* A process in C that is always ready: the worker runs it whenever the Lua process pauses. `during`: the number of
 * turns of the process in C between the calls of the Lua functions begin() and done(). */
static struct {
    atomic_int leaves;
    long long  turns, begun; /* not atomic: only the one worker accesses them */
    long long  during;       /* not atomic: the test reads it after the Lua process has ended */
} beside;

static filch_err step_beside(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    beside.turns++;
    return atomic_load(&beside.leaves) ? filch_done(out, filch_none()) : filch_continue(out);
}

static int begin(lua_State *L)
{
    (void)L;
    beside.begun = beside.turns;
    return 0;
}

static int done(lua_State *L)
{
    (void)L;
    beside.during = beside.turns - beside.begun;
    return 0;
}

static void add_begin_and_done(lua_State *L, void *user)
{
    static const luaL_Reg all[] = { { "begin", begin }, { "done", done }, { NULL, NULL } };
    (void)user;
    luaL_setfuncs(L, all, 0);
}

/* Opens a fixture in which no Lua instruction is interrupted, and each step is late from its second check of the budget
 * on. So a call of a C function pauses at every second check, however fast the machine is, and nothing else pauses. */
static int open_always_late_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.watch = FILCH_LUA_WATCH_COUNT;
    options.count = INT32_MAX;
    options.slice_ns = 1;
    options.runaway_ns = FILCH_SECONDS(100);
    options.open = add_begin_and_done;
    fixture_open(&w, 1, &options);
    return 0;
}

#define NUMBERS(n) "local t = {} for i = 1, " #n " do t[i] = i end "

/* Each chunk calls a C function between begin() and done(). During the call another process must get at least `turns`
 * turns. `turns` is about half of the turns that the other process gets with Lua 5.4.4, so the test notices a C
 * function that checks its budget less often. */
static const struct {
    const char *chunk;
    long long   turns;
} long_calls[] = {
    { "local t = {} for i = 1, 150000 do t[i] = (i * 7919) % 150001 end begin() table.sort(t) done() for i = 2, #t do "
      "assert(t[i - 1] <= t[i]) end",
      3000 },
    { "local t = {} for i = 1, 60000 do t[i] = (i * 7919) % 60013 end begin() table.sort(t, function(a, b) return a > "
      "b end) done()\n"
      "for i = 2, #t do assert(t[i - 1] >= t[i]) end",
      1000 },
    { "local a, b, t = ('x'):rep(1 << 20), ('x'):rep(1 << 20), {} for i = 1, 200 do t[i] = i % 2 == 0 and a or b end\n"
      "begin() table.sort(t) done() assert(#t == 200)",
      100 },
    { "local s = ('x'):rep(1000000) begin() local r, n = s:gsub('x', 'yz') done() assert(n == 1000000 and #r == "
      "2000000)",
      13 },
    { "local s = ('x'):rep(300000) begin() local r, n = s:gsub('x', string.upper) done() assert(n == 300000 and r == "
      "('X'):rep(300000))",
      1000 },
    { "local s = ('x'):rep(3000000) begin() local r = s:find('[^x]') done() assert(r == nil)", 38 },
    { "local s = ('ab'):rep(1000000) .. 'c' begin() local r = s:match('[ab]c') done() assert(r == 'bc')", 50 },
    { "local s, r = ('x'):rep(3000000) .. 'y' begin() for w in s:gmatch('[^x]') do r = w end done() assert(r == 'y')",
      76 },
    { "local s = ('x'):rep(3000000) begin() local r = s:upper() done() assert(r == ('X'):rep(3000000))", 40 },
    { "local s = ('X'):rep(3000000) begin() local r = s:lower() done() assert(r == ('x'):rep(3000000))", 40 },
    { "local s = ('xy'):rep(1500000) begin() local r = s:reverse() done() assert(r == ('yx'):rep(1500000))", 40 },
    { NUMBERS(200000) "begin() table.insert(t, 1, 0) done() assert(t[1] == 0 and t[2] == 1 and #t == 200001)", 150 },
    { NUMBERS(200000) "begin() local r = table.remove(t, 1) done() assert(r == 1 and t[1] == 2 and #t == 199999)",
      150 },
    { NUMBERS(200000) "begin() table.move(t, 1, 199999, 2) done() assert(t[1] == 1 and t[200000] == 199999)", 150 },
    { NUMBERS(200000) "begin() table.move(t, 2, 200000, 1) done() assert(t[1] == 2 and t[199999] == 200000)", 150 },
    { "local t, a = setmetatable({}, { __name = ('n'):rep(100) }), {} for i = 1, 900 do a[i] = t end\n"
      "local f = ('%s'):rep(900) begin() local s = f:format(table.unpack(a)) done() assert(#s > 90000)",
      400 },
    { NUMBERS(150000) "begin() local s = table.concat(t, ',') done() assert(#s == 938894)", 500 },
    /* reading one element takes a walk over 1,900 tables */
    { "local t = {} for i = 1, 1900 do t = setmetatable({}, { __index = t }) end\n"
      "begin() local n = select('#', table.unpack(t, 1, 40000)) done() assert(n == 40000)",
      30 },
    { "local t = {} for i = 1, 300000 do t[i] = {} end begin() collectgarbage() done() assert(#t == 300000)", 5 },
    { NUMBERS(100000) "begin() local s = json.encode(t) done() assert(#s == 588896)", 300 },
    { "local t = {} for i = 1, 30000 do t['k' .. i] = { i } end begin() local s = json.encode(t) done()\n"
      "assert(json.decode(s).k7[1] == 7)",
      300 },
    { NUMBERS(100000) "local s = json.encode(t) begin() local r = json.decode(s) done() assert(#r == 100000)", 300 },
    { "local t = {} for i = 1, 30000 do t['k' .. i] = { i } end local s = json.encode(t) begin() local r = "
      "json.decode(s) done()\n"
      "assert(r.k7[1] == 7)",
      200 },
    { "local t = {} for i = 1, 100000 do t[i] = { i } end begin() local s = msgpack.encode(t) done() assert(#s > "
      "300000)",
      4000 },
    { "local t = {} for i = 1, 100000 do t[i] = { k = i } end local s = msgpack.encode(t) begin()\n"
      "local r = msgpack.decode(s) done() assert(r[77].k == 77)",
      50000 },
    { "local t = {} for i = 1, 100000 do t[i] = { k = i } end local s = blob.new(msgpack.encode(t)) begin()\n"
      "local r = msgpack.decode(s) done() assert(r[78].k == 78)",
      50000 },
    /* all keys have the same hash, so the time to insert a key grows with the number of keys */
    { "local t = {} for i = 1, 20000 do t[i] = '\\xD3' .. (string.pack('>i8', i * 32767)) .. '\\1' end\n"
      "local s = '\\xDE' .. string.pack('>I2', 20000) .. table.concat(t) t = nil begin()\n"
      "local r = msgpack.decode(s) done() assert(r[32767] == 1)",
      10000 },
    { "for i = 1, 20000 do process.send(process.self(), i) end begin() local r = process.receive('none', 0) done() "
      "assert(r == nil)",
      5000 },
};

/* While one process is in a long call of a C function, the process `beside` must run before the call has returned. */
TEST(long_calls_of_c_functions_let_other_processes_run)
{
    static const filch_type type = { .name = "beside", .step = step_beside };
    for (size_t i = 0; i < sizeof long_calls / sizeof long_calls[0]; i++) {
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "%s\n", long_calls[i].chunk);
        atomic_store(&beside.leaves, 0);
        beside.during = 0;
        ok(filch_spawn(w.sched, &type, NULL, NULL));
        (void)fixture_start(&w, long_calls[i].chunk, 64 << 20);
        until(atomic_load(&w.over));
        atomic_store(&beside.leaves, 1);
        until(fixture_alive(&w) == 0);
        if (getenv("FILCH_ROWS") != NULL) fprintf(stderr, "  %lld turns\n", beside.during);
        if (w.error != FILCH_OK) fail_msg("%s: %s", long_calls[i].chunk, w.text);
        if (beside.during < long_calls[i].turns) fail_msg("%lld turns beside %s", beside.during, long_calls[i].chunk);
    }
}

/* `empty`: a table that was large and was emptied; walking over it takes a tenth of a millisecond. `many(n)`: a list
 * that contains `empty` n times. */
#define EMPTIED                                                                                                 \
    "local empty = {} for i = 1, 60000 do empty[i * 3] = true end for i = 1, 60000 do empty[i * 3] = nil end\n" \
    "local function many(n, value) local t = {} for i = 1, n do t[i] = value or empty end return t end\n"

/* `all`: a function from which 2,744 functions with 50 KB of code each are reached by upvalues only. Their nine
 * prototypes are more than the cache of known functions holds, so each function is dumped. */
#define CLOSURES                                                                                                      \
    "local code = {} for i = 1, 9 do\n"                                                                               \
    "local text = 'local x return function() return x, [[' .. ('x'):rep(50000) .. i .. ']] end'\n"                    \
    "repeat code[i] = load(text) until code[i] end\n" /* repeats load(), which may exceed its time limit */           \
    "local names = 'a,b,c,d,e,f,g,h,i,j,k,l,m,n'\n"                                                                   \
    "local group = load('local make = ... local ' .. names .. ' = table.unpack(make()) return function() "            \
    "return ' .. names .. ' end')\n"                                                                                  \
    "local function list(make) return function() local t = {} for i = 1, 14 do t[i] = make(i) end return t end end\n" \
    "local function leaves() return group(list(function(i) return code[i % 9 + 1]() end)) end\n"                      \
    "local function groups() return group(list(leaves)) end\n"                                                        \
    "local all = group(list(groups))\n"

/* changed(table, change): each encoder writes the table that table() returns, while another task calls change(table).
 * Returns the texts that the encoders raised or returned. */
#define CHANGED                                                      \
    "local function changed(table, change)\n"                        \
    "  local results = {}\n"                                         \
    "  for i, encode in ipairs { json.encode, msgpack.encode } do\n" \
    "    local t = table()\n"                                        \
    "    local writer = task.spawn(encode, t)\n"                     \
    "    task.spawn(function() change(t) collectgarbage() end)\n"    \
    "    results[i] = select(2, pcall(writer.await, writer))\n"      \
    "  end\n"                                                        \
    "  return results[1], results[2]\n"                              \
    "end\n"                                                          \
    "local function map() local t = {} for i = 1, 2000 do t['k' .. i] = i end return t end\n"

TEST(an_object_that_grows_while_it_is_encoded_is_complete_or_refused)
{
    fixture_passes(&w, CHANGED
                   "for i = 0, 100 do local more = i < 100 and i % 10 or 9000\n"
                   "  local text, bytes = changed(map, function(t)\n"
                   "    for _ = 1, i % 13 do time.sleep(0) end\n"
                   "    for i = 1, more do t['n' .. i] = i end\n"
                   "  end)\n"
                   "  local values = { json.decode(text) or false, msgpack.decode(bytes) or false }\n"
                   "  assert(more > 0 or values[1] and values[2])\n"
                   "  for i, why in ipairs { text, bytes } do\n"
                   "    for k = 1, values[i] and 2000 or 0 do assert(values[i]['k' .. k] == k) end\n"
                   "    local added = 0 -- none of the new fields: the table was written before they were added\n"
                   "    for k = 1, values[i] and more or 0 do added = added + (values[i]['n' .. k] and 1 or 0) end\n"
                   "    assert(not values[i] or added == 0 or added == more)\n"
                   "    assert(values[i] or why:find('a table was changed', 1, true))\n"
                   "  end\n"
                   "end\n");
}

/* Each chunk runs a loop in a C function that would take seconds and cannot be interrupted. */
TEST(a_c_traversal_over_its_budget_ends_its_process)
{
    static const char *const walks[] = {
        "process.send(process.self(), many(100000))",
        "process.request(process.self(), many(100000))",
        "process.broadcast('none', many(100000))",
        "local t = many(100000) process.spawn(function() return t end)",
        "process.spawn(function() end, many(100000))",
        "work.run(function() end, many(100000))",
        "return many(100000)",
        "process.exit(many(100000))",
        "local t = {} for i = 1, 100 do t['k' .. i] = empty end local all = {} for i = 1, 100 do all['k' .. i] = t end "
        "log.info('x', all)",
        ("local t = {} for i = 1, 20000 do t[i] = {} end process.send(process.self(), t)\n"
         "process.receive(many(20000), 0)"),
        "empty[1] = function() end supervisor.start { children = many(20000) }",
        CLOSURES "process.spawn(all)",
        CLOSURES "process.spawn(function() end, { all })",
        CLOSURES "work.run(all)",
    };
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++) {
        char chunk[2048];
        snprintf(chunk, sizeof chunk, EMPTIED "%s", walks[i]);
        drive(chunk, true);
    }
}

/* Each chunk encodes a large table. The loop in C can be interrupted, so the process continues. */
TEST(encoding_a_large_table_can_be_interrupted)
{
    drive(EMPTIED "msgpack.encode(many(100000))", false);
    drive(EMPTIED "json.encode(many(100000))", false);
}

/* Makes a table `t` in which all keys have one hash value. Its hash part is twice as large as that of the table that
 * the receiver makes, so sending the table is fast and reading it is slow. */
#define SAME_HASH                                                                                         \
    "local t = {} for i = 1, 70000 do t['k' .. i] = true end for i = 1, 70000 do t['k' .. i] = nil end\n" \
    "for i = 1, 30000 do t[i * 32767] = true end\n"

TEST(a_message_of_colliding_keys_ends_its_reader)
{
    static const char *const reads[] = {
        "local pid = process.spawn_monitored(function() process.receive() end) process.send(pid, t)\n",
        "local pid = process.spawn_monitored(function() process.receive({ none = 1 }) end) process.send(pid, t)\n",
    };
    for (size_t i = 0; i < 2; i++) {
        char chunk[2048];
        snprintf(chunk, sizeof chunk, SAME_HASH "%sreturn process.receive({ event = 'exit', pid = pid }).error",
                 reads[i]);
        (void)fixture_start(&w, chunk, 64 << 20);
        until(atomic_load(&w.over));
        has_text(w.text, "ran for too long");
    }
    (void)fixture_start(
        &w, SAME_HASH "local fine, why = pcall(process.spawn, function() end, t) assert(not fine) return why",
        64 << 20);
    until(atomic_load(&w.over));
    has_text(w.text, "ran for too long");
}

TEST(long_strings_are_refused_as_numbers)
{
    fixture_passes(
        &w,
        "local digits = ('1'):rep(100000)\n"
        "local t = {} for i = 1, 10000 do t[i] = digits end\n"
        "local function refused(f, ...)\n"
        "  local fine, why = pcall(f, ...)\n"
        "  assert(not fine and (why:find('too long for a number', 1, true) or why:find('too large', 1, true)), why)\n"
        "end\n"
        "for _, f in ipairs { math.max, math.min, string.char, utf8.char } do refused(f, table.unpack(t)) end\n"
        "refused(string.format, ('%d'):rep(900), table.unpack(t, 1, 900))\n"
        "refused(string.format, '%s %% %5.1f', 1, digits)\n"
        "refused(string.pack, ('d'):rep(1000), table.unpack(t, 1, 1000))\n"
        "refused(os.time, { year = 2000, month = digits, day = 1 })\n"
        "refused(os.time, setmetatable({}, { __index = function() return digits end }))\n"
        "assert(#string.format('%s', digits) == 100000 and string.format('%-5d|%%', '12') == '12   |%')\n"
        "assert(math.max(10, 9.5) == 10 and string.char('65', 66) == 'AB' and utf8.char('228') == '\\u{e4}')\n"
        "assert(string.pack('s4', digits):len() == 100004)\n"
        "local day = setmetatable({}, { __index = { year = '2000', month = 1, day = 32, hour = 12 } })\n"
        "assert(os.time(day) == os.time { year = 2000, month = 2, day = 1 } and day.month == 2 and day.day == 1)\n");
}

TEST(task_all_any_and_select_limit_the_length_of_their_list)
{
    fixture_passes(&w, "local function refused(f, t)\n"
                       "  local fine, why = pcall(f, t) assert(not fine and why:find('at most 10000', 1, true), why)\n"
                       "end\n"
                       "local t, ch, f = {}, channel.new(1), function() end\n"
                       "for i = 1, 10001 do t[i] = f end refused(task.all, t) refused(task.any, t)\n"
                       "for i = 1, 10001 do t[i] = ch end refused(channel.select, t)\n"
                       "t[10001] = nil ch:send(5) assert(channel.select(t) == 1)\n");
}

TEST(a_child_cannot_have_a_higher_memory_limit_than_its_parent)
{
    fixture_passes(&w, "local function refused(...) local fine, why = pcall(...) assert(not fine and why:find('at most "
                       "the limit of the process', 1, true), why) end\n"
                       "refused(process.spawn, { function() end, memory = '9MB' })\n"
                       "refused(process.spawn, { function() end, memory = math.maxinteger })\n"
                       "refused(work.run, { function() end, memory = '1GB' })\n"
                       "refused(supervisor.start, { children = { { function() end, memory = '1GB' } } })\n"
                       "assert(process.exec { function() return pcall(process.spawn, { print, memory = '8MB' }) end, "
                       "memory = '1MB' } == false)\n"
                       "assert(process.exec { function() return 5 end, memory = '8MB' } == 5)\n");
}

TEST(the_budget_error_names_the_budget_and_has_its_own_code)
{
    fixture_run(&w, "tostring(setmetatable({}, { __tostring = function() " LOOP " end }))");
    same(w.error, FILCH_LUA_EBUDGET);
    has_text(w.text, "more than 2000 us");
    has_text(w.text, "stack traceback");
}

/* A function of the host, which checks no budget: after the budget is exhausted, only a hook keeps Lua code from
 * calling it. */
static atomic_int handlers_run;

static int note_handler(lua_State *L)
{
    (void)L;
    atomic_fetch_add(&handlers_run, 1);
    return 0;
}

/* A function of the host, which calls its argument and checks no budget. */
static int call_back(lua_State *L)
{
    lua_settop(L, 1);
    lua_call(L, 0, 0);
    return 0;
}

static void add_host_functions(lua_State *L, void *user)
{
    (void)user;
    lua_register(L, "note_handler", note_handler);
    lua_register(L, "call_back", call_back);
}

static int open_with_host_functions(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.slice_ns = FILCH_MILLISECONDS(1);
    options.runaway_ns = FILCH_MILLISECONDS(2);
    options.open = add_host_functions;
    fixture_open(&w, 1, &options);
    return 0;
}

/* Only one of 5,000 instructions is at a place where Lua can yield, and no function of a library checks the budget. */
TEST(a_loop_in_a_callback_of_the_host_is_interrupted_between_two_calls)
{
    fixture_passes(&w, "local function f() local n = 0 for i = 1, 5000 do n = n + i end end\n"
                       "for i = 1, 3000 do call_back(f) end");
}

TEST(no_lua_handler_runs_after_the_budget_is_exhausted)
{
    atomic_store(&handlers_run, 0);
    fixture_run(&w, "local mt = { __close = function() note_handler() end }\n"
                    "pcall(function()\n"
                    "  local c <close> = setmetatable({}, mt)\n"
                    "  pcall(function() local d <close> = setmetatable({}, mt)\n"
                    "    xpcall(function() tostring(setmetatable({}, { __tostring = function() " LOOP
                    " end })) end, note_handler) end)\n"
                    "end)\n");
    same(w.error, FILCH_LUA_EBUDGET);
    same(atomic_load(&handlers_run), 0);
}

/* Texts for which Lua's parser takes seconds. */
TEST(compile_time_is_limited)
{
    fixture_passes(
        &w, "local function why(text) local f, why = load(text) assert(f == nil) return why end\n"
            "assert(why('return ' .. ('a and '):rep(40000) .. 'a'):find('too long to compile', 1, true))\n"
            "assert(why('if a then ' .. ('elseif a then '):rep(18000) .. 'end'):find('too long to compile', 1, true))\n"
            "assert(why(('goto x '):rep(5000) .. '::x::'):find('goto or break', 1, true))\n"
            "assert(why('while a do ' .. ('break '):rep(5000) .. 'end'):find('goto or break', 1, true))\n"
            "assert(why((' '):rep(300000)):find('larger than', 1, true))\n");
}

TEST(texts_that_compile_fast_are_not_refused)
{
    fixture_passes(
        &w, "assert(load(('goto x '):rep(1000) .. '::x::'))\n"
            "assert(load('return ' .. ('a and '):rep(100) .. '5')() == nil)\n"
            "local n = 0 assert(load(function() n = n + 1 return n == 1 and 'return ' or n < 100 and 'a and ' or n == "
            "100 and 'a' or nil end))\n");
}

TEST(a_sort_is_stable_and_a_failed_sort_leaves_the_table_unchanged)
{
    fixture_passes(
        &w, "for n = 0, 70 do\n"
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
    fixture_passes(&w, "local co = coroutine.create(function()\n"
                       "  local c <close> = setmetatable({}, { __close = function() coroutine.yield(1) end })\n"
                       "  coroutine.yield()\n"
                       "end)\n"
                       "coroutine.resume(co)\n"
                       "local fine, why = coroutine.close(co)\n"
                       "assert(not fine and why:find('being closed', 1, true), why)\n");
}

/* Opens a fixture with a time budget that suffices for thousands of nested calls. */
static int open_large_budget_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.runaway_ns = FILCH_SECONDS(10);
    fixture_open(&w, 1, &options);
    return 0;
}

/* Makes a chain of coroutines. Each has a variable with a __close handler that ends the next coroutine by the function
 * %s, inside %d levels of pcall. */
#define CHAIN                                                                                               \
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

TEST(a_long_chain_of_coroutine_closes_is_an_error_not_a_crash)
{
    static const int levels[] = { 0, 3, 150 };
    for (size_t i = 0; i < 3; i++) {
        static char text[4096];
        int         size = snprintf(
                    text, sizeof text, CHAIN, levels[i], "coroutine.close",
                    "coroutine.create(function() local c <close> = closing coroutine.yield() end) coroutine.resume(next)");
        snprintf(text + size, sizeof text - (size_t)size,
                 "assert(coroutine.close(next))\n"
                 "assert(deepest < 9000 and refused:find('C stack overflow', 1, true), refused)\n");
        (void)fixture_start(&w, text, 64 << 20);
        until(atomic_load(&w.over));
        if (w.error != FILCH_OK) fail_msg("%d levels: %s", levels[i], w.text);
        /* in this chain each coroutine is closed by an error in it */
        size = snprintf(text, sizeof text, CHAIN, levels[i], "(function(f) return f() end)",
                        "coroutine.wrap(function() local c <close> = closing coroutine.yield() error('x') end) next()");
        snprintf(text + size, sizeof text - (size_t)size, "assert(not pcall(next))\nassert(deepest < 9000, deepest)\n");
        (void)fixture_start(&w, text, 64 << 20);
        until(atomic_load(&w.over));
        if (w.error != FILCH_OK) fail_msg("%d levels: %s", levels[i], w.text);
    }
}

/* When a process fails, its variables are closed after all its calls have been left, so the depth of these calls does
 * not matter. */
TEST(a_failed_process_closes_its_variables_at_any_call_depth)
{
    char text[4096];
    int  size =
        snprintf(text, sizeof text, CHAIN, 3, "coroutine.close",
                 "coroutine.create(function() local c <close> = closing coroutine.yield() end) coroutine.resume(next)");
    snprintf(text + size, sizeof text - (size_t)size,
             "local last <close> = setmetatable({}, { __close = function() coroutine.close(next) print(deepest > 10 "
             "and 'closed') end })\n"
             "nested(100, function() error('x') end)\n");
    (void)fixture_start(&w, text, 64 << 20);
    until(atomic_load(&w.over));
    same(w.error, FILCH_LUA_EERROR);
    has_text(w.text, "x");
    has_text(w.printed, "closed");
}

TEST(a_few_coroutines_may_close_each_other)
{
    fixture_passes(&w, "local closed, next = 0, nil\n"
                       "for i = 1, 10 do\n"
                       "  local after = next\n"
                       "  local mine = setmetatable({}, { __close = function() closed = closed + 1 if after then "
                       "assert(coroutine.close(after)) end end })\n"
                       "  next = coroutine.create(function() local c <close> = mine coroutine.yield() end)\n"
                       "  coroutine.resume(next)\n"
                       "end\n"
                       "assert(coroutine.close(next) and closed == 10)\n");
}

TEST(budgets_of_zero_and_infinity_are_valid)
{
    static const uint64_t spans[] = { 0, UINT64_C(1) << 63, UINT64_MAX };
    for (size_t i = 0; i < 3; i++) {
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        fixture           other;
        options.slice_ns = spans[i];
        options.runaway_ns = spans[i];
        fixture_open(&other, 1, &options);
        fixture_passes(&other, "local t = {} for i = 1, 1000 do t[i] = -i end table.sort(t) assert(t[1] == -1000)");
        fixture_close(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(an_uninterruptible_loop_ends_its_process),
        T(pcall_does_not_catch_an_exhausted_budget),
        T(an_interruptible_loop_runs_until_it_is_terminated),
        T(a_loop_with_metamethods_is_interrupted_between_them),
        cmocka_unit_test_setup_teardown(a_process_is_interrupted_after_a_late_upgrade_that_failed,
                                        open_long_slice_fixture, fixture_close_shared),
        T(a_job_with_an_endless_error_handler_ends_with_its_process),
        cmocka_unit_test_setup_teardown(long_calls_of_c_functions_let_other_processes_run, open_always_late_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(an_object_that_grows_while_it_is_encoded_is_complete_or_refused,
                                        open_always_late_fixture, fixture_close_shared),
        T(a_c_traversal_over_its_budget_ends_its_process),
        T(encoding_a_large_table_can_be_interrupted),
        T(a_message_of_colliding_keys_ends_its_reader),
        T(long_strings_are_refused_as_numbers),
        T(task_all_any_and_select_limit_the_length_of_their_list),
        T(a_child_cannot_have_a_higher_memory_limit_than_its_parent),
        T(the_budget_error_names_the_budget_and_has_its_own_code),
        cmocka_unit_test_setup_teardown(a_loop_in_a_callback_of_the_host_is_interrupted_between_two_calls,
                                        open_with_host_functions, fixture_close_shared),
        cmocka_unit_test_setup_teardown(no_lua_handler_runs_after_the_budget_is_exhausted, open_with_host_functions,
                                        fixture_close_shared),
        T(compile_time_is_limited),
        cmocka_unit_test_setup_teardown(texts_that_compile_fast_are_not_refused, open_large_budget_fixture,
                                        fixture_close_shared),
        T(a_sort_is_stable_and_a_failed_sort_leaves_the_table_unchanged),
        T(a_coroutine_that_is_being_closed_cannot_yield),
        cmocka_unit_test_setup_teardown(a_long_chain_of_coroutine_closes_is_an_error_not_a_crash,
                                        open_large_budget_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_failed_process_closes_its_variables_at_any_call_depth,
                                        open_large_budget_fixture, fixture_close_shared),
        T(a_few_coroutines_may_close_each_other),
        cmocka_unit_test(budgets_of_zero_and_infinity_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
