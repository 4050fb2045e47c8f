/* lua_promises_test.c - promises of the Lua libraries that a small bug would break without notice: no task is left
 * running, no memory is left behind, no cost is quadratic, patterns and full mailboxes behave as described. Checked by
 * counts and virtual time. */
#include <lua.h>

#include "lua/simulated.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    fixture_open(&w, 2, NULL);
    return 0;
}

TEST(task_any_cancels_the_other_tasks)
{
    simulate(
        "local ran, ends = 0, 0\n"
        "local function slow() local guard <close> = setmetatable({}, { __close = function() ends = ends + 1 end }) "
        "time.sleep('2s') ran = ran + 1 end\n"
        "local i, v = task.any { slow, function() time.sleep('1s') return 'quick' end, slow } assert(i == 2 and v == "
        "'quick')\n"
        "time.sleep('1h') assert(ran == 0 and ends == 2)\n"
        "assert(task.any({ slow, slow }, '1s') == nil) time.sleep('1h') assert(ran == 0 and ends == 4)\n"
        "assert(not pcall(task.all, { slow, function() error('x') end })) time.sleep('1h') assert(ran == 0 and ends == "
        "5)\n"
        "local waiter = task.spawn(function() task.all { slow, slow } end) time.sleep(0)\n"
        "waiter:cancel() assert(not pcall(waiter.await, waiter)) time.sleep('1h') assert(ran == 0 and ends == 7)\n",
        scaled(20));
}

static int open_fixture_with_one_worker(void **state)
{
    *state = &w;
    fixture_open(&w, 1, NULL);
    return 0;
}

/* The main task waits, then cancels the task `other`, which waits for an answer. This is repeated until both waits end
 * in one batch of events, so that `other` is cancelled after its answer has arrived. In `request` and `exec` the
 * process is cancelled just before the answer is sent: a cancel is the first event of its batch, and ends the sleep of
 * the main task in rest(). In `work` both tasks wait for jobs of the thread pool: the process `busy` occupies the only
 * worker for 2 ms, and in this time both jobs can end. */
TEST(an_answer_that_has_arrived_is_returned_before_the_cancel)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "local server = process.spawn(function()\n"
            "  while true do\n"
            "    local client, from = process.receive() process.cancel(client) process.reply(from, 'answer')\n"
            "  end\n"
            "end)\n"
            "local function job() return 'answer' end\n"
            "local function busy() local began = time.now() while time.now() - began < 0.002 do end end\n"
            "local function rest() assert(not pcall(time.sleep, '1h')) end\n"
            "local waits = {\n"
            "  request = { rest, function() return process.request(server, me) end },\n"
            "  exec = { rest, function() return process.exec(function() process.cancel(me) return job() end) end },\n"
            "  work = { function() process.spawn(busy) work.run(job) end, function() return work.run(job) end },\n"
            "}\n"
            "for name, wait in pairs(waits) do\n"
            "  local late, rounds = 0, 0\n"
            "  while late == 0 do\n"
            "    rounds = rounds + 1 assert(rounds < 1000, name)\n"
            "    local cancelled = false\n"
            "    local other = task.spawn(function()\n"
            "      assert(wait[2]() == 'answer') if cancelled then late = late + 1 end time.sleep('1h')\n"
            "    end)\n"
            "    wait[1]() other:cancel() cancelled = true\n"
            "    local fine, why = pcall(other.await, other) assert(not fine and why == 'cancelled', why)\n"
            "  end\n"
            "end\n"
            "process.terminate(server)\n");
}

/* Workers stall now and then, so some ticks come late. A late tick must not delay the ticks after it. */
TEST(ticks_do_not_drift)
{
    simulate("local began, best = time.now(), 1\n"
             "local ticks = time.every('10ms')\n"
             "for i = 1, 300 do\n"
             "  local late = (ticks:receive() - began) % 0.01\n"
             "  if i > 200 then best = math.min(best, late) end\n"
             "end\n"
             "assert(best < 0.001, best)\n",
             scaled(20));
}

TEST(missed_ticks_are_skipped)
{
    simulate("local began, ticks = time.now(), time.every('10ms')\n"
             "time.sleep('1s')\n"
             "local first, second, third = ticks:receive(), ticks:receive(), ticks:receive()\n"
             "assert(first - began < 0.9 and second - began > 0.99 and third > second)\n"
             "assert(time.cancel(ticks) and select(2, ticks:receive()) == false)\n",
             scaled(20));
}

TEST(a_selective_receive_checks_each_message_once)
{
    simulate("local me, looks, n = process.self(), 0, 200\n"
             "process.spawn(function() for i = 1, n do process.send(me, i) if i % 10 == 0 then time.sleep('1ms') end "
             "end process.send(me, 'last') end)\n"
             "assert(process.receive(function(m) looks = looks + 1 return m == 'last' end) == 'last')\n"
             "assert(looks == n + 1, looks)\n"
             "for i = 1, n do assert(process.receive() == i) end\n",
             scaled(20));
}

/* ---- tests that live processes leave no memory behind; they count the bytes that the scheduler has allocated ---- */

static atomic_size_t live_bytes;

static void *counting_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    atomic_fetch_add(&live_bytes, size - old_size);
    if (size != 0) return realloc(old, size);
    free(old);
    return NULL;
}

static int push_bytes(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)atomic_load(&live_bytes));
    return 1;
}

static void add_bytes(lua_State *L, void *user)
{
    (void)user;
    lua_pushcfunction(L, push_bytes);
    lua_setfield(L, -2, "bytes");
}

static int open_counted_fixture(void **state)
{
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    *state = &w;
    lua.open = add_bytes;
    fixture_open(&w, 1, &lua);
    (void)filch_sched_stop(w.sched, 0, NULL);
    sched.workers = 1;
    sched.alloc = counting_alloc;
    ok(filch_sched_create(&w.sched, &sched));
    return 0;
}

/* While both processes live, a monitor takes more than 64 bytes, so a monitor that a request leaves behind is
 * noticed. */
TEST(a_request_leaves_no_monitor_behind)
{
    fixture_passes(&w, "local function server() while true do local m, from = process.receive() if m ~= 'quiet' then "
                       "process.reply(from, m) end end end\n"
                       "local pid = process.spawn(server)\n"
                       "local function burst()\n"
                       "  for i = 1, 2000 do assert(process.request(pid, i) == i) end\n"
                       "  for i = 1, 100 do assert(select(2, process.request(pid, 'quiet', 0)) == 'timeout') end\n"
                       "  for i = 1, 100 do local t = task.spawn(function() process.request(pid, 'quiet') end) "
                       "time.sleep(0) t:cancel() pcall(t.await, t) end\n"
                       "end\n"
                       "burst() burst() local before = bytes()\n"
                       "for i = 1, 5 do burst() end\n"
                       "assert(bytes() - before < 5 * 100 * 64, bytes() - before)\n"
                       "process.terminate(pid)\n");
}

TEST(a_plain_value_is_a_receive_pattern)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "for _, m in ipairs { 'first', 'done', 7, 0.5, '300ms', true, 'last' } do process.send(me, m) end\n"
        "assert(process.receive('done') == 'done')\n"
        "assert(process.receive(0.5, 0.1) == 0.5 and process.receive('300ms', math.huge) == '300ms' and "
        "process.receive(7, '1s') == 7)\n"
        "local m, why = process.receive(8, 0.001) assert(m == nil and why == 'timeout')\n"
        "assert(process.receive(true) == true)\n"
        "assert(process.receive(0) == 'first' and process.receive('1h') == 'last' and process.receive('1ms') == nil)\n"
        "local other = process.spawn(function() process.send(me, process.self()) end)\n"
        "assert(process.receive(other) == other)\n");
}

/* The result in an exit notice is one table deeper than a message can be. The pattern has tables at the same depth. */
TEST(a_pattern_of_any_depth_calls_no_metamethod_and_matches)
{
    fixture_passes(&w, "local function nest(n, leaf) for i = 1, n do leaf = { leaf } end return leaf end\n"
                       "local me, calls = process.self(), 0\n"
                       "local function compared() calls = calls + 1 while process.receive(0) do end return false end\n"
                       "local leaf = setmetatable({ 'leaf' }, { __eq = compared })\n"
                       "local other = setmetatable({ 'other' }, { __eq = compared })\n"
                       "local cycle = {} cycle[1] = cycle\n"
                       "for i = 1, 3 do process.send(me, i) end\n"
                       "local pid = process.spawn_monitored(function() return nest(99, { 'leaf' }) end)\n"
                       "assert(process.receive({ event = 'exit', result = nest(99, leaf) }, '10s').pid == pid)\n"
                       "process.spawn_monitored(function() return nest(99, { 'leaf' }) end)\n"
                       "assert(process.receive({ event = 'exit', result = nest(99, other) }, '100ms') == nil)\n"
                       "assert(process.receive({ event = 'exit', result = nest(150, leaf) }, 0) == nil)\n"
                       "assert(process.receive({ event = 'exit', result = cycle }, 0) == nil)\n"
                       "assert(process.receive({ event = 'exit', result = nest(99, leaf) }, '10s'))\n"
                       "for i = 1, 3 do assert(process.receive() == i) end\n"
                       "assert(calls == 0, calls)\n");
}

TEST(a_send_to_a_full_mailbox_waits_with_overflow_wait)
{
    simulate("local me = process.self()\n"
             "local slow = process.spawn{ function()\n"
             "  local n = 0\n"
             "  while true do\n"
             "    time.sleep('1s')\n"
             "    local m, from = process.receive()\n"
             "    if m == 'count' then process.reply(from, n) else n = n + 1 assert(m == n) end\n"
             "  end\n"
             "end; mailbox = 2, overflow = 'wait' }\n"
             "local began = time.now()\n"
             "for i = 1, 10 do assert(process.send(slow, i)) end\n"
             "assert(time.now() - began >= 7, time.now() - began)\n"
             "assert(process.request(slow, 'count', '1h') == 10)\n"
             "local fills = { process.send(slow, 11), process.send(slow, 12) }\n"
             "local waiting = task.spawn(function() process.send(slow, 13) end)\n"
             "time.sleep('1ms') waiting:cancel() assert(not pcall(waiting.await, waiting))\n"
             "process.terminate(slow)\n",
             scaled(20));
}

TEST(a_waiting_send_fails_when_the_receiver_ends)
{
    /* The receiver may take the first message out of its mailbox before it sleeps. The mailbox holds one message, so
     * then only the third send finds it full. */
    simulate("local function receiver(overflow) return process.spawn{ function() time.sleep('5s') end; mailbox = 1, "
             "overflow = overflow } end\n"
             "local function fill(pid) local r, why for i = 1, 4 do r, why = process.send(pid, i) if not r then return "
             "why end end error('never full') end\n"
             "local began = time.now()\n"
             "assert(type(fill(receiver('wait'))) == 'string' and time.now() - began >= 5)\n"
             "local pid = receiver('wait')\n"
             "for i = 1, 2 do task.spawn(function() process.send(pid, i) end) end time.sleep('1s')\n"
             "local r, why = process.request(pid, 2, '1h') assert(r == nil and type(why) == 'string' and time.now() - "
             "began < 3600)\n"
             "began = time.now() assert(fill(receiver('fail')):find('full') and time.now() - began < 5)\n",
             scaled(20));
}

TEST(a_send_that_cannot_wait_reports_a_full_mailbox_at_once)
{
    /* A step of the receiver that begins before the receiver sleeps takes a message out of the mailbox. The mailbox
     * holds one message, so the second send or a later one finds it full, and it stays full. */
    fixture_passes(&w, "local pid = process.spawn{ function() time.sleep('1h') end; mailbox = 1, overflow = 'wait' }\n"
                       "assert(process.send(pid, 0))\n"
                       "local r, why\n"
                       "tostring(setmetatable({}, { __tostring = function()\n"
                       "  for i = 1, 1000 do r, why = process.send(pid, i) if not r then break end end return ''\n"
                       "end }))\n"
                       "assert(r == nil and why:find('full')) process.terminate(pid)\n");
}

TEST(null_and_empty_lists_survive_json_and_messagepack)
{
    fixture_passes(
        &w, "assert(tostring(json.null) == 'null' and json.null == msgpack.null and json.decode('null') == json.null)\n"
            "for _, text in ipairs { '[1,null,3]', '[]', '{}', '[[],{},null]', '{\"a\":null}', '{\"a\":[]}', 'null', "
            "'[null]' } do\n"
            "  assert(json.encode(json.decode(text)) == text, json.encode(json.decode(text)))\n"
            "  local bytes = msgpack.encode(json.decode(text))\n"
            "  assert(json.encode(msgpack.decode(bytes)) == text and msgpack.encode(msgpack.decode(bytes)) == bytes, "
            "text)\n"
            "end\n"
            "assert(#json.decode('[1,null,3]') == 3 and json.decode('[1,null,3]')[2] == json.null)\n"
            "assert(json.decode('{\"a\":null}', nil).a == nil and json.decode('[null]', false)[1] == false)\n"
            "assert(msgpack.decode('\\x81\\xa1a\\xc0', nil, nil).a == nil and msgpack.decode('\\xc0', 1, 5) == 5)\n"
            "local list = json.decode('[1]') table.remove(list) assert(json.encode(list) == '[]')\n"
            "assert(json.encode(json.list()) == '[]' and json.encode(json.list { 1 }) == '[1]' and json.encode({}) == "
            "'{}')\n"
            "assert(not pcall(json.list, 5) and json.encode(json.list { a = 1 }) == '{\"a\":1}')\n");
}

TEST(null_and_empty_lists_survive_a_message)
{
    fixture_passes(
        &w, "local me, null = process.self(), json.null\n"
            "process.send(me, json.decode('{\"a\":[1,null],\"b\":[],\"c\":{}}'))\n"
            "local m = process.receive() assert(m.a[2] == json.null and json.encode(m.b) == '[]' and json.encode(m.c) "
            "== '{}')\n"
            "process.send(me, json.null) assert(process.receive(json.null, '1s') == json.null)\n"
            "process.send(me, { x = json.null }) assert(process.receive({ x = json.null }).x == null)\n"
            "assert(process.exec(function(list) return json.encode { list, null } end, json.list()) == '[[],null]')\n");
}

/* One process sleeps for half a second, another for a second. With some seeds the simulated machine stalls for longer
 * than a second, and the process with the longer sleep wakes first. */
TEST(some_seeds_end_sleeps_of_different_lengths_together)
{
    static const char chunk[] = "local me = process.self()\n"
                                "process.spawn(function() time.sleep('500ms') process.send(me, 'early') end)\n"
                                "process.spawn(function() time.sleep('1s') process.send(me, 'late') end)\n"
                                "if process.receive() == 'late' then sim.fail('late') end\n";
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    int               late = 0;
    ok(filch_lua_create(&lua, NULL));
    ok(filch_lua_load(lua, chunk, sizeof chunk - 1, "sleeps", &code, NULL, 0));
    sim.stall = 20;
    for (sim.seed = 1; sim.seed <= 2000; sim.seed++) {
        filch_sim_report report = FILCH_SIM_REPORT_INIT;
        ok(filch_lua_sim(lua, code, NULL, &sim, 1, &report));
        if (report.verdict == FILCH_SIM_FAILED) late++;
        else same(report.verdict, FILCH_SIM_OK);
        filch_sim_report_free(&report);
    }
    assert_true(late >= 2 && late <= 200);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

TEST(the_chart_of_a_run_shows_its_messages)
{
    static const char chunk[] = "local me = process.self()\n"
                                "local pid = process.spawn(function() local _, from = process.receive() "
                                "process.reply(from, { true, -300, 2.5 }) end)\n"
                                "process.request(pid, { kind = 'order', [7] = json.null, list = json.list() })\n"
                                "process.send(me, 'plain') process.send(me, ('long'):rep(50)) process.send(me, { me, "
                                "blob.new('x'), 1 << 40, 'q\"' })\n"
                                "for i = 1, 3 do process.receive() end sim.fail('over')\n";
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    char              text[8];
    ok(filch_lua_create(&lua, NULL));
    ok(filch_lua_load(lua, chunk, sizeof chunk - 1, "talk", &code, NULL, 0));
    ok(filch_lua_sim(lua, code, NULL, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.chart, "sends a request, {");
    has_text(report.chart, "kind = \"order\"");
    has_text(report.chart, "[7] = null");
    has_text(report.chart, "list = {}");
    has_text(report.chart, "gets a reply, {true, -300, 2.5} from");
    has_text(report.chart, "sends \"plain\" to");
    has_text(report.chart, "\"longlong");
    has_text(report.chart, "... to");
    has_text(report.chart, "{a pid, a blob, 1099511627776, \"q\\34\"}");
    same(filch_lua_describe(NULL, NULL, 0, 0, text, sizeof text), 0);
    same(filch_lua_describe(NULL, "long word", 9, 9, text, sizeof text), 7);
    assert_memory_equal(text, "\"lon...", 7);
    filch_sim_report_free(&report);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

TEST(leave_unwatch_and_unmonitor_report_what_is_missing)
{
    fixture_passes(
        &w, "local function words(r, why) assert(r == nil) return why end\n"
            "assert(words(process.leave('g')) == 'the process is not in this group')\n"
            "assert(process.join('g') and process.leave('g') and words(process.leave('g')):find('not in this group'))\n"
            "assert(words(process.join('')):find('group is .* 1 to 255 bytes'))\n"
            "assert(words(process.unwatch('g')) == 'the process does not watch this group')\n"
            "assert(words(process.unmonitor(12345)):find('no such monitor'))\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(task_any_cancels_the_other_tasks),
        cmocka_unit_test_setup_teardown(an_answer_that_has_arrived_is_returned_before_the_cancel,
                                        open_fixture_with_one_worker, fixture_close_shared),
        cmocka_unit_test(ticks_do_not_drift),
        cmocka_unit_test(missed_ticks_are_skipped),
        cmocka_unit_test(a_selective_receive_checks_each_message_once),
        cmocka_unit_test_setup_teardown(a_request_leaves_no_monitor_behind, open_counted_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_plain_value_is_a_receive_pattern, open_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_pattern_of_any_depth_calls_no_metamethod_and_matches, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test(a_send_to_a_full_mailbox_waits_with_overflow_wait),
        cmocka_unit_test(a_waiting_send_fails_when_the_receiver_ends),
        cmocka_unit_test_setup_teardown(null_and_empty_lists_survive_json_and_messagepack, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(null_and_empty_lists_survive_a_message, open_fixture, fixture_close_shared),
        cmocka_unit_test(some_seeds_end_sleeps_of_different_lengths_together),
        cmocka_unit_test(the_chart_of_a_run_shows_its_messages),
        cmocka_unit_test_setup_teardown(leave_unwatch_and_unmonitor_report_what_is_missing, open_fixture,
                                        fixture_close_shared),
        cmocka_unit_test_setup_teardown(a_send_that_cannot_wait_reports_a_full_mailbox_at_once, open_fixture,
                                        fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
