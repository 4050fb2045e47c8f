/* lua_found_test.c - regression tests for bugs that users of Lua processes reported. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.runaway_ns = FILCH_SECONDS(10); /* under valgrind a __close handler that cannot be interrupted takes long */
    fixture_open(&w, 2, &options);
    return 0;
}

/* Regression: the process crashed if the pattern function of a receive called receive itself, and that call took the
 * message at which the outer search had stopped. */
TEST(a_receive_pattern_may_call_receive)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "for i = 1, 6 do process.send(me, i) end\n"
        "local once = true\n"
        "local m = process.receive(function(m)\n"
        "  if once then once = false process.receive({}, 0) assert(process.receive() == 1) process.receive({}, 0) end\n"
        "  return m == 3\n"
        "end)\n"
        "assert(m == 3)\n"
        /* the pattern function takes all messages itself */
        "assert(process.receive(function(m) return process.receive(0) == nil end, 0) == nil)\n"
        "assert(select(2, process.receive(0)) == 'timeout')\n"
        /* a match does not count if the pattern function has taken the message */
        "for i = 1, 4 do process.send(me, i) end\n"
        "assert(process.receive(function(m) local x = process.receive(0) return true end, 0) == nil)\n");
}

/* Regression: a receive with timeout 0 did not find messages that had arrived during a sleep. */
TEST(receive_without_waiting_finds_messages_from_a_sleep)
{
    fixture_passes(&w, "local me = process.self()\n"
                       "local other = process.spawn(function() for i = 1, 3 do process.send(me, i) end end)\n"
                       "while process.alive(other) do time.sleep('1ms') end\n"
                       "assert(process.receive(0) == 1) assert(process.receive(function(m) return m == 3 end, 0) == 3) "
                       "assert(process.receive('0s') == 2)\n"
                       "local none, why = process.receive(0) assert(none == nil and why == 'timeout')\n");
}

/* Regression: at a place where a process cannot wait, process.request sent its request, and process.exec started its
 * process, before the call failed. */
TEST(a_call_that_cannot_wait_sends_and_starts_nothing)
{
    fixture_passes(
        &w,
        "local server = process.spawn(function() while true do local m, from = process.receive() if m == 'count' then "
        "process.reply(from, 0) else error('asked') end end end)\n"
        "local function refused(f) local fine, why = pcall(tostring, setmetatable({}, { __tostring = f })) assert(not "
        "fine and why:find('cannot wait here', 1, true), why) end\n"
        "local spawned = runtime.stats().spawned\n"
        "refused(function() process.request(server, 'lost') end) refused(function() process.exec(function() end) end)\n"
        "refused(function() coroutine.wrap(function() time.sleep(1) end)() end) refused(function() time.sleep(1) end) "
        "refused(function() process.receive() end) refused(function() channel.new():receive() end)\n"
        "assert(process.request(server, 'count') == 0 and runtime.stats().spawned == spawned)\n"
        "process.terminate(server)\n");
}

/* Regression: a memory limit too small for the new process ended the process that called spawn, although the call was
 * inside pcall. */
TEST(a_spawn_without_enough_memory_does_not_end_its_caller)
{
    fixture_passes(&w,
                   "for _, size in ipairs { 1, 100, 3000, 5000 } do\n"
                   "  local fine, why = pcall(process.spawn, { function() end, memory = size })\n"
                   "  assert(not fine and why:find('not enough memory to begin: the process may hold ' .. size .. ' "
                   "bytes', 1, true), why)\n"
                   "end\n"
                   "assert(process.exec{ function() return 5 end, memory = '1MB' } == 5)\n");
}

/* Regression: a send that failed at a full mailbox was counted wrongly. It must count once in `refused`, and in no
 * other counter. */
TEST(a_failed_send_counts_once_as_refused)
{
    fixture_passes(&w, "local pid = process.spawn { function() process.receive('go') end, mailbox = 2, overflow = "
                       "'fail', monitor = true }\n"
                       "local before = runtime.stats()\n"
                       /* The receiver takes messages that do not match out of its mailbox, so it may accept more
                        * messages than its limit of two. */
                       "while process.send(pid, 3) do end\n"
                       "local after = runtime.stats()\n"
                       "assert(after.refused == before.refused + 1 and after.undelivered == before.undelivered)\n"
                       "process.terminate(pid) process.receive({ event = 'exit', pid = pid })\n");
}

/* Regression: no counter counted the messages that the steps of a process had got, but that its program had not
 * received when the process ended. */
TEST(messages_that_an_ended_process_has_not_received_are_counted)
{
    fixture_passes(
        &w, "local function lost(body, last)\n"
            "  local before = runtime.stats().undelivered\n"
            "  local pid = process.spawn { body, monitor = true }\n"
            "  for i = 1, 5 do process.send(pid, i) end\n"
            "  if last then process.send(pid, last) end\n"
            "  process.receive({ event = 'exit', pid = pid })\n"
            "  return runtime.stats().undelivered - before\n"
            "end\n"
            "for i = 1, 20 do\n"
            "  assert(lost(function() for i = 1, 5 do process.receive() end end) == 0)\n"
            /* the last step has received one of the five messages that have arrived */
            "  assert(lost(function() process.receive() end) == 4)\n"
            /* a sleep has kept the messages, or a receive with a pattern has kept them */
            "  assert(lost(function() time.sleep('1ms') end) == 5)\n"
            "  assert(lost(function() process.receive('last') end, 'last') == 5)\n"
            "  assert(lost(function() process.receive('last') error('failed') end, 'last') == 5)\n"
            /* an upgrade has handed the kept messages over to the new code */
            "  assert(lost(function() process.receive('last') process.upgrade(function() process.receive() end) end,"
            " 'last') == 4)\n"
            "end\n");
}

/* Regression: the size "4 apples" was accepted as four bytes. */
TEST(trailing_text_after_a_size_is_refused)
{
    fixture_passes(
        &w, "for _, bad in ipairs { '4 apples', '4Q', '4KBs', '', 'x', '-4K', ' 4K', '0', '99999999999999999999', "
            "0, -1, 1.5, true, '9000000000G' } do\n"
            "  local fine, why = pcall(process.spawn, { function() end, memory = bad }) assert(not fine and "
            "why:find('memory: a size must be', 1, true), tostring(bad))\n"
            "end\n"
            "for _, large in ipairs { '1G', '1GB' } do\n"
            "  local fine, why = pcall(process.spawn, { function() end, memory = large }) assert(not fine and "
            "why:find('the limit of the process that spawns', 1, true), why)\n"
            "end\n"
            "for _, good in ipairs { 65536, '65536', '64K', '64KB', '1M', '1MB' } do\n"
            "  assert(process.exec{ function() return 1 end, memory = good, mailbox_bytes = '64KB' } == 1, good)\n"
            "end\n");
}

/* Regression: when an error closed a stream variable, the text of this error was replaced by "cannot wait here". */
TEST(an_error_that_closes_a_stream_keeps_its_text)
{
    static fixture    with_files;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.rights = FILCH_LUA_MAY_FILES;
    fixture_open(&with_files, 1, &options);
    fixture_run(&with_files, "local file <close> = assert(fs.open('/dev/null')) error('the reason')");
    same(with_files.error, FILCH_LUA_EERROR);
    has_text(with_files.text, "test:1: the reason");
    fixture_passes(
        &with_files,
        "local kept do local file <close> = assert(fs.open('/dev/null')) kept = file end assert(kept:read() == nil)\n"
        "assert(not pcall(function() local file <close> = assert(fs.open('/dev/null')) kept = file error('x') end) and "
        "kept:read() == nil)");
    fixture_close(&with_files);
}

/* Regression: infinite and very long timeouts failed with "number has no integer representation". */
TEST(every_call_accepts_an_infinite_timeout)
{
    fixture_passes(
        &w, "for _, long in ipairs { math.huge, 1e10, 1e300, '1000000d' } do\n"
            "  local slow = task.spawn(function() time.sleep('1ms') return 5 end) assert(slow:await(long) == 5)\n"
            "  local ch = channel.new() task.spawn(function() time.sleep('1ms') ch:send('x') end) "
            "assert(ch:receive(long) == 'x')\n"
            "  task.spawn(function() time.sleep('1ms') assert(ch:receive() == 'y') end) assert(ch:send('y', long))\n"
            "  assert(task.all({ function() return 1 end }, long)[1] == 1 and task.any({ function() return 1 end }, "
            "long) == 1)\n"
            "  task.spawn(function() time.sleep('1ms') ch:send('z') end) assert(channel.select({ ch }, long) == 1)\n"
            "  process.send(process.self(), 1) assert(process.receive(long) == 1)\n"
            "end\n");
}

/* Regression: calling the __index function of a library table with a value that is not a table crashed the program. */
TEST(builtin_metamethods_refuse_values_that_are_not_tables)
{
    fixture_passes(
        &w, "local all = { getmetatable(_G).__index, getmetatable(json).__index, getmetatable(process).__index }\n"
            "for _, index in ipairs(all) do\n"
            "  for _, x in ipairs { 12345678, 'text', print, true, coroutine.create(print) } do assert(not "
            "pcall(index, x, 'print')) end\n"
            "  assert(not pcall(index)) assert(not pcall(index, nil, 'encode'))\n"
            "end\n");
}

/* Regression: a finalizer, which cannot be interrupted, occupied a worker for ever. */
TEST(no_builtin_metatable_accepts_a_finalizer)
{
    fixture_passes(&w,
                   "assert(getmetatable(json.list()) == false and getmetatable(json.decode('[1]')) == false)\n"
                   "assert(not pcall(setmetatable, {}, { __gc = print }))\n"
                   /* a metatable without a finalizer is allowed for a decoded list, as for any other table */
                   "local own = setmetatable(json.decode('[1]'), { __name = 'own' })\n"
                   "assert(getmetatable(own).__name == 'own' and json.encode(json.list(json.list())) == '[]')\n"
                   "for _, x in ipairs { json.null, channel.new(), blob.new('x'), task.spawn(print) } do assert(not "
                   "getmetatable(x)) end\n");
}

/* Regression: another task could resume or close the coroutine of a task, which freed memory that the waiting task
 * still used. */
TEST(the_coroutine_of_a_task_cannot_be_resumed_or_closed)
{
    fixture_passes(&w, "local main, ch, own = coroutine.running(), channel.new()\n"
                       "local function refused(co)\n"
                       "  assert(coroutine.status(co) == 'normal')\n"
                       "  local fine, why = coroutine.resume(co, 1) assert(not fine and why == 'cannot resume "
                       "non-suspended coroutine', why)\n"
                       "  fine, why = pcall(coroutine.close, co) assert(not fine and why:find('cannot close a normal "
                       "coroutine', 1, true), why)\n"
                       "end\n"
                       "local waits = task.spawn(function()\n"
                       "  own = coroutine.running() assert(coroutine.status(own) == 'running')\n"
                       "  local fine, why = pcall(coroutine.close, own) assert(not fine and why:find('cannot close a "
                       "running coroutine', 1, true), why)\n"
                       "  coroutine.wrap(function() refused(own) refused(main) end)()\n"
                       "  return ch:receive()\n"
                       "end)\n"
                       "while own == nil do time.sleep('1ms') end\n"
                       "refused(own) coroutine.wrap(refused)(own) collectgarbage()\n"
                       "task.spawn(function() refused(main) refused(own) end):await()\n"
                       "assert(ch:send(5) and waits:await() == 5)\n"
                       "assert(coroutine.status(own) == 'dead' and coroutine.close(own) and select(2, "
                       "coroutine.resume(own)) == 'cannot resume dead coroutine')\n"
                       "local fails = task.spawn(function() own = coroutine.running() error('x') end) assert(not "
                       "pcall(fails.await, fails) and coroutine.status(own) == 'dead')\n"
                       "local co = coroutine.create(function() coroutine.yield() end) assert(coroutine.resume(co) and "
                       "coroutine.status(co) == 'suspended' and coroutine.close(co))\n");
}

/* Runs the Lua code below, followed by `wait`. The code in `wait` calls full(left), which fills the memory except for
 * `left` KiB, and then use_after(f), where f waits at the channel `ch` and runs out of memory. The __close handler in
 * use_after() then collects the garbage, overwrites it and uses the channel. */
static void wait_without_memory(const char *wait)
{
    static const char before[] = "local LIMIT = 8 * 1024\n"
                                 "local count, ch, fill = collectgarbage, channel.new(), {}\n"
                                 "local function full(left)\n"
                                 "  while count('count') < LIMIT - left do\n"
                                 "    fill[#fill + 1] = ('x'):rep(1000) .. #fill\n"
                                 "    if count('count') > LIMIT - left then count() end\n"
                                 "  end\n"
                                 "end\n"
                                 "local function use_after(wait)\n"
                                 "  local c <close> = setmetatable({}, { __close = function()\n"
                                 "    for k in pairs(fill) do fill[k] = nil end\n"
                                 "    for i = 1, 4 do count() end\n"
                                 "    local spray = {}\n"
                                 "    for i = 1, 3000 do spray[i] = ('A'):rep(i % 200 + 20) .. i end\n"
                                 "    print('waiting', ch:waiting())\n"
                                 "    ch:close()\n"
                                 "  end })\n"
                                 "  wait()\n"
                                 "end\n";
    static fixture    patient;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    char              chunk[4096];
    options.slice_ns = FILCH_SECONDS(10); /* an interrupted process keeps its messages, and ends if it cannot */
    snprintf(chunk, sizeof chunk, "%s%s", before, wait);
    fixture_open(&patient, 2, &options);
    (void)fixture_start(&patient, chunk, 8 << 20);
    until(atomic_load(&patient.over));
    same(patient.error, FILCH_LUA_EMEMORY);
    has_text(patient.printed, "waiting\t0\t0\n");
    fixture_close(&patient);
}

/* Regression: a call that ran out of memory while it began to wait stayed in the queue of its channel. If a __close
 * handler then used the channel, the program crashed. */
TEST(a_channel_can_be_used_after_a_wait_without_memory_for_its_timeout)
{
    wait_without_memory("for i = 1, 4096 do task.spawn(function() time.sleep('1h') end) end\n"
                        "task.spawn(function() end):await()\n"
                        "full(25)\n"
                        "use_after(function() ch:receive('10h') end)\n");
}

TEST(a_channel_can_be_used_after_a_select_without_memory_for_its_values)
{
    wait_without_memory("local cases = {}\n"
                        "for i = 1, 5000 do cases[i] = ch:sending(i) end\n"
                        "full(500)\n"
                        "use_after(function() channel.select(cases) end)\n");
}

TEST(a_channel_can_be_used_after_a_select_without_memory_for_its_message)
{
    wait_without_memory("local me, text = process.self(), ('m'):rep(500000)\n"
                        "full(200)\n"
                        "task.spawn(function() task.spawn(function() end):await() process.send(me, text) end)\n"
                        "use_after(function() channel.select({ ch, channel.inbox }) end)\n");
}

/* Regression: a function of coroutine.wrap that was called where Lua refuses to resume a coroutine ("C stack overflow")
 * raised a value that did not exist, and memory was damaged. */
TEST(a_wrapped_coroutine_that_is_called_too_deep_can_be_called_later)
{
    fixture_passes(
        &w, "local refused = 0\n"
            "local function check(wrapped)\n"
            "  for i = 1, 3 do\n"
            "    local fine, why = pcall(wrapped, table.unpack({ 1, 2, 3 }, 1, i))\n"
            "    if fine then return end\n"
            "    assert(why:find('C stack overflow', 1, true), why) refused = refused + 1\n"
            "  end\n"
            "  return wrapped\n"
            "end\n"
            /* in an error handler, where Lua cannot yield */
            "local wrapped\n"
            "local object = setmetatable({}, { __unm = function(t) local v = -t return v end })\n"
            "assert(not xpcall(function() return -object end, function(e)\n"
            "  wrapped = check(coroutine.wrap(function(...) return 'ran', ... end)) return e\n"
            "end))\n"
            "assert(refused == 3)\n"
            "local a, b, c, d = wrapped(1, 2) assert(a == 'ran' and b == 1 and c == 2 and d == nil)\n"
            "assert(not pcall(wrapped))\n"
            /* in nested coroutines, where Lua can yield */
            "local function call(n, f) if n == 0 then return f() end return select(2, pcall(call, n - 1, f)) end\n"
            "local kept = {}\n"
            "local function nest()\n"
            "  local inner = coroutine.wrap(nest)\n"
            "  local fine, why = pcall(inner)\n"
            "  if not fine then kept[#kept + 1] = check(coroutine.wrap(function(x) return x end)) end\n"
            "end\n"
            "for n = 0, 5 do call(n, nest) end\n"
            "assert(refused > 3 and #kept > 0, refused)\n"
            "for i, f in ipairs(kept) do pcall(f, i) end\n"
            "collectgarbage()\n");
}

/* Regression: a hook notes the __close handlers of a failed coroutine one by one (process/closing.c). If a collection
 * shrank the large stack of the coroutine before all handlers were noted, the remaining handlers ran where they could
 * not wait. */
static const char deep_failure[] =
    "local function deep(n) if n == 0 then error('failed', 0) end local t = { n } deep(n - 1) return t end\n"
    "local function nest(n, f)\n"
    "  local x <close> = setmetatable({}, { __close = f })\n"
    "  if n == 0 then deep(500 + 5 * DEPTH) end\n"
    "  nest(n - 1, f)\n"
    "end\n";

TEST(all_close_handlers_can_wait_after_an_error_in_a_deep_recursion)
{
    char chunk[2048];
    for (int depth = 1; depth <= 100; depth++) {
        snprintf(chunk, sizeof chunk,
                 "local DEPTH, ran = %d, 0\n%s"
                 "local function closing() time.sleep(0) ran = ran + 1 end\n"
                 "local fine, why = pcall(coroutine.wrap(function() nest(150, closing) end))\n"
                 "assert(not fine and why == 'failed' and ran == 151, why)\n",
                 depth, deep_failure);
        fixture_passes(&w, chunk);
        snprintf(chunk, sizeof chunk, "local DEPTH = %d\n%s nest(150, function() time.sleep(0) end)", depth,
                 deep_failure);
        fixture_run(&w, chunk);
        assert_int_equal(strncmp(w.text, "failed\n", 7), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_receive_pattern_may_call_receive),
        T(receive_without_waiting_finds_messages_from_a_sleep),
        T(a_call_that_cannot_wait_sends_and_starts_nothing),
        T(a_spawn_without_enough_memory_does_not_end_its_caller),
        T(a_failed_send_counts_once_as_refused),
        T(messages_that_an_ended_process_has_not_received_are_counted),
        T(trailing_text_after_a_size_is_refused),
        cmocka_unit_test(an_error_that_closes_a_stream_keeps_its_text),
        T(every_call_accepts_an_infinite_timeout),
        T(builtin_metamethods_refuse_values_that_are_not_tables),
        T(no_builtin_metatable_accepts_a_finalizer),
        T(the_coroutine_of_a_task_cannot_be_resumed_or_closed),
        T(a_channel_can_be_used_after_a_wait_without_memory_for_its_timeout),
        T(a_channel_can_be_used_after_a_select_without_memory_for_its_values),
        T(a_channel_can_be_used_after_a_select_without_memory_for_its_message),
        T(a_wrapped_coroutine_that_is_called_too_deep_can_be_called_later),
        T(all_close_handlers_can_wait_after_an_error_in_a_deep_recursion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
