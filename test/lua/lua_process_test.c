/* lua_process_test.c - Lua processes: starting, sending, receiving, requests, waiting, ending. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    fixture_open(&w, 2, NULL);
    return 0;
}

TEST(a_spawned_process_prints_its_messages)
{
    fixture_passes(&w, "local greeter = process.spawn(function()\n"
                       "  for i = 1, 3 do print('hello, ' .. process.receive()) end\n"
                       "end)\n"
                       "for _, name in ipairs { 'world', 'moon', 'sun' } do process.send(greeter, name) end\n");
    until(fixture_alive(&w) == 0);
    assert_string_equal(w.printed, "hello, world\nhello, moon\nhello, sun\n");
}

TEST(every_kind_of_value_arrives_unchanged)
{
    fixture_passes(
        &w,
        "local echo = process.spawn(function() while true do local m, from = process.receive() process.reply(from, m) "
        "end end)\n"
        "local values = { false, true, 0, 1, 63, 64, 127, 128, -1, -128, -129, 32767, 32768, -2147483648, 2147483648,\n"
        "  math.maxinteger, math.mininteger, 0.5, -0.0, 1/0, -1/0, '', 'x', ('y'):rep(63), ('y'):rep(64), "
        "('z'):rep(255),\n"
        "  ('z'):rep(256), ('q'):rep(100000), '\\xff\\xfe\\0', '\\xF1\\x1C\\x4C\\x01\\x0A', process.self(), {}, "
        "{1,2,3}, {a=1},\n"
        "  {1,2,nil,4}, {[1]='a',[3]='c',x={y={z={}}}}, {[true]=false,[1.5]=2}, {[process.self()]=1} }\n"
        "local function same(a, b)\n"
        "  if type(a) ~= 'table' or type(b) ~= 'table' then return a == b and math.type(a) == math.type(b) end\n"
        "  for k, v in pairs(a) do if not same(v, b[k]) then return false end end\n"
        "  for k in pairs(b) do if a[k] == nil then return false end end\n"
        "  return true\n"
        "end\n"
        "for i, value in ipairs(values) do\n"
        "  local got = process.request(echo, value)\n"
        "  if not same(value, got) then error(i .. ': ' .. tostring(value) .. ' came back as ' .. tostring(got)) end\n"
        "end\n"
        "assert(process.request(echo, nil) == nil)\n"
        "local nan = process.request(echo, 0/0) assert(nan ~= nan)\n");
}

TEST(an_error_names_the_path_of_a_value_that_cannot_be_sent)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "local function why(value) local fine, text = pcall(process.send, me, value) assert(not fine) return text end\n"
        "local function is(value, text) local got = why(value) if not got:find(text, 1, true) then error(got) end end\n"
        "is({ users = { 1, 2, { callback = print } } }, 'message.users[3].callback: a function cannot be sent')\n"
        "is({ ['a b'] = { [true] = coroutine.create(print) } }, 'message[\"a b\"][true]: a coroutine cannot be sent')\n"
        "is(print, 'message: a function cannot be sent')\n"
        "is({ [print] = 1 }, 'message[function]: a function cannot be sent')\n"
        "local loop = { inner = {} } loop.inner.outer = loop\n"
        "is(loop, 'message.inner.outer: the table contains itself')\n"
        "local deep = {} for i = 1, 200 do deep = { deep } end\n"
        "is(deep, 'nested too deep')\n"
        "local co = coroutine.create(print)\n"
        "local fine, text = pcall(process.spawn, function() end, { co })\n"
        "assert(not fine and text:find('argument 1[1]: a coroutine cannot be sent', 1, true), text)\n"
        "local function helper() return co end\n"
        "fine, text = pcall(process.spawn, function() return helper end)\n"
        "assert(not fine and text:find(\"upvalue 'helper'.co: a coroutine cannot be sent\", 1, true), text)\n");
}

TEST(functions_used_by_a_spawned_function_are_copied_with_it)
{
    fixture_passes(
        &w,
        "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
        "assert(process.exec(function(n) return fib(n) end, 15) == 610)\n"
        "assert(process.exec(fib, 10) == 55)\n"
        "local odd\n"
        "local function even(n) if n == 0 then return true end return odd(n - 1) end\n"
        "function odd(n) if n == 0 then return false end return even(n - 1) end\n"
        "assert(process.exec(function() return { even(10), odd(10), even(7) } end)[1] == true)\n"
        /* Functions that are sent together share their upvalues in the new process too. They share no upvalues with the
         * functions of the sender. */
        "local count = 1\n"
        "local function inc() count = count + 1 return count end\n"
        "local function get() return count end\n"
        "local got = process.exec(function() inc() inc() count = count + 10 return { inc(), get(), count } end)\n"
        "assert(got[1] == 14 and got[2] == 14 and got[3] == 14 and count == 1)\n"
        /* Functions are also copied inside tables, in arguments, and in a table that contains the spawned function
         * itself. */
        "local M = { twice = function(f, x) return f(f(x)) end }\n"
        "M.self = function() return M end\n"
        "assert(process.exec(function(f) return M.self().twice(f, 5) end, function(x) return x * 10 + count end) == "
        "511)\n"
        "local many = {} for i = 1, 30 do many[i] = function() return i + count end end\n"
        "assert(process.exec(function() local s = 0 for _, f in ipairs(many) do s = s + f() end return s end) == 495)\n"
        "assert(process.exec('counter_with', function() return 42 end) == 42)\n"
        /* If many processes are started from one function, their Lua states are copied from a template. */
        "for i = 1, 20 do assert(process.exec(function(n) return fib(n) end, 7) == 13) end\n");
}

TEST(upvalues_and_libraries_of_a_spawned_function_are_copied)
{
    fixture_passes(&w,
                   "local me, greeting, list, insert, tools = process.self(), 'hello', { 1, 2 }, table.insert, string\n"
                   "process.spawn(function(more)\n"
                   "  insert(list, more)\n"
                   "  process.send(me, { tools.upper(greeting), #list, list[3] })\n"
                   "end, 7)\n"
                   "local m = process.receive()\n"
                   "assert(m[1] == 'HELLO' and m[2] == 3 and m[3] == 7)\n"
                   "assert(#list == 2)\n");
}

TEST(a_module_is_spawned_by_name)
{
    fixture_passes(&w, "local pid = process.spawn('counter', 10)\n"
                       "process.send(pid, { 'add', 5 })\n"
                       "assert(process.request(pid, 'get') == 15)\n"
                       "local counter = require 'counter'\n"
                       "assert(counter == require 'counter' and type(counter.main) == 'function')\n"
                       "local fine, why = pcall(process.spawn, 'no_such_module')\n"
                       "assert(not fine and why:find('no_such_module', 1, true))\n"
                       "assert(not pcall(process.spawn, '../etc/passwd.x'))\n"
                       "process.terminate(pid)\n");
}

TEST(receive_waits_for_a_match_and_keeps_other_messages_in_order)
{
    fixture_passes(&w, "local me = process.self()\n"
                       "for i = 1, 5 do process.send(me, { kind = i % 2 == 0 and 'even' or 'odd', i = i }) end\n"
                       "process.send(me, 'text')\n"
                       "assert(process.receive({ kind = 'even' }).i == 2)\n"
                       "assert(process.receive(function(m) return m == 'text' end) == 'text')\n"
                       "assert(process.receive({ kind = 'even', i = function(i) return i > 2 end }).i == 4)\n"
                       "for _, i in ipairs { 1, 3, 5 } do assert(process.receive().i == i) end\n"
                       "local m, why = process.receive({ kind = 'even' }, 0.01)\n"
                       "assert(m == nil and why == 'timeout')\n"
                       "assert(select(2, process.receive(0)) == 'timeout')\n");
}

TEST(a_request_fails_by_timeout_by_exit_and_by_an_error_reply)
{
    fixture_passes(
        &w,
        "local mute = process.spawn(function() process.receive('10s') process.receive() end)\n"
        "local a, why = process.request(mute, 1, '20ms')\n"
        "assert(a == nil and why == 'timeout')\n"
        "local no = process.spawn(function() local _, from = process.receive() process.reply(from, nil, 'no!') end)\n"
        "a, why = process.request(no, 1)\n"
        "assert(a == nil and why == 'no!')\n"
        "while process.alive(no) do time.sleep(0.001) end\n"
        "a, why = process.request(no, 1)\n"
        "assert(a == nil and why:find('no such process', 1, true), why)\n"
        "process.terminate(mute)\n");
}

TEST(a_wait_may_be_inside_pcall_metamethods_iterators_and_coroutines)
{
    fixture_passes(
        &w,
        "local function slow(x) time.sleep('1ms') return x end\n"
        "assert(select(2, pcall(slow, 1)) == 1)\n"
        "assert(select(2, xpcall(slow, print, 2)) == 2)\n"
        "assert(select(2, pcall(pcall, slow, 3)) == true)\n"
        "local o = setmetatable({}, { __index = function(_, k) return slow(k) end, __add = function(a, b) return "
        "slow(9) end,\n"
        "  __eq = function() return slow(true) end, __call = function(_, x) return slow(x) end,\n"
        "  __lt = function() return slow(true) end, __concat = function() return slow('c') end,\n"
        "  __len = function() return slow(4) end, __close = function() slow() end })\n"
        "assert(o.k == 'k' and o + 1 == 9 and o(5) == 5 and o < o and o .. 'x' == 'c' and #o == 4)\n"
        "do local closed <close> = o end\n"
        "local n = 0\n"
        "for i in function(_, i) i = (i or 0) + 1 return slow(i <= 3 and i or nil) end do n = n + i end\n"
        "assert(n == 6)\n"
        "local produce = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(slow(i)) end return 'end' end)\n"
        "assert(produce() == 1 and produce() == 2 and produce() == 3 and produce() == 'end')\n"
        "local inner = coroutine.create(function(a) local b = coroutine.yield(slow(a) + 1) error('oh ' .. slow(b)) "
        "end)\n"
        "local outer = coroutine.create(function() return coroutine.resume(inner, 1) end)\n"
        "local a, b, c = coroutine.resume(outer)\n"
        "assert(a == true and b == true and c == 2)\n"
        "local fine, text = coroutine.resume(inner, 'x')\n"
        "assert(not fine and text:find('oh x', 1, true))\n"
        "assert(coroutine.status(inner) == 'dead')\n"
        "local fine2, text2 = pcall(tostring, setmetatable({}, { __tostring = function() slow() return '' end }))\n"
        "assert(not fine2 and text2:find('cannot wait here', 1, true), text2)\n"
        "local t = { 3, 2, 1 } table.sort(t, function(x, y) slow() return x < y end) assert(t[1] == 1 and t[3] == 3)\n"
        "assert(('abc'):gsub('.', function(c) slow() return c .. c end) == 'aabbcc')\n");
}

TEST(errors_carry_file_line_and_traceback)
{
    fixture_run(&w, "local function inner(x)\n"
                    "  return x.field\n"
                    "end\n"
                    "local function outer() return 1 + inner(nil) end\n"
                    "outer()\n");
    same(w.error, FILCH_LUA_EERROR);
    has_text(w.text, "test:2: attempt to index a nil value (local 'x')");
    has_text(w.text, "stack traceback:");
    has_text(w.text, "test:4: in ");
    has_text(w.text, "main chunk");
}

TEST(error_objects_of_every_type_are_reported)
{
    static const char *const cases[][2] = {
        { "error('plain', 0)", "plain" },
        { "error(42)", "42" },
        { "error(nil)", "nil" },
        { "error(true)", "true" },
        { "error({ message = 'in a table' })", "in a table" },
        { "error({})", "(error object is a table value)" },
        { "error(setmetatable({}, { __tostring = function() return 'told' end }))", "told" },
        { "error(setmetatable({}, { __tostring = function() error('again') end }))", "an error object without a text" },
        { "error(print)", "function" },
        { "error(process.self())", "<" },
        { "local f <close> = setmetatable({}, { __close = function() error('while closing') end }) error('first')",
          "while closing" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_run(&w, cases[i][0]);
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, cases[i][1]);
    }
}

/* Regression: if an error was not inside pcall, the __close handlers that followed it could not wait. A handler that
 * tried to wait failed with "cannot wait here", and this text replaced the error of the process. */
TEST(a_close_handler_may_wait_when_its_process_fails)
{
    fixture_passes(
        &w,
        "local lock = process.spawn(function()\n"
        "  local seen = ''\n"
        "  while true do\n"
        "    local m, from = process.receive()\n"
        "    if m == 'seen' then process.reply(from, seen) seen = '' else seen = seen .. m process.reply(from, true) "
        "end\n"
        "  end\n"
        "end)\n"
        "local function seen(what) local got = process.request(lock, 'seen') assert(got == what, got) end\n"
        "local function held(name, words)\n"
        "  local function close(_, why)\n"
        "    why = tostring(why):gsub('^test:%d+: ', '')\n"
        "    assert(process.request(lock, name .. '(' .. why .. ')'))\n"
        "    if words then error(words, 0) end\n"
        "  end\n"
        "  return setmetatable({}, { __close = name == 'c' and setmetatable({}, { __call = function(_, ...) close(...) "
        "end }) or close })\n"
        "end\n"
        "local function has(text, ...) for _, what in ipairs { ... } do assert(text:find(what, 1, true), text) end "
        "end\n"
        /* the error of the process stays, with its traceback; the handlers run from the last variable to the first */
        "local none, why = process.exec(function() local a <close> = held('a') local c <close> = held('c')\n"
        "  local function broken(x) local b <close> = held('b') return x.field end\n"
        "  broken() end)\n"
        "assert(none == nil) has(why, 'attempt to index a nil value', \"in local 'broken'\", 'stack traceback')\n"
        "local reason = \"(attempt to index a nil value (local 'x'))\" seen('b' .. reason .. 'c' .. reason .. 'a' .. "
        "reason)\n"
        /* the error of a handler replaces the error before it */
        "none, why = process.exec(function() local a <close> = held('a') local b <close> = held('b', 'second') local c "
        "<close> = held('c', 'first') error('zero') end)\n"
        "assert(none == nil) has(why, 'second\\nstack traceback') seen('c(zero)b(first)a(second)')\n"
        "none, why = process.exec(function() local a <close> = held('a') error(nil) end)\n"
        "has(why, 'nil') seen('a(nil)')\n"
        "none, why = process.exec(function() local a <close> = setmetatable({}, { __close = function(...) assert("
        "select('#', ...) == 2) process.request(lock, select(2, ...)) end }) error('x', 0) end)\n"
        "has(why, 'x') seen('x')\n"
        "none, why = process.exec(function() local a <close> = setmetatable({}, { __close = function(self, ...) "
        "process.request(lock, (...)) end }) error('y', 0) end)\n"
        "has(why, 'y') seen('y')\n"
        /* process.exit and a cancel */
        "assert(process.exec(function() local a <close> = held('a', 'ignored') local b <close> = held('b', 'ignored') "
        "process.exit(7) end) == 7)\n"
        "seen('b(exit)a(ignored)')\n"
        "local pid = process.spawn_monitored(function() local a <close> = held('a') process.receive() end)\n"
        "time.sleep('1ms') process.cancel(pid) has(process.receive({ event = 'exit' }).error, 'cancelled') "
        "seen('a(cancelled)')\n"
        /* coroutine.wrap */
        "for _ = 1, 2 do\n"
        "  local fine, text = pcall(coroutine.wrap(function() local a <close> = held('a') local b <close> = held('b', "
        "'second') time.sleep(0) error('first') end))\n"
        "  assert(not fine) has(text, 'second') seen('b(first)a(second)')\n"
        "  fine, text = pcall(coroutine.wrap(function() local a <close> = held('a') error({ text = 'table' }) end))\n"
        "  assert(not fine and text.text == 'table') process.request(lock, 'seen')\n"
        "  fine, text = pcall(coroutine.wrap(function() error('none') end)) assert(not fine) has(text, 'none')\n"
        "end\n"
        "process.terminate(lock)\n");
}

/* Regression: while a __close handler waited after process.exit, an error that another task caught ended the process at
 * once, and the remaining handlers did not run. An error that no task catches ends the process with this error. */
TEST(other_tasks_may_catch_errors_while_a_process_exits)
{
    fixture_passes(
        &w,
        "local me, done = process.self(), false\n"
        "local function held(name) return setmetatable({}, { __close = function()\n"
        "  repeat time.sleep('1ms') until done process.send(me, name) end }) end\n"
        "local function catch()\n"
        "  time.sleep('1ms')\n"
        "  local caught = not pcall(error, 'x') and not coroutine.resume(coroutine.create(error), 'x')\n"
        "  caught = caught and not pcall(coroutine.wrap(error), 'x') and not xpcall(error, function() end, 'x')\n"
        "  local t = task.spawn(error, 'x')\n"
        "  caught = caught and not pcall(t.await, t)\n"
        "  process.send(me, caught and 'caught' or 'not caught')\n"
        "  done = true\n"
        "end\n"
        "local function got(...) for _, what in ipairs { ... } do local m = process.receive(0) assert(m == what, "
        "tostring(m)) end assert(process.receive(0) == nil) end\n"
        "local function exit() local b <close> = held('b') local a <close> = held('a') process.exit(7) end\n"
        "assert(process.exec(function() task.spawn(catch) exit() end) == 7) got('caught', 'a', 'b')\n"
        "assert(process.exec(function() task.spawn(catch) pcall(exit) process.send(me, 'never') end) == 7)\n"
        "got('caught', 'a', 'b')\n"
        "assert(process.exec(function() task.spawn(exit) catch() time.sleep('1h') end) == 7) got('caught', 'a', 'b')\n"
        "local none, why = process.exec(function() task.spawn(function() time.sleep('1ms') error('of a task') end) "
        "exit() end)\n"
        "assert(none == nil and why:find('of a task', 1, true), why) got()\n");
}

static void has_no_text(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) fail_msg("'%s' is in: %s", part, text);
}

#define WAITING "local lock <close> = setmetatable({}, { __close = function() time.sleep('1h') end }) "

/* Regression: while the __close handlers of a failed main task ran, the error of another task got the code and the
 * traceback of the main task's error. If the main task was cancelled, on_failure was not called for the other error. */
TEST(a_task_that_fails_after_the_main_task_is_reported_with_its_own_error)
{
    static const char *const ends[] = { "process.cancel(process.self()) time.sleep('1h')", "error('of main')",
                                        "process.exit(7)" };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s%s", WAITING,
                 "task.spawn(function() time.sleep('1ms') local x = nil\nx.y = 1 end)\n", ends[i]);
        fixture_run(&w, text);
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, "test:2: attempt to index a nil value (local 'x')");
        has_no_text(w.text, "test:3:");
        snprintf(text, sizeof text, "%s%s%s", WAITING,
                 "task.spawn(function() time.sleep('1ms') local t = {} while true do t[#t + 1] = {} end end)\n",
                 ends[i]);
        fixture_run(&w, text);
        same(w.error, FILCH_LUA_EMEMORY);
        has_text(w.text, "not enough memory");
        has_no_text(w.text, "test:2:");
    }
}

/* Regression: process.exit or process.upgrade in a task, while the __close handlers of a failed main task ran, hid the
 * failure of the main task. */
TEST(an_exit_in_a_task_does_not_hide_the_failure_of_the_main_task)
{
    static const char *const tasks[] = {
        "task.spawn(function() time.sleep('1ms') process.exit('fine') end)",
        "task.spawn(function() process.exit('fine') end)", /* ends the process before the first handler begins */
        "task.spawn(function() coroutine.wrap(function() pcall(process.exit, 'fine') end)() end)",
        "task.spawn(function() local c <close> = setmetatable({}, { __close = function() time.sleep('1ms') end }) "
        "process.exit('fine') end)",
        "task.spawn(function() time.sleep('1ms') print(process.upgrade(function() return 'fine' end)) "
        "process.exit('fine') end)",
    };
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s\nerror('boom')", WAITING, tasks[i]);
        fixture_run(&w, text);
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, "test:2: boom\nstack traceback:");
        has_text(w.text, "test:2: in main chunk");
        snprintf(text, sizeof text, "%s%s\nerror(setmetatable({}, { __tostring = function() return 'an object' end }))",
                 WAITING, tasks[i]);
        fixture_run(&w, text);
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, "an object\nstack traceback:");
    }
    has_text(w.printed, "the main task has failed");
    fixture_run(&w, WAITING "task.spawn(function() time.sleep('1ms') process.exit('fine') end)\n"
                            "process.cancel(process.self()) time.sleep('1h')");
    same(w.error, FILCH_ECANCELLED);
    fixture_passes(&w, WAITING "task.spawn(function() time.sleep('1ms') process.exit('fine') end) process.exit(7)");
    has_text(w.text, "fine");
}

TEST(the_result_of_a_process_is_its_return_value)
{
    fixture_passes(&w, "return 42");
    same(w.kind, FILCH_KIND_INT);
    same(w.number, 42);
    fixture_passes(&w, "process.spawn(function() end) pcall(process.exit, 'done') error('not reached')");
    assert_string_equal(w.text, "done");
    fixture_passes(&w, "coroutine.wrap(function() process.exit(7) end)()");
    same(w.number, 7);
    fixture_run(&w, "return print");
    same(w.error, FILCH_LUA_EERROR);
    has_text(w.text, "result: a function cannot be sent");
}

TEST(a_cancel_raises_an_error_where_the_process_waits)
{
    filch_pid pid = fixture_start(&w,
                                  "local fine, why = pcall(process.receive) assert(not fine and why == 'cancelled')\n"
                                  "time.sleep('1ms') return 'tidied up'",
                                  0);
    ok(filch_cancel(w.sched, pid));
    until(atomic_load(&w.over));
    ok(w.error);
    assert_string_equal(w.text, "tidied up");
    pid = fixture_start(&w, "time.sleep(3600)", 0);
    ok(filch_cancel(w.sched, pid));
    until(atomic_load(&w.over));
    same(w.error, FILCH_ECANCELLED);
}

TEST(many_short_timeouts_leave_no_timers_behind)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "for i = 1, 2000 do process.send(me, i) assert(process.receive(3600) == i) end\n"
            "for i = 1, 20 do process.receive('1ms') process.send(me, i) assert(process.receive(3600) == i) end\n");
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(w.sched, &stats));
    assert_true(stats.yields < 100);
}

TEST(dangerous_functions_are_missing)
{
    fixture_passes(&w, "assert(io == nil and package == nil and dofile == nil and loadfile == nil)\n"
                       "assert(os.execute == nil and os.exit == nil and os.remove == nil and string.dump == nil)\n"
                       "assert(debug.sethook == nil and debug.getregistry == nil and debug.traceback)\n"
                       "assert(load('\\27Lua') == nil and load(string.char(27) .. 'x', 'n', 'b') == nil)\n"
                       "assert(not pcall(setmetatable, {}, { __gc = print }))\n"
                       "assert(pairs and os.time and utf8.len('x') == 1 and math.pi > 3)\n"
                       "local names = 0 for k in pairs(string) do names = names + 1 end assert(names > 15)\n"
                       "local all = 0 for k in pairs(_G) do all = all + 1 end assert(all > 30)\n"
                       "assert('10' + 1 == 11 and '3' * '4' == 12 and -'2' == -2 and 10 .. '' == '10')\n"
                       "assert(not pcall(function() return 'x' + 1 end))\n"
                       "setmetatable(_G, { __index = function(_, k) error('undefined ' .. k, 2) end })\n"
                       "assert(not pcall(function() return nothing end) and print)\n");
}

TEST(library_functions_limit_huge_lengths)
{
    fixture_passes(&w,
                   "assert(string.rep('', 1 << 50) == '')\n"
                   "assert(not pcall(table.move, {}, 1, 1 << 50, 2))\n"
                   "local liar = setmetatable({}, { __len = function() return 1 << 50 end })\n"
                   "assert(not pcall(table.insert, liar, 1, 0))\n"
                   "assert(not pcall(table.remove, liar, 1))\n"
                   "local t = { 1, 2, 3 } table.insert(t, 4) table.insert(t, 1, 0)\n"
                   "assert(table.concat(t, ',') == '0,1,2,3,4' and table.remove(t) == 4 and table.remove(t, 1) == 0)\n"
                   "assert(table.concat(table.move(t, 1, 3, 2), ',') == '1,1,2,3' and table.remove({}) == nil)\n"
                   "assert(string.rep('ab', 3, '-') == 'ab-ab-ab' and string.rep('x', 1) == 'x')\n");
}

TEST(a_string_over_the_memory_limit_ends_the_process)
{
    fixture_run(&w, "pcall(string.rep, 'x', 1 << 40) error('not reached')");
    same(w.error, FILCH_LUA_EMEMORY);
    has_text(w.text, "not enough memory: the process may hold 16777216 bytes");
    has_text(w.text, "test:1:");
}

TEST(json_is_encoded_and_decoded)
{
    fixture_passes(
        &w,
        "local function is(a, b) if a ~= b then error(tostring(a) .. ' is not ' .. tostring(b), 2) end end\n"
        "is(json.encode({ 1, 2.5, 'x', true, { a = 1 } }), '[1,2.5,\"x\",true,{\"a\":1}]')\n"
        "is(json.encode('q\"\\\\\\n\\t\\1\xc3\xa4'), '\"q\\\\\"\\\\\\\\\\\\n\\\\t\\\\u0001\xc3\xa4\"')\n"
        "is(json.encode({}), '{}') is(json.encode(nil), 'null') is(json.encode(2.0), '2.0') is(json.encode({ [7] = 'x' "
        "}), '{\"7\":\"x\"}')\n"
        "for _, bad in ipairs { print, 0/0, { [{}] = 1 }, { f = print } } do assert(not pcall(json.encode, bad)) end\n"
        "local loop = {} loop.x = loop assert(not pcall(json.encode, loop))\n"
        "local v = json.decode(' { \"a\" : [ 1 , -2.5e3, \"\\\\u00e4\\\\ud83d\\\\ude00\\\\n\" , null, true ] , \"b\" : "
        "{ } } ')\n"
        "is(v.a[1], 1) is(math.type(v.a[1]), 'integer') is(v.a[2], -2500.0) is(v.a[3], '\xc3\xa4\xf0\x9f\x98\x80\\n') "
        "is(v.a[5], true) is(next(v.b), nil)\n"
        "is(json.decode(json.encode(math.maxinteger)), math.maxinteger) is(json.decode(json.encode(0.1)), 0.1)\n"
        "for _, bad in ipairs { '', '{', '[1,]', '{\"a\"}', '01', '1.', 'tru', '\"a', '\"\\\\x\"', '\"\\\\ud800\"', '1 "
        "2', '[1 2]', ('['):rep(200), '-', '.5', '\"\\1\"' } do\n"
        "  local value, why = json.decode(bad) if value ~= nil or not why:find('^byte %d+: ') then error(bad .. ' ' .. "
        "tostring(why)) end\n"
        "end\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_spawned_process_prints_its_messages),
        T(every_kind_of_value_arrives_unchanged),
        T(an_error_names_the_path_of_a_value_that_cannot_be_sent),
        T(upvalues_and_libraries_of_a_spawned_function_are_copied),
        T(functions_used_by_a_spawned_function_are_copied_with_it),
        T(a_module_is_spawned_by_name),
        T(receive_waits_for_a_match_and_keeps_other_messages_in_order),
        T(a_request_fails_by_timeout_by_exit_and_by_an_error_reply),
        T(a_wait_may_be_inside_pcall_metamethods_iterators_and_coroutines),
        T(errors_carry_file_line_and_traceback),
        T(error_objects_of_every_type_are_reported),
        T(a_close_handler_may_wait_when_its_process_fails),
        T(other_tasks_may_catch_errors_while_a_process_exits),
        T(a_task_that_fails_after_the_main_task_is_reported_with_its_own_error),
        T(an_exit_in_a_task_does_not_hide_the_failure_of_the_main_task),
        T(the_result_of_a_process_is_its_return_value),
        T(a_cancel_raises_an_error_where_the_process_waits),
        T(many_short_timeouts_leave_no_timers_behind),
        T(dangerous_functions_are_missing),
        T(library_functions_limit_huge_lengths),
        T(a_string_over_the_memory_limit_ends_the_process),
        T(json_is_encoded_and_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
