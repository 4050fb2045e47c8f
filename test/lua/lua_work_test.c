/* lua_work_test.c - Lua on the work pool: work.run returns results and errors, does not occupy a worker, and stops the
 * job when its result is no longer wanted. There is one worker, so that a job that occupied it would be noticed. */
#include <lauxlib.h>
#include <lua.h>

#include "lua/fixture.h"
#include "lua/host/host.h"

static fixture    w;
static atomic_int in_jobs, gate;

/* A Lua function of the host program that blocks until the test releases it. */
static int block(lua_State *L)
{
    atomic_fetch_add(&in_jobs, 1);
    until(atomic_load(&gate) != 0);
    atomic_fetch_sub(&in_jobs, 1);
    lua_pushliteral(L, "let go");
    return 1;
}

/* Lua function: counts its calls and returns at once. */
static int enter(lua_State *L)
{
    (void)L;
    atomic_fetch_add(&in_jobs, 1);
    return 0;
}

static int let_go(lua_State *L)
{
    (void)L;
    atomic_store(&gate, 1);
    return 0;
}

static int inside(lua_State *L)
{
    lua_pushinteger(L, atomic_load(&in_jobs));
    return 1;
}

/* Lua function: returns the bytes that count in the memory of all processes together. */
static int held(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)fli_load_rlx(&w.lua->total.held));
    return 1;
}

/* Lua function: occupies the worker, so that the process takes no result, until at most `n` bytes are held. */
static int await_held(lua_State *L)
{
    uint64_t n = (uint64_t)luaL_checkinteger(L, 1);
    until(fli_load_rlx(&w.lua->total.held) <= n);
    return 0;
}

static void add_functions(lua_State *L, void *user)
{
    static const luaL_Reg all[] = { { "block", block },   { "enter", enter }, { "let_go", let_go },
                                    { "inside", inside }, { "held", held },   { "await_held", await_held },
                                    { NULL, NULL } };
    (void)user;
    luaL_setfuncs(L, all, 0);
}

static int open_with(void **state, size_t memory_total)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.memory_total = memory_total;
    options.slice_ns = FILCH_MILLISECONDS(2);
    options.open = add_functions;
    options.memory_max = 16 << 20;
    atomic_store(&in_jobs, 0);
    atomic_store(&gate, 0);
    fixture_open(&w, 1, &options);
    return 0;
}

static int open_fixture(void **state)
{
    return open_with(state, 0);
}

static int open_limited(void **state)
{
    return open_with(state, 24 << 20);
}

TEST(a_job_returns_its_result_or_an_error)
{
    fixture_passes(
        &w,
        "local factor = 3\n"
        "assert(work.run(function(a, b) return (a + b) * factor end, 1, 2) == 9)\n"
        "assert(work.run(function() end) == nil)\n"
        "assert(select(2, work.run('counter', 4)):find('counter.lua:5: this function works only inside', 1, true))\n"
        "local t = work.run { function(...) return { n = select('#', ...), ... } end, 'x', { y = 1 } }\n"
        "assert(t.n == 2 and t[1] == 'x' and t[2].y == 1)\n"
        "assert(#work.run(function(b) return b end, blob.new(('x'):rep(100000))) == 100000)\n"
        "local function why(f, ...) local r, w = work.run(f, ...) assert(r == nil) return w end\n"
        "assert(why(function() error('boom') end):find('test:%d+: boom\\nstack traceback:'))\n"
        "assert(why(function() error({ message = 'told' }) end):find('told', 1, true))\n"
        "assert(why(function() return print end):find('result: a function cannot be sent', 1, true))\n"
        "assert(why(function() coroutine.yield() end):find('outside a coroutine', 1, true))\n"
        "assert(why(function() process.receive() end):find('only inside a running process', 1, true))\n"
        "assert(why(function() time.sleep(1) end):find('only inside a running process', 1, true))\n"
        "assert(why(function() work.run(print) end):find('only inside a running process', 1, true))\n"
        "assert(why(function() local t = {} while true do t[#t + 1] = {} end end):find('not enough memory', 1, true))\n"
        "assert(why({ function() local s = ('x'):rep(1 << 20) return #(s .. s) end, memory = '1MB' }):find('not "
        "enough', 1, true))\n"
        "assert(work.run(function() return time.now() > 0 and runtime.stats().workers end) == 1)\n"
        "assert(work.run(function() local s = 0 for v in coroutine.wrap(function() for i = 1, 9 do coroutine.yield(i) "
        "end end)\n"
        "  do s = s + v end return s end) == 45)\n");
}

TEST(wrong_arguments_to_work_run_are_errors)
{
    fixture_passes(&w, "for _, bad in ipairs { { 1 }, { print }, { {} }, { { function() end, speed = 1 } }, { { "
                       "function() end, timeout = {} } },\n"
                       "    { function() end, coroutine.create(print) } } do\n"
                       "  assert(not pcall(work.run, table.unpack(bad)))\n"
                       "end\n"
                       "assert(not pcall(work.run, 'no.such.module'))\n");
}

TEST(a_job_does_not_occupy_a_worker)
{
    fixture_passes(&w, "local done = task.spawn(function() return work.run(function() return block() end) end)\n"
                       "while inside() == 0 do time.sleep('1ms') end\n"
                       "for i = 1, 10 do assert(process.exec(function(n) return n end, i) == i) end\n"
                       "assert(done:status() == 'running')\n"
                       "let_go()\n"
                       "assert(done:await() == 'let go')\n");
}

TEST(several_jobs_run_concurrently)
{
    fixture_passes(
        &w,
        "local all = {}\n"
        "for i = 1, 4 do all[i] = task.spawn(function() return work.run(function(n) block() return n end, i) end) end\n"
        "while inside() < 4 do time.sleep('1ms') end\n"
        "let_go()\n"
        "for i = 1, 4 do assert(all[i]:await() == i) end\n");
}

TEST(a_job_without_a_waiter_is_stopped)
{
    /* The pool has four threads. If these five jobs were not stopped, they would occupy all threads, and the last job
     * would not run. */
    fixture_passes(
        &w, "local forever = {\n"
            "  function() enter() while true do end end,\n"
            "  function() enter() while true do pcall(function() while true do end end) end end,\n"
            "  function() enter() coroutine.wrap(function() while true do end end)() end,\n"
            "  function() enter() table.sort({ 3, 2, 1 }, function() while true do end end) end,\n"
            "  function() enter() xpcall(function() while true do end end, function() while true do end end) end,\n"
            "}\n"
            "for i, f in ipairs(forever) do\n"
            "  local r, why = work.run { f, timeout = '10ms' }\n"
            "  assert(r == nil and why == 'timeout', i)\n"
            "end\n"
            "local before = inside()\n"
            "local t = task.spawn(function() work.run(forever[1]) end)\n"
            "while inside() == before do time.sleep('1ms') end\n"
            "t:cancel()\n"
            "assert(select(2, pcall(t.await, t)):find('cancelled'))\n"
            "before = inside()\n"
            "local pid = process.spawn(function() work.run(function() enter() while true do end end) end)\n"
            "while inside() == before do time.sleep('1ms') end\n"
            "process.terminate(pid)\n"
            "for i = 1, 4 do assert(work.run(function() return 7 end) == 7) end\n");
}

TEST(a_full_work_queue_is_reported)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = w.sched;
    options.workers = 1;
    options.work_threads = 1;
    options.work_queue = 1;
    ok(filch_sched_create(&w.sched, &options));
    fixture_passes(&w, "local first = task.spawn(function() return work.run(function() return block() end) end)\n"
                       "while inside() == 0 do time.sleep('1ms') end\n"
                       "local second = task.spawn(function() return work.run(function() return 2 end) end)\n"
                       "time.sleep('1ms')\n"
                       "local r, why = work.run(function() return 3 end)\n"
                       "assert(r == nil and why:find('full'), why)\n"
                       "let_go()\n"
                       "assert(first:await() == 'let go' and second:await() == 2)\n");
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(5), NULL));
    w.sched = sched;
}

TEST(stopping_the_scheduler_stops_running_and_queued_jobs)
{
    (void)fixture_start(
        &w,
        "for i = 1, 8 do task.spawn(function() work.run(function() enter() while true do end end) end) end\n"
        "time.sleep('1h')",
        0);
    until(atomic_load(&in_jobs) == 4);
    filch_report report = FILCH_REPORT_INIT;
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(5), &report));
    same(report.stuck, 0);
    filch_report_free(&report);
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = 1;
    ok(filch_sched_create(&w.sched, &options));
}

TEST(jobs_run_and_end_in_a_simulation)
{
    static const char chunk[] =
        "local sum = 0\n"
        "for i = 1, 5 do sum = sum + work.run(function(n) return n * math.random(100) end, i) end\n"
        "local r, why = work.run(function() while true do end end)\n"
        "assert(r == nil and why:find('too long in a simulation'))\n"
        "return sum\n";
    filch_lua_code   *code;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    sim.seed = 7;
    ok(filch_lua_load(w.lua, chunk, strlen(chunk), "test", &code, NULL, 0));
    ok(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report));
    uint64_t hash = report.hash;
    if (report.verdict != FILCH_SIM_OK) fail_msg("%s", report.text);
    filch_sim_report_free(&report);
    ok(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report));
    same(report.hash, hash);
    filch_sim_report_free(&report);
    filch_lua_code_drop(w.lua, code);
}

/* Occupies all threads of the pool, so that further jobs wait. fill(s) starts jobs with the argument `s`, each in a
 * task, until one is refused, and returns the number of jobs that wait, and the reason of the refusal. */
#define FILL                                                                                                     \
    "for i = 1, 4 do task.spawn(function() work.run(function() block() end) end) end\n"                          \
    "while inside() < 4 do time.sleep('1ms') end\n"                                                              \
    "local tasks = {}\n"                                                                                         \
    "local function fill(s)\n"                                                                                   \
    "  local n, why = 0, nil\n"                                                                                  \
    "  repeat\n"                                                                                                 \
    "    local t = task.spawn(function() local ok, r = pcall(work.run, function(s) return #s end, s) if not ok " \
    "then why = r return end return r end)\n"                                                                    \
    "    time.sleep('1ms')\n"                                                                                    \
    "    if why == nil then n = n + 1 tasks[n] = t end\n"                                                        \
    "  until why ~= nil or n == 100\n"                                                                           \
    "  return n, why\n"                                                                                          \
    "end\n"

TEST(arguments_of_waiting_jobs_count_in_the_memory_of_their_process)
{
    fixture_passes(&w, FILL
                   "local s, before = ('x'):rep(900000), held()\n"
                   "local n, why = fill(s)\n"
                   "assert(n > 5 and n < 18, n)\n"
                   "assert(why:find('not enough memory for the job: the process may hold 16777216 bytes', 1, true), "
                   "why)\n"
                   "assert(held() - before > n * 900000)\n"
                   "let_go()\n"
                   "for i = 1, n do assert(tasks[i]:await() == #s) end\n"
                   "assert(held() - before < 900000, held() - before)\n"
                   /* the memory of the jobs can be used again */
                   "local all = {} for i = 1, 10 do all[i] = ('x'):rep(900000) .. i end\n");
}

/* A blob has its bytes outside the process, and all jobs that wait refer to the blob. */
TEST(blobs_that_waiting_jobs_refer_to_count_in_the_memory_of_their_process)
{
    fixture_passes(&w, FILL "local n, why = fill({ blob.new(('x'):rep(900000)) })\n"
                            "assert(n > 5 and n < 18, n)\n"
                            "assert(why:find('not enough memory for the job: the process may hold', 1, true), why)\n"
                            "let_go()\n");
}

/* Each of two processes is within its own limit of 16 MiB. */
TEST(arguments_of_waiting_jobs_count_in_the_memory_of_all_processes)
{
    fixture_passes(&w,
                   FILL "local me = process.self()\n"
                        "process.spawn(function()\n"
                        "  local s = ('x'):rep(900000)\n"
                        "  for i = 1, 13 do task.spawn(function() work.run(function(s) end, s) end) end\n"
                        "  process.send(me, 'waiting')\n"
                        "  process.receive()\n"
                        "end)\n"
                        "assert(process.receive() == 'waiting')\n"
                        "while held() < 13 * 900000 do time.sleep('1ms') end\n"
                        "local n, why = fill(('x'):rep(900000))\n"
                        "assert(n > 1 and n < 14, n)\n"
                        "assert(why:find('not enough memory for the job: all processes together may hold 25165824', 1, "
                        "true), why)\n"
                        "let_go()\n");
}

/* A job that no task waits for stays in the queue of the pool, but without its arguments. */
TEST(arguments_of_a_queued_job_are_freed_when_its_task_stops_waiting)
{
    fixture_passes(&w, FILL "local s, before = ('x'):rep(900000), held()\n"
                            "for i = 1, 100 do\n"
                            "  local r, why = work.run { function() enter() end, s, timeout = '1ms' }\n"
                            "  assert(r == nil and why == 'timeout', why)\n"
                            "end\n"
                            "assert(held() - before < 4000000, held() - before)\n"
                            "let_go()\n"
                            "while inside() > 0 do time.sleep('1ms') end\n"
                            "assert(work.run(function() return 7 end) == 7)\n"
                            "assert(inside() == 0)\n");
}

TEST(arguments_of_waiting_jobs_are_freed_when_their_process_ends)
{
    fixture_passes(&w, FILL "local before = held()\n"
                            "local pid = process.spawn_monitored(function()\n"
                            "  local s = ('x'):rep(900000)\n"
                            "  for i = 1, 8 do task.spawn(function() work.run(function(s) end, s) end) end\n"
                            "  process.receive()\n"
                            "end)\n"
                            "while held() - before < 8000000 do time.sleep('1ms') end\n"
                            "process.terminate(pid)\n"
                            "process.receive { event = 'exit' }\n"
                            "while held() - before > 900000 do time.sleep('1ms') end\n"
                            "let_go()\n");
}

/* The arguments of a job are freed before the process takes the result. */
TEST(arguments_of_a_job_are_freed_when_the_job_has_run)
{
    fixture_passes(&w, FILL "local s = ('x'):rep(900000)\n"
                            "local before = held()\n"
                            "local t = task.spawn(function() return work.run(function(s) return #s end, s) end)\n"
                            "while held() - before < 900000 do time.sleep('1ms') end\n"
                            "let_go()\n"
                            "await_held(before + 400000)\n"
                            "assert(t:await() == 900000)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_job_returns_its_result_or_an_error),
        T(wrong_arguments_to_work_run_are_errors),
        T(a_job_does_not_occupy_a_worker),
        T(several_jobs_run_concurrently),
        T(a_job_without_a_waiter_is_stopped),
        T(a_full_work_queue_is_reported),
        T(stopping_the_scheduler_stops_running_and_queued_jobs),
        T(jobs_run_and_end_in_a_simulation),
        T(arguments_of_waiting_jobs_count_in_the_memory_of_their_process),
        T(blobs_that_waiting_jobs_refer_to_count_in_the_memory_of_their_process),
        T(arguments_of_a_queued_job_are_freed_when_its_task_stops_waiting),
        T(arguments_of_waiting_jobs_are_freed_when_their_process_ends),
        T(arguments_of_a_job_are_freed_when_the_job_has_run),
        cmocka_unit_test_setup_teardown(arguments_of_waiting_jobs_count_in_the_memory_of_all_processes, open_limited,
                                        fixture_close_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
