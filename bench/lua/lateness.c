/* lateness.c - how late a process runs beside hostile Lua code. There are two workers, two processes that run one row
 * of test/lua/hostile.lua, a process that wants a step every 10 ms, and, as the reference, a thread that sleeps 10 ms
 * at a time. At the end the two hostile processes are terminated, and the time of that is measured. Prints one line of
 * JSON for each row.
 *
 *     lua_lateness [--run MS] [--only NAME] [--list]
 *
 * Exit code: 0 if the process was never more than 50 ms later than the thread, and terminating never took more than
 * 100 ms longer than the thread was late; otherwise 1.
 */
#include <filch_lua.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TICK_NS = 10000000, LATE_MS = 50, TERMINATE_MS = 100, HOSTILE = 2 };

static atomic_ullong worst_process, worst_thread, ticks;
static atomic_bool   over;
static atomic_int    ended;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(atomic_ullong *worst, uint64_t due)
{
    uint64_t now = now_ns(), late = now > due ? now - due : 0;
    if (late > atomic_load(worst)) atomic_store(worst, late);
}

static filch_err tick(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *due = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    }
    if (*due != 0) note(&worst_process, *due), atomic_fetch_add(&ticks, 1);
    *due = now_ns() + TICK_NS;
    filch_err err = filch_yield_sleep(out, 1, TICK_NS);
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type ticker = { .name = "ticker", .size = sizeof(uint64_t), .step = tick };

static void *tick_alone(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        uint64_t        due = now_ns() + TICK_NS;
        struct timespec at = { (time_t)(due / 1000000000u), (long)(due % 1000000000u) };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        note(&worst_thread, due);
    }
    return NULL;
}

static void no_text(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
}

static void count_end(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
    atomic_fetch_add(&ended, 1);
}

static void keep_text(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid, (void)error;
    *(char **)user = strndup(filch_raw(result), filch_size(result));
    atomic_fetch_add(&ended, 1);
}

static void wait_ends(int count)
{
    struct timespec brief = { .tv_nsec = 100000 };
    while (atomic_load(&ended) < count) nanosleep(&brief, NULL);
}

typedef struct instance {
    filch_sched *sched;
    filch_lua   *lua;
} instance;

static instance open_instance(void)
{
    instance          w;
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    lua.path = LUA_TEST_FOLDER "/?.lua";
    lua.print = lua.log = no_text;
    lua.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    sched.workers = 2;
    if (filch_lua_create(&w.lua, &lua) != FILCH_OK || filch_sched_create(&w.sched, &sched) != FILCH_OK) exit(2);
    return w;
}

static void close_instance(instance *w)
{
    if (filch_sched_stop(w->sched, FILCH_SECONDS(5), NULL) == FILCH_OK) (void)filch_lua_destroy(w->lua);
}

static filch_pid start(instance *w, const char *chunk, const char *name, filch_exit_fn on_exit, void *user)
{
    filch_lua_code         *code = NULL;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_data              argument = filch_str(name);
    filch_pid               pid = { 0, 0 };
    spawn.on_exit = on_exit;
    spawn.on_exit_user = user;
    how.spawn = &spawn;
    how.args = &argument;
    how.arg_count = 1;
    if (filch_lua_load(w->lua, chunk, strlen(chunk), "lateness", &code, NULL, 0) != FILCH_OK) exit(2);
    if (filch_lua_spawn(w->lua, w->sched, code, &how, &pid) != FILCH_OK) exit(2);
    filch_lua_code_drop(w->lua, code);
    return pid;
}

/* Returns the names of all pieces of hostile code (rows of hostile.lua), one per line. */
static char *names_of_rows(void)
{
    instance w = open_instance();
    char    *names = NULL;
    atomic_store(&ended, 0);
    (void)start(&w,
                "local t = {} for name in pairs(require('hostile').rows) do t[#t + 1] = name end table.sort(t) return "
                "table.concat(t, '\\n')",
                "", keep_text, &names);
    wait_ends(1);
    close_instance(&w);
    return names;
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

/* Measures the hostile code `name` (a row of hostile.lua) for `run_ms` milliseconds. Returns true if both delays are
 * within the limits. */
static bool measure(const char *name, unsigned run_ms)
{
    instance        w = open_instance();
    filch_pid       hostile[HOSTILE];
    pthread_t       thread;
    struct timespec span = { run_ms / 1000, (long)(run_ms % 1000) * 1000000 };
    atomic_store(&ended, 0), atomic_store(&over, false), atomic_store(&ticks, 0);
    atomic_store(&worst_process, 0), atomic_store(&worst_thread, 0);
    if (filch_spawn(w.sched, &ticker, NULL, NULL) != FILCH_OK || pthread_create(&thread, NULL, tick_alone, NULL) != 0)
        exit(2);
    for (int i = 0; i < HOSTILE; i++) hostile[i] = start(&w, "require('hostile').main((...))", name, count_end, NULL);
    nanosleep(&span, NULL);
    uint64_t process = atomic_load(&worst_process), began = now_ns();
    for (int i = 0; i < HOSTILE; i++) (void)!filch_terminate(w.sched, hostile[i]);
    wait_ends(HOSTILE);
    uint64_t terminated = now_ns() - began;
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    uint64_t alone = atomic_load(&worst_thread);
    bool     fine = ms(process) < ms(alone) + LATE_MS && ms(terminated) < ms(alone) + TERMINATE_MS;
    printf("{\"row\": \"%s\", \"ticks\": %llu, \"late_ms\": %.2f, \"thread_late_ms\": %.2f, \"terminate_ms\": %.2f, "
           "\"fine\": %s}\n",
           name, (unsigned long long)atomic_load(&ticks), ms(process), ms(alone), ms(terminated),
           fine ? "true" : "false");
    fflush(stdout);
    close_instance(&w);
    return fine;
}

int main(int argc, char **argv)
{
    unsigned    run_ms = 400;
    const char *only = NULL;
    bool        list = false, fine = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--run") == 0 && i + 1 < argc) run_ms = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        else if (strcmp(argv[i], "--list") == 0) list = true;
        else return fprintf(stderr, "usage: lua_lateness [--run MS] [--only NAME] [--list]\n"), 2;
    }
    char *names = names_of_rows(), *rest = names, *name;
    while ((name = strsep(&rest, "\n")) != NULL) {
        if (only != NULL && strcmp(only, name) != 0) continue;
        if (list) puts(name);
        else fine = measure(name, run_ms) && fine;
    }
    free(names);
    return fine ? 0 : 1;
}
