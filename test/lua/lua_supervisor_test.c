/* lua_supervisor_test.c - the library `supervisor`: trees described in Lua, in simulation under many seeds and on
 * threads. The behaviour of supervisors is tested in test/api/supervisor_test.c; this file tests that they get what the
 * Lua description says. */
#include "lua/simulated.h"

/* Beginning of every chunk. Defines children that report when they begin and end, and that obey messages. The function
 * `diary` sorts the reports of children that begin together, because these reports may arrive in any order. */
#define CHILDREN                                                                                                      \
    "local me = process.self()\n"                                                                                     \
    "local function child(id)\n"                                                                                      \
    "  process.send(me, '+' .. id)\n"                                                                                 \
    "  local fine, why = pcall(function()\n"                                                                          \
    "    while true do\n"                                                                                             \
    "      local order, from = process.receive()\n"                                                                   \
    "      if order == 'fail' then error('on request', 0) elseif order == 'end' then return\n"                        \
    "      elseif order == 'id' then process.reply(from, { id, math.random(1 << 50) }) end\n"                         \
    "    end\n"                                                                                                       \
    "  end)\n"                                                                                                        \
    "  process.send(me, '-' .. id)\n"                                                                                 \
    "  if not fine then error(why, 0) end\n"                                                                          \
    "end\n"                                                                                                           \
    "local function diary(n)\n"                                                                                       \
    "  local all = {}\n"                                                                                              \
    "  for i = 1, n do all[i] = assert(process.receive(function(m) return type(m) == 'string' end, '1m')) end\n"      \
    "  local more = process.receive(function(m) return type(m) == 'string' end, '10ms')\n"                            \
    "  assert(more == nil, 'and then ' .. tostring(more))\n"                                                          \
    "  for i = 2, n do\n"                                                                                             \
    "    local k = i\n"                                                                                               \
    "    while k > 1 and all[k]:find('^+') and all[k - 1]:find('^+') and all[k] < all[k - 1] do\n"                    \
    "      all[k], all[k - 1] = all[k - 1], all[k]\n"                                                                 \
    "      k = k - 1\n"                                                                                               \
    "    end\n"                                                                                                       \
    "  end\n"                                                                                                         \
    "  return table.concat(all, ' ')\n"                                                                               \
    "end\n"                                                                                                           \
    "local function is(what, wanted) if what ~= wanted then error('it is ' .. tostring(what) .. ', not ' .. wanted, " \
    "2) end end\n"

TEST(each_restart_strategy_restarts_the_right_children)
{
    static const char chunk[] = CHILDREN
        "local after = { one_for_one = '-b +b', one_for_all = '-b -c -a +a +b +c', rest_for_one = '-b -c +b +c' }\n"
        "for strategy, wanted in pairs(after) do\n"
        "  local top = assert(supervisor.start { strategy = strategy, children = {\n"
        "    { id = 'a', child, 'a', name = 'a' }, { id = 'b', child, 'b', name = 'b' }, { id = 'c', child, 'c', name "
        "= 'c' } } })\n"
        "  is(diary(3), '+a +b +c')\n"
        "  assert(process.send('b', 'fail'))\n"
        "  is(diary(#wanted // 3 + 1), wanted)\n"
        "  assert(supervisor.stop(top))\n"
        "  is(diary(3), '-c -b -a')\n"
        "  assert(not process.alive(top))\n"
        "end\n";
    simulate(chunk, scaled(200));
}

TEST(children_restart_as_permanent_transient_or_temporary)
{
    static const char chunk[] = CHILDREN
        "local top = assert(supervisor.start { intensity = 10, children = {\n"
        "  { id = 'p', child, 'p', name = 'p' }, { id = 't', child, 't', name = 't', restart = 'transient' },\n"
        "  { id = 'x', child, 'x', name = 'x', restart = 'temporary' } } })\n"
        "is(diary(3), '+p +t +x')\n"
        "process.send('p', 'end') is(diary(2), '-p +p')\n"
        "process.send('t', 'fail') is(diary(2), '-t +t')\n"
        "process.send('t', 'end') is(diary(1), '-t')\n"
        "process.send('x', 'fail') is(diary(1), '-x')\n"
        "local list = supervisor.children(top)\n"
        "is(#list, 2) is(list[1].id, 'p') is(list[1].restarts, 1) is(list[2].id, 't')\n"
        "assert(list[1].running and list[1].pid == process.lookup('p') and not list[2].running and list[2].pid == "
        "nil)\n"
        "supervisor.stop(top)\n";
    simulate(chunk, scaled(200));
}

TEST(nested_children_run_when_supervisor_start_returns)
{
    static const char chunk[] =
        CHILDREN "local top = assert(supervisor.start { strategy = 'rest_for_one', name = 'top', children = {\n"
                 "  { id = 'a', child, 'a' },\n"
                 "  { id = 'inner', supervisor = { intensity = 1, children = { { id = 'b', child, 'b', name = 'b' }, { "
                 "id = 'c', child, 'c' } } } },\n"
                 "  { id = 'd', child, 'd' } } })\n"
                 "assert(process.lookup('top') == top and process.lookup('b'))\n"
                 "is(diary(4), '+a +b +c +d')\n"
                 "process.send('b', 'fail') is(diary(2), '-b +b')\n"
                 "process.send('b', 'fail') is(diary(6), '-b -c -d +b +c +d')\n"
                 "supervisor.stop('top')\n"
                 "is(diary(4), '-d -c -b -a')\n";
    simulate(chunk, scaled(200));
}

TEST(children_can_be_started_and_stopped_later)
{
    static const char chunk[] = CHILDREN
        "local top = assert(supervisor.start { intensity = 5 })\n"
        "is(#supervisor.children(top), 0)\n"
        "local a = assert(supervisor.start_child(top, { id = 'a', child, 'a' }))\n"
        "is(diary(1), '+a')\n"
        "process.send(a, 'fail') is(diary(2), '-a +a')\n"
        "local _, why = supervisor.start_child(top, { id = 'a', child, 'a' })\n"
        "assert(why:find('this id'), why)\n"
        "local s = assert(supervisor.start_child(top, { id = 's', supervisor = { children = { { child, 's' } } } }))\n"
        "is(diary(1), '+s') is(supervisor.children(s)[1].id, '#1')\n"
        "local x = assert(supervisor.start_child(top, { child, 'x', restart = 'temporary' }))\n"
        "local y = assert(supervisor.start_child(top, { child, 'y', restart = 'temporary' }))\n"
        "is(diary(2), '+x +y')\n"
        "process.send(x, 'end') is(diary(1), '-x')\n"
        "is(#supervisor.children(top), 3)\n"
        "assert(supervisor.stop_child(top, 'a') and supervisor.stop_child(top, 's'))\n"
        "is(diary(2), '-a -s')\n"
        "_, why = supervisor.stop_child(top, 'a') is(why, \"there is no child 'a'\")\n"
        "supervisor.stop(top) is(diary(1), '-y')\n"
        "_, why = supervisor.children(top) is(why, 'the supervisor has ended')\n"
        "_, why = supervisor.start_child(top, { child, 'z' }) is(why, 'the supervisor has ended')\n"
        "_, why = supervisor.stop_child(top, 'z') is(why, 'the supervisor has ended')\n"
        "assert(supervisor.stop(top))\n";
    simulate(chunk, scaled(200));
}

/* In a simulation, the back-off between restarts doubles from one second up to four. After a stable time the back-off
 * begins again at one second. */
TEST(restart_backoff_and_stable_time_act_as_documented)
{
    static const char chunk[] =
        "local me = process.self()\n"
        "local top = assert(supervisor.start { intensity = 100, period = '1h', backoff = 1, backoff_factor = 2, "
        "backoff_max = '4s',\n"
        "  stable = '1m', children = { { function()\n"
        "    process.send(me, { at = time.now() })\n"
        "    local wait = process.receive('1h')\n"
        "    time.sleep(wait)\n"
        "    error('enough', 0)\n"
        "  end, name = 'w' } } })\n"
        "local last = process.receive().at\n"
        "for _, step in ipairs { { 0, 1 }, { 0, 2 }, { 0, 4 }, { 0, 4 }, { 70, 1 }, { 0, 2 } } do\n"
        "  process.send('w', step[1])\n"
        "  local at = process.receive('1h').at\n"
        "  local took = at - last - step[1]\n"
        "  assert(took >= step[2] and took < step[2] + 0.5, ('%g instead of %g'):format(took, step[2]))\n"
        "  last = at\n"
        "end\n"
        "supervisor.stop(top)\n";
    simulate_with(chunk, scaled(100), 0);
}

TEST(a_restarted_child_keeps_its_arguments_but_not_its_random_seed)
{
    static const char chunk[] = CHILDREN
        "local top = assert(supervisor.start { intensity = 50, children = { { id = 'w', child, 'w', name = 'w' } } })\n"
        "local seen = {}\n"
        "for i = 1, 20 do\n"
        "  local answer = assert(process.request('w', 'id', '1m'))\n"
        "  is(answer[1], 'w')\n"
        "  assert(not seen[answer[2]], 'the same number again')\n"
        "  seen[answer[2]] = true\n"
        "  local old, new = process.lookup('w')\n"
        "  process.send('w', 'fail')\n"
        "  repeat time.sleep('1ms') new = process.lookup('w') until new and new ~= old\n"
        "end\n"
        "supervisor.stop(top)\n";
    simulate(chunk, scaled(50));
}

TEST(every_restart_passes_the_long_arguments)
{
    static const char chunk[] =
        "local long, me = ('long '):rep(20000), process.self()\n"
        "local function worker(bytes, text) process.send(me, #bytes + #text) process.receive() error('again', 0) end\n"
        "local top = assert(supervisor.start { intensity = 50, children = { { worker, blob.new(long), long, name = 'w' "
        "} } })\n"
        "long = nil\n"
        "for _ = 1, 10 do\n"
        "  assert(process.receive('1m') == 200000)\n"
        "  assert(process.send('w', 'go on'))\n"
        "end\n"
        "process.receive('1m')\n"
        "supervisor.stop(top)\n";
    simulate(chunk, scaled(20));
}

TEST(too_many_restarts_end_the_supervisor_and_its_starter)
{
    static const char chunk[] = CHILDREN
        "local function fails_twice()\n"
        "  assert(supervisor.start { intensity = 1, children = { { id = 'w', 'reporter', me, 'w', name = 'w' } } })\n"
        "  process.receive({ never = true })\n"
        "end\n"
        "local starter = process.spawn_monitored(fails_twice)\n"
        "for i = 1, 2 do\n"
        "  process.receive(function(m) return m == '+w' end) process.send('w', 'fail') process.receive(function(m) "
        "return m == '-w' end)\n"
        "end\n"
        "local ended = process.receive({ event = 'exit', pid = starter }, '1m')\n"
        "assert(ended and ended.error, 'it lives on')\n"
        /* The failure of a supervisor that was started with link = false does not end its starter, and a process that
         * monitors the supervisor gets the exit event of the supervisor. */
        "local top = assert(supervisor.start { link = false, intensity = 0, children = { { id = 'w', child, 'w', name "
        "= 'w' } } })\n"
        "process.monitor(top)\n"
        "process.send('w', 'fail')\n"
        "is(process.receive({ event = 'exit', pid = top }, '1m').error, \"too many restarts, the last of 'w': on "
        "request\")\n";
    simulate(chunk, scaled(200));
}

TEST(a_failed_starter_ends_its_supervisor_tree)
{
    static const char chunk[] = CHILDREN
        "local starter = process.spawn_monitored(function()\n"
        "  supervisor.start { children = { { id = 'a', 'reporter', me, 'a' }, { id = 'b', 'reporter', me, 'b' } } }\n"
        "  process.receive() error('no more', 0)\n"
        "end)\n"
        "is(diary(2), '+a +b')\n"
        "process.send(starter, 'go')\n"
        "is(diary(2), '-b -a')\n"
        "while runtime.stats().alive > 1 do time.sleep('1ms') end\n";
    simulate(chunk, scaled(200));
}

TEST(a_failed_supervisor_start_is_reported_and_leaves_no_child)
{
    static const char chunk[] = CHILDREN
        "local _, why = supervisor.start { children = { { id = 'x', child }, { id = 'x', child } } }\n"
        "assert(why:find('same id'), why)\n"
        "process.register('taken')\n"
        "_, why = supervisor.start { children = { { id = 'a', child, 'a' }, { id = 'x', child, name = 'taken' } } }\n"
        "is(why, 'this name or id already exists') is(diary(2), '+a -a')\n"
        "_, why = supervisor.start { children = { { id = 'x', function() process.receive() end, memory = 1000 } } }\n"
        "assert(why, 'it began')\n"
        "while runtime.stats().alive > 1 do time.sleep('1ms') end\n";
    simulate(chunk, scaled(100));
}

/* Each invalid spec is refused with the place of the error and a hint, and no process is started. */
TEST(errors_in_a_supervisor_spec_name_the_field)
{
    static const char chunk[] =
        "local function f() end\n"
        "local wrong = {\n"
        "  { 'a supervisor is described by a table, not a number', 7 },\n"
        "  { \"strategy is 'one_for_two'; it can be one_for_one, one_for_all or rest_for_one\", { strategy = "
        "'one_for_two' } },\n"
        "  { 'strategy is a number', { strategy = 1 } },\n"
        "  { 'intensity: must be the restarts', { intensity = -1 } },\n"
        "  { 'period: a time must be a number of seconds', { period = 'soon' } },\n"
        "  { 'jitter: must be a part of the back-off', { jitter = 2 } },\n"
        "  { 'backoff_factor: must be the factor', { backoff_factor = 0 } },\n"
        "  { \"a supervisor has no field 'strategi'\", { strategi = 'x' } },\n"
        "  { 'a value without a name', { 'x' } },\n"
        "  { 'name: must be a text', { name = 1 } },\n"
        "  { 'children: must be a list of tables', { children = 1 } },\n"
        "  { 'children: must be a list, in the order', { children = { a = { f } } } },\n"
        "  { 'children[2]: a child is described by a table', { children = { { f }, f } } },\n"
        "  { \"children[1]: '#1' has nothing to run\", { children = { {} } } },\n"
        "  { \"children[1]: restart is 'always'; it can be permanent, transient or temporary\", { children = { { f, "
        "restart = 'always' } } } },\n"
        "  { 'children[1]: id: must be a text of 1 to 63 bytes', { children = { { f, id = ('x'):rep(64) } } } },\n"
        "  { 'children[1]: stop: a time', { children = { { f, stop = {} } } } },\n"
        "  { 'children[1]: id: must be a text', { children = { { f, id = '' } } } },\n"
        "  { 'children[1]: id: must be a text', { children = { { f, id = 7 } } } },\n"
        "  { 'children[1]: monitor: leave this out', { children = { { f, monitor = true } } } },\n"
        "  { 'intensity: must be the restarts', { intensity = 'many' } },\n"
        "  { 'intensity: must be the restarts', { intensity = 10001 } },\n"
        "  { 'children[1]: link: leave this out', { children = { { f, link = true } } } },\n"
        "  { \"children[1]: a child has no field 'mailbx'\", { children = { { f, mailbx = 1 } } } },\n"
        "  { 'children[1]: mailbox: must be a number of messages', { children = { { f, mailbox = 'x' } } } },\n"
        "  { 'children[1]: a child is a supervisor or has something to run', { children = { { f, supervisor = {} } } } "
        "},\n"
        "  { \"children[1]: argument 1: a coroutine cannot be sent\", { children = { { f, coroutine.create(f) } } } "
        "},\n"
        "  { \"children[1]: module 'no.such' not found\", { children = { { 'no.such' } } } },\n"
        "  { \"children[2].supervisor.children[1].supervisor: a supervisor has no field 'name'\",\n"
        "    { children = { { f }, { supervisor = { children = { { supervisor = { name = 'x' } } } } } } } },\n"
        "}\n"
        "for i, case in ipairs(wrong) do\n"
        "  local fine, why = pcall(function() return (supervisor.start(case[2])) end)\n"
        "  assert(not fine and why:find(case[1], 1, true), i .. ': ' .. tostring(why))\n"
        "  assert(why:find('^test:%d+: '), 'no place: ' .. why)\n"
        "end\n"
        "local deep = {}\n"
        "for _ = 1, 40 do deep = { children = { { supervisor = deep } } } end\n"
        "local _, why = pcall(supervisor.start, deep)\n"
        "assert(why:find('too deep'), why)\n"
        "for _, call in ipairs { supervisor.children, supervisor.stop, supervisor.start_child } do\n"
        "  _, why = pcall(call, process.self(), {})\n"
        "  assert(why:find('is not a supervisor'), why)\n"
        "end\n"
        "local crowd = {}\n"
        "for i = 1, 1000001 do crowd[i] = false end\n"
        "_, why = pcall(supervisor.start, { children = crowd })\n"
        "assert(why:find('at most 1000000', 1, true), why)\n"
        "crowd = nil collectgarbage()\n"
        "local top = assert(supervisor.start { period = 0, backoff = 0, stable = 0 })\n"
        "for _, id in ipairs { '', ('x'):rep(64) } do\n"
        "  _, why = pcall(supervisor.stop_child, top, id)\n"
        "  assert(why:find('1 to 63'), why)\n"
        "end\n"
        "_, why = pcall(supervisor.start_child, top, { supervisor = { name = 'x' } })\n"
        "assert(why:find(\"^supervisor: a supervisor has no field 'name'.*children$\"), why)\n"
        "_, why = pcall(supervisor.start_child, top, 7)\n"
        "assert(why:find('described by a table'), why)\n"
        "_, why = pcall(supervisor.start_child, top, { f, restart = 'never' })\n"
        "assert(why:find(\"^restart is 'never'\"), why)\n"
        /* the three processes: this one, the supervisor, and the helper that waited until all children had started */
        "assert(runtime.stats().spawned == 3)\n"
        "supervisor.stop(top)\n";
    simulate(chunk, 1);
}

/* Random faults end children of a tree for ten minutes of virtual time. After that, each child that should run must run
 * exactly once. */
TEST(a_supervisor_tree_recovers_from_random_faults)
{
    static const char chunk[] =
        "local function worker(id) process.join('workers') while true do if process.receive() == 'fail' then error(id, "
        "0) end end end\n"
        "local function team(n)\n"
        "  local children = {}\n"
        "  for i = 1, 3 do children[i] = { id = 'w' .. i, worker, n * 10 + i, name = ('w%d.%d'):format(n, i) } end\n"
        "  return { strategy = ({ 'one_for_one', 'one_for_all', 'rest_for_one' })[n], intensity = 3, period = '2s', "
        "children = children }\n"
        "end\n"
        "local teams = {}\n"
        "for n = 1, 3 do teams[n] = { id = 'team' .. n, supervisor = team(n) } end\n"
        "local top = assert(supervisor.start { intensity = 1000, backoff = '100ms', jitter = 0.5, children = teams })\n"
        "for _ = 1, 60 do\n"
        "  for _ = 1, math.random(4) do process.send(('w%d.%d'):format(math.random(3), math.random(3)), 'fail') end\n"
        "  time.sleep(math.random() * 4)\n"
        "end\n"
        "time.sleep('30s')\n"
        "assert(#process.members('workers') == 9, #process.members('workers'))\n"
        "for n = 1, 3 do for i = 1, 3 do assert(process.lookup(('w%d.%d'):format(n, i))) end end\n"
        "assert(#supervisor.children(top) == 3)\n"
        "supervisor.stop(top)\n"
        "assert(#process.members('workers') == 0 and runtime.stats().alive == 1)\n";
    simulate(chunk, scaled(100));
}

TEST(a_thousand_children_fail_and_are_restarted_on_real_threads)
{
    static const char chunk[] = "local me, count = process.self(), ...\n"
                                "local function worker() while true do local m, from = process.receive() if m then "
                                "error('x', 0) end process.reply(from, 1) end end\n"
                                "local children = {}\n"
                                "for i = 1, 1000 do children[i] = { worker, name = 'w' .. i } end\n"
                                "local top = assert(supervisor.start { intensity = 10000, children = children })\n"
                                "local before = {}\n"
                                "for i = 1, 1000 do before[i] = process.lookup('w' .. i) end\n"
                                "for i = 1, 1000, 2 do process.send('w' .. i, true) end\n"
                                "for i = 1, 1000, 2 do while (process.lookup('w' .. i) or before[i]) == before[i] do "
                                "time.sleep(0.001) end end\n"
                                "for i = 2, 1000, 2 do assert(process.lookup('w' .. i) == before[i]) end\n"
                                "assert(supervisor.stop(top))\n"
                                "while runtime.stats().alive > 1 do time.sleep(0.001) end\n";
    fixture           w;
    fixture_open(&w, 2, NULL);
    for (int i = 0; i < 3; i++) fixture_passes(&w, chunk);
    fixture_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_restart_strategy_restarts_the_right_children),
        cmocka_unit_test(children_restart_as_permanent_transient_or_temporary),
        cmocka_unit_test(nested_children_run_when_supervisor_start_returns),
        cmocka_unit_test(children_can_be_started_and_stopped_later),
        cmocka_unit_test(restart_backoff_and_stable_time_act_as_documented),
        cmocka_unit_test(a_restarted_child_keeps_its_arguments_but_not_its_random_seed),
        cmocka_unit_test(every_restart_passes_the_long_arguments),
        cmocka_unit_test(too_many_restarts_end_the_supervisor_and_its_starter),
        cmocka_unit_test(a_failed_starter_ends_its_supervisor_tree),
        cmocka_unit_test(a_failed_supervisor_start_is_reported_and_leaves_no_child),
        cmocka_unit_test(errors_in_a_supervisor_spec_name_the_field),
        cmocka_unit_test(a_supervisor_tree_recovers_from_random_faults),
        cmocka_unit_test(a_thousand_children_fail_and_are_restarted_on_real_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
