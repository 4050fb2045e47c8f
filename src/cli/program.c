/* program.c - see program.h.
 *
 * The signal handler, and the end of the first process, each write a byte into a pipe that the main thread waits for.
 * No event reports that no process can run any more. So the main thread polls the counters of the scheduler for that,
 * less often the longer the program runs (in the end five times a second). The program may therefore end up to 0.2 s
 * late. Design: docs/design/lua/programs.md.
 */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/message.h"

enum { FIRST_OVER = 'x', PAUSE_MAX_MS = 200, STRAGGLERS_MAX = 20, PROCESSES_MAX = 1000000 };
/* How long the program waits at its end until its last output is written. */
#define FLUSH_NS FILCH_SECONDS(1)

static volatile sig_atomic_t wake_fd = -1; /* descriptor that the signal handler writes to; -1: none */

void cli_program_wake(int descriptor, char what)
{
    int kept = errno;
    /* If the pipe is full, the write fails. This is harmless: the bytes that are already in the pipe wake the main
     * thread. */
    while (write(descriptor, &what, 1) < 0 && errno == EINTR) {}
    errno = kept;
}

static void on_signal(int number)
{
    cli_program_wake((int)wake_fd, (char)number);
}

static void first_ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    cli_program *p = user;
    (void)pid;
    (void)result;
    p->first = error;
    cli_program_wake(p->wake_pipe[1], FIRST_OVER);
}

/* Prints a hint if the error is about a library that is not allowed: the option that allows this library. Without the
 * hint the user would see only Lua's error text, which says that the library is nil. */
static void hint_at_rights(const cli_program *p, const char *text, size_t size)
{
    static const struct {
        const char *words, *option;
        uint32_t    right;
    } missing[] = { { "nil value (global 'net')", "--net", FILCH_LUA_MAY_NET },
                    { "nil value (global 'fs')", "--files", FILCH_LUA_MAY_FILES },
                    { "nil value (global 'exec')", "--exec", FILCH_LUA_MAY_EXEC },
                    { "nil value (field 'getenv')", "--env", FILCH_LUA_MAY_ENV } };
    /* searches only the first line, because the traceback may name other libraries */
    const char *end = memchr(text, '\n', size);
    char        line[512];
    snprintf(line, sizeof line, "%.*s", (int)(end != NULL ? (size_t)(end - text) : size), text);
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        if ((p->lua_options.rights & missing[i].right) != 0 || strstr(line, missing[i].words) == NULL) continue;
        int length = snprintf(line, sizeof line, "%shint: `filch run %s` allows it%s\n", cli_ink_on(stderr, CLI_FAINT),
                              missing[i].option, cli_ink_on(stderr, CLI_PLAIN));
        (void)filch_lua_log(p->lua, line, (size_t)length);
        return;
    }
}

static void failed(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    char               pid_text[64];
    const cli_program *p = user;
    /* prints nothing if the process ended because a linked process failed: that failure has been reported already */
    if (error == FILCH_ELINK) return;
    char line[8192];
    int  length =
        snprintf(line, sizeof line - 1, "%sfilch:%s %s %s failed: %.*s", cli_ink_on(stderr, CLI_RED),
                 cli_ink_on(stderr, CLI_PLAIN), name, cli_pid_text(pid, pid_text, sizeof pid_text), (int)size, text);
    size_t end = (size_t)length < sizeof line - 1 ? (size_t)length : sizeof line - 2;
    line[end] = '\n';
    /* this function and hint_at_rights() run on a worker and must not block; filch_lua_log does not block */
    (void)filch_lua_log(p->lua, line, end + 1);
    hint_at_rights(p, text, size);
}

static bool open_wake_pipe(cli_program *p)
{
    if (pipe(p->wake_pipe) != 0) return false;
    for (int i = 0; i < 2; i++) {
        (void)fcntl(p->wake_pipe[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(p->wake_pipe[i], F_SETFL, O_NONBLOCK);
    }
    return true;
}

void cli_program_catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND };
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* Returns three quarters of the machine's memory, because the whole machine gets slow if more is in use. Returns 0 if
 * the size is unknown. */
static size_t most_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages / 4 * 3 * (size_t)size : 0;
}

int cli_program_open(cli_program *p)
{
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = p->workers;
    options.max_processes = p->processes != 0 ? p->processes : PROCESSES_MAX;
    bool limited = p->lua_options.memory_total != 0;
    if (!limited) p->lua_options.memory_total = most_memory();
    options.memory_max = p->lua_options.memory_total;
    p->lua_options.on_failure = failed;
    p->lua_options.on_failure_user = p;
    filch_err err = open_wake_pipe(p) ? FILCH_OK : FILCH_ESYS;
    if (err != FILCH_OK) goto no_wake_pipe;
    wake_fd = p->wake_pipe[1];
    cli_program_catch_signals();
    err = filch_lua_create(&p->lua, &p->lua_options);
    if (err != FILCH_OK) goto no_lua;
    err = filch_sched_create(&p->sched, &options);
    if (err != FILCH_OK) goto no_sched;
    return CLI_OK;
no_sched:
    (void)filch_lua_destroy(p->lua);
no_lua:
    close(p->wake_pipe[0]), close(p->wake_pipe[1]);
no_wake_pipe:
    if (limited && err == FILCH_ENOMEM) {
        cli_error("cannot start the runtime: %s, or --max-memory is too small", filch_err_text(err));
        return CLI_NOT_STARTED;
    }
    cli_error("cannot start the runtime: %s", filch_err_text(err));
    cli_hint("it needs memory, threads and a pipe; `ulimit -a` shows the limits");
    return CLI_REFUSED;
}

int cli_program_start(cli_program *p, filch_lua_code *code, const filch_data *args, size_t arg_count, filch_pid *pid)
{
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = first_ended;
    spawn.on_exit_user = p;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = arg_count;
    filch_err err = filch_lua_spawn(p->lua, p->sched, code, &how, pid);
    p->first_started = err == FILCH_OK;
    if (p->first_started) return CLI_OK;
    cli_error("the first process cannot be started: %s",
              err == FILCH_LUA_EMEMORY ? "--memory is too small for it: give it more" : filch_err_text(err));
    return CLI_NOT_STARTED;
}

void cli_program_listen(cli_program *p, int pause_ms)
{
    char          bytes[64];
    struct pollfd wait = { .fd = p->wake_pipe[0], .events = POLLIN };
    if (poll(&wait, 1, pause_ms) <= 0) return;
    ssize_t count = read(p->wake_pipe[0], bytes, sizeof bytes);
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] == FIRST_OVER) p->first_over = true;
        else if (bytes[i] >= 'a') p->answer = bytes[i];
        else if (p->signal == 0) p->signal = bytes[i];
    }
}

bool cli_program_is_quiet(const filch_stats *stats)
{
    return stats->asleep == stats->workers && stats->timers == 0 &&
           stats->yields == stats->completions + stats->abandoned;
}

void cli_program_wait(cli_program *p)
{
    uint64_t steps = UINT64_MAX;
    /* The pause between two checks is an eighth of the time since the start, within limits: so the end of a short
     * program is noticed soon, and the checks do not slow down a long one. */
    for (int pause_ms = 1, passed_ms = 0; p->signal == 0; passed_ms += pause_ms) {
        filch_stats stats = FILCH_STATS_INIT;
        (void)!filch_sched_stats(p->sched, &stats); /* cannot fail: the scheduler exists */
        /* With --watch (p->look is set) the program is never quiet: a file may change at any time and give a process
         * new work. */
        bool quiet = p->look == NULL && cli_program_is_quiet(&stats) && stats.steps == steps;
        bool over = stats.alive == 0 || quiet;
        steps = stats.steps;
        pause_ms = passed_ms / 8 < 1 ? 1 : passed_ms / 8 < PAUSE_MAX_MS ? passed_ms / 8 : PAUSE_MAX_MS;
        cli_program_listen(p, over ? 0 : pause_ms);
        /* A process does not count as alive while its on_exit runs. So `alive` can be 0 although first_ended() has not
         * yet written the byte for the end of the first process; the loop waits for this byte. */
        while (p->first_started && stats.alive == 0 && !p->first_over && p->signal == 0) cli_program_listen(p, -1);
        if (over) return;
        if (p->look != NULL) p->look(p);
    }
}

static void print_stragglers(const filch_report *report)
{
    static const char *const states[] = { [FILCH_STATE_READY] = "was ready to run",
                                          [FILCH_STATE_RUNNING] = "was running",
                                          [FILCH_STATE_BLOCKED] = "waited for a completion",
                                          [FILCH_STATE_IDLE] = "waited for a message",
                                          [FILCH_STATE_COMPLETE] = "was ending" };
    size_t                   shown = report->count < STRAGGLERS_MAX ? report->count : STRAGGLERS_MAX;
    for (size_t i = 0; i < shown; i++) {
        const filch_straggler *s = &report->stragglers[i];
        char                   pid_text[64];
        cli_say("    %s %s: %s\n", cli_pid_text(s->pid, pid_text, sizeof pid_text), s->name, states[s->state]);
    }
    uint64_t more = report->omitted + (report->count - shown);
    if (more > 0) cli_say("    and %llu more\n", (unsigned long long)more);
}

static void print_report(const cli_program *p, const filch_report *report)
{
    const char *why = p->signal == SIGINT ? "SIGINT" : p->signal == SIGTERM ? "SIGTERM" : "the end";
    uint64_t    forced = report->forced + report->stuck;
    char        rest[64] = "";
    if (forced > 0) {
        snprintf(rest, sizeof rest, ", %llu by force after %.3g s", (unsigned long long)forced,
                 (double)p->stop_ns / 1e9);
    }
    cli_error("stopped by %s: %llu process%s ended by %s%s", why, (unsigned long long)report->ended,
              report->ended == 1 ? "" : "es", report->ended == 1 ? "itself" : "themselves", rest);
}

/* Resets the signal handlers: from now on the next SIGINT or SIGTERM ends the program at once. */
static void reset_signals(void)
{
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

/* Returns the word for a job of the thread pool, such as "open"; NULL: unknown. `command` is the command that started
 * the job. */
static const char *job_of(uint32_t command)
{
    static const struct {
        uint32_t    command;
        const char *text;
    } jobs[] = { { FILCH_CMD_WORK, "work" },     { FILCH_CMD_RESOLVE, "resolve" },
                 { FILCH_CMD_READ, "read" },     { FILCH_CMD_WRITE, "write" },
                 { FILCH_CMD_CLOSE, "close" },   { FILCH_CMD_SEEK, "seek" },
                 { FILCH_CMD_OPEN, "open" },     { FILCH_CMD_SYNC, "sync" },
                 { FILCH_CMD_STAT, "stat" },     { FILCH_CMD_TRUNCATE, "truncate" },
                 { FILCH_CMD_RENAME, "rename" }, { FILCH_CMD_REMOVE, "remove" },
                 { FILCH_CMD_MKDIR, "mkdir" },   { FILCH_CMD_RMDIR, "rmdir" },
                 { FILCH_CMD_LIST, "list" },     { FILCH_CMD_RUN, "run" } };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        if (jobs[i].command == command) return jobs[i].text;
    }
    return NULL;
}

/* Prints which process began each job that has not returned, and what the job does. */
static void print_jobs(const filch_report *report)
{
    size_t shown = report->running_count < STRAGGLERS_MAX ? report->running_count : STRAGGLERS_MAX;
    for (size_t i = 0; i < shown; i++) {
        const filch_running_job *job = &report->running[i];
        const char              *what = job_of(job->command);
        char                     pid_text[64], number[32];
        snprintf(number, sizeof number, "command %u", job->command);
        if (job->pid.serial == 0) snprintf(pid_text, sizeof pid_text, "of the runtime");
        else cli_pid_text(job->pid, pid_text, sizeof pid_text);
        cli_say("        %s%s%s: %s\n", pid_text, job->pid.serial != 0 ? " " : "",
                job->pid.serial != 0 ? job->name : "", what != NULL ? what : number);
    }
    if (report->jobs > shown) cli_say("        and %llu more\n", (unsigned long long)(report->jobs - shown));
}

/* Prints how many messages, writes and jobs were lost, if any. */
static void print_losses(const filch_report *report)
{
    if (report->unread > 0) {
        cli_say("    %llu message%s not read\n", (unsigned long long)report->unread,
                report->unread == 1 ? " was" : "s were");
    }
    if (report->writes > 0) {
        cli_say("    %llu write%s cut: %llu bytes were not written\n", (unsigned long long)report->writes,
                report->writes == 1 ? " was" : "s were", (unsigned long long)report->bytes);
    }
    if (report->jobs > 0) {
        cli_say("    %llu job%s not finished on the work pool:\n", (unsigned long long)report->jobs,
                report->jobs == 1 ? " was" : "s were");
        print_jobs(report);
    }
}

void cli_program_close(cli_program *p, bool report)
{
    reset_signals();
    filch_report found = FILCH_REPORT_INIT;
    filch_err    err = filch_sched_stop(p->sched, p->stop_ns, &found);
    (void)filch_lua_flush(p->lua, FLUSH_NS, NULL); /* also prints how many lines of output were dropped, if any */
    if (report || found.forced + found.stuck > 0) {
        print_report(p, &found);
        print_stragglers(&found);
        print_losses(&found);
    }
    filch_report_free(&found);
    /* After FILCH_EBUSY nothing is freed, because a step that has not returned may still use it. */
    if (err != FILCH_EBUSY) {
        (void)filch_lua_destroy(p->lua);
        cli_program_listen(p, 0);
        wake_fd = -1;
        close(p->wake_pipe[0]);
        close(p->wake_pipe[1]);
    }
}
