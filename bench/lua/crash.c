/* crash.c - many supervised Lua processes, of which one in ten crashes at the same time (a storm). Measures how long
 * the other processes take to answer before, during and after a storm. The Lua program is crash.lua. Usage: lua_crash
 * [--workers N] [--size N] [--run STORMS]. The size is the number of processes; the value is the 99th percentile during
 * the storms, in us. */
#include <filch_lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char program[] = {
#include "crash.inc"
};

static bench     b;
static filch_err failed;
static char      report[4096];

static void ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid;
    size_t size = filch_size(result) < sizeof report ? filch_size(result) : sizeof report - 1;
    failed = error;
    if (size > 0) memcpy(report, filch_raw(result), size);
    bench_over(&b);
}

/* Prints the output of the Lua program. Each line of the output has a name and a number. */
static void print(void)
{
    char *rest = NULL;
    for (char *line = strtok_r(report, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char   name[64];
        double value;
        if (sscanf(line, "%63s %lf", name, &value) != 2) continue;
        if (strcmp(name, "during_p99_us") == 0) bench_value(&b, value, "us");
        bench_extra(&b, name, value);
    }
    bench_print(&b);
}

int main(int argc, char **argv)
{
    bench_open(&b, "lua_crash", 100000, argc, argv);
    filch_lua          *lua;
    filch_lua_code     *code;
    char                why[256] = "";
    uint64_t            crashes = b.size / 10 > 0 ? b.size / 10 : 1, storms = b.run > 0 ? b.run : 5;
    filch_data          args[] = { filch_int((int64_t)b.size), filch_int((int64_t)crashes), filch_int((int64_t)storms),
                                   filch_int(100) };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_lua_options       options = FILCH_LUA_OPTIONS_INIT;
    options.memory_max = (size_t)1 << 30;
    bench_must(filch_lua_create(&lua, &options), "host");
    bench_start(&b, NULL);
    if (filch_lua_load(lua, program, sizeof program, "crash.lua", &code, why, sizeof why) != FILCH_OK)
        fprintf(stderr, "%s\n", why);
    spawn.on_exit = ended;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = 4;
    bench_begin(&b);
    bench_must(filch_lua_spawn(lua, b.sched, code, &how, NULL), "spawn");
    bench_wait(&b);
    bench_end(&b, crashes * storms);
    filch_lua_code_drop(lua, code);
    if (failed == FILCH_OK) print();
    else fprintf(stderr, "%s\n", report);
    (void)filch_sched_stop(b.sched, FILCH_SECONDS(10), NULL);
    bench_must(filch_lua_destroy(lua), "destroy");
    return failed == FILCH_OK ? 0 : 1;
}
