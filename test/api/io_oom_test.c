/* io_oom_test.c - memory runs out at every place where I/O asks for it, one after the other. Whoever asked is told so
 * or never notices; nothing leaks, no descriptor stays open, nobody waits for ever; and with memory again everything
 * works. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/io_script.h"
#include "support/alloc.h"

static const char *const echoes[] = { "sh", "-c", "cat", NULL };
static const int         numbers[] = { 10 };

/* Runs everything once; gives how often memory was asked for. `nth`: that asking is refused, and all that follow if so
 * said. */
static uint64_t run_all(uint64_t nth, bool and_after, bool *refused)
{
    static test_alloc alloc;
    static char       path[64], lots[60000];
    filch_options     opt = FILCH_OPTIONS_INIT;
    world             w = { .ticks = true };
    int               before = open_descriptors();
    memset(&alloc, 0, sizeof alloc);
    snprintf(path, sizeof path, "/tmp/filch-io-oom-%d", (int)getpid());
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    ok(filch_sched_create(&w.sched, &opt));
    script server =
        SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_TIMEOUT(FILCH_SECONDS(1)), DO_UNTIL("\n", 100000),
               DO_EXACTLY(50000), DO_WRITE_BACK, DO_READ(0), DO_USE_LISTENER, DO_CLOSE);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server) || script_is_over(&server));
    uint64_t asked = atomic_load(&alloc.asked);
    test_alloc_fail(&alloc, nth, and_after);

    script client = SCRIPT(DO_CONNECT(server.local), DO_TIMEOUT(FILCH_SECONDS(1)),
                           DO_WRITE("a line that is longer than an event\n"), DO_WRITE_LOTS(lots, 50000),
                           DO_TIMEOUT(FILCH_MILLISECONDS(20)), DO_EXACTLY(50000), DO_CLOSE);
    script other =
        SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS, DO_TIMEOUT(FILCH_MILLISECONDS(20)),
               DO_SEND_TO("127.0.0.1:9", "to nobody, and longer than an event"), DO_RECEIVE_FROM(0),
               DO_RESOLVE("127.0.0.1", "1"), DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE),
               DO_WRITE("to a file, and longer than an event"), DO_SEEK(0, 0), DO_EXACTLY(30), DO_CLOSE,
               DO_RUN(echoes, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT), DO_USE_INPUT, DO_WRITE("x"), DO_CLOSE, DO_USE_OUTPUT,
               DO_EXACTLY(1), DO_USE_PROGRAM, DO_EXIT, DO_SIGNALS(numbers, 1));
    bool    spawned[2];
    script *both[2] = { &client, &other };
    for (int i = 0; i < 2; i++) {
        filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
        both[i]->actor.user = both[i];
        both[i]->actor.play = play_script;
        spawn.args = filch_ptr(&both[i]->actor);
        spawn.on_exit = actor_exit;
        spawn.on_exit_user = &both[i]->actor;
        filch_err err = filch_spawn(w.sched, &actor_type, &spawn, NULL);
        if (err != FILCH_OK) same(err, FILCH_ENOMEM);
        spawned[i] = err == FILCH_OK;
    }
    for (int i = 0; i < 2; i++) {
        if (spawned[i]) UNTIL(&w, script_is_over(both[i]));
        filch_drop(&both[i]->last);
    }
    *refused = atomic_load(&alloc.refused) > 0;
    test_alloc_fail(&alloc, 0, false);
    asked = atomic_load(&alloc.asked) - asked;
    (void)!filch_cancel(w.sched, server.actor.pid);
    UNTIL(&w, script_is_over(&server));
    filch_drop(&server.last);

    /* And now there is memory again. */
    script again = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_OPEN(path, FILCH_OPEN_READ), DO_READ(4));
    script_start(&w, &again);
    UNTIL(&w, script_is_over(&again));
    same(again.result[0].error, FILCH_OK);
    filch_drop(&again.last);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    test_alloc_balanced(&alloc);
    same(open_descriptors(), before);
    (void)unlink(path);
    return asked;
}

static void sweep(bool and_after)
{
    bool     refused;
    uint64_t count = run_all(0, false, &refused), every = 100 / world_scale(100, 1);
    assert_true(count > 20); /* the test reaches what it is about */
    for (uint64_t nth = 1; nth <= count; nth += every) (void)run_all(nth, and_after, &refused);
}

TEST(one_asking_for_memory_after_the_other_is_refused)
{
    sweep(false);
}

TEST(from_one_asking_on_all_memory_is_refused)
{
    sweep(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_asking_for_memory_after_the_other_is_refused),
        cmocka_unit_test(from_one_asking_on_all_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
