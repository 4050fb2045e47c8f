/* run.c - `filch run FILE|FOLDER [ARGUMENT...]`: runs a Lua program until no process can run any more. The file is the
 * first process, called with the arguments. The program ends when all processes have ended, or when the remaining
 * processes only wait for each other: no timer, no outstanding yield, nothing to read. The program fails if the first
 * process failed or is one of the processes that wait for ever. Failures of other processes are printed on standard
 * error. */
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/message.h"
#include "cli/program.h"

enum {
    WORKERS = 1,
    MEMORY,
    SLICE,
    LOG_LEVEL,
    STOP_AFTER,
    WATCH,
    STATS,
    ROOTS,
    WITHOUT,
    MAX_MEMORY,
    MAX_PROCESSES,
    MAILBOX_BYTES,
    ENV,
    NET,
    FILES,
    EXEC
};

const cli_option cli_run_options[] = {
    { "--workers", "N", "one per CPU", "threads that run processes", WORKERS },
    { "--memory", "SIZE", "16M", "memory that one process may use", MEMORY },
    { "--max-memory", "SIZE", "3/4 of the machine's",
      "memory that all processes may use together, and again as much for their messages", MAX_MEMORY },
    { "--max-processes", "N", "1000000", "how many processes there may be at once", MAX_PROCESSES },
    { "--mailbox-bytes", "SIZE", "0, no limit", "bytes of messages in one mailbox; at the limit sends are refused",
      MAILBOX_BYTES },
    { "--slice", "TIME", "5ms", "a process that runs longer is interrupted and continues later", SLICE },
    { "--log-level", "LEVEL", "debug", "the lowest level that `log` writes: debug, info, warn, error or none",
      LOG_LEVEL },
    { "--stop-after", "TIME", "5s", "time that processes have to end when the program is stopped", STOP_AFTER },
    { "--watch", NULL, "off", "reload files when they change: see process.upgradable", WATCH },
    { "--stats", NULL, "off", "print the scheduler's counters at the end, on standard error", STATS },
    { "--roots", "FOLDERS", "none", "folders, separated by ';', that code may come from besides the program's own",
      ROOTS },
    { "--without", "NAMES", "none", "functions to remove, such as 'process.terminate process.register'", WITHOUT },
    { "--env", NULL, "off", "let processes read the environment: os.getenv", ENV },
    { "--net", NULL, "off", "let processes use sockets: net", NET },
    { "--files", NULL, "off", "let processes open files: fs", FILES },
    { "--exec", NULL, "off", "let processes start programs: exec", EXEC },
    { NULL, NULL, NULL, NULL, 0 },
};

typedef struct settings {
    cli_program program;
    cli_source  source;
    const char *name; /* file or folder as given on the command line */
    char      **args;
    int         arg_count;
    bool        stats;
} settings;

/* Prints the result of reloading a changed file. */
static void print_reload(void *user, const char *path, filch_err error, const char *text, uint64_t notified)
{
    (void)user;
    if (error != FILCH_OK) {
        cli_source_error(path, error, text, "correct the line and save the file again");
        cli_hint("until then the old code stays in use");
        return;
    }
    cli_error("%s has changed and was reloaded: %llu process%s notified", path, (unsigned long long)notified,
              notified == 1 ? " was" : "es were");
    if (notified == 0) cli_hint("new processes run it; running ones switch to it if they call process.upgradable");
}

static void look_at_files(cli_program *p)
{
    (void)!filch_lua_reload(p->lua, print_reload, NULL);
}

static bool take_level(settings *set, const cli_args *args)
{
    static const char *const levels[] = { "debug", "info", "warn", "error", "none" };
    for (uint32_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(args->value, levels[i]) == 0) {
            set->program.lua_options.log_level = i;
            return true;
        }
    }
    return cli_value_wrong(args, "debug, info, warn, error or none");
}

/* Parses the value of --slice. Refuses 0, because filch_lua_options takes 0 as the default slice. */
static bool take_slice(settings *set, const cli_args *args)
{
    if (!cli_value_time(args, &set->program.lua_options.slice_ns)) return false;
    return set->program.lua_options.slice_ns > 0 || cli_value_wrong(args, "a time above 0, such as 0.5 or 5ms");
}

static bool take_roots(settings *set, const cli_args *args)
{
    for (const char *at = args->value; *at != '\0'; at += strspn(at, ";")) {
        char        folder[CLI_PATH_MAX];
        size_t      size = strcspn(at, ";");
        struct stat st;
        snprintf(folder, sizeof folder, "%.*s", (int)size, at);
        if (size > 0 && (size >= sizeof folder || stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))) {
            cli_error("run: --roots must be folders, separated by ';', and '%.*s' is not a folder", (int)size, at);
            return false;
        }
        at += size;
    }
    set->program.lua_options.roots = args->value;
    return true;
}

/* Checks each name by creating a Lua host without that function: only filch_lua_create() knows the names of all
 * functions. One host per name, so that the error message can say which name is wrong. */
static bool take_without(settings *set, const cli_args *args)
{
    for (const char *at = args->value; *at != '\0'; at += strspn(at, " ")) {
        char              name[64];
        size_t            size = strcspn(at, " ");
        filch_lua        *lua;
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        snprintf(name, sizeof name, "%.*s", (int)size, at);
        options.without = name;
        filch_err err = size < sizeof name ? filch_lua_create(&lua, &options) : FILCH_EINVAL;
        if (err == FILCH_OK) (void)filch_lua_destroy(lua);
        if (err == FILCH_EINVAL) {
            cli_error("run: --without must be functions, separated by blanks, and '%.*s' is not one", (int)size, at);
            cli_hint("use full names, such as process.terminate, os.getenv or load");
            return false;
        }
        at += size;
    }
    set->program.lua_options.without = args->value;
    return true;
}

static bool take_option(settings *set, const cli_args *args, int which)
{
    uint64_t number;
    switch (which) {
    case WORKERS:
        if (!cli_value_number(args, 1, 1024, &number)) return false;
        set->program.workers = (int32_t)number;
        return true;
    case MEMORY: return cli_value_size(args, &set->program.lua_options.memory_max);
    case SLICE: return take_slice(set, args);
    case LOG_LEVEL: return take_level(set, args);
    case STOP_AFTER: return cli_value_time(args, &set->program.stop_ns);
    case WATCH: set->program.look = look_at_files; return true;
    case STATS: set->stats = true; return true;
    case MAX_MEMORY: return cli_value_size(args, &set->program.lua_options.memory_total);
    case MAILBOX_BYTES: return cli_value_mailbox(args, &set->program.lua_options.mailbox_bytes);
    case MAX_PROCESSES:
        if (!cli_value_number(args, 1, INT32_MAX, &number)) return false;
        set->program.processes = (uint32_t)number;
        return true;
    case WITHOUT: return take_without(set, args);
    case ROOTS: return take_roots(set, args);
    case ENV: set->program.lua_options.rights |= FILCH_LUA_MAY_ENV; return true;
    case NET: set->program.lua_options.rights |= FILCH_LUA_MAY_NET; return true;
    case FILES: set->program.lua_options.rights |= FILCH_LUA_MAY_FILES; return true;
    case EXEC: set->program.lua_options.rights |= FILCH_LUA_MAY_EXEC; return true;
    default: return false; /* CLI_BAD: cli_next() has printed the error */
    }
}

static bool read_line(settings *set, const cli_command *self, int argc, char **argv)
{
    cli_args args = { .command = self, .argv = argv, .argc = argc };
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        if (what == CLI_OPERAND) {
            set->name = args.value;
            set->args = argv + args.at;
            set->arg_count = argc - args.at;
            return true;
        }
        if (!take_option(set, &args, what)) return false;
    }
    cli_error("run: the program is missing");
    cli_hint("filch run FILE|FOLDER [ARGUMENT...]; `filch new NAME` makes one to start from");
    return false;
}

static void print_stats(filch_sched *sched)
{
    filch_stats s = FILCH_STATS_INIT;
    (void)!filch_sched_stats(sched, &s); /* cannot fail: the scheduler exists */
    cli_say(
        "filch: workers %u, processes %llu (%llu failed), steps %llu, messages %llu (%llu undelivered, %llu refused, "
        "%llu dropped), yields %llu, steals %llu (%llu processes), sleeps %llu\n",
        s.workers, (unsigned long long)s.spawned, (unsigned long long)s.failed, (unsigned long long)s.steps,
        (unsigned long long)s.sent, (unsigned long long)s.undelivered, (unsigned long long)s.refused,
        (unsigned long long)s.dropped, (unsigned long long)s.yields, (unsigned long long)s.steals,
        (unsigned long long)s.stolen, (unsigned long long)s.sleeps);
}

/* Returns the exit code of a program that has ended, has got a signal, or waits for ever. Prints why if it waits for
 * ever or if its first process was terminated. */
static int judge(const settings *set)
{
    const cli_program *p = &set->program;
    if (p->signal != 0) return CLI_BY_SIGNAL + p->signal;
    if (!p->first_over) {
        cli_error("%s waits for ever: no message, timer or completion is outstanding", set->source.file);
        cli_hint("all other processes have ended or wait too; a timeout in process.receive would end the wait");
        return CLI_FAILED;
    }
    if (p->first == FILCH_EKILLED)
        cli_error("%s was terminated by another process (process.terminate)", set->source.file);
    return p->first == FILCH_OK ? CLI_OK : CLI_FAILED;
}

static int start(settings *set)
{
    filch_data     *args = calloc((size_t)set->arg_count + 1, sizeof *args);
    filch_lua_code *code = NULL;
    if (args == NULL) return cli_error("run: out of memory for the arguments of the program"), CLI_REFUSED;
    for (int i = 0; i < set->arg_count; i++) args[i] = filch_str(set->args[i]);
    int result = cli_source_load(&set->source, set->program.lua, &code);
    if (result == CLI_OK) result = cli_program_start(&set->program, code, args, (size_t)set->arg_count, NULL);
    filch_lua_code_drop(set->program.lua, code);
    free(args);
    return result;
}

int cli_run(const cli_command *self, int argc, char **argv)
{
    settings set = { .program = { .lua_options = FILCH_LUA_OPTIONS_INIT, .stop_ns = FILCH_SECONDS(5) } };
    if (!read_line(&set, self, argc, argv)) return CLI_USAGE;
    int result = cli_source_find(&set.source, set.name);
    if (result != CLI_OK) return result;
    set.program.lua_options.path = set.source.path;
    result = cli_program_open(&set.program);
    if (result != CLI_OK) return result;
    result = start(&set);
    if (result == CLI_OK) {
        cli_program_wait(&set.program);
        result = judge(&set);
    }
    if (set.stats) print_stats(set.program.sched);
    cli_program_close(&set.program, set.program.signal != 0);
    return result;
}
