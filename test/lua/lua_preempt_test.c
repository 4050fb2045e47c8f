/* lua_preempt_test.c - tasks, channels and receive when the Lua code is interrupted at any place: no value is lost, the
 * order is kept, no wait ends early. Real runs are interrupted at each second instruction, simulated runs at points
 * drawn from a seed.
 *
 * FILCH_TASKS_VALUES=N sends N values through each channel.
 */
#include <sched.h>

#include "lua/simulated.h"

static fixture w;

/* Opens a fixture in which a Lua function is interrupted after every second instruction. */
static void open_interrupted(int32_t workers)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.watch = FILCH_LUA_WATCH_COUNT;
    options.count = 1;
    options.slice_ns = 1;
    fixture_open(&w, workers, &options);
}

static int open_fixture(void **state)
{
    *state = &w;
    open_interrupted(1);
    return 0;
}

/* Opens a fixture as open_fixture() does, in which code that cannot be interrupted may run for 100 s. */
static int open_patient_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.watch = FILCH_LUA_WATCH_COUNT;
    options.count = 1;
    options.slice_ns = 1;
    options.runaway_ns = FILCH_SECONDS(100);
    fixture_open(&w, 1, &options);
    return 0;
}

/* Opens a fixture without frequent interruptions. It is for tests with many active calls, because each interruption
 * walks over all active calls. */
static int open_uninterrupted_fixture(void **state)
{
    *state = &w;
    fixture_open(&w, 1, NULL);
    return 0;
}

TEST(a_channel_delivers_all_values_in_order)
{
    const char *wanted = getenv("FILCH_TASKS_VALUES");
    int         values = wanted != NULL ? atoi(wanted) : (int)scaled(2000);
    char        chunk[1024];
    snprintf(chunk, sizeof chunk,
             "for _, capacity in ipairs { 0, 1, 4 } do\n"
             "  local ch, n = channel.new(capacity), 0\n"
             "  task.spawn(function() for i = 1, %d do ch:send(i) end ch:close() end)\n"
             "  for v in ch do n = n + 1 assert(v == n, v) end\n"
             "  assert(n == %d)\n"
             "end\n"
             "assert(runtime.stats().interrupted > 100)\n",
             values, values);
    (void)fixture_start(&w, chunk, 0);
    while (!atomic_load(&w.over)) sched_yield(); /* waits without a time limit, because N may be large */
    if (w.error != FILCH_OK) fail_msg("%s: %s", filch_err_name(w.error), w.text);
}

TEST(a_task_that_ends_during_await_wakes_the_waiter)
{
    char chunk[512];
    snprintf(chunk, sizeof chunk,
             "local sum = 0\n"
             "for i = 1, %d do sum = sum + task.spawn(function() return 1 end):await() end\n"
             "assert(sum == %d)\n",
             (int)scaled(2000), (int)scaled(2000));
    fixture_passes(&w, chunk);
}

/* A message from another process and a value from a task arrive at any moment while select checks its cases, enters the
 * queues of the channels and parks the task. */
TEST(select_misses_neither_a_value_nor_a_message)
{
    simulate(
        "local ch, me = channel.new(), process.self()\n"
        "process.spawn(function() for i = 1, 10 do process.send(me, i) if i % 3 == 0 then time.sleep(0) end end end)\n"
        "local sender = task.spawn(function() for i = 1, 10 do ch:send(i) end end)\n"
        "local from_channel, from_inbox = 0, 0\n"
        "for _ = 1, 20 do\n"
        "  local i, v = channel.select({ ch, channel.inbox }, '10s')\n"
        "  if i == 1 then from_channel = from_channel + 1 assert(v == from_channel, v)\n"
        "  else assert(i == 2, v) from_inbox = from_inbox + 1 assert(v == from_inbox, v) end\n"
        "end\n"
        "assert(from_channel == 10 and from_inbox == 10)\n",
        scaled(300));
}

TEST(channel_operations_are_correct_at_every_interruption)
{
    simulate(
        "local a, b, done = channel.new(), channel.new(2), channel.new(1)\n"
        "local function make(n, ch) return task.spawn(function() for i = 1, n do ch:send(i) end return n end) end\n"
        "local makers = { make(7, a), make(5, a), make(6, b) }\n"
        "local sum, got = 0, 0\n"
        "task.spawn(function()\n"
        "  while got < 18 do local _, v = channel.select { a, b } sum, got = sum + v, got + 1 end\n"
        "  done:send(sum)\n"
        "end)\n"
        "assert(done:receive('1h') == 28 + 15 + 21)\n"
        "local n = task.all(makers) assert(n[1] == 7 and n[2] == 5 and n[3] == 6)\n"
        "for _, ch in ipairs { a, b, done } do local s, r = ch:waiting() assert(s == 0 and r == 0 and #ch == 0) end\n",
        scaled(300));
}

TEST(a_sleep_after_an_error_in_a_pattern_does_not_end_early)
{
    simulate("local me = process.self()\n"
             "process.spawn(function() time.sleep('20ms') process.send(me, 1) end)\n"
             "local fine, why = pcall(process.receive, function() error('x', 0) end, '300ms') assert(not fine and why "
             "== 'x')\n"
             "local began = time.now()\n"
             "time.sleep('2s')\n"
             "assert(time.now() - began >= 2, time.now() - began)\n"
             "assert(process.receive(0) == 1)\n",
             scaled(100));
}

TEST(a_sleep_in_a_pattern_does_not_change_the_receive_timeout)
{
    simulate("local me = process.self()\n"
             "local sender = process.spawn(function() time.sleep('10ms') process.send(me, 'no') time.sleep('1m') "
             "process.send(me, 'yes') end)\n"
             "local began = time.now()\n"
             "assert(process.receive(function(m) time.sleep('1s') return m == 'yes' end, '1h') == 'yes')\n"
             "assert(time.now() - began >= 61)\n"
             "local v, why = process.receive(function(m) return m ~= 'no' end, '1s') assert(v == nil and why == "
             "'timeout')\n",
             scaled(50));
}

/* The pattern function returns only if the other task runs while the pattern function runs. */
TEST(a_long_running_pattern_lets_other_tasks_run)
{
    fixture_passes(&w,
                   "local go = false\n"
                   "task.spawn(function() go = true end)\n"
                   "process.send(process.self(), { kind = 'x', n = 1 })\n"
                   "local m = process.receive({ kind = function(k) while not go do end return k == 'x' end, n = 1 })\n"
                   "assert(m.n == 1)\n");
}

TEST(a_receive_pattern_may_call_receive)
{
    fixture_passes(&w, "local me = process.self()\n"
                       "for i = 1, 5 do process.send(me, i) end\n"
                       "local inner\n"
                       "local m = process.receive(function(m) if not inner then inner = process.receive(3, '1s') end "
                       "return m == 4 end)\n"
                       "assert(inner == 3 and m == 4)\n"
                       "assert(process.receive() == 1 and process.receive() == 2 and process.receive() == 5)\n"
                       /* here the pattern function receives the message that is being matched */
                       "inner = nil for i = 1, 5 do process.send(me, i) end\n"
                       "m = process.receive(function(m) if m == 2 and not inner then inner = process.receive(2, '1s') "
                       "return true end return m == 5 end)\n"
                       "assert(inner == 2 and m == 5)\n"
                       "assert(process.receive() == 1 and process.receive() == 3 and process.receive() == 4)\n");
}

static bool is_over(void *user)
{
    return atomic_load(&((fixture *)user)->over) != 0;
}

/* A channel call that fails because the stack is full changes nothing. The test takes seconds of CPU time in builds
 * without optimisation, so it waits longer than other tests. */
TEST(a_stack_overflow_in_a_channel_call_loses_no_value)
{
    (void)fixture_start(&w,
                        "local ch, got = channel.new(), {}\n"
                        "local reader = task.spawn(function() for v in ch do got[#got + 1] = v end end)\n"
                        "local n = 0\n"
                        "local function deep() n = n + 1 ch:send(n) return 1 + deep() end\n"
                        "local fine = pcall(deep) assert(not fine)\n"
                        "ch:close() reader:await()\n"
                        "for i, v in ipairs(got) do assert(i == v) end\n"
                        "assert(#got == n or #got == n - 1)\n",
                        (size_t)1 << 30);
    for (int i = 0; i < 8 && !until_or_late(is_over, &w); i++) {}
    assert_true(is_over(&w));
    if (w.error != FILCH_OK) fail_msg("%s: %s", filch_err_name(w.error), w.text);
}

TEST(a_value_passed_to_a_task_is_received_before_its_cancel)
{
    fixture_passes(&w, "local ch, got = channel.new()\n"
                       "local t = task.spawn(function() got = ch:receive() ch:receive() end)\n"
                       "while select(2, ch:waiting()) == 0 do time.sleep(0) end\n"
                       "ch:send('value') t:cancel()\n"
                       "local fine, why = pcall(t.await, t) assert(not fine and why == 'cancelled', why)\n"
                       "assert(got == 'value')\n"
                       "local s, r = ch:waiting() assert(s == 0 and r == 0)\n");
}

TEST(a_wait_leaves_all_its_queues_however_it_ends)
{
    fixture_passes(
        &w,
        "local a, b = channel.new(), channel.new()\n"
        "local function nothing_waits() for _, ch in ipairs { a, b } do local s, r = ch:waiting() assert(s == 0 and r "
        "== 0) end end\n"
        "assert(channel.select({ a, b:sending(1) }, '1ms') == nil) nothing_waits()\n"
        "local t = task.spawn(function() channel.select { a, b:sending(2), channel.inbox } end)\n"
        "while select(2, a:waiting()) == 0 do time.sleep(0) end\n"
        "t:cancel() assert(not pcall(t.await, t)) nothing_waits()\n"
        "t = task.spawn(function() return channel.select { a, b:sending(3), channel.inbox } end)\n"
        "while select(2, a:waiting()) == 0 do time.sleep(0) end\n"
        "process.send(process.self(), 'mail') local i, m = t:await() assert(i == 3 and m == 'mail') nothing_waits()\n"
        "t = task.spawn(function() return pcall(channel.select, { a, b:sending(4) }) end)\n"
        "while select(2, a:waiting()) == 0 do time.sleep(0) end\n"
        "b:close() local fine, why = t:await() assert(not fine and why:find('closed channel')) local s, r = "
        "a:waiting() assert(r == 0)\n");
}

/* The Lua program has about a hundred instructions, and a bug that shows only if a task is interrupted between two
 * certain instructions. */
TEST(a_simulation_finds_a_race_of_three_instructions)
{
    static const char racy[] = "local n = 0\n"
                               "local function add() for i = 1, 3 do local old = n n = old + 1 end end\n"
                               "local a, b = task.spawn(add), task.spawn(add)\n"
                               "a:await() b:await()\n"
                               "if n ~= 6 then sim.fail('lost') end\n";
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    sim.seed = 1;
    ok(filch_lua_create(&lua, NULL));
    ok(filch_lua_load(lua, racy, sizeof racy - 1, "racy", &code, NULL, 0));
    ok(filch_lua_sim(lua, code, NULL, &sim, 1000, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    assert_string_equal(report.text, "lost");
    assert_true(report.seed < 300);
    filch_sim_report_free(&report);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

TEST(a_task_cannot_await_itself)
{
    fixture_passes(&w, "local t t = task.spawn(function() return pcall(t.await, t) end)\n"
                       "local fine, why = t:await() assert(not fine and why:find('cannot await itself'), why)\n"
                       "fine, why = pcall(task.all, { function() end, 5 }) assert(not fine and why:find('number 2 is a "
                       "number'), why)\n"
                       "assert(not pcall(channel.inbox) and not pcall(t.await, 5))\n");
}

/* One hook notes the handlers (process/closing.c), another hook interrupts the process. The handlers run when the
 * second hook has replaced the first. */
TEST(a_close_handler_that_runs_after_an_error_is_interrupted)
{
    fixture_passes(&w,
                   "local function wait(f) return function()\n"
                   "  local guard <close> = setmetatable({}, { __close = function()\n"
                   "    local done = false task.spawn(function() done = true end) while not done do end\n"
                   "  end }) f() end end\n"
                   "local function fails() error('failed', 0) end\n"
                   "local none, why = process.exec(wait(fails)) assert(none == nil and why:find('failed', 1, true))\n"
                   "assert(process.exec(wait(function() process.exit(5) end)) == 5)\n"
                   "none, why = pcall(coroutine.wrap(wait(fails))) assert(not none and why:find('failed', 1, true))\n");
}

/* Regression: if another task changed the table during a pause of json.encode, the error was "invalid key to 'next'",
 * and a list that had become shorter was written with nulls. */
TEST(an_encoder_says_that_another_task_changed_its_table)
{
    /* The loop of 40 rounds is interrupted at each second instruction, so the encoder has begun when the table changes.
     * The change is made inside tostring, where it is not interrupted, before the encoder has written the table. */
    fixture_passes(
        &w, "local function changed(make, change)\n"
            "  for name, encode in pairs { ['json.encode'] = json.encode, ['msgpack.encode'] = msgpack.encode } do\n"
            "    local inner = make()\n"
            "    local at_once = setmetatable({}, { __tostring = function() change(inner) return '' end })\n"
            "    local value = { { k = 1, inner } }\n"
            "    task.spawn(function() for i = 1, 40 do end tostring(at_once) end)\n"
            "    local fine, why = pcall(encode, value)\n"
            "    assert(not fine and why:find(name .. ': a table was changed while it was written', 1, true), name)\n"
            "  end\n"
            "end\n"
            "changed(function() local t = {} for i = 1, 10000 do t['k' .. i] = i end return t end, function(t)\n"
            "  for i = 1, 10000 do t['k' .. i] = nil end collectgarbage() for i = 1, 15000 do t[-i] = i end end)\n"
            "changed(function() local t = {} for i = 1, 10000 do t[i] = i end return t end,\n"
            "  function(t) for i = 1, 200 do t[#t] = nil end end)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_channel_delivers_all_values_in_order, open_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_task_that_ends_during_await_wakes_the_waiter, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test(select_misses_neither_a_value_nor_a_message),
        cmocka_unit_test(channel_operations_are_correct_at_every_interruption),
        cmocka_unit_test(a_sleep_after_an_error_in_a_pattern_does_not_end_early),
        cmocka_unit_test(a_sleep_in_a_pattern_does_not_change_the_receive_timeout),
        cmocka_unit_test_setup_teardown(a_long_running_pattern_lets_other_tasks_run, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_receive_pattern_may_call_receive, open_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_stack_overflow_in_a_channel_call_loses_no_value, open_uninterrupted_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_value_passed_to_a_task_is_received_before_its_cancel,
                                        open_uninterrupted_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_wait_leaves_all_its_queues_however_it_ends, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test(a_simulation_finds_a_race_of_three_instructions),
        cmocka_unit_test_setup_teardown(a_task_cannot_await_itself, open_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(an_encoder_says_that_another_task_changed_its_table, open_patient_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_close_handler_that_runs_after_an_error_is_interrupted, open_fixture,
                                        fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
