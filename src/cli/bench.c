/* bench.c - `filch bench`: the costs of Lua processes on this machine, one line of JSON per mark.
 *
 * A mark is a measurement, a Lua program in bench.lua. Each mark is run `runs` times, each time in a new scheduler. The
 * best run shows what the machine can do; its difference to the median shows how busy the machine was. Memory is the
 * resident memory of this program, before and after.
 */
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/message.h"
#include "cli/program.h"

enum { RUNS = 1, WORKERS, COUNT, RUNS_MAX = 99 };

const cli_option cli_bench_options[] = {
    { "--runs", "N", "5", "runs of each mark, at most 99", RUNS },
    { "--workers", "N", "1", "threads that run processes", WORKERS },
    { "--count", "N", "depends on the mark", "operations in one run", COUNT },
    { NULL, NULL, NULL, NULL, 0 },
};

static const char marks_lua[] = {
#include "cli/bench.inc"
};

typedef struct mark {
    const char *name, *unit;
    uint64_t    count;
    bool        memory;
} mark;

static const mark marks[] = {
    { "pingpong_int", "ns per round trip", 200000, false },
    { "pingpong_table", "ns per round trip", 100000, false },
    { "ring", "ns per message", 500000, false },
    { "spawn", "ns per process", 50000, false },
    { "idle_bytes", "bytes per process", 20000, true },
};
enum { MARKS = sizeof marks / sizeof marks[0] };

typedef struct settings {
    uint64_t runs, count;
    int32_t  workers;
} settings;

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE              *in = fopen("/proc/self/statm", "r");
    if (in == NULL) return 0;
    if (fscanf(in, "%llu %llu", &size, &resident) != 2) resident = 0;
    fclose(in);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- one run ---- */

static void ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    *(double *)user = error == FILCH_OK ? (double)filch_as_int(result) : -1;
}

static int start(cli_program *p, const mark *m, uint64_t count, double *took)
{
    filch_lua_code         *code = NULL;
    char                    text[256] = "";
    filch_data              arg = filch_int((int64_t)count);
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = ended;
    spawn.on_exit_user = took;
    how.spawn = &spawn;
    how.method = m->name;
    how.args = &arg;
    how.arg_count = 1;
    filch_err err = filch_lua_load(p->lua, marks_lua, sizeof marks_lua, "bench.lua", &code, text, sizeof text);
    if (err == FILCH_OK) err = filch_lua_spawn(p->lua, p->sched, code, &how, NULL);
    filch_lua_code_drop(p->lua, code);
    if (err != FILCH_OK) cli_error("bench: %s: %s", m->name, text[0] != '\0' ? text : filch_err_text(err));
    return err == FILCH_OK ? CLI_OK : CLI_FAILED;
}

/* Runs the measurement `m` once. Sets *value to the cost of one operation, in the unit m->unit. Returns CLI_OK or an
 * exit code. */
static int run_once(const settings *set, const mark *m, uint64_t count, double *value)
{
    cli_program p = { .lua_options = FILCH_LUA_OPTIONS_INIT, .workers = set->workers, .stop_ns = FILCH_SECONDS(5) };
    double      took = -1;
    int         result = cli_program_open(&p);
    if (result != CLI_OK) return result;
    uint64_t before = resident_bytes();
    result = start(&p, m, count, &took);
    if (result == CLI_OK) cli_program_wait(&p);
    uint64_t after = resident_bytes();
    cli_program_close(&p, p.signal != 0);
    if (p.signal != 0) return CLI_BY_SIGNAL + p.signal;
    if (result == CLI_OK && took < 0) {
        cli_error("bench: the mark %s ended without a result: it failed, or waits for ever", m->name);
        cli_hint("with a smaller --count it needs less memory");
        result = CLI_FAILED;
    }
    *value = (m->memory ? (double)(after > before ? after - before : 0) : took) / (double)count;
    return result;
}

/* ---- all runs of one measurement ---- */

static int smaller_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_mark(const settings *set, const mark *m)
{
    double   values[RUNS_MAX];
    uint64_t count = set->count != 0 ? set->count : m->count, runs = set->runs;
    /* Memory is measured only once: a second run would reuse the memory that the first run freed. */
    if (m->memory) runs = 1;
    for (uint64_t i = 0; i < runs; i++) {
        int result = run_once(set, m, count, &values[i]);
        if (result != CLI_OK) return result;
    }
    qsort(values, (size_t)runs, sizeof values[0], smaller_first);
    printf("{\"mark\": \"%s\", \"unit\": \"%s\", \"best\": %.1f, \"median\": %.1f, \"runs\": %llu, \"count\": %llu, "
           "\"workers\": %d, \"version\": \"%s\"}\n",
           m->name, m->unit, values[0], values[runs / 2], (unsigned long long)runs, (unsigned long long)count,
           set->workers, filch_version());
    return CLI_OK;
}

static const mark *find_mark(const char *name)
{
    for (size_t i = 0; i < MARKS; i++) {
        if (strcmp(marks[i].name, name) == 0) return &marks[i];
    }
    const char *near = cli_nearest(name, &marks->name, MARKS, sizeof *marks);
    cli_error("bench: there is no mark '%s'", name);
    cli_hint("%s%s%sthere are pingpong_int, pingpong_table, ring, spawn and idle_bytes",
             near != NULL ? "did you mean " : "", near != NULL ? near : "", near != NULL ? "? " : "");
    return NULL;
}

/* Parses the command line. Sets chosen[i] for each measurement marks[i] that the command line names. Returns false
 * after an error message. */
static bool read_line(settings *set, const cli_command *self, int argc, char **argv, bool *chosen)
{
    cli_args args = { .command = self, .argv = argv, .argc = argc };
    uint64_t number;
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        const mark *m;
        switch (what) {
        case RUNS:
            if (!cli_value_number(&args, 1, RUNS_MAX, &set->runs)) return false;
            break;
        case WORKERS:
            if (!cli_value_number(&args, 1, 1024, &number)) return false;
            set->workers = (int32_t)number;
            break;
        case COUNT:
            if (!cli_value_number(&args, 1, 100000000, &set->count)) return false;
            break;
        case CLI_OPERAND:
            m = find_mark(args.value);
            if (m == NULL) return false;
            chosen[m - marks] = true;
            break;
        default: return false;
        }
    }
    return true;
}

int cli_bench(const cli_command *self, int argc, char **argv)
{
    settings set = { .runs = 5, .workers = 1 };
    bool     chosen[MARKS] = { false }, any = false;
    if (!read_line(&set, self, argc, argv, chosen)) return CLI_USAGE;
    for (size_t i = 0; i < MARKS; i++) any |= chosen[i];
    /* Measurements of memory run first, while malloc has no free memory that earlier measurements left. */
    for (size_t i = MARKS; i-- > 0;) {
        int result = any && !chosen[i] ? CLI_OK : run_mark(&set, &marks[i]);
        if (result != CLI_OK) return result;
    }
    return CLI_OK;
}
