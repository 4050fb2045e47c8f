/* lua_relations_test.c - monitors, links, names, memberships, watches and deadlines count in the memory of the Lua
 * process that makes them, as long as they exist. */
#include "lua/fixture.h"

static fixture w;

enum { MEMORY = 1 << 20 };

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.memory_max = MEMORY;
    fixture_open(&w, 1, &options);
    return 0;
}

/* other: a process that waits, also if it is cancelled. fill(f) calls f(1), f(2), ... until a call is refused, and
 * returns the number of calls and the reason. */
#define START                                                                                         \
    "local other = process.spawn(function() while true do pcall(process.receive, 1, '1h') end end)\n" \
    "local function fill(f)\n"                                                                        \
    "  for i = 1, 100000 do local fine, why = f(i) if not fine then return i - 1, why end end\n"      \
    "  error('no call was refused')\n"                                                                \
    "end\n"                                                                                           \
    "local limit = 'not enough memory: the process may hold 1048576 bytes'\n"

TEST(relations_are_refused_at_the_memory_limit)
{
    static const char *const ways[] = {
        "return process.monitor(other)",       "return process.join('g')",
        "return process.join('group ' .. i)",  "return process.watch('g')",
        "return process.watch('group ' .. i)", "return process.register('name ' .. i)",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char chunk[2048];
        snprintf(chunk, sizeof chunk,
                 START "local n, why = fill(function(i) %s end)\n"
                       "assert(why == limit, why)\n"
                       "assert(n > 1000 and n < 10000, n)\n"
                       "assert(#('x'):rep(30000) == 30000)\n" /* some memory is left */
                       "process.terminate(other)\n",
                 ways[i]);
        fixture_passes(&w, chunk);
    }
}

TEST(links_are_refused_at_the_memory_limit)
{
    fixture_passes(&w, START "local keep, pids = {}, {}\n"
                             /* most of the limit is in use, so that a link is refused after about a thousand */
                             "for i = 1, 7 do keep[i] = ('x'):rep(100000) .. i end\n"
                             "local n, why = fill(function(i)\n"
                             "  pids[i] = process.spawn(function() process.receive() end)\n"
                             "  return process.link(pids[i])\n"
                             "end)\n"
                             "assert(why == limit, why)\n"
                             "assert(n > 10 and n < 3000, n)\n"
                             "for _, pid in ipairs(pids) do process.unlink(pid) process.terminate(pid) end\n"
                             "process.terminate(other)\n");
}

TEST(the_memory_of_ended_relations_can_be_used_again)
{
    fixture_passes(&w,
                   START "local child = process.spawn(function() process.receive() end)\n"
                         "local ways = {\n"
                         "  function() local ref = process.monitor(other) return ref and process.unmonitor(ref) end,\n"
                         "  function() return process.link(child) and process.unlink(child) end,\n"
                         "  function() return process.register('n') and process.unregister('n') end,\n"
                         "  function() return process.join('g') and process.leave('g') end,\n"
                         "  function() return process.watch('g') and process.unwatch('g') end,\n"
                         "}\n"
                         "for i, way in ipairs(ways) do for n = 1, 20000 do assert(way(), i) end end\n"
                         /* a request of the program for memory is not refused because of relations that have ended */
                         "local refs = {}\n"
                         "for n = 1, 4000 do refs[n] = assert(process.monitor(child)) end\n"
                         "for n = 1, 4000 do assert(process.unmonitor(refs[n])) end\n"
                         "local text = ('x'):rep(300000)\n"
                         "for n = 1, 4000 do refs[n] = assert(process.monitor(child)) end\n"
                         "local before = collectgarbage('count')\n"
                         "for n = 1, 4000 do assert(process.unmonitor(refs[n])) end\n"
                         "assert(before - collectgarbage('count') > 500)\n"
                         "process.terminate(child)\n"
                         "process.terminate(other)\n");
}

/* The other process stays within its own limit, because it is not charged for what others do to it. */
TEST(relations_given_to_another_process_are_limited)
{
    static const char *const ways[] = {
        "return process.join('group ' .. i, pid)",
        "return process.register('name ' .. i, pid)",
        "return process.cancel(pid, '1h')",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char chunk[2048];
        snprintf(chunk, sizeof chunk,
                 START "local pid = process.spawn_monitored(function()\n"
                       "  local m repeat pcall(function() m = process.receive({ go = true }) end) until m\n"
                       "  for i = 1, 3000 do local ref = assert(process.monitor(m.other)) process.unmonitor(ref) end\n"
                       "  return #('x'):rep(400000)\n"
                       "end)\n"
                       "time.sleep('1ms')\n"
                       "local n, why = fill(function(i) if i %% 100 == 0 then time.sleep(0) end %s end)\n"
                       "assert(why == 'not enough memory: the other process has too many relations', why)\n"
                       "assert(n > 1000 and n < 10000, n)\n"
                       "assert(process.send(pid, { go = true, other = other }))\n"
                       "local m = process.receive({ event = 'exit' })\n"
                       "assert(m.result == 400000, m.error)\n"
                       "process.terminate(other)\n",
                 ways[i]);
        fixture_passes(&w, chunk);
    }
}

TEST(deadlines_of_a_process_for_itself_are_limited)
{
    fixture_passes(&w, START "local n, why = fill(function(i)\n"
                             "  local fine, why = process.cancel(process.self(), '1h')\n"
                             "  if i % 100 == 0 then pcall(time.sleep, '1ms') end\n"
                             "  return fine, why\n"
                             "end)\n"
                             "assert(why == limit, why)\n"
                             "assert(n > 1000 and n < 10000, n)\n"
                             "process.terminate(other)\n"
                             "process.exit()\n");
}

/* A group reserves a notice for each pair of a member and a watcher. */
TEST(notices_that_a_group_reserves_count_in_the_memory_of_its_members_and_watchers)
{
    fixture_passes(&w, START "local members = fill(function(i) return i <= 500 and process.join('g') end)\n"
                             "local watchers, why = fill(function() return process.watch('g') end)\n"
                             "assert(why == limit and members == 500, why)\n"
                             "assert(watchers * members * 64 < 1048576, watchers)\n"
                             "assert(watchers > 5, watchers)\n"
                             "local more = fill(function() return process.join('g') end)\n"
                             "assert(more < 500, more)\n"
                             /* the refused watch left nothing to remove */
                             "for i = 1, watchers do assert(process.unwatch('g')) end\n"
                             "assert(not process.unwatch('g'))\n"
                             "for i = 1, members + more do assert(process.leave('g')) end\n"
                             "assert(not process.leave('g'))\n"
                             "process.terminate(other)\n");
}

TEST(a_refused_name_is_free)
{
    fixture_passes(&w, START "local n, why = fill(function(i) return process.register('name ' .. i) end)\n"
                             "assert(why == limit and not process.lookup('name ' .. n + 1), why)\n"
                             "assert(process.lookup('name ' .. n) == process.self())\n"
                             "process.terminate(other)\n");
}

TEST(an_upgraded_process_stays_charged_for_its_relations)
{
    fixture_passes(&w, START "local n = assert(process.exec('monitors', other))\n"
                             "assert(n[1] > 1000 and n[1] < 10000, n[1])\n"
                             "assert(n[2] < 1000, n[2])\n"
                             "process.terminate(other)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relations_are_refused_at_the_memory_limit),
        cmocka_unit_test(links_are_refused_at_the_memory_limit),
        cmocka_unit_test(the_memory_of_ended_relations_can_be_used_again),
        cmocka_unit_test(relations_given_to_another_process_are_limited),
        cmocka_unit_test(deadlines_of_a_process_for_itself_are_limited),
        cmocka_unit_test(notices_that_a_group_reserves_count_in_the_memory_of_its_members_and_watchers),
        cmocka_unit_test(a_refused_name_is_free),
        cmocka_unit_test(an_upgraded_process_stays_charged_for_its_relations),
    };
    return cmocka_run_group_tests(tests, open_fixture, fixture_close_shared);
}
