/* lua_leaks_test.c - hundreds of rounds of each feature leave nothing behind while the process that runs them
 * continues: no Lua memory, no memory of the host, no processes, no timers, no descriptors. The rounds are in
 * leaks.lua. */
#include "lua/fixture.h"

#include <malloc.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "support/descriptors.h"

enum { ROUNDS = 200, MEASURES = 4 };

static fixture w;
static struct {
    size_t bytes;
    int    descriptors;
} measured[MEASURES];
static size_t measured_count;

/* Measures the memory of the whole program. A Lua process calls this function by print and waits until it returns. */
static void measure(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
    if (measured_count == MEASURES) return;
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    measured[measured_count].bytes = info.uordblks + info.hblkhd;
#endif
    measured[measured_count++].descriptors = open_descriptors();
}

/* Called after all processes have ended. Checks that only the code cache and the loaded files hold references to
 * code. */
static void code_is_let_go(const char *feature)
{
    for (size_t i = 0; i < FLI_LUA_BUCKETS; i++) {
        for (fli_lua_code *code = w.lua->code[i]; code != NULL; code = code->next) {
            if (fli_load_rlx(&code->refs) > 2) fail_msg("%s: the code of %s is held", feature, code->kind->name);
        }
    }
}

static void leaves_nothing(const char *feature)
{
    char              chunk[256];
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    memset(&w, 0, sizeof w);
    measured_count = 0;
    lua.rights = FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES;
    lua.print = measure;
    lua.path = LUA_TEST_FOLDER "/?.lua";
    sched.workers = 1;
    ok(filch_lua_create(&w.lua, &lua));
    ok(filch_sched_create(&w.sched, &sched));
    snprintf(chunk, sizeof chunk, "require('leaks').run('%s', %d, %d)", feature, ROUNDS, MEASURES);
    fixture_passes(&w, chunk);
    same(measured_count, MEASURES);
    /* A leak in every round makes each measurement grow. A one-time allocation (a block of slots, a thread's cache)
     * makes only one measurement grow. So the smallest growth is checked. */
    size_t least = SIZE_MAX;
    for (size_t i = 1; i < MEASURES; i++) {
        size_t grown = measured[i].bytes > measured[i - 1].bytes ? measured[i].bytes - measured[i - 1].bytes : 0;
        if (grown < least) least = grown;
    }
    if (least > 8 * ROUNDS) fail_msg("%s: %zu bytes of the host are left of %d rounds", feature, least, ROUNDS);
    int descriptors = measured[MEASURES - 1].descriptors - measured[0].descriptors;
    if (descriptors > 8) fail_msg("%s: %d descriptors are left", feature, descriptors);
    (void)filch_sched_stop(w.sched, FILCH_SECONDS(5), NULL);
    code_is_let_go(feature);
    ok(filch_lua_destroy(w.lua));
}

static atomic_int freed;

static void note_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    atomic_fetch_add(&freed, 1);
}

/* The reader gets a copy of the string, and holds the block of the message only until its step ends. */
TEST(the_block_of_a_long_message_is_freed_while_its_reader_runs)
{
    fixture_open(&w, 1, NULL);
    filch_pid pid = fixture_start(&w, "local kept = {} while #kept < 4 do kept[#kept + 1] = process.receive() end", 0);
    for (int i = 1; i <= 3; i++) {
        char *text = malloc(100000);
        memset(text, 'x', 100000);
        ok(filch_send(w.sched, pid, filch_move(text, 100000, note_free)));
        until(atomic_load(&freed) == i);
    }
    same(atomic_load(&w.over), 0);
    ok(filch_send(w.sched, pid, filch_int(1)));
    until(atomic_load(&w.over));
    fixture_close(&w);
}

TEST(no_feature_leaks_memory_or_descriptors)
{
    static const char *const features[] = {
        "send_and_receive",
        "receive_that_times_out",
        "spawn",
        "spawn_monitored",
        "spawn_linked",
        "exec",
        "request",
        "request_to_the_dead",
        "request_that_times_out",
        "monitor_and_unmonitor",
        "link_and_unlink",
        "names",
        "groups",
        "tasks",
        "tasks_together",
        "channels",
        "select",
        "timers",
        "short_sleeps",
        "blobs",
        "formats",
        "work",
        "coroutines",
        "errors",
        "supervisors",
        "upgrades",
        "long_strings",
        "modules",
#ifdef FLI_IO
        "files",
        "sockets",
        "streams_where_nothing_can_wait",
#endif
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) leaves_nothing(features[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_feature_leaks_memory_or_descriptors),
        cmocka_unit_test(the_block_of_a_long_message_is_freed_while_its_reader_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
