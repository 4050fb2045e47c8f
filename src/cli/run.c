/* run.c - `filch run FILE [ARGUMENT...]`: a Lua program, from its first line until nothing can happen any more.
 *
 * The file is the first process, called with the arguments. The program ends when all processes have ended, or when
 * those that are left only wait for each other: no timer, no answer outstanding, nothing to read. It fails if the first
 * process failed; what others die of is told on standard error.
 */
#include "cli/run.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program {
    filch_sched    *sched;
    filch_lua      *lua;
    filch_lua_code *code;
    char            path[1024];
    filch_err       first; /* how the first process ended; read when all workers are at rest */
} program;

static int complain(const char *what, const char *text)
{
    fprintf(stderr, "filch: %s%s%s\n", what, text[0] != '\0' ? ": " : "", text);
    return 1;
}

static void first_ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    (void)result;
    ((program *)user)->first = error;
}

static void failed(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    (void)user;
    (void)pid;
    (void)error;
    fprintf(stderr, "filch: %s: %.*s\n", name, (int)size, text);
}

/* Modules are looked for beside the program. */
static void set_path(program *p, const char *file)
{
    const char *slash = strrchr(file, '/');
    int         size = slash != NULL ? (int)(slash - file) : 1;
    const char *folder = slash != NULL ? file : ".";
    snprintf(p->path, sizeof p->path, "%.*s/?.lua;%.*s/?/init.lua", size, folder, size, folder);
}

static filch_err start(program *p, const char *file, char **argv, int argc, char *text, size_t text_size)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    set_path(p, file);
    options.path = p->path;
    options.on_failure = failed;
    filch_err err = filch_lua_create(&p->lua, &options);
    if (err == FILCH_OK) err = filch_lua_load_file(p->lua, file, &p->code, text, text_size);
    if (err == FILCH_OK) err = filch_sched_create(&p->sched, NULL);
    if (err != FILCH_OK) return err;
    filch_data *args = calloc((size_t)argc + 1, sizeof *args);
    if (args == NULL) return FILCH_ENOMEM;
    for (int i = 0; i < argc; i++) args[i] = filch_str(argv[i]);
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = first_ended;
    spawn.on_exit_user = p;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = (size_t)argc;
    err = filch_lua_spawn(p->lua, p->sched, p->code, &how, NULL);
    free(args);
    return err;
}

/* Everybody asleep, no timer, no answer to come: what is left waits for ever. */
static int is_quiet(const filch_stats *stats)
{
    return stats->asleep == stats->workers && stats->timers == 0 && stats->yields == stats->completions;
}

/* Returns when nothing can happen any more. */
static void wait_until_over(program *p)
{
    uint64_t steps = 0;
    for (int pause_ms = 1;; pause_ms = pause_ms < 16 ? pause_ms * 2 : 16) {
        filch_stats stats = FILCH_STATS_INIT;
        if (filch_sched_stats(p->sched, &stats) != FILCH_OK || stats.alive == 0) return;
        if (is_quiet(&stats) && stats.steps == steps) return;
        steps = stats.steps;
        (void)poll(NULL, 0, pause_ms);
    }
}

int cli_run(int argc, char **argv)
{
    program p = { .first = FILCH_OK };
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines are seen when they are printed, whoever reads */
    char    text[1024] = "";
    if (argc < 1) {
        fputs("filch: run what? usage: filch run FILE [ARGUMENT...]\n", stderr);
        return 2;
    }
    filch_err err = start(&p, argv[0], argv + 1, argc - 1, text, sizeof text);
    if (err == FILCH_OK) wait_until_over(&p);
    if (p.sched != NULL) (void)filch_sched_stop(p.sched, FILCH_SECONDS(5), NULL);
    fflush(stdout);
    filch_lua_code_drop(p.lua, p.code);
    if (p.lua != NULL) (void)filch_lua_destroy(p.lua);
    if (err != FILCH_OK) return complain(text[0] != '\0' ? text : argv[0], text[0] != '\0' ? "" : filch_err_text(err));
    return p.first == FILCH_OK || p.first == FILCH_ECANCELLED ? 0 : 1;
}
