/* test.c - `filch test FILE|FOLDER...`: runs Lua programs in the simulator, each with many seeds.
 *
 * A file that returns a table is a set of tests, one per function; any other file is one test. A test is the first
 * process of a run. The test fails if that process fails, if it still waits when no process can run any more, or if the
 * run does not end. The output of a run is kept, and printed if the run fails or if there is only one run (--seed). The
 * Lua program `lister` loads the file to get the names of its tests.
 */
#include "cli/test.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/escape.h"
#include "cli/message.h"
#include "cli/output.h"
#include "cli/program.h"

enum { SEEDS = 1, SEED, ONLY, WORKERS, STEPS, STALL, CLOCK_JUMP, LATE_TIMER, CHART, LIST };

const cli_option cli_test_options[] = {
    { "--seeds", "N", "100", "try each test with the seeds 1 to N", SEEDS },
    { "--seed", "S", "all of them", "run only with this seed, and show what the test prints", SEED },
    { "--only", "TEST", "every test", "run only this test", ONLY },
    { "--workers", "N", "4", "simulated workers, at most 64", WORKERS },
    { "--steps", "N", "100000", "a run with more steps fails as endless", STEPS },
    { "--stall", "N", "20", "before N of 1000 turns a worker stalls; 0: none does", STALL },
    { "--clock-jump", "N", "0", "before N of 1000 turns the clock jumps ahead by up to a second", CLOCK_JUMP },
    { "--late-timer", "N", "100", "N of 1000 timers are late: the next timer fires first; 0: none is", LATE_TIMER },
    { "--chart", "N", "40", "show the last N events of a failed run; 0: none", CHART },
    { "--list", NULL, "off", "list the tests without running them", LIST },
    { NULL, NULL, NULL, NULL, 0 },
};

/* Lua program that returns the names of the tests in a file, one per line; nothing if the whole file is one test. */
static const char lister[] =
    "local source, name = ...\n"
    "local tests, names = assert(load(source, '@' .. name))(), {}\n"
    "if type(tests) ~= 'table' then return nil end\n"
    "for name, test in pairs(tests) do\n"
    "  if type(name) == 'string' and type(test) == 'function' then names[#names + 1] = name end\n"
    "end\n"
    "table.sort(names)\n"
    "return table.concat(names, '\\n')\n";

typedef struct settings {
    filch_sim_options sim;
    uint64_t          seeds, seed;
    bool              one_seed, list;
    uint32_t          chart;
    const char       *only;
    uint64_t          tests, runs, failed, files;
} settings;

/* A test file and its current run. */
typedef struct test_run {
    settings         *set;
    cli_source        source;
    filch_lua        *lua;
    filch_lua_code   *code;
    const char       *test; /* name of the function that is the test; NULL: the whole file is the test */
    const filch_data *args;
    size_t            arg_count;
    filch_sched      *sched;
    filch_pid         first;
    /* over: the first process has ended. waited: no process can run, and the first process has not ended */
    bool       over, waited;
    filch_err  error;
    cli_output printed, result; /* result: the result of the first process, or why it failed */
} test_run;

/* ---- one run ---- */

static void keep_print(void *user, const char *text, size_t size)
{
    cli_output_add(&((test_run *)user)->printed, text, size);
}

static void keep_failure(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    test_run *b = user;
    char      pid_text[64];
    /* keeps nothing if the process ended because a linked process failed: that failure has been reported already */
    if (error == FILCH_ELINK) return;
    /* the first process of the test has failed: keeps its error for first_ended(), which is called after
     * keep_failure() */
    if (pid.serial == b->first.serial) {
        cli_output_clear(&b->result);
        cli_output_add(&b->result, text, size);
        return;
    }
    cli_output_print(&b->printed, "%s %s failed: %.*s\n", name, cli_pid_text(pid, pid_text, sizeof pid_text), (int)size,
                     text);
}

static void first_ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    test_run *b = user;
    char      line[160];
    (void)pid;
    if (b->waited) return;
    b->over = true;
    b->error = error;
    /* Adds the result, unless keep_failure() has already put the error of the process, with the script's words escaped,
     * into b->result. */
    if (b->result.size == 0 && filch_size(result) > 0)
        cli_output_add(&b->result, filch_raw(result), filch_size(result));
    if (error == FILCH_OK) return;
    if (b->result.size == 0) cli_output_print(&b->result, "%s", filch_err_text(error));
    const char *end = memchr(b->result.text, '\n', b->result.size);
    snprintf(line, sizeof line, "%.*s", (int)(end != NULL ? (size_t)(end - b->result.text) : b->result.size),
             b->result.text);
    (void)filch_sim_fail(b->sched, line);
}

static filch_err begin_test(filch_sched *sched, void *user)
{
    test_run               *b = user;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    b->sched = sched;
    b->over = b->waited = false;
    b->first = (filch_pid){ 0, 0 };
    b->error = FILCH_OK;
    cli_output_clear(&b->printed);
    cli_output_clear(&b->result);
    spawn.on_exit = first_ended;
    spawn.on_exit_user = b;
    how.spawn = &spawn;
    how.method = b->test;
    how.args = b->args;
    how.arg_count = b->arg_count;
    return filch_lua_spawn(b->lua, sched, b->code, &how, &b->first);
}

/* Called by the simulator when no process can run. */
static filch_err look(filch_sched *sched, void *user)
{
    test_run *b = user;
    if (b->over) return FILCH_OK;
    b->waited = true;
    return filch_sim_fail(sched, "the test waits for ever: no message, timer or completion is outstanding");
}

/* ---- one test ---- */

static void print_escaped(const char *text, size_t size)
{
    for (size_t at = 0, length; at < size;) {
        char one[FLI_ESCAPE_MAX];
        at += fli_escape_next(text + at, size - at, one, &length);
        fwrite(one, 1, length, stdout);
    }
}

/* Prints `word`, which is not empty, quoted for a shell. */
static void print_word(const char *word)
{
    if (word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")] == '\0') {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    /* Escapes all bytes up to the next quote in one call, because a single byte of a UTF-8 character looks like a
     * control character. */
    for (;;) {
        size_t size = strcspn(word, "'");
        print_escaped(word, size);
        word += size;
        if (*word == '\0') break;
        fputs("'\\''", stdout);
        word++;
    }
    putchar('\'');
}

static void print_replay(const test_run *b, uint64_t seed)
{
    const filch_sim_options *sim = &b->set->sim;
    printf("  replay: filch test ");
    print_word(b->source.file);
    if (b->test != NULL) printf(" --only "), print_word(b->test);
    printf(" --seed %llu", (unsigned long long)seed);
    if (sim->workers != 4) printf(" --workers %u", sim->workers);
    if (sim->steps_max != 100000) printf(" --steps %llu", (unsigned long long)sim->steps_max);
    if (sim->stall != 20) printf(" --stall %u", sim->stall);
    if (sim->clock_jump != 0) printf(" --clock-jump %u", sim->clock_jump);
    if (sim->late_timer != 100) printf(" --late-timer %u", sim->late_timer);
    printf("\n");
}

/* Prints each line of the text indented, so that no line looks like the result of another test. Escapes all control
 * characters but the newlines and tabs. */
static void print_indented(const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t      length = line != NULL ? (size_t)(line - at) : (size_t)(end - at);
        printf("    ");
        for (size_t from = 0, to; from < length; from = to + 1) {
            const char *tab = memchr(at + from, '\t', length - from);
            to = tab != NULL ? (size_t)(tab - at) : length;
            print_escaped(at + from, to - from);
            if (tab != NULL) putchar('\t');
        }
        putchar('\n');
        at += length + 1;
    }
}

/* Prints the name of the test: its file, and its function if it has one. */
static void print_test(const test_run *b)
{
    print_escaped(b->source.file, strlen(b->source.file));
    if (b->test != NULL) putchar(' '), print_escaped(b->test, strlen(b->test));
}

static void print_failure(const test_run *b, const filch_sim_report *report)
{
    printf("%sFAIL%s ", cli_ink_on(stdout, CLI_RED), cli_ink_on(stdout, CLI_PLAIN));
    print_test(b);
    printf(", seed %llu: ", (unsigned long long)report->seed);
    print_escaped(report->text, strlen(report->text));
    putchar('\n');
    if (b->result.size > 0 && b->error != FILCH_OK) print_indented(b->result.text, b->result.size);
    if (b->printed.size > 0) printf("  it printed:\n"), print_indented(b->printed.text, b->printed.size);
    if (b->set->chart > 0 && report->chart != NULL) {
        printf("  the last %u events:\n", b->set->chart);
        print_indented(report->chart, strlen(report->chart));
    }
    if (report->verdict == FILCH_SIM_ENDLESS && report->steps >= b->set->sim.steps_max) {
        printf("  stopped after %llu steps: try --steps %llu\n", (unsigned long long)b->set->sim.steps_max,
               (unsigned long long)b->set->sim.steps_max * 10);
    }
    print_replay(b, report->seed);
}

static bool run_test(test_run *b)
{
    settings        *set = b->set;
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    const char      *name = b->test != NULL ? b->test : b->source.file;
    set->tests++;
    uint64_t seed = set->one_seed ? set->seed : 1, most = set->one_seed ? 1 : set->seeds, runs = 0;
    bool     fine = true;
    for (; fine && runs < most; seed++, runs++) {
        filch_sim_report_free(&report);
        report = (filch_sim_report)FILCH_SIM_REPORT_INIT;
        set->sim.seed = seed;
        filch_err err = filch_sim_run(&set->sim, begin_test, b, &report);
        if (err != FILCH_OK) {
            cli_error("%s: %s", name, filch_err_text(err));
            return false;
        }
        /* FILCH_SIM_ENDLESS is no failure if the first process has ended without an error: it may have left processes
         * that run for ever. */
        bool left_running = report.verdict == FILCH_SIM_ENDLESS && b->over && b->error == FILCH_OK;
        fine = report.verdict == FILCH_SIM_OK || left_running;
    }
    set->runs += runs;
    if (fine) {
        if (set->one_seed && b->printed.size > 0) fwrite(b->printed.text, 1, b->printed.size, stdout);
        printf("%sok%s   ", cli_ink_on(stdout, CLI_GREEN), cli_ink_on(stdout, CLI_PLAIN));
        print_test(b);
        printf(", %llu seed%s", (unsigned long long)runs, runs == 1 ? "" : "s");
        if (set->one_seed) printf(", run %016llx", (unsigned long long)report.hash);
        printf("\n");
    } else {
        print_failure(b, &report);
        set->failed++;
    }
    filch_sim_report_free(&report);
    return true;
}

/* ---- one file ---- */

/* Returns the text of the file with a NUL at its end, or NULL with the reason in errno. */
static char *read_file(const char *file)
{
    struct stat st;
    FILE       *in = stat(file, &st) == 0 ? fopen(file, "rb") : NULL;
    char       *text = in != NULL ? calloc(1, (size_t)st.st_size + 1) : NULL;
    /* the result of fread is ignored: the file was readable when it was compiled */
    if (text != NULL) (void)!fread(text, 1, (size_t)st.st_size, in);
    if (in != NULL) fclose(in);
    return text;
}

static bool refused(const test_run *b, const char *why)
{
    cli_error("%s: %s", b->source.file, why);
    return false;
}

/* Puts the names of the tests into b->result; empty if the whole file is one test or if loading fails. Returns false,
 * after printing an error message, if a system resource is missing. */
static bool list_tests(test_run *b)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    filch_lua_code  *listing = NULL, *code = b->code;
    char            *text = read_file(b->source.file);
    if (text == NULL) return refused(b, strerror(errno));
    const char *source = text[0] == '#' ? text + strcspn(text, "\n") : text;
    filch_data  args[2] = { filch_str(source), filch_str(b->source.file) };
    filch_err   err = filch_lua_load(b->lua, lister, sizeof lister - 1, "list", &listing, NULL, 0);
    b->code = listing;
    b->test = NULL;
    b->args = args;
    b->arg_count = 2;
    b->set->sim.seed = b->set->one_seed ? b->set->seed : 1;
    if (err == FILCH_OK) err = filch_sim_run(&b->set->sim, begin_test, b, &report);
    filch_sim_report_free(&report);
    if (!b->over || b->error != FILCH_OK) cli_output_clear(&b->result);
    b->code = code;
    b->args = NULL;
    b->arg_count = 0;
    filch_lua_code_drop(b->lua, listing);
    free(text);
    return err == FILCH_OK || refused(b, filch_err_text(err));
}

/* Runs the tests in `names`, one name per line. Modifies `names`. Returns false if a system resource is missing. */
static bool run_each(test_run *b, char *names)
{
    for (char *rest, *name = strtok_r(names, "\n", &rest); name != NULL; name = strtok_r(NULL, "\n", &rest)) {
        b->test = name;
        if (b->set->only != NULL && strcmp(name, b->set->only) != 0) continue;
        if (b->set->list) print_test(b), putchar('\n'), b->set->tests++;
        else if (!run_test(b)) return false;
    }
    return true;
}

static bool run_tests(test_run *b)
{
    if (!list_tests(b)) return false;
    if (b->result.size == 0) {
        b->test = NULL;
        if (b->set->only != NULL) return true;
        if (b->set->list) return print_test(b), putchar('\n'), b->set->tests++, true;
        return run_test(b);
    }
    char *names = strndup(b->result.text, b->result.size);
    bool  fine = names != NULL ? run_each(b, names) : refused(b, "out of memory for the names of its tests");
    free(names);
    return fine;
}

static int test_file(settings *set, const char *name)
{
    test_run b = { .set = set };
    int      result = cli_source_find(&b.source, name);
    if (result != CLI_OK) return result;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.path = b.source.path;
    options.watch = FILCH_LUA_WATCH_NONE; /* no watchdog: in simulations the slice is a number of instructions */
    options.print = options.log = keep_print;
    options.print_user = options.log_user = options.on_failure_user = &b;
    options.on_failure = keep_failure;
    filch_err err = filch_lua_create(&b.lua, &options);
    if (err != FILCH_OK) return cli_error("test: cannot start Lua for %s: %s", name, filch_err_text(err)), CLI_REFUSED;
    result = cli_source_load(&b.source, b.lua, &b.code);
    if (result == CLI_OK && !run_tests(&b)) result = CLI_REFUSED;
    set->files++;
    filch_lua_code_drop(b.lua, b.code);
    (void)filch_lua_destroy(b.lua);
    cli_output_free(&b.printed);
    cli_output_free(&b.result);
    return result;
}

static int is_test_file(const struct dirent *entry)
{
    static const char ending[] = "_test.lua";
    size_t            size = strlen(entry->d_name), length = sizeof ending - 1;
    return size > length && strcmp(entry->d_name + size - length, ending) == 0;
}

/* Runs every file NAME_test.lua in the folder, in alphabetical order. */
static int test_folder(settings *set, const char *folder)
{
    struct dirent **entries;
    int             result = CLI_OK, count = scandir(folder, &entries, is_test_file, alphasort);
    if (count < 0) return cli_error("%s: %s", folder, strerror(errno)), CLI_NOT_STARTED;
    for (int i = 0; i < count; i++) {
        char file[CLI_PATH_MAX];
        snprintf(file, sizeof file, "%s%s%s", strcmp(folder, ".") == 0 ? "" : folder,
                 strcmp(folder, ".") == 0 ? "" : "/", entries[i]->d_name);
        if (result == CLI_OK) result = test_file(set, file);
        free(entries[i]);
    }
    free(entries);
    if (count > 0) return result;
    cli_error("%s: the folder has no file named ..._test.lua", folder);
    cli_hint("a file of tests ends with _test.lua; subfolders are not searched");
    return CLI_NOT_STARTED;
}

static int test_operand(settings *set, const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 && S_ISDIR(st.st_mode) ? test_folder(set, name) : test_file(set, name);
}

/* ---- the command line ---- */

static bool take_option(settings *set, const cli_args *args, int which)
{
    uint64_t number = 0;
    switch (which) {
    case SEEDS: return cli_value_number(args, 1, UINT64_MAX, &set->seeds);
    case SEED: set->one_seed = true; return cli_value_number(args, 0, UINT64_MAX, &set->seed);
    case ONLY: set->only = args->value; return true;
    case WORKERS:
        if (!cli_value_number(args, 1, 64, &number)) return false;
        set->sim.workers = (uint32_t)number;
        return true;
    case STEPS: return cli_value_number(args, 1, UINT64_MAX, &set->sim.steps_max);
    case STALL:
        if (!cli_value_number(args, 0, 1000, &number)) return false;
        set->sim.stall = (uint32_t)number;
        return true;
    case CLOCK_JUMP:
        if (!cli_value_number(args, 0, 1000, &number)) return false;
        set->sim.clock_jump = (uint32_t)number;
        return true;
    case LATE_TIMER:
        if (!cli_value_number(args, 0, 1000, &number)) return false;
        set->sim.late_timer = (uint32_t)number;
        return true;
    case CHART:
        if (!cli_value_number(args, 0, 100000, &number)) return false;
        set->chart = (uint32_t)number;
        set->sim.chart_events = number > 0 ? (uint32_t)number : 1;
        return true;
    case LIST: set->list = true; return true;
    default: return false;
    }
}

/* Parses the options and moves the operands to the front of argv. Returns the number of operands, or -1 after an error
 * message. */
static int read_line(settings *set, const cli_command *self, int argc, char **argv)
{
    cli_args args = { .command = self, .argv = argv, .argc = argc };
    int      operands = 0;
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        if (what == CLI_OPERAND) argv[operands++] = argv[args.at - 1];
        else if (!take_option(set, &args, what)) return -1;
    }
    if (operands == 0) {
        cli_error("test: the file or folder is missing");
        cli_hint("filch test FILE|FOLDER...; in a folder it runs every file named ..._test.lua");
        return -1;
    }
    return operands;
}

int cli_test(const cli_command *self, int argc, char **argv)
{
    settings set = { .sim = FILCH_SIM_OPTIONS_INIT, .seeds = 100, .chart = 40 };
    set.sim.workers = 4;
    set.sim.chart_events = 40;
    set.sim.check = look;
    set.sim.describe = filch_lua_describe;
    set.sim.steps_max = 100000;
    set.sim.stall = 20;
    set.sim.late_timer = 100;
    set.sim.time_max_ns = FILCH_SECONDS(3600 * 1000); /* virtual time: 41 days */
    /* line buffering, so that the line of each test is visible when the test ends */
    setvbuf(stdout, NULL, _IOLBF, 0);
    int result = CLI_OK, operands = read_line(&set, self, argc, argv);
    if (operands < 0) return CLI_USAGE;
    for (int i = 0; i < operands && result == CLI_OK; i++) result = test_operand(&set, argv[i]);
    if (result != CLI_OK) return result;
    if (set.tests == 0) { /* each file has at least one test, so --only has excluded all tests */
        cli_error("test: --only must be the name of a test, and there is no test '%s'", set.only);
        cli_hint("`filch test --list` with the same files lists them");
        return CLI_USAGE;
    }
    if (set.list) return CLI_OK;
    printf("%llu test%s, %llu run%s, %llu failed\n", (unsigned long long)set.tests, set.tests == 1 ? "" : "s",
           (unsigned long long)set.runs, set.runs == 1 ? "" : "s", (unsigned long long)set.failed);
    return set.failed == 0 ? CLI_OK : CLI_FAILED;
}
