/* io_oom_test.c - memory runs out at every allocation of I/O, one after the other. The caller gets an error or does not
 * notice; nothing leaks, no descriptor stays open, no process waits for ever. When there is memory again, everything
 * works.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/io_script.h"
#include "support/alloc.h"

static const char *const echoes[] = { "sh", "-c", "cat", NULL };
static const int         numbers[] = { 10 };

/* Runs all operations once and returns the number of allocations. Allocation number `nth` fails; with `and_after` all
 * later allocations fail too. */
static uint64_t run_all(uint64_t nth, bool and_after, bool *refused)
{
    static test_alloc alloc;
    static char       path[64], lots[60000];
    filch_options     opt = FILCH_OPTIONS_INIT;
    fixture           w = { .ticks = true };
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
    bool    spawned[3];
    script *both[3] = { &client, &other };
    int     ends[2];
    ok(pipe2(ends, O_CLOEXEC));
    script foreign = SCRIPT(DO_TIMEOUT(FILCH_MILLISECONDS(1)), DO_POLL(ends[0], FILCH_POLL_IN), DO_POLL_CANCEL(ends[0]),
                            DO_ADOPT(ends[0], FILCH_ADOPT_KEEP), DO_READ(0), DO_CLOSE, DO_POLL(ends[1], FILCH_POLL_OUT),
                            DO_STAT("/tmp", 0), DO_LIST("/dev"), DO_RENAME("/tmp/no/such", "/tmp/no/thing", 0),
                            DO_REMOVE("/tmp/no/such"), DO_OPEN("/tmp", FILCH_OPEN_READ), DO_SYNC(0), DO_TRUNCATE(0));
    both[2] = &foreign;
    for (int i = 0; i < 3; i++) {
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
    for (int i = 0; i < 3; i++) {
        if (spawned[i]) UNTIL(&w, script_is_over(both[i]));
        filch_drop(&both[i]->last);
    }
    close(ends[0]);
    close(ends[1]);
    *refused = atomic_load(&alloc.refused) > 0;
    test_alloc_fail(&alloc, 0, false);
    asked = atomic_load(&alloc.asked) - asked;
    (void)!filch_cancel(w.sched, server.actor.pid);
    UNTIL(&w, script_is_over(&server));
    filch_drop(&server.last);

    /* From here on no allocation fails. */
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
    uint64_t count = run_all(0, false, &refused), every = 25 / fixture_scale(100, 1);
    assert_true(count > 20); /* if there were more than 20 allocations, the I/O code did run */
    for (uint64_t nth = 1; nth <= count; nth += every > 0 ? every : 1) (void)run_all(nth, and_after, &refused);
}

/* ---- no memory for the first I/O operation of a scheduler ---- */

/* Runs `first` in a scheduler that has not done any I/O; allocation number `nth` fails. Operations that fail must
 * report an error. Returns true if there were at least `nth` allocations. */
static bool run_first(script first, int nth)
{
    static test_alloc alloc;
    filch_options     opt = FILCH_OPTIONS_INIT;
    fixture           w = { .ticks = true };
    int               before = open_descriptors();
    memset(&alloc, 0, sizeof alloc);
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    ok(filch_sched_create(&w.sched, &opt));
    script taker = SCRIPT(DO_TAKE, DO_RECEIVE_FROM(1));
    taker.timeout_ns = 0;
    script_start(&w, &taker);
    UNTIL(&w, fixture_inspect(&w, taker.actor.pid).state == FILCH_STATE_IDLE);
    for (int i = 0; i < LINES_MAX; i++) first.lines[i].pid = taker.actor.pid;
    script_start(&w, &first);
    test_alloc_fail(&alloc, (uint64_t)nth, false);
    UNTIL(&w, script_is_over(&first));
    (void)fixture_tick(&w); /* after this tick the process `taker` has the stream, or will never get it */
    bool was_refused = atomic_load(&alloc.refused) > 0;
    test_alloc_fail(&alloc, 0, false);
    for (int i = 0; first.lines[i].what != END; i++) {
        filch_err err = first.result[i].error;
        bool      fine = err == FILCH_OK || err == FILCH_EDEADLINE;
        if (was_refused) /* FILCH_ESTREAM: the stream was not opened, because an earlier line failed */
            fine = fine || err == FILCH_ENOMEM || err == FILCH_ESTREAM;
        if (!fine) fail_msg("line %d: %s", i, filch_err_text(err));
    }
    (void)!filch_cancel(w.sched, taker.actor.pid);
    UNTIL(&w, script_is_over(&taker));
    filch_drop(&first.last);
    filch_drop(&taker.last);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    test_alloc_balanced(&alloc);
    same(open_descriptors(), before);
    return was_refused;
}

TEST(the_first_io_operation_of_each_kind_may_lack_memory)
{
    const script firsts[] = {
        SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_TIMEOUT(0), DO_ACCEPT),
        SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_TIMEOUT(0), DO_RECEIVE_FROM(0)),
        SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_GIVE((filch_pid){ 0, 0 })),
        SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ)),
        SCRIPT(DO_RUN(echoes, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT), DO_USE_INPUT, DO_CLOSE),
        SCRIPT(DO_RESOLVE("fe80::1234:5678:9abc:def0", "65535")), /* this lookup's result is too long for an event */
        SCRIPT(DO_SIGNALS(numbers, 1)),
    };
    for (size_t i = 0; i < COUNT_OF(firsts); i++) {
        int nth = 1;
        while (run_first(firsts[i], nth)) nth++;
        assert_true(nth > 3); /* if at least three allocations failed in turn, the I/O code did run */
    }
}

/* Opens a stream, or takes the stream in the message that `user` points to. The process has no relations, so its first
 * stream is the first thing for which the process needs memory of its own. */
static filch_err play_first_stream(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_stream stream;
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    if (me->stage++ == 0 && me->user == NULL) {
        me->note = filch_yield_datagram(out, 1, "127.0.0.1:0", NULL);
        if (me->note == FILCH_OK) return filch_wait(out);
    }
    if (me->user == NULL && count > 0) me->note = events[0].error;
    if (me->user != NULL) me->note = filch_stream_take(out, me->user, &stream);
    return filch_done(out, filch_none());
}

/* Runs play_first_stream() while allocation number `nth` fails. Returns true if an allocation failed and the process
 * reported it. */
static bool run_first_stream(filch_data *stream_message, fixture *w, test_alloc *alloc, int nth)
{
    actor               me = { .play = play_first_stream, .user = stream_message };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.args = filch_ptr(&me);
    ok(filch_spawn(w->sched, &actor_type, &spawn, NULL));
    uint64_t before = atomic_load(&alloc->refused);
    test_alloc_fail(alloc, (uint64_t)nth, false);
    UNTIL(w, me.closes == 1);
    test_alloc_fail(alloc, 0, false);
    bool was_refused = atomic_load(&alloc->refused) > before;
    same(me.note, was_refused ? FILCH_ENOMEM : FILCH_OK);
    return was_refused;
}

static filch_err play_keeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    if (count > 0) me->note = filch_keep(&events[0].data, me->user);
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(a_process_without_memory_for_its_first_stream_gets_enomem)
{
    static test_alloc alloc;
    filch_options     opt = FILCH_OPTIONS_INIT;
    fixture           w = { .ticks = true };
    int               before = open_descriptors(), nth = 1;
    filch_data        stream_message = filch_none();
    actor             keeper = { .user = &stream_message };
    memset(&alloc, 0, sizeof alloc);
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    ok(filch_sched_create(&w.sched, &opt));
    while (run_first_stream(NULL, &w, &alloc, nth)) nth++;
    assert_true(nth > 1);
    actor_start(&w, &keeper, play_keeps);
    UNTIL(&w, fixture_inspect(&w, keeper.pid).state == FILCH_STATE_IDLE);
    script giver = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_GIVE(keeper.pid));
    script_start(&w, &giver);
    script_ends(&w, &giver);
    actor_ends(&w, &keeper, FILCH_OK);
    nth = 1;
    while (run_first_stream(&stream_message, &w, &alloc, nth))
        nth++; /* the next process tries to take the stream of `stream_message` again */
    assert_true(nth > 1);
    filch_drop(&stream_message);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    test_alloc_balanced(&alloc);
    same(open_descriptors(), before);
}

TEST(each_single_allocation_of_io_may_fail)
{
    sweep(false);
}

TEST(all_allocations_of_io_may_fail_from_any_point_on)
{
    sweep(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_io_operation_of_each_kind_may_lack_memory),
        cmocka_unit_test(a_process_without_memory_for_its_first_stream_gets_enomem),
        cmocka_unit_test(each_single_allocation_of_io_may_fail),
        cmocka_unit_test(all_allocations_of_io_may_fail_from_any_point_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
