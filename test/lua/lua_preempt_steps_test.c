/* lua_preempt_steps_test.c - interrupting steps that run too long: without signals, without damage to the interrupted
 * step, and soon enough for the processes that wait. */
#include <lauxlib.h>
#include <lua.h>
#include <signal.h>

#include "lua/fixture.h"
#include "support/descriptors.h"

#if defined(__SANITIZE_THREAD__)
#define LOOP_BODY "time.ns()"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOOP_BODY "time.ns()"
#endif
#endif
#ifndef LOOP_BODY
#define LOOP_BODY ""
#endif

static fixture w;

/* Continuation function for a protected call that the host program makes. Because there is a continuation function, Lua
 * code inside the call may yield. */
static int after_call(lua_State *L, int status, lua_KContext ctx)
{
    (void)ctx;
    lua_pushboolean(L, status == LUA_OK || status == LUA_YIELD);
    lua_insert(L, 1);
    return lua_gettop(L);
}

static int try_call(lua_State *L)
{
    filch_lua_settle(L);
    return after_call(L, lua_pcallk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, 0, after_call), 0);
}

static void add_try(lua_State *L, void *user)
{
    (void)user;
    lua_pushcfunction(L, try_call);
    lua_setfield(L, -2, "try");
}

static filch_lua_options quick(uint64_t slice_ns)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.slice_ns = slice_ns;
    options.open = add_try;
    return options;
}

/* The watchdog reads and writes data of a Lua state when it sets a hook. This program changes the same data in every
 * way: by calls and returns, protected calls and errors inside them, short-lived coroutines, garbage collection, and
 * deep recursion. It returns a known sum. */
static const char torture[] =
    "local rounds = ...\n"
    "local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end\n"
    "local function fail(n) if n == 0 then error(7, 0) end return fail(n - 1) + 1 end\n"
    "local function handler(e) return e + 1 end\n"
    "local sum = 0\n"
    "for i = 1, rounds do\n"
    "  local fine, value = pcall(pcall, pcall, deep, 20) sum = sum + select('#', fine, value)\n"
    "  fine, value = pcall(fail, 10) assert(not fine and value == 7)\n"
    "  fine, value = xpcall(fail, handler, 5) assert(not fine and value == 8)\n"
    "  fine, value = xpcall(function() return pcall(fail, 3) end, handler) assert(fine and value == false)\n"
    "  fine, value = try(try, deep, 10) assert(fine and value == true)\n"
    "  fine, value = try(fail, 10) assert(not fine and value == 7)\n"
    "  fine, value = try(function() local _, e = xpcall(fail, handler, 2) return e end) assert(fine and value == 8)\n"
    "  local co = coroutine.wrap(function(a) for k = 1, 3 do a = a + coroutine.yield(a) end return a end)\n"
    "  local x = co(1) x = co(x) x = co(x) x = co(x) sum = sum + x\n"
    "  coroutine.wrap(function() pcall(coroutine.yield) end)()\n"
    "  sum = sum + deep(100 + i % 50)\n"
    "  local t = {} for k = 1, 20 do t[k] = { k } end sum = sum + #t\n"
    "  if i % 100 == 0 then collectgarbage() end\n"
    "end\n"
    "return sum\n";

static int64_t run_torture(filch_lua_options options, int rounds)
{
    char chunk[sizeof torture + 64];
    snprintf(chunk, sizeof chunk, "local function f(...) %s end return f(%d)", torture, rounds);
    fixture_open(&w, 1, &options);
    fixture_passes(&w, chunk);
    int64_t sum = w.number;
    fixture_passes(&w, "return runtime.stats().interrupted");
    fixture_close(&w);
    return sum;
}

TEST(results_are_correct_however_often_the_step_is_interrupted)
{
    int     rounds = (int)scaled(20000);
    int64_t undisturbed = run_torture(
        (filch_lua_options){ .size = sizeof(filch_lua_options), .watch = FILCH_LUA_WATCH_NONE, .open = add_try },
        rounds);
    same(w.number, 0);
    for (int i = 0; i < 2; i++) {
        same(run_torture(quick(20000), rounds), undisturbed);
        assert_true(w.number > 0); /* on a busy machine the watchdog's thread seldom runs */
    }
    filch_lua_options counted = quick(20000);
    counted.watch = FILCH_LUA_WATCH_COUNT;
    same(run_torture(counted, rounds), undisturbed);
    assert_true(w.number > 10);
}

TEST(processes_may_end_while_they_are_interrupted)
{
    filch_lua_options options = quick(20000);
    fixture_open(&w, 2, &options);
    char chunk[512];
    snprintf(chunk, sizeof chunk,
             "local me, n = process.self(), %d\n"
             "for i = 1, n do process.spawn(function(k)\n"
             "  for j = 1, k %% 7 * 1000 do local f = coroutine.wrap(function() return j end) if k %% 3 == 0 then f() "
             "end end\n"
             "  process.send(me, 1)\n"
             "end, i) end\n"
             "for i = 1, n do process.receive() end\n",
             (int)scaled(2000));
    fixture_passes(&w, chunk);
    fixture_close(&w);
}

TEST(no_signal_handler_changes_unless_a_signal_is_configured)
{
    struct sigaction before[65], after;
    sigset_t         mask_before, mask_after;
    memset(before, 0, sizeof before);
    for (int i = 1; i < 65; i++) (void)sigaction(i, NULL, &before[i]);
    sigprocmask(SIG_SETMASK, NULL, &mask_before);
    filch_lua_options options = quick(FILCH_MILLISECONDS(2));
    fixture_open(&w, 1, &options);
    fixture_passes(
        &w, "local hog = process.spawn(function() while true do end end) time.sleep('20ms') process.terminate(hog)");
    for (int i = 1; i < 65; i++) {
        memset(&after, 0, sizeof after);
        (void)sigaction(i, NULL, &after);
        assert_ptr_equal((void *)(uintptr_t)after.sa_handler, (void *)(uintptr_t)before[i].sa_handler);
    }
    sigprocmask(SIG_SETMASK, NULL, &mask_after);
    for (int i = 1; i < 65; i++) same(sigismember(&mask_after, i), sigismember(&mask_before, i));
    fixture_close(&w);
}

TEST(a_configured_signal_interrupts_and_is_restored)
{
    struct sigaction  before, during, after;
    filch_lua_options options = quick(FILCH_MILLISECONDS(2));
    options.signal = SIGURG;
    (void)sigaction(SIGURG, NULL, &before);
    fixture_open(&w, 1, &options);
    (void)sigaction(SIGURG, NULL, &during);
    assert_ptr_not_equal((void *)(uintptr_t)during.sa_handler, (void *)(uintptr_t)before.sa_handler);
    /* Without a call of a C function only the signal can interrupt the loop. The thread sanitizer delivers a signal
     * only when the thread calls the C library, so there the loop calls time.ns(). */
    fixture_passes(&w, "local hog = process.spawn(function() while true do " LOOP_BODY " end end)\n"
                       "while runtime.stats().interrupted < 3 do time.sleep('1ms') end\n"
                       "process.terminate(hog)");
    fixture_close(&w);
    (void)sigaction(SIGURG, NULL, &after);
    assert_ptr_equal((void *)(uintptr_t)after.sa_handler, (void *)(uintptr_t)before.sa_handler);
}

TEST(timers_fire_between_the_slices_of_endless_loops)
{
    filch_lua_options options = quick(FILCH_MILLISECONDS(2));
    fixture_open(&w, 1, &options);
    /* The program begins with many short steps, after which the worker reads its clock seldom. A timer that is due must
     * wait only for the end of the present turn, not for the turns of other endless loops. (src/sched/worker_test.c
     * counts these turns with a simulated clock.) */
    fixture_passes(&w, "local echo = process.spawn(function() while true do local m, from = process.receive() "
                       "process.send(from, m) end end)\n"
                       "local function rush() for i = 1, 2000 do process.send(echo, i) process.receive() end end\n"
                       "rush()\n"
                       "local hogs = {}\n"
                       "for i = 1, 6 do hogs[i] = process.spawn(function() while true do end end) end\n"
                       "local late = 0\n"
                       "for i = 1, 20 do\n"
                       "  local before = runtime.stats().interrupted\n"
                       "  time.sleep('1ms')\n"
                       "  local turns = runtime.stats().interrupted - before\n"
                       /* at most three turns of endless loops: a turn that ends before the timer is due, the turn in
                        * which the timer becomes due, and a fairness pick */
                       "  if turns > 3 then late = late + 1 end\n"
                       "end\n"
                       /* if the worker has to wait for a processor, this process too may be interrupted between its two
                        * readings of the counter; then each endless loop gets a turn before this process continues */
                       "assert(late < 10, late)\n"
                       "for i = 1, 6 do process.terminate(hogs[i]) end\n");
    fixture_close(&w);
}

TEST(without_a_watchdog_thread_instructions_are_counted)
{
    filch_lua_options options = quick(FILCH_MILLISECONDS(1));
    int               before = thread_count();
    options.watch = FILCH_LUA_WATCH_COUNT;
    options.runaway_ns = FILCH_MILLISECONDS(20);
    fixture_open(&w, FILCH_NO_WORKERS, &options);
    until(thread_count() <= before); /* waits, because the system may list a joined thread for a moment */
    (void)fixture_start(&w,
                        "local hog = process.spawn(function() while true do end end)\n"
                        "while runtime.stats().interrupted < 5 do time.sleep('1ms') end\n"
                        "process.terminate(hog)\n"
                        "local pid = process.spawn_monitored(function() tostring(setmetatable({}, { __tostring = "
                        "function() while true do end end })) end)\n"
                        "assert(process.receive({ event = 'exit', pid = pid }).error:find('ran for too long'))\n",
                        0);
    while (!atomic_load(&w.over)) {
        uint32_t ran;
        ok(filch_tick(w.sched, 1, &ran)); /* filch_tick() returns although the process is in an endless loop */
    }
    if (w.error != FILCH_OK) fail_msg("%s", w.text);
    until(thread_count() <= before); /* waits, because the system may list a joined thread for a moment */
    fixture_close(&w);
}

TEST(invalid_watch_modes_and_signals_are_refused)
{
    filch_lua        *lua;
    filch_lua_options bad = FILCH_LUA_OPTIONS_INIT;
    bad.watch = 3;
    same(filch_lua_create(&lua, &bad), FILCH_EINVAL);
    bad.watch = FILCH_LUA_WATCH_COUNT;
    bad.signal = SIGURG; /* a signal is invalid together with FILCH_LUA_WATCH_COUNT, which sends no signal */
    same(filch_lua_create(&lua, &bad), FILCH_EINVAL);
    bad.watch = FILCH_LUA_WATCH_THREAD;
    bad.signal = -1;
    same(filch_lua_create(&lua, &bad), FILCH_EINVAL);
    filch_lua_settle(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_correct_however_often_the_step_is_interrupted),
        cmocka_unit_test(processes_may_end_while_they_are_interrupted),
        cmocka_unit_test(no_signal_handler_changes_unless_a_signal_is_configured),
        cmocka_unit_test(a_configured_signal_interrupts_and_is_restored),
        cmocka_unit_test(timers_fire_between_the_slices_of_endless_loops),
        cmocka_unit_test(without_a_watchdog_thread_instructions_are_counted),
        cmocka_unit_test(invalid_watch_modes_and_signals_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
