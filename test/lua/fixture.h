/* fixture.h - for the tests of Lua processes: a scheduler, a Lua host, and the result of the first process. */
#ifndef FILCH_TEST_LUA_FIXTURE_H
#define FILCH_TEST_LUA_FIXTURE_H

#include <filch_lua.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/until.h"

enum { FIXTURE_TEXT = 16384 };

typedef struct fixture {
    filch_sched *sched;
    filch_lua   *lua;
    /* error of the process that the test has started; `text` has the error text or the result of this process */
    filch_err     error;
    filch_kind    kind;
    int64_t       number;
    double        real;
    char          text[FIXTURE_TEXT];
    size_t        size;
    atomic_int    over;
    char          printed[FIXTURE_TEXT];
    atomic_size_t printed_size;
} fixture;

static inline void fixture_print(void *user, const char *text, size_t size)
{
    fixture *w = user;
    size_t   at = atomic_fetch_add(&w->printed_size, size);
    if (at + size < FIXTURE_TEXT) memcpy(w->printed + at, text, size);
}

static inline void fixture_ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    fixture *w = user;
    (void)pid;
    w->error = error;
    w->kind = filch_kind_of(result);
    w->number = filch_as_int(result);
    w->real = filch_as_num(result);
    w->size = filch_size(result);
    if (w->size > 0 && w->size < FIXTURE_TEXT) memcpy(w->text, filch_raw(result), w->size);
    w->text[w->size < FIXTURE_TEXT ? w->size : 0] = '\0';
    atomic_store(&w->over, 1);
}

/* Opens a fixture. `options` may be NULL. The option `print` is replaced by a function that stores the text in the
 * fixture. */
static inline void fixture_open(fixture *w, int32_t workers, const filch_lua_options *options)
{
    memset(w, 0, sizeof *w);
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    if (options != NULL) lua = *options;
    lua.print = fixture_print;
    lua.print_user = w;
    if (lua.path == NULL) lua.path = LUA_TEST_FOLDER "/?.lua";
    filch_options sched = FILCH_OPTIONS_INIT;
    sched.workers = workers;
    ok(filch_lua_create(&w->lua, &lua));
    ok(filch_sched_create(&w->sched, &sched));
}

static inline filch_pid fixture_start(fixture *w, const char *chunk, size_t memory_max)
{
    char            why[512] = "";
    filch_lua_code *code = NULL;
    if (filch_lua_load(w->lua, chunk, strlen(chunk), "test", &code, why, sizeof why) != FILCH_OK) fail_msg("%s", why);
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_pid               pid = { 0, 0 };
    spawn.on_exit = fixture_ended;
    spawn.on_exit_user = w;
    how.spawn = &spawn;
    how.memory_max = memory_max;
    atomic_store(&w->over, 0);
    ok(filch_lua_spawn(w->lua, w->sched, code, &how, &pid));
    filch_lua_code_drop(w->lua, code);
    return pid;
}

/* Runs the chunk as a process and waits until the process ends. */
static inline void fixture_run(fixture *w, const char *chunk)
{
    (void)fixture_start(w, chunk, 0);
    until(atomic_load(&w->over));
}

/* Runs the chunk as a process. The test fails if the process ends with an error. */
static inline void fixture_passes(fixture *w, const char *chunk)
{
    fixture_run(w, chunk);
    if (w->error != FILCH_OK) fail_msg("%s: %s", filch_err_name(w->error), w->text);
}

static inline uint64_t fixture_alive(fixture *w)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(w->sched, &stats));
    return stats.alive;
}

static inline void fixture_close(fixture *w)
{
    (void)filch_sched_stop(w->sched, FILCH_SECONDS(5), NULL);
    ok(filch_lua_destroy(w->lua));
}

/* Closes the fixture *state at the end of a test, or of a group of tests that share it. */
static inline int fixture_close_shared(void **state)
{
    fixture_close(*state);
    return 0;
}

#define has_text(text, part)                                                            \
    do {                                                                                \
        if (strstr((text), (part)) == NULL) fail_msg("'%s' is not in: %s", part, text); \
    } while (0)

#endif
