/* lua_tasks_test.c - concurrency inside a Lua process and between processes: tasks, channels, timers, monitors, links,
 * names, groups. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    fixture_open(&w, 2, NULL);
    return 0;
}

TEST(tasks_run_concurrently_and_can_be_awaited)
{
    fixture_passes(
        &w, "local order, go = {}, channel.new(1)\n"
            "local a = task.spawn(function(x) go:receive() order[#order + 1] = 'a' return x, 2 end, 1)\n"
            "local b = task.spawn(function() time.sleep('1ms') order[#order + 1] = 'b' go:send(1) return 'b' end)\n"
            "assert(a:status() == 'running' and b:await() == 'b')\n"
            "local x, y = a:await() assert(x == 1 and y == 2 and order[1] == 'b' and order[2] == 'a' and "
            "a:status() == 'done')\n"
            "assert(a:await() == 1)\n"
            "local slow = task.spawn(function() time.sleep(3600) end)\n"
            "local r, why = slow:await('5ms') assert(r == nil and why == 'timeout')\n"
            "assert(slow:cancel() and not pcall(slow.await, slow) and slow:status() == 'failed')\n"
            "local bad = task.spawn(function() time.sleep('100ms') error({ code = 7 }) end)\n"
            "local fine, e = pcall(bad.await, bad) assert(not fine and e.code == 7)\n");
}

TEST(a_coroutine_in_which_a_task_waits_cannot_be_resumed_or_closed)
{
    fixture_passes(&w, "local co = coroutine.create(function() time.sleep('5ms') return 'slept' end)\n"
                       "local t = task.spawn(function() return coroutine.resume(co) end)\n"
                       "time.sleep(0)\n"
                       "assert(coroutine.status(co) == 'normal')\n"
                       "local fine, why = coroutine.resume(co) assert(not fine and why:find('non%-suspended'))\n"
                       "assert(not pcall(coroutine.close, co))\n"
                       "local a, b = t:await() assert(a == true and b == 'slept' and coroutine.status(co) == 'dead')\n"
                       "local closed = false\n"
                       "local open = coroutine.create(function() local c <close> = setmetatable({}, { __close = "
                       "function() closed = true end }) coroutine.yield() end)\n"
                       "coroutine.resume(open) assert(coroutine.close(open) and closed and coroutine.close(open))\n");
}

TEST(a_failed_task_without_an_awaiter_ends_the_process)
{
    fixture_run(&w, "task.spawn(function() time.sleep('1ms') local function deep() error('in a task') end deep() end) "
                    "time.sleep(3600)");
    same(w.error, FILCH_LUA_EERROR);
    has_text(w.text, "test:1: in a task");
    has_text(w.text, "'deep'");
}

TEST(a_task_that_fails_after_an_await_has_ended_ends_the_process)
{
    static const char *const awaits[] = {
        "assert(select(2, bad:await('1ms')) == 'timeout')",
        "local t = task.spawn(function() bad:await() end) time.sleep('1ms') t:cancel() assert(not pcall(t.await, t))",
    };
    for (size_t i = 0; i < sizeof awaits / sizeof awaits[0]; i++) {
        char program[400];
        snprintf(program, sizeof program,
                 "local go = channel.new()\n"
                 "local bad = task.spawn(function() go:receive() error('nobody waits') end)\n"
                 "%s\n"
                 "go:send(true) time.sleep(3600)\n",
                 awaits[i]);
        fixture_run(&w, program);
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, "nobody waits");
    }
}

TEST(a_failed_task_that_was_cancelled_does_not_end_the_process)
{
    fixture_passes(&w, "local t = task.spawn(function() pcall(time.sleep, 3600) error('after the cancel') end)\n"
                       "time.sleep(0) t:cancel() time.sleep('1ms') assert(t:status() == 'failed')\n");
}

TEST(task_all_and_task_any_wait_for_several_tasks)
{
    fixture_passes(&w,
                   "local began = time.now()\n"
                   "local function later(ms, v) return function() time.sleep(ms / 1000) return v end end\n"
                   "local v = task.all { later(10, 'x'), later(1, 'y'), later(5, 'z') }\n"
                   "assert(v[1] == 'x' and v[2] == 'y' and v[3] == 'z')\n"
                   "local i, value = task.any { later(3600000, 'never'), later(2, 'soon') }\n"
                   "assert(i == 2 and value == 'soon')\n"
                   "assert(not pcall(task.all, { later(3600000, 1), function() error('one fails') end }))\n"
                   "local r, why = task.all({ later(3600000, 1) }, '5ms') assert(r == nil and why == 'timeout')\n"
                   "assert(not pcall(task.any, { function() error('a') end, function() error('b') end }))\n"
                   "local pids = {} for i = 1, 3 do pids[i] = process.spawn(function(n) local _, from = "
                   "process.receive() process.reply(from, n * 10) end, i) end\n"
                   "local asks = {} for i = 1, 3 do asks[i] = function() return process.request(pids[i], 'x') end end\n"
                   "local answers = task.all(asks) assert(answers[1] == 10 and answers[2] == 20 and answers[3] == 30)\n"
                   "assert(time.now() - began < 3000)\n");
}

/* task.any waits for more tasks than fit on the Lua stack, and is resumed often. Each time it checks the tasks, it must
 * leave the stack as it was. */
TEST(task_any_waits_for_many_tasks)
{
    fixture_passes(&w,
                   "local functions, go = {}, channel.new()\n"
                   "for i = 1, 400 do\n"
                   "  functions[i] = function() go:receive() if i < 300 then error('not this one') end return i end\n"
                   "end\n"
                   "task.spawn(function() for i = 1, 300 do go:send(i) end end)\n"
                   "local i, value = task.any(functions)\n"
                   "assert(i == 300 and value == 300)\n");
}

TEST(channels_pass_values_between_tasks)
{
    fixture_passes(
        &w, "local ch = channel.new()\n"
            "local got = {}\n"
            "local reader = task.spawn(function() for v in ch do got[#got + 1] = v end return #got end)\n"
            "for i = 1, 100 do ch:send(i) end\n"
            "ch:close()\n"
            "assert(reader:await() == 100 and got[1] == 1 and got[100] == 100)\n"
            "assert(not pcall(ch.send, ch, 1)) local v, ok = ch:receive() assert(v == nil and ok == false)\n"
            "local buffered = channel.new(2)\n"
            "assert(buffered:send('a') and buffered:send(nil) and #buffered == 2)\n"
            "local r, why = buffered:send('c', '2ms') assert(r == nil and why == 'timeout' and #buffered == 2)\n"
            "assert(buffered:receive() == 'a') local n, is = buffered:receive() assert(n == nil and is == true)\n"
            "r, why = buffered:receive('1ms') assert(r == nil and why == 'timeout')\n"
            "local blocked = task.spawn(function() return pcall(buffered.send, channel.new(), 1) end)\n"
            "local waiting = channel.new()\n"
            "local sender = task.spawn(function() return pcall(waiting.send, waiting, 1) end)\n"
            "time.sleep(0) waiting:close() assert(sender:await() == false) blocked:cancel()\n");
}

TEST(select_takes_the_first_ready_channel)
{
    fixture_passes(&w, "local a, b = channel.new(), channel.new(1)\n"
                       "local i, why = channel.select({ a, b }, '2ms') assert(i == nil and why == 'timeout')\n"
                       "b:send('in b') local j, v, ok = channel.select { a, b } assert(j == 2 and v == 'in b' and ok)\n"
                       "assert(channel.select { a, b:sending('sent') } == 2 and b:receive() == 'sent')\n"
                       "task.spawn(function() time.sleep('2ms') a:send('late') end)\n"
                       "j, v = channel.select { a, b } assert(j == 1 and v == 'late')\n"
                       "task.spawn(function() assert(a:receive() == 'handed') end)\n"
                       "time.sleep(0) assert(channel.select { b, a:sending('handed') } == 2)\n"
                       "local me = process.self()\n"
                       "process.spawn(function() process.send(me, 'mail') end)\n"
                       "j, v = channel.select { a, channel.inbox, time.after(3600) } assert(j == 2 and v == 'mail')\n"
                       "j = channel.select { a, channel.inbox, time.after('2ms') } assert(j == 3)\n"
                       "b:close() j, v, ok = channel.select { a, b } assert(j == 2 and v == nil and ok == false)\n"
                       "local s, r = a:waiting() assert(s == 0 and r == 0)\n");
}

TEST(timers_fire_tick_and_stop)
{
    fixture_passes(&w, "local began = time.now()\n"
                       "assert(time.after('5ms'):receive() >= began + 0.005)\n"
                       "local ticks = time.every('1ms') local n = 0\n"
                       "for t in ticks do n = n + 1 if n == 5 then break end end\n"
                       "assert(time.now() >= began + 0.01 and time.cancel(ticks))\n"
                       "local never = time.after(3600) assert(time.cancel(never))\n");
}

TEST(a_monitor_reports_how_a_process_ended)
{
    fixture_passes(
        &w, "local good = process.spawn_monitored(function() return { answer = 42 } end)\n"
            "local m, from = process.receive() assert(m.event == 'exit' and m.pid == good and from == good "
            "and m.result.answer == 42)\n"
            "local bad = process.spawn{ function() local x = nil; x() end, monitor = true }\n"
            "m = process.receive({ event = 'exit', pid = bad }) assert(m.error:find('attempt to call a nil "
            "value', 1, true) and m.error:find('traceback'), m.error)\n"
            "local mute = process.spawn(function() process.receive() end)\n"
            "local ref = process.monitor(mute) process.terminate(mute)\n"
            "m = process.receive() assert(m.pid == mute and m.error == 'the process was ended by force', m.error)\n"
            "assert(not process.unmonitor(ref))\n"
            "process.monitor(mute) m = process.receive() assert(m.pid == mute and m.error)\n"
            "local other = process.spawn(function() process.receive() end)\n"
            "assert(process.unmonitor(process.monitor(other))) process.send(other, 1)\n"
            "assert(select(2, process.receive('5ms')) == 'timeout')\n");
}

TEST(a_request_to_a_process_that_ends_fails_at_once)
{
    fixture_passes(
        &w, "local pid = process.spawn(function() process.receive() end)\n"
            "local a, why = process.request(pid, 1, 3600) assert(a == nil and why == 'the process ended without a "
            "reply', why)\n"
            "pid = process.spawn(function() local _, from = process.receive() process.reply(from, 'last words') end)\n"
            "assert(process.request(pid, 1, 3600) == 'last words')\n"
            "assert(process.exec(function(a, b) return a + b end, 2, 3) == 5)\n"
            "local r, e = process.exec(function() error('no', 0) end) assert(r == nil and e:find('^no'))\n"
            "assert(select(2, process.receive(0)) == 'timeout')\n");
}

TEST(linked_processes_fail_together_unless_trapped)
{
    fixture_passes(&w, "process.trap(true)\n"
                       "local a = process.spawn_linked(function() error('linked', 0) end)\n"
                       "local m = process.receive() assert(m.event == 'link_down' and m.pid == a and "
                       "m.error:find('^linked'), m.error)\n"
                       "local fine = process.spawn_linked(function() end)\n"
                       "local b = process.spawn{ function() process.receive() end, monitor = true }\n"
                       "local c = process.spawn(function(b) process.link(b) error('c', 0) end, b)\n"
                       "m = process.receive() assert(m.event == 'exit' and m.pid == b and m.error)\n");
    fixture_run(&w, "process.spawn_linked(function() error('down') end) time.sleep(3600)");
    same(w.error, FILCH_ELINK);
}

TEST(processes_are_found_by_name_and_by_group)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "assert(process.register('first') and process.lookup('first') == me)\n"
        "local taken, why = process.register('first', me) assert(not taken and why)\n"
        "assert(process.send('first', 'by name') and process.receive() == 'by name')\n"
        "assert(not process.send('nobody', 1))\n"
        "local pid = process.spawn{ function() process.join('workers') process.send('first', 'in') while true do local "
        "m, from = process.receive() process.reply(from, m) end end, name = 'echo' }\n"
        "assert(process.receive() == 'in' and process.lookup('echo') == pid and process.request('echo', 5) == 5)\n"
        "process.join('workers') process.watch('workers')\n"
        "local members = process.members('workers') assert(#members == 2 and members[1] == pid and members[2] == me)\n"
        "assert(process.leave('workers')) local m = process.receive() assert(m.event == 'left' and m.group == "
        "'workers' and m.pid == me)\n"
        "process.join('workers') assert(process.receive().event == 'joined')\n"
        "assert(process.broadcast('workers', { 1 }) == 2) assert(process.receive({ 1 }))\n"
        "process.unregister('first') assert(not process.lookup('first'))\n"
        "process.cancel(pid, '1s') m = process.receive({ event = 'left' }) assert(m.pid == pid)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(tasks_run_concurrently_and_can_be_awaited),
        T(a_coroutine_in_which_a_task_waits_cannot_be_resumed_or_closed),
        T(a_failed_task_without_an_awaiter_ends_the_process),
        T(a_task_that_fails_after_an_await_has_ended_ends_the_process),
        T(a_failed_task_that_was_cancelled_does_not_end_the_process),
        T(task_all_and_task_any_wait_for_several_tasks),
        T(task_any_waits_for_many_tasks),
        T(channels_pass_values_between_tasks),
        T(select_takes_the_first_ready_channel),
        T(timers_fire_tick_and_stop),
        T(a_monitor_reports_how_a_process_ended),
        T(a_request_to_a_process_that_ends_fails_at_once),
        T(linked_processes_fail_together_unless_trapped),
        T(processes_are_found_by_name_and_by_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
