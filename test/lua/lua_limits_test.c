/* lua_limits_test.c - no Lua process can stop the others by endless loops, recursion or memory use. There is one
 * worker, so that a process that kept it would be noticed. */
#include "lua/fixture.h"

/* The thread sanitizer keeps a record of longjmps, which overflows after a hundred thousand longjmps. */
#if defined(__SANITIZE_THREAD__)
#define YIELDS "5000"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define YIELDS "5000"
#endif
#endif
#ifndef YIELDS
#define YIELDS "200000"
#endif
#define LOOP "while true do end"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.slice_ns = FILCH_MILLISECONDS(2);
    options.runaway_ns = FILCH_MILLISECONDS(50);
    options.memory_max = 4 << 20;
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(endless_loops_of_every_kind_are_interrupted_and_continue)
{
    /* Each process with an endless loop reports its start. The process that has started the loops must continue to get
     * turns beside them; at the end it terminates them. */
    fixture_passes(&w,
                   "local me = process.self()\n"
                   "local hogs = {\n"
                   "  function() process.send(me, 1) " LOOP " end,\n"
                   "  function() process.send(me, 1) while true do pcall(function() " LOOP " end) end end,\n"
                   "  function() process.send(me, 1) local o = setmetatable({}, { __index = function() " LOOP
                   " end }) return o.x end,\n"
                   "  function() process.send(me, 1) coroutine.wrap(function() coroutine.wrap(function() " LOOP
                   " end)() end)() end,\n"
                   "  function() process.send(me, 1) local function f() return f() end f() end,\n"
                   "  function() process.send(me, 1) table.sort({ 3, 2, 1 }, function() " LOOP " end) end,\n"
                   "  function() process.send(me, 1) string.gsub('x', 'x', function() " LOOP " end) end,\n"
                   "  function() process.send(me, 1) for _ in function() return 1 end do end end,\n"
                   "  function() process.send(me, 1) local t = {} while true do t = { t and 1 } end end,\n"
                   "  function() process.send(me, 1) local c <close> = setmetatable({}, { __close = function() " LOOP
                   " end }) end,\n"
                   "  function() process.send(me, 1) while true do local s = 'x' .. math.random() end end,\n"
                   "}\n"
                   "local pids = {}\n"
                   "for i, hog in ipairs(hogs) do pids[i] = process.spawn(hog) end\n"
                   "for i = 1, #hogs do process.receive() end\n"
                   "for i = 1, 10 do time.sleep('1ms') end\n"
                   "for i, pid in ipairs(pids) do assert(process.alive(pid), i) process.terminate(pid) end\n");
    until(fixture_alive(&w) == 0);
}

TEST(an_interrupted_computation_has_a_correct_result)
{
    fixture_passes(&w, "local me = process.self()\n"
                       "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
                       "for i = 1, 3 do process.spawn(function()\n"
                       "  local function f(n) if n < 2 then return n end return f(n - 1) + f(n - 2) end\n"
                       "  local s = 0 for i in coroutine.wrap(function() for i = 1, " YIELDS
                       " do coroutine.yield(i) end end) do s = s + i end\n"
                       "  process.send(me, { f(25), s })\n"
                       "end) end\n"
                       "for i = 1, 3 do local m = process.receive() assert(m[1] == 75025 and m[2] == " YIELDS
                       " * (" YIELDS " + 1) // 2) end\n");
}

TEST(an_uninterruptible_loop_fails_after_its_budget)
{
    static const char *const loops[] = {
        "tostring(setmetatable({}, { __tostring = function() " LOOP " end }))",
        "string.gsub('x', 'x', setmetatable({}, { __index = function() " LOOP " end }))",
        "tostring(setmetatable({}, { __tostring = function() coroutine.wrap(function() " LOOP " end)() end }))",
        "error(select(2, xpcall(error, function() " LOOP " end)))",
        "tostring(setmetatable({}, { __tostring = function() error(select(2, xpcall(function() " LOOP
        " end, function() " LOOP " end))) end }))",
        "assert(load(function() " LOOP " end))",
    };
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        fixture_run(&w, loops[i]);
        same(w.error, FILCH_LUA_EBUDGET);
        has_text(w.text, "ran for too long");
    }
}

/* flood(to) sends messages of 1,000 bytes until one is refused. It returns the number of accepted messages, and the
 * reason of the refusal. If the receiver is interrupted before it sleeps, it takes the messages of one full mailbox out
 * of the mailbox, so check() allows twice as many. */
#define FLOOD                                                     \
    "local function flood(to)\n"                                  \
    "  local sent, fine, why = 0, nil, nil\n"                     \
    "  repeat\n"                                                  \
    "    fine, why = process.send(to, ('x'):rep(990) .. sent)\n"  \
    "    if fine then sent = sent + 1 end\n"                      \
    "  until not fine or sent == 3000\n"                          \
    "  return sent, why\n"                                        \
    "end\n"                                                       \
    "local function check(most, sent, why)\n"                     \
    "  assert(why == 'the mailbox or queue is full', why)\n"      \
    "  assert(sent > most - 10 and sent < 2 * most + 20, sent)\n" \
    "end\n"                                                       \
    "local function sleeper() process.send(me, 1) time.sleep('1h') end\n"

/* Opens a fixture in which a mailbox may hold 64 KiB. */
static int open_small_mailbox_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.mailbox_bytes = 64 << 10;
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(a_flood_is_refused_at_the_default_mailbox_limit)
{
    fixture_passes(&w, "local me = process.self()\n" FLOOD
                       "local victim, beside = process.spawn(sleeper), process.spawn(sleeper)\n"
                       "process.receive() process.receive()\n"
                       "local pid = process.spawn_monitored(function() return { flood(victim) } end)\n"
                       "check(64, table.unpack(process.receive({ event = 'exit', pid = pid }).result))\n"
                       "assert(process.alive(victim) and process.alive(beside))\n"
                       /* a full mailbox refuses requests too; a process that has filled its own mailbox still gets the
                        * reply to its request */
                       "local fine, why = process.request(victim, ('x'):rep(990))\n"
                       "assert(fine == nil and why == 'the mailbox or queue is full', why)\n"
                       "local server = process.spawn(function() local _, from = process.receive() process.reply(from, "
                       "('x'):rep(990)) end)\n"
                       "flood(me) assert(#process.request(server, 1) == 990)\n"
                       /* a number counts as 0 bytes, so every number is accepted; a message larger than the limit is
                        * always refused */
                       "for i = 1, 1000 do assert(process.send(beside, i)) end\n"
                       "fine, why = process.send(beside, ('x'):rep(70000)) assert(fine == nil and #why > 0)\n");
}

TEST(every_way_to_start_a_process_uses_the_default_mailbox_limit)
{
    fixture_passes(&w, "local me = process.self()\n" FLOOD
                       /* this process was started from C */
                       "assert(select(2, flood(me)) == 'the mailbox or queue is full')\n"
                       "repeat until select(2, process.receive(0)) == 'timeout'\n"
                       "local function started(...) process.receive() return ... end\n"
                       "check(64, flood(started(process.spawn_linked(sleeper))))\n"
                       "check(64, flood(started(process.spawn { sleeper, mailbox = 3000 })))\n"
                       "local top = assert(supervisor.start { children = { { sleeper, name = 'child' } } })\n"
                       "check(64, flood(started('child')))\n"
                       /* a spawn may set another limit, or another policy */
                       "check(1024, flood(started(process.spawn { sleeper, mailbox_bytes = '1MB' })))\n"
                       "check(16, flood(started(process.spawn { sleeper, mailbox_bytes = '16KB' })))\n"
                       /* at twice its limit, while the receiver has not run, the mailbox drops the newest message */
                       "local sent, why = flood(started(process.spawn { sleeper, overflow = 'drop_oldest' }))\n"
                       "assert(sent == 3000 or why:find('its policy dropped the message', 1, true), why)\n"
                       "assert(sent > 100, sent)\n");
}

/* Fixture for tests with a million active calls. These tests need a larger memory limit than the fixture of the other
 * tests has, and more time, because an interruption walks over all active calls. */
static fixture deep;

static void run_with_large_limit(const char *chunk)
{
    (void)fixture_start(&deep, chunk, (size_t)256 << 20);
    until(atomic_load(&deep.over));
}

TEST(endless_recursion_ends_with_an_error)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.slice_ns = FILCH_MILLISECONDS(200);
    fixture_open(&deep, 1, &options);
    run_with_large_limit("local function f() return 1 + f() end\n"
                         "local fine, why = pcall(f)\n"
                         "assert(not fine and why:find('stack overflow', 1, true), why)\n");
    ok(deep.error);
    run_with_large_limit("local function f() return 1 + f() end f()");
    same(deep.error, FILCH_LUA_EERROR);
    has_text(deep.text, "stack overflow");
    has_text(deep.text, "(skipping ");
    run_with_large_limit(
        "local o = setmetatable({}, {}) getmetatable(o).__index = function(t, k) return t[k .. 'x'] end return o.x");
    same(deep.error, FILCH_LUA_EERROR);
    run_with_large_limit("local function f(s) return s:gsub('.', f) end f('x')");
    same(deep.error, FILCH_LUA_EERROR);
    has_text(deep.text, "C stack overflow");
    run_with_large_limit("local function f() return coroutine.wrap(f)() end f()");
    same(deep.error, FILCH_LUA_EERROR);
    has_text(deep.text, "C stack overflow");
    run_with_large_limit("return load(('('):rep(1000) .. '1' .. (')'):rep(1000))()");
    same(deep.error, FILCH_LUA_EERROR);
    fixture_close(&deep);
}

TEST(memory_bombs_end_only_their_own_process)
{
    static const char *const bombs[] = {
        "local t = {} while true do t[#t + 1] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1 << 30)",
        "local t = {} pcall(function() while true do t[#t + 1] = {} end end) return 'caught'",
        "local t = {} coroutine.wrap(function() while true do t[#t + 1] = {} end end)()",
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
        "local t = {} for i = 1, 1 << 30 do t[i] = i end",
        "return table.concat({ ('x'):rep(3 << 20), ('x'):rep(3 << 20) })",
        "local me = process.self() local s = ('x'):rep(1 << 20) for i = 1, 100 do process.send(me, i .. s) end\n"
        "process.receive(function() return false end, 1)",
        "xpcall(function() local t = {} while true do t[#t + 1] = {} end end, function() " LOOP " end)",
        "return { ('x'):rep(4096), string.pack('s', ('y'):rep(8 << 20)) }",
    };
    fixture_passes(&w, "process.spawn(function() while true do time.sleep('1ms') end end)");
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        fixture_run(&w, bombs[i]);
        if (w.error != FILCH_LUA_EMEMORY) fail_msg("%zu: %s %s", i, filch_err_name(w.error), w.text);
        has_text(w.text, "not enough memory");
        /* waits, because the exit event of the last process arrives before the process is counted as ended */
        until(fixture_alive(&w) == 1);
    }
}

TEST(a_memory_limit_too_small_to_start_is_an_error)
{
    filch_lua_code         *code = NULL;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    ok(filch_lua_load(w.lua, "return 1", 8, NULL, &code, NULL, 0));
    for (how.memory_max = 1; how.memory_max < 16384; how.memory_max += 97) {
        filch_err err = filch_lua_spawn(w.lua, w.sched, code, &how, NULL);
        if (err != FILCH_OK) same(err, FILCH_LUA_EMEMORY);
    }
    until(fixture_alive(&w) == 0);
    filch_lua_code_drop(w.lua, code);
}

TEST(large_messages_arrive_unchanged)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    static fixture    large;
    options.memory_max = (size_t)512 << 20;
    fixture_open(&large, 2, &options);
    fixture_passes(&large, "local echo = process.spawn(function() while true do local m, from = process.receive() "
                           "process.reply(from, m) end end)\n"
                           "local s = ('0123456789'):rep(1000000)\n"
                           "assert(process.request(echo, s, 60) == s)\n"
                           "local t = {} for i = 1, 1000000 do t[i] = i end\n"
                           "local u = process.request(echo, t, 60)\n"
                           "assert(#u == 1000000 and u[1] == 1 and u[1000000] == 1000000)\n"
                           "local h = {} for i = 1, 100000 do h['k' .. i] = { i } end\n"
                           "h = process.request(echo, h, 60) for i = 1, 100000 do assert(h['k' .. i][1] == i) end\n"
                           "process.terminate(echo)\n");
    fixture_close(&large);
}

/* A receiver that holds 2.8 MB of garbage at a limit of 4 MB gets a message of 1.7 MB that it does not read yet. */
TEST(garbage_is_collected_before_a_kept_message_ends_the_process)
{
    static const char *const waits[] = {
        "assert(process.receive('x') == 'x')",      /* the search for 'x' keeps the message */
        "process.request(me, 'no reply', '100ms')", /* the process keeps the message when its step ends */
    };
    for (size_t i = 0; i < 2; i++) {
        char chunk[1024];
        snprintf(chunk, sizeof chunk,
                 "local me = process.self()\n"
                 "local pid = process.spawn { function()\n"
                 "  local t = {} for i = 1, 18000 do t[i] = i .. ('y'):rep(130) end\n"
                 "  t = nil\n"
                 "  assert(collectgarbage('count') > 2800, collectgarbage('count'))\n"
                 "  process.send(me, 'ready')\n"
                 "  %s\n"
                 "  return 'alive'\n"
                 "end; memory = '4MB', monitor = true }\n"
                 "assert(process.receive('ready'))\n"
                 "assert(process.send(pid, ('z'):rep(1700000)))\n"
                 "process.send(pid, 'x')\n"
                 "local e = process.receive { event = 'exit' }\n"
                 "assert(e.result == 'alive', e.error)\n",
                 waits[i]);
        (void)fixture_start(&w, chunk, (size_t)16 << 20);
        until(atomic_load(&w.over));
        if (w.error != FILCH_OK) fail_msg("%s", w.text);
    }
}

static atomic_int failures;
static char       failure_text[256];

static void note_failure(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    (void)user, (void)pid, (void)name;
    same(error, FILCH_LUA_EMEMORY);
    snprintf(failure_text, sizeof failure_text, "%.*s", (int)size, text);
    atomic_fetch_add(&failures, 1);
}

TEST(on_failure_reports_a_process_without_memory_for_its_messages)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    static fixture    own;
    options.memory_max = 4 << 20;
    options.on_failure = note_failure;
    atomic_store(&failures, 0);
    fixture_open(&own, 1, &options);
    (void)fixture_start(
        &own,
        /* The process loops and does not receive: each of its steps keeps the messages that have arrived. */
        "local pid = process.spawn { function() while true do end end; memory = '1MB', monitor = true }\n"
        "for i = 1, 3 do process.send(pid, ('z'):rep(1 << 19)) end\n"
        "local e = process.receive()\n"
        "assert(e.error:find('not enough memory to keep messages', 1, true), e.error)\n",
        0);
    until(atomic_load(&own.over));
    if (own.error != FILCH_OK) fail_msg("%s", own.text);
    same(atomic_load(&failures), 1);
    has_text(failure_text, "not enough memory to keep messages");
    fixture_close(&own);
}

static atomic_int ended[2]; /* numbers of calls of on_failure with FILCH_ELINK and with FILCH_EOVERFLOW */
static atomic_int others;

static void count_failure(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    (void)user, (void)pid, (void)name;
    if (size > 0 && size == strlen(filch_err_text(error)) && memcmp(text, filch_err_text(error), size) == 0 &&
        (error == FILCH_ELINK || error == FILCH_EOVERFLOW)) {
        atomic_fetch_add(&ended[error == FILCH_EOVERFLOW], 1);
    } else {
        atomic_fetch_add(&others, 1);
    }
}

TEST(on_failure_reports_a_process_that_the_runtime_ends)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    static fixture    own;
    options.on_failure = count_failure;
    fixture_open(&own, 1, &options);
    fixture_passes(&own,
                   "local function ends(pid) return process.receive({ event = 'exit', pid = pid }) end\n"
                   "local full = process.spawn { function() time.sleep('1h') end; mailbox = 1, overflow = 'stop', "
                   "monitor = true }\n"
                   "time.sleep('1ms')\n"
                   "for i = 1, 3 do process.send(full, i) end\n"
                   "assert(ends(full).error)\n"
                   "local linked = process.spawn_monitored(function()\n"
                   "  process.spawn_linked(function() error('first') end)\n"
                   "  time.sleep('1h')\n"
                   "end)\n"
                   "assert(ends(linked).error)\n"
                   "for _, stop in ipairs { process.cancel, process.terminate } do\n"
                   "  local pid = process.spawn_monitored(function() time.sleep('1h') end)\n"
                   "  time.sleep('1ms')\n"
                   "  stop(pid)\n"
                   "  ends(pid)\n"
                   "end\n"
                   "assert(ends(process.spawn_monitored(function() return 1 end)).result == 1)\n");
    same(atomic_load(&ended[0]), 1);
    same(atomic_load(&ended[1]), 1);
    same(atomic_load(&others), 1); /* the failure of the process that called error('first') */
    fixture_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(endless_loops_of_every_kind_are_interrupted_and_continue),
        T(an_interrupted_computation_has_a_correct_result),
        T(an_uninterruptible_loop_fails_after_its_budget),
        T(endless_recursion_ends_with_an_error),
        T(memory_bombs_end_only_their_own_process),
        T(a_memory_limit_too_small_to_start_is_an_error),
        T(large_messages_arrive_unchanged),
        T(garbage_is_collected_before_a_kept_message_ends_the_process),
        cmocka_unit_test_setup_teardown(a_flood_is_refused_at_the_default_mailbox_limit, open_small_mailbox_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(every_way_to_start_a_process_uses_the_default_mailbox_limit,
                                        open_small_mailbox_fixture, fixture_close_shared),
        cmocka_unit_test(on_failure_reports_a_process_without_memory_for_its_messages),
        cmocka_unit_test(on_failure_reports_a_process_that_the_runtime_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
