/* lua_leaks_test.c - hundreds of rounds of each feature leave nothing behind while their process lives on: no Lua memory, no
 * memory of the host, no processes, no timers, no descriptors. The rounds are in leaks.lua. */
#include "lua/world.h"

#include <malloc.h>

#include "support/descriptors.h"

enum { ROUNDS = 200, MEASURES = 4 };

static world w;
static struct {
    size_t bytes;
    int    descriptors;
} measured[MEASURES];
static size_t measured_count;

/* print is how a process says "now": all of the program's memory, while it waits for us. */
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
    world_passes(&w, chunk);
    same(measured_count, MEASURES);
    /* What is left of every round is left in each part; what is made once (a block of slots, a thread's cache), in one of them. */
    size_t least = SIZE_MAX;
    for (size_t i = 1; i < MEASURES; i++) {
        size_t grown = measured[i].bytes > measured[i - 1].bytes ? measured[i].bytes - measured[i - 1].bytes : 0;
        if (grown < least) least = grown;
    }
    if (least > 8 * ROUNDS) fail_msg("%s: %zu bytes of the host are left of %d rounds", feature, least, ROUNDS);
    int descriptors = measured[MEASURES - 1].descriptors - measured[0].descriptors;
    if (descriptors > 8) fail_msg("%s: %d descriptors are left", feature, descriptors);
    world_close(&w);
}

TEST(no_feature_leaves_anything_behind)
{
    static const char *const features[] = {
        "send_and_receive", "receive_that_times_out", "spawn", "spawn_monitored", "spawn_linked", "exec", "request",
        "request_to_the_dead", "request_that_times_out", "monitor_and_unmonitor", "link_and_unlink", "names", "groups", "tasks",
        "tasks_together", "channels", "select", "timers", "naps", "blobs", "formats", "work", "coroutines", "errors", "supervisors",
        "upgrades", "long_strings", "modules",
#ifdef FLI_IO
        "files", "sockets",
#endif
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) leaves_nothing(features[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_feature_leaves_anything_behind) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
