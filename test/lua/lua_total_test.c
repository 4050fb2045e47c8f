/* lua_total_test.c - all processes together have a memory limit. Beyond it children, messages and blobs are refused
 * with a reason. Ended processes return their memory. */
#include <lua.h>

#include "lua/fixture.h"
#include "lua/host/host.h"

static fixture w;

enum { TOTAL = 8 << 20 };

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.memory_total = TOTAL;
    options.memory_max = 4 << 20;
    fixture_open(&w, 2, &options);
    return 0;
}

TEST(spawns_over_the_total_memory_limit_fail_until_processes_end)
{
    int64_t first = 0;
    for (int round = 0; round < 5; round++) {
        fixture_passes(&w, "local pids, why = {}, nil\n"
                           /* the program frees `reserve` when memory has run out, so that it can report the error */
                           "local reserve, collect = ('x'):rep(300000), collectgarbage\n"
                           "while true do\n"
                           "  local fine, pid = pcall(process.spawn_linked, function() process.receive() end)\n"
                           "  if not fine then why = pid reserve = nil collect() break end\n"
                           "  pids[#pids + 1] = pid\n"
                           "end\n"
                           "assert(why:find('all processes together may hold 8388608 bytes', 1, true), why)\n"
                           "for _, pid in ipairs(pids) do process.send(pid, 'end') end\n"
                           "while runtime.stats().alive > 1 do time.sleep('1ms') end\n"
                           "return #pids\n");
        if (round == 0) first = w.number;
        assert_true(w.number > 100 && w.number <= TOTAL / 8000);
        /* nearly as many processes fit as in the first round, so all freed memory was subtracted from the total */
        assert_true(w.number >= first - first / 4);
    }
}

/* Regression: if the limit of one process was too small to begin, the error named the limit of all processes together,
 * and work.run returned "application error". */
TEST(a_limit_too_small_to_begin_is_not_reported_as_the_total)
{
    fixture_passes(&w,
                   "for _, size in ipairs { 1, 100, 3000, 5000 } do\n"
                   "  local text = 'not enough memory to begin: the process may hold ' .. size .. ' bytes'\n"
                   "  for _ = 1, 3 do\n"
                   "    local fine, why = pcall(process.spawn, { function() end, memory = size })\n"
                   "    assert(not fine and why:find(text, 1, true), why)\n"
                   "    fine, why = work.run { function() end, memory = size }\n"
                   "    assert(fine == nil and why:find('the process may hold ' .. size .. ' bytes', 1, true), why)\n"
                   "  end\n"
                   "end\n");
}

TEST(exceeding_the_total_memory_limit_ends_one_process)
{
    fixture_passes(&w,
                   "local failed\n"
                   "for i = 1, 8 do process.spawn_monitored(function() local s = {} for i = 1, 50 do s[i] = "
                   "('x'):rep(50000) .. i end process.receive() end) end\n"
                   "local notice = process.receive({ event = 'exit' })\n"
                   "assert(notice.error:find('all processes together may hold 8388608 bytes', 1, true), notice.error)\n"
                   "process.exit(1)\n");
    (void)filch_sched_stop(w.sched, 0, NULL);
    filch_options sched = FILCH_OPTIONS_INIT;
    ok(filch_sched_create(&w.sched, &sched));
}

TEST(large_messages_and_blobs_count_until_they_are_read)
{
    fixture_passes(&w, "local sink = process.spawn(function() time.sleep(60) end)\n"
                       "local t = {} for i = 1, 30000 do t[i] = i * 1000 end\n"
                       "local sent, why = 0, nil\n"
                       "while true do\n"
                       "  local fine, no = pcall(process.send, sink, t)\n"
                       "  if not fine then why = no break end\n"
                       "  sent = sent + 1\n"
                       "end\n"
                       "assert(sent > 10 and sent < 100, sent)\n"
                       "assert(why:find('not enough memory to send it', 1, true), why)\n"
                       "process.terminate(sink)\n"
                       "while runtime.stats().alive > 1 do time.sleep('1ms') end\n"
                       "assert(process.send(process.self(), t))\n");
    /* The memory of ended processes is freed a moment after their exit event, so the chunk is repeated until there is
     * enough memory. */
    do {
        fixture_passes(
            &w, "local sink, me = process.spawn(function() time.sleep(60) end), process.self()\n"
                "process.spawn_monitored(function()\n"
                "  while true do assert(process.send(sink, blob.new(('x'):rep(200000)))) process.send(me, 'one') end\n"
                "end)\n"
                "local blobs, m = 0, nil\n"
                "repeat m = process.receive() blobs = blobs + 1 until m ~= 'one'\n"
                "assert(m.error:find('memory', 1, true) or m.error:find('no such process', 1, true), m.error)\n"
                "process.terminate(sink)\n"
                "return blobs\n");
        assert_true(w.number < 60);
    } while (w.number <= 10);
}

TEST(messages_with_blobs_count_until_they_are_read)
{
    fixture_passes(&w, "local function fill(t, most)\n"
                       "  local sink = process.spawn(function() time.sleep(60) end)\n"
                       "  local sent, fine, why = 0, true, nil\n"
                       "  while fine and sent < most do fine, why = pcall(process.send, sink, t) sent = sent + 1 end\n"
                       "  process.terminate(sink)\n"
                       "  while runtime.stats().alive > 1 do time.sleep('1ms') end\n"
                       "  assert(sent < most and why:find('not enough memory to send it', 1, true), why)\n"
                       "  assert(process.send(process.self(), t))\n"
                       "  process.receive()\n"
                       "  return sent\n"
                       "end\n"
                       "local t = { blob.new('a') } for i = 1, 30000 do t[i + 1] = i * 1000 end\n"
                       "assert(fill(t, 100) > 10)\n"
                       "assert(fill({ blob.new('b') }, 100000) > 1000)\n");
}

TEST(a_total_memory_limit_below_one_process_starts_none)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_lua_code   *code = NULL;
    static fixture    small;
    options.memory_total = 1000;
    fixture_open(&small, 1, &options);
    ok(filch_lua_load(small.lua, "return 1", 8, NULL, &code, NULL, 0));
    for (int i = 0; i < 3; i++) same(filch_lua_spawn(small.lua, small.sched, code, NULL, NULL), FILCH_LUA_EMEMORY);
    filch_lua_code_drop(small.lua, code);
    fixture_close(&small);
}

/* Each process runs other code of 50 kB. Together they are five times the limit, but most of the code is unused. */
TEST(unused_code_is_freed_when_the_total_memory_limit_is_reached)
{
    fixture_passes(&w, "local pad = ('x'):rep(50000)\n"
                       "for i = 1, 800 do\n"
                       "  local text = assert(process.exec(assert(load('return \"' .. i .. pad .. '\"'))))\n"
                       "  assert(#text > 50000)\n"
                       "  collectgarbage()\n"
                       "end\n");
}

static fixture counted;

/* held() returns total.held: the number of bytes that all processes of the host hold together. */
static int held(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)fli_load_rlx(&counted.lua->total.held));
    return 1;
}

/* mark() notes that a job or a child runs. await_end() occupies the worker until this job or child has ended,
 * and returns held(). */
static atomic_int marked;

static int mark(lua_State *L)
{
    (void)L;
    atomic_store(&marked, 1);
    return 0;
}

static int await_end(lua_State *L)
{
    until(atomic_load(&marked) != 0 && fli_load_acq(&counted.lua->alive) == 1);
    atomic_store(&marked, 0);
    return held(L);
}

static void add_held(lua_State *L, void *user)
{
    (void)user;
    lua_register(L, "held", held);
    lua_register(L, "mark", mark);
    lua_register(L, "await_end", await_end);
}

/* The supervisor keeps the code of children that have ended, so the code cannot be freed. Texts then take all but
 * about 150,000 bytes of the limit, so that a spawn of 240,000 bytes of code is refused. */
TEST(code_in_use_counts_in_the_total_memory)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.memory_total = 8 << 20;
    options.runaway_ns = FILCH_SECONDS(60); /* compiling 240,000 bytes takes long under valgrind */
    options.open = add_held;
    fixture_open(&counted, 1, &options);
    fixture_passes(
        &counted,
        "local sup, fine, no = assert(supervisor.start { children = {} })\n"
        "local function code(id, size) return load('return \"' .. id .. ('x'):rep(size) .. '\"') end\n"
        "local f = assert(code(0, 240000))\n"
        "local before = held()\n"
        "for i = 1, 40 do\n"
        "  assert(supervisor.start_child(sup, { id = 'c' .. i, restart = 'transient', assert(code(i, 50000)) }))\n"
        "  collectgarbage()\n"
        "end\n"
        "assert(held() - before > 40 * 50000, held() - before)\n"
        "local fill = {}\n"
        "while held() < (8 << 20) - 160000 do fill[#fill + 1] = ('x'):rep(10000) end\n"
        "fine, no = pcall(process.spawn, f)\n"
        "assert(not fine and no:find('the code: all processes together may hold 8388608 bytes', 1, true), no)\n"
        "fill = nil\n"
        "collectgarbage()\n"
        "supervisor.stop(sup)\n"
        "assert(process.exec(f))\n");
    fixture_close(&counted);
}

/* Children and their arguments count until their supervisor ends; the processes themselves drop their arguments. */
TEST(arguments_of_children_count_in_the_total_memory)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.memory_total = 8 << 20;
    options.open = add_held;
    fixture_open(&counted, 1, &options);
    fixture_passes(
        &counted,
        "local text = ('x'):rep(300000)\n"
        "local function child(id) return { id = id, function(s) s = nil collectgarbage() process.receive() end, text } "
        "end\n"
        "local function limit(why) return why:find('not enough memory for the supervisor: all processes together may "
        "hold 8388608 bytes', 1, true) end\n"
        "local first\n"
        "for round = 1, 3 do\n"
        "  local before = held()\n"
        "  local sup, n, fine, why = assert(supervisor.start { children = { child('first') } }), 0, nil, nil\n"
        "  repeat\n"
        "    local pid, no\n"
        "    fine, pid, no = pcall(supervisor.start_child, sup, child('c' .. n))\n"
        "    why = not fine and pid or no\n"
        "    fine = fine and pid ~= nil\n"
        "    if fine then n = n + 1 end\n"
        "  until not fine or n == 100\n"
        "  first = first or n\n"
        /* a child holds its text until it has run, so the number of children depends on the order of the steps */
        "  assert(n > 5 and n < 8388608 // 300000 and n >= first // 2, n)\n"
        /* the arguments do not fit, or they fit, but then the child has no memory to begin */
        "  assert(limit(why) or why == 'not enough memory to start the child', why)\n"
        "  assert(held() - before > n * 300000)\n"
        "  fine, why = pcall(supervisor.start, { children = { child('a'), child('b'), child('c'), child('d') } })\n"
        "  assert(not fine and limit(why), why)\n"
        "  supervisor.stop(sup)\n"
        "  while held() > before + 300000 do time.sleep('1ms') end\n"
        "end\n"
        /* a description that is refused leaves nothing behind */
        "local before = held()\n"
        "for i = 1, 100 do\n"
        "  assert(not pcall(supervisor.start, { children = { child('a'), { id = 'b', print, text } } }))\n"
        "end\n"
        "assert(held() < before + 600000, held() - before)\n");
    fixture_close(&counted);
}

/* A child is counted, also if its arguments are small. */
TEST(children_without_arguments_count_in_the_total_memory)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.open = add_held;
    fixture_open(&counted, 1, &options);
    fixture_passes(
        &counted, "local children = {}\n"
                  "for i = 1, 1000 do children[i] = { id = 'c' .. i, restart = 'temporary', function() end } end\n"
                  "local function alive(n) while runtime.stats().alive > n do time.sleep('1ms') end return held() end\n"
                  "local sup = supervisor.start { children = children }\n"
                  "local before = alive(2)\n" /* the children have ended, and the tree is still there */
                  "supervisor.stop(sup)\n"
                  "assert(before - alive(1) > 1000 * 100, before - held())\n");
    fixture_close(&counted);
}

TEST(a_child_without_memory_to_begin_is_reported)
{
    fixture_passes(&w, "local small = { id = 'a', function() end, memory = '4K' }\n"
                       "local up, why\n"
                       /* the supervisor may have ended before it is asked: then the reason is not known */
                       "repeat\n"
                       "  up, why = supervisor.start { children = { small } }\n"
                       "until why ~= 'no such process: it has ended, or never was'\n"
                       "assert(up == nil and why == 'not enough memory to start the child', why)\n"
                       "up, why = supervisor.start_child(assert(supervisor.start { children = {} }), small)\n"
                       "assert(up == nil and why == 'not enough memory to start the child', why)\n"
                       "process.exit()\n");
}

/* The result of a job, or of process.exit(), counts until the process has taken it from its mailbox. */
TEST(results_that_no_process_has_taken_count_in_the_total_memory)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.open = add_held;
    fixture_open(&counted, 2, &options);
    fixture_passes(&counted, "local function text() return ('x'):rep(900000) end\n"
                             "local ways = {\n"
                             "  result = function() work.run(function() mark() return text() end) end,\n"
                             "  error = function() work.run(function() mark() error(text(), 0) end) end,\n"
                             "  exit = function() process.exec(function() mark() process.exit(text()) end) end,\n"
                             "}\n"
                             "local least = { result = 900000, error = 32768, exit = 900000 }\n"
                             "for round = 1, 2 do\n"
                             "  for name, way in pairs(ways) do\n"
                             "    local before = held()\n"
                             "    local t = task.spawn(way)\n"
                             "    time.sleep(0)\n"
                             "    local grown = await_end() - before\n"
                             "    if round == 2 then assert(grown >= least[name], name .. ' ' .. grown) end\n"
                             "    t:await()\n"
                             "    time.sleep('1ms')\n" /* long strings are remembered until the end of the step */
                             "    collectgarbage()\n"
                             "    assert(held() - before < 100000, name .. ' ' .. held() - before)\n"
                             "  end\n"
                             "end\n");
    fixture_close(&counted);
}

/* Without a limit, too, a host keeps only a few megabytes of unused code. */
TEST(unused_code_is_freed_without_a_memory_limit)
{
    static fixture free_of_limits;
    fixture_open(&free_of_limits, 1, NULL);
    fixture_passes(&free_of_limits, "local pad = ('x'):rep(50000)\n"
                                    "for i = 1, 400 do\n"
                                    "  assert(process.exec(assert(load('return \"' .. i .. pad .. '\"'))))\n"
                                    "end\n");
    until(fli_load_rlx(&free_of_limits.lua->alive) == 0);
    assert_true(fli_load_rlx(&free_of_limits.lua->total.held) < 7 << 20);
    fixture_close(&free_of_limits);
}

/* When all processes have ended and the cached code is freed, no code is left and no memory is counted. */
TEST(all_counted_code_is_returned)
{
    static fixture other;
    fixture_open(&other, 1, NULL);
    for (int round = 0; round < 3; round++) {
        /* the code is started three times, so it has a template */
        fixture_passes(&other, "for i = 1, 50 do local f = load('local a = ' .. i .. ' return a') for n = 1, 3 do "
                               "assert(process.exec(f) == i) end end\n");
        until(fli_load_rlx(&other.lua->alive) == 0);
        other.lua->total.spare(other.lua);
        assert_int_equal(fli_load_rlx(&other.lua->total.held), 0);
        assert_int_equal(other.lua->code_count, 0);
    }
    fixture_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(spawns_over_the_total_memory_limit_fail_until_processes_end),
        T(a_limit_too_small_to_begin_is_not_reported_as_the_total),
        T(exceeding_the_total_memory_limit_ends_one_process),
        T(large_messages_and_blobs_count_until_they_are_read),
        T(unused_code_is_freed_when_the_total_memory_limit_is_reached),
        T(code_in_use_counts_in_the_total_memory),
        T(messages_with_blobs_count_until_they_are_read),
        cmocka_unit_test(results_that_no_process_has_taken_count_in_the_total_memory),
        T(a_child_without_memory_to_begin_is_reported),
        cmocka_unit_test(arguments_of_children_count_in_the_total_memory),
        cmocka_unit_test(children_without_arguments_count_in_the_total_memory),
        cmocka_unit_test(unused_code_is_freed_without_a_memory_limit),
        cmocka_unit_test(all_counted_code_is_returned),
        cmocka_unit_test(a_total_memory_limit_below_one_process_starts_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
