/* lua.c - the costs of Lua processes: one line each, with the required value and the target (us, or bytes).
 *
 *     lua [--workers N] [--size N]
 *
 * The times are taken by the programs themselves, on the scheduler's clock. One worker by default: this
 * measures the path of a message or a start, not how two cores share it.
 */
#include <filch_lua.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench.h"

static bench      b;
static filch_lua *lua;
static double     result;
static filch_err  failed;

static void ended(void *user, filch_pid pid, filch_err error, const filch_data *data)
{
    (void)user, (void)pid;
    failed = error;
    result = filch_kind_of(data) == FILCH_KIND_INT ? (double)filch_as_int(data) : filch_as_num(data);
    if (error != FILCH_OK)
        fprintf(stderr, "%.*s\n", (int)filch_size(data), filch_size(data) > 0 ? (const char *)filch_raw(data) : "");
    bench_over(&b);
}

/* Runs the Lua chunk; its argument is the value of --size. Returns its result, a number. */
static double run(const char *chunk)
{
    filch_lua_code         *code;
    char                    why[256] = "";
    filch_data              args[1] = { filch_int((int64_t)b.size) };
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    if (filch_lua_load(lua, chunk, strlen(chunk), "bench", &code, why, sizeof why) != FILCH_OK)
        fprintf(stderr, "%s\n", why);
    spawn.on_exit = ended;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = 1;
    bench_must(filch_lua_spawn(lua, b.sched, code, &how, NULL), "spawn");
    bench_wait(&b);
    bench_must(failed, "run");
    filch_lua_code_drop(lua, code);
    return result;
}

static void open_host(uint32_t watch, uint64_t slice_ns)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.watch = watch;
    options.slice_ns = slice_ns;
    options.memory_max = (size_t)256 << 20;
    bench_must(filch_lua_create(&lua, &options), "host");
    bench_start(&b, NULL);
}

static void close_host(void)
{
    (void)filch_sched_stop(b.sched, FILCH_SECONDS(10), NULL);
    b.sched = NULL;
    bench_must(filch_lua_destroy(lua), "destroy");
}

static void print(const char *name, double value, const char *unit, double must, double aim)
{
    b.name = name;
    bench_value(&b, value, unit);
    bench_extra(&b, "must", must);
    bench_extra(&b, "aim", aim);
    bench_print(&b);
}

static const char pingpong[] = "local n, message = ...\n"
                               "local pong = process.spawn(function() while true do local m, from = process.receive() "
                               "process.send(from, m) end end)\n"
                               "for i = 1, 1000 do process.send(pong, i) process.receive() end\n"
                               "local t = time.ns()\n"
                               "for i = 1, n do process.send(pong, i) process.receive() end\n"
                               "t = time.ns() - t\n"
                               "process.terminate(pong)\n"
                               "return t / n\n";

static const char tables[] = "local n = ...\n"
                             "local pong = process.spawn(function() while true do local m, from = process.receive() "
                             "process.send(from, m) end end)\n"
                             "local message = { id = 1, name = 'abc', price = 1.5, ok = true, tag = 'xyz' }\n"
                             "for i = 1, 1000 do process.send(pong, message) process.receive() end\n"
                             "local t = time.ns()\n"
                             "for i = 1, n do process.send(pong, message) process.receive() end\n"
                             "t = time.ns() - t\n"
                             "process.terminate(pong)\n"
                             "return t / n\n";

static const char ring[] = "local n = ...\n"
                           "local to, all = process.self(), {}\n"
                           "for i = 1, 502 do local next_one = to to = process.spawn(function() while true do "
                           "process.send(next_one, process.receive()) end end) all[i] = to end\n"
                           "local rounds = math.max(1, n // 503)\n"
                           "process.send(to, 0) process.receive()\n"
                           "local t = time.ns()\n"
                           "for i = 1, rounds do process.send(to, i) process.receive() end\n"
                           "t = time.ns() - t\n"
                           "for _, pid in ipairs(all) do process.terminate(pid) end\n"
                           "return t / (rounds * 503)\n";

static const char starts[] = "local n, me = ..., process.self()\n"
                             "local function run(n) for i = 1, n, 50 do\n"
                             "  for j = 1, 50 do process.spawn(function() process.send(me, 1) end) end\n"
                             "  for j = 1, 50 do process.receive() end\n"
                             "end end\n"
                             "run(1000)\n"
                             "local t = time.ns()\n"
                             "run(n)\n"
                             "return (time.ns() - t) / n\n";

static const char idlers[] = "local n, me = ..., process.self()\n"
                             "for i = 1, n do process.spawn(function() process.send(me, 1) while true do local m, from "
                             "= process.receive() process.send(from, m) end end)\n"
                             "  process.receive() end\n"
                             "return n\n";

static const char fib[] = "local function f(n) if n < 2 then return n end return f(n - 1) + f(n - 2) end\n"
                          "local t = time.ns() f(32) return time.ns() - t\n";

/* Two Lua processes that never wait run in alternation. The program measures the longest real time for which one of
 * them ran without a turn of the other. */
static const char loops[] = "local me = process.self()\n"
                            "for i = 1, 2 do process.spawn(function()\n"
                            "  local ns = time.ns\n"
                            "  local start = ns() local last, began, worst = start, start, 0\n"
                            "  while last - start < 500000000 do\n"
                            "    for k = 1, 1000 do end\n"
                            "    local now = ns()\n"
                            "    if now - last > 1000000 then worst = math.max(worst, last - began) began = now end\n"
                            "    last = now\n"
                            "  end\n"
                            "  process.send(me, worst)\n"
                            "end) end\n"
                            "local a = process.receive() local b = process.receive()\n"
                            "return math.max(a, b)\n";

static void measure_idle(void)
{
    uint64_t size = b.size;
    b.size = size / 10 > 0 ? size / 10 : 1;
    (void)run("return 1");
    uint64_t before = bench_rss_bytes();
    (void)run(idlers);
    print("lua_idle", (double)(bench_rss_bytes() - before) / (double)b.size, "bytes", 12 * 1024, 8.5 * 1024);
    b.size = size;
}

static double cpu_ms(void)
{
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
}

/* Measures the cost of the watchdog for a process that only computes, in CPU time of the whole program including the
 * watchdog. The expected cost, about one percent, is less than the noise of a shared machine. So the watchdog
 * interrupts the process OFTEN times as often as by default. Ten runs with the watchdog alternate with ten runs without
 * it, and the fastest run of each kind counts. The cost with default settings is the difference of the two fastest
 * times, divided by OFTEN. */
static void measure_overhead(void)
{
    enum { OFTEN = 50 };
    double best[2] = { 0, 0 };
    for (int i = 0; i < 10; i++) {
        for (int with_watchdog = 0; with_watchdog < 2; with_watchdog++) {
            open_host(with_watchdog ? FILCH_LUA_WATCH_THREAD : FILCH_LUA_WATCH_NONE, FILCH_MILLISECONDS(5) / OFTEN);
            double began = cpu_ms();
            (void)run(fib);
            double took = cpu_ms() - began;
            if (best[with_watchdog] == 0 || took < best[with_watchdog]) best[with_watchdog] = took;
            close_host();
        }
    }
    print("lua_watch", (best[1] / best[0] - 1) * 100 / OFTEN, "%", 1, 0.5);
}

int main(int argc, char **argv)
{
    bench_open(&b, "lua", 200000, argc, argv);
    bool has_workers_option = false;
    for (int i = 1; i < argc; i++) has_workers_option |= strcmp(argv[i], "--workers") == 0;
    if (!has_workers_option) b.workers = 1;
    open_host(FILCH_LUA_WATCH_THREAD, 0);
    print("lua_pingpong", run(pingpong) / 1e3, "us", 0.6, 0.4);
    print("lua_table", run(tables) / 1e3, "us", 1.6, 1.2);
    print("lua_ring", run(ring) / 1e3, "us", 0.4, 0.25);
    print("lua_spawn", run(starts) / 1e3, "us", 10, 1.5);
    print("lua_turn", run(loops) / 1e6, "ms", 20, 11);
    measure_idle();
    close_host();
    measure_overhead();
    return 0;
}
