/* io_wakeup_test.c - a readiness report is handled by a worker even while the worker that waited in the poller is
 * inside a step.
 *
 * At the beginning of each test all workers are parked, none with a timeout. Then one worker is unparked, and stays in
 * a step until another process has received its report, or until the test gives up.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "api/io_script.h"
#include "support/full_idle.h"
#include "support/until.h"

static fixture w;

/* is_in_step: a process is in a long step. may_leave: the step may end. Relaxed, because these are only flags. */
static FLI_ATOMIC(bool) is_in_step, may_leave;

static bool may_go(void *unused)
{
    (void)unused;
    return fli_load_rlx(&may_leave);
}

static filch_err stay(script *s, filch_out *out)
{
    (void)s, (void)out;
    fli_store_rlx(&is_in_step, true);
    return until_or_late(may_go, NULL) ? FILCH_OK : FILCH_EDEADLINE;
}

/* Starts a process that reads from a connection. Returns the other end of the connection. */
static int begin_reading(script *reader)
{
    script_start(&w, reader);
    UNTIL(&w, is_ready(reader));
    int fd = peer_connect(reader);
    UNTIL(&w, script_stage(reader) == 3);
    return fd;
}

/* Calls `call`, which makes the process of `stays` stay in a step. Then writes to `fd` and checks that the reader gets
 * the bytes although the step goes on. */
static void check_served_beside(script *reader, int fd, script *stays, void (*call)(script *stays))
{
    fli_store_rlx(&is_in_step, false);
    fli_store_rlx(&may_leave, false);
    assert_true(full_idle_comes(w.sched));
    call(stays);
    until(fli_load_rlx(&is_in_step));
    same(send(fd, "hear me", 7, MSG_NOSIGNAL), 7);
    UNTIL(&w, script_is_over(reader));
    fli_store_rlx(&may_leave, true);
    script_ends(&w, stays);
    script_ends(&w, reader);
    assert_string_equal(reader->result[3].bytes, "hear me");
    close(fd);
}

static int writes_to;

static void wake_by_descriptor(script *stays)
{
    (void)stays;
    same(send(writes_to, "!", 1, MSG_NOSIGNAL), 1);
}

TEST(a_connection_is_served_while_the_last_poller_is_in_a_long_step)
{
    for (int32_t workers = 2; workers <= 4; workers++) {
        fixture_begin(&w, workers);
        script stays = SCRIPT(SERVE, DO_READ(0), DO_CALL(stay)), reader = SCRIPT(SERVE, DO_READ(0));
        writes_to = begin_reading(&stays);
        check_served_beside(&reader, begin_reading(&reader), &stays, wake_by_descriptor);
        close(writes_to);
        fixture_end(&w);
    }
}

static void wake_from_outside(script *stays)
{
    script_start(&w, stays);
}

static filch_err play_sleeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    me->note = filch_yield_sleep(out, 0, FILCH_SECONDS(3600));
    return filch_wait(out);
}

/* One worker waits in the poller, another worker is parked with a timeout for a distant timer. If there are only two
 * workers, the worker in the poller is unparked to run the process with the long step. */
TEST(a_connection_is_served_while_the_unparked_poller_is_in_a_long_step)
{
    for (int32_t workers = 2; workers <= 4; workers++) {
        fixture_begin(&w, workers);
        script stays = SCRIPT(DO_CALL(stay)), reader = SCRIPT(SERVE, DO_READ(0));
        actor  sleeper = { .note = FILCH_OK };
        int    fd = begin_reading(&reader);
        assert_true(full_idle_comes(w.sched));
        actor_start(&w, &sleeper, play_sleeps);
        check_served_beside(&reader, fd, &stays, wake_from_outside);
        ok(filch_cancel(w.sched, sleeper.pid));
        actor_ends(&w, &sleeper, FILCH_OK);
        ok(sleeper.note);
        fixture_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_served_while_the_last_poller_is_in_a_long_step),
        cmocka_unit_test(a_connection_is_served_while_the_unparked_poller_is_in_a_long_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
