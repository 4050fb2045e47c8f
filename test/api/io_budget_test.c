/* io_budget_test.c - a peer that is as fast as the process does not occupy a worker: between two steps of a second
 * process a bounded number of bytes is transferred, whatever the operation. Also: bytes or connections that arrive
 * before a deadline win over the deadline. The tests count bytes, steps and reads of the clock; they measure no
 * time. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/io_script.h"
#include "io/io.h"

static fixture w;

/* ---- replaced system calls: the peer of a connection is always ready ---- */

static bool endless;
/* between: bytes transferred since the last step of the second process, plus 1 for each connection closed before it was
 * accepted; most: the maximum of `between`; total: all bytes transferred */
static size_t between, most, total;
static size_t largest; /* the most bytes that one system call has transferred */
static size_t since_clock, most_since_clock;
static int    aborted; /* number of connections that will be closed before they are accepted */

static ssize_t move(size_t size)
{
    between += size;
    since_clock += size;
    total += size;
    if (size > largest) largest = size;
    if (between > most) most = between;
    if (since_clock > most_since_clock) most_since_clock = since_clock;
    return (ssize_t)size;
}

ssize_t  __real_recv(int fd, void *bytes, size_t room, int flags);
ssize_t  __wrap_recv(int fd, void *bytes, size_t room, int flags);
ssize_t  __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t  __wrap_send(int fd, const void *bytes, size_t size, int flags);
int      __real_accept4(int fd, struct sockaddr *at, socklen_t *size, int flags);
int      __wrap_accept4(int fd, struct sockaddr *at, socklen_t *size, int flags);
uint64_t __real_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void);

ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags)
{
    if (!endless) return __real_recv(fd, bytes, room, flags);
    memset(bytes, 'x', room);
    return move(room);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    return endless ? move(size) : __real_send(fd, bytes, size, flags);
}

int __wrap_accept4(int fd, struct sockaddr *at, socklen_t *size, int flags)
{
    if (aborted == 0) return __real_accept4(fd, at, size, flags);
    aborted--;
    between++;
    if (between > most) most = between;
    errno = ECONNABORTED;
    return -1;
}

uint64_t __wrap_fli_clock_ns(void)
{
    since_clock = 0;
    return __real_fli_clock_ns();
}

/* ---- the second process ---- */

static filch_err play_beside(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    between = 0;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_continue(out);
}

/* Starts `server`, a script that listens and accepts, and connects to it. Returns the client's end of the
 * connection. */
static int connect_to(script *server)
{
    script_start(&w, server);
    UNTIL(&w, is_ready(server));
    int fd = peer_connect(server);
    UNTIL(&w, script_stage(server) >= 3);
    return fd;
}

static void count_from_here(void)
{
    between = most = total = largest = since_clock = most_since_clock = 0;
}

/* Runs the script `server`, which begins with SERVE and DO_PAUSE, together with a second process that is always
 * ready. */
static void play_beside_it(script *server)
{
    actor beside = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    int fd = connect_to(server);
    same(send(fd, "!", 1, MSG_NOSIGNAL), 1);
    actor_start(&w, &beside, play_beside);
    endless = true;
    count_from_here();
    ok(filch_send(w.sched, server->actor.pid, filch_none()));
    for (patience left = patience_begin(FOR_EVER_NS); !script_is_over(server);) {
        ok(filch_tick(w.sched, 1, NULL));
        assert_false(patience_is_over(&left));
    }
    endless = false;
    script_ends(&w, server);
    ok(filch_cancel(w.sched, beside.pid));
    actor_ends(&w, &beside, FILCH_OK);
    fixture_end(&w);
    close(fd);
}

/* Before the second process runs, at most four I/O budgets (FLI_IO_BUDGET_BYTES) are used: by the command itself, by
 * the poll that the command requests, by the poll of the next tick, and by a timeout. */
#define BOUND (4 * FLI_IO_BUDGET_BYTES)
enum { LOTS = 16 << 20 };

TEST(a_read_of_an_exact_size_lets_others_run)
{
    script server = SCRIPT(SERVE, DO_PAUSE, DO_EXACTLY(LOTS));
    play_beside_it(&server);
    ok(server.result[4].error);
    same(server.result[4].size, LOTS);
    assert_true(total >= LOTS);
    assert_true(most <= BOUND);
}

/* The command itself receives its bytes into a block that grows up to FLI_IO_BUDGET_BYTES, so no single call of the
 * command has space for a whole budget. Only a later attempt, after a report of the poller, has space for a whole
 * budget. */
TEST(an_attempt_after_a_report_may_move_a_whole_budget)
{
    script server = SCRIPT(SERVE, DO_PAUSE, DO_EXACTLY(LOTS));
    play_beside_it(&server);
    ok(server.result[4].error);
    same(largest, FLI_IO_BUDGET_BYTES);
}

TEST(a_read_until_a_delimiter_that_does_not_come_lets_others_run)
{
    script server = SCRIPT(SERVE, DO_PAUSE, DO_UNTIL("\n", LOTS));
    play_beside_it(&server);
    same(server.result[4].error, FILCH_ETOOBIG);
    assert_true(total >= LOTS);
    assert_true(most <= BOUND);
}

TEST(a_write_to_a_peer_that_takes_everything_lets_others_run)
{
    char *lots = calloc(1, LOTS);
    assert_non_null(lots);
    script server = SCRIPT(SERVE, DO_PAUSE, DO_WRITE_LOTS(lots, LOTS));
    play_beside_it(&server);
    ok(server.result[4].error);
    same(server.result[4].number, LOTS);
    same(total, LOTS);
    assert_true(most <= BOUND);
    free(lots);
}

TEST(an_operation_with_timeout_0_takes_all_bytes_and_lets_others_run)
{
    script server = SCRIPT(SERVE, DO_PAUSE, DO_TIMEOUT(0), DO_EXACTLY(LOTS));
    play_beside_it(&server);
    ok(server.result[5].error);
    same(server.result[5].size, LOTS);
    assert_true(most <= BOUND);
}

TEST(aborted_connections_in_the_backlog_let_others_run)
{
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_PAUSE, DO_ACCEPT);
    actor  beside = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    actor_start(&w, &beside, play_beside);
    int fd = peer_connect(&server);
    count_from_here();
    aborted = 1000;
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    for (patience left = patience_begin(FOR_EVER_NS); !script_is_over(&server);) {
        ok(filch_tick(w.sched, 1, NULL));
        assert_false(patience_is_over(&left));
    }
    same(aborted, 0);
    assert_true(most <= 4);
    script_ends(&w, &server);
    ok(server.result[3].error);
    ok(filch_cancel(w.sched, beside.pid));
    actor_ends(&w, &beside, FILCH_OK);
    fixture_end(&w);
    close(fd);
}

/* ---- reader: a process that reads all available bytes, again and again, in few but long steps ---- */

static filch_stream taken_stream;

static filch_err play_reader(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0) return filch_idle(out);
    if (me->stage == 0) me->note = filch_stream_take(out, &events[0].data, &taken_stream);
    else if (count != 1 || events[0].error != FILCH_OK) return FILCH_EUSER;
    if (me->stage++ == 1000) return filch_done(out, filch_none());
    me->note |= filch_yield_read(out, 1, taken_stream, 0, FILCH_FOREVER);
    return filch_wait(out);
}

TEST(the_clock_is_read_while_a_process_keeps_reading)
{
    actor reader = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &reader, play_reader);
    script server = SCRIPT(SERVE, DO_PAUSE, DO_GIVE(reader.pid));
    int    fd = connect_to(&server);
    same(send(fd, "!", 1, MSG_NOSIGNAL), 1);
    endless = true;
    count_from_here();
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    UNTIL(&w, is_over(&reader));
    endless = false;
    ok(reader.note);
    assert_true(total >= 1000 * (size_t)16384);
    /* 2 * 65536: one read may exceed the budget, and one read may have begun before the clock was read */
    assert_true(most_since_clock <= FLI_IO_BUDGET_BYTES + 2 * 65536);
    actor_ends(&w, &reader, FILCH_OK);
    script_ends(&w, &server);
    fixture_end(&w);
    close(fd);
}

/* ---- bytes before a deadline ---- */

static void sleep_past(uint64_t span_ns)
{
    uint64_t until_ns = __real_fli_clock_ns() + span_ns;
    while (__real_fli_clock_ns() <= until_ns) yield_slice();
}

/* The scheduler does not run for LATE_NS, in which bytes arrive and the deadline of the read passes. When the scheduler
 * runs again, it finds both the bytes and the timer that is due. */
#define LATE_NS FILCH_MILLISECONDS(2)

TEST(bytes_that_came_before_the_deadline_are_read_though_the_timer_is_due)
{
    script server = SCRIPT(SERVE, DO_TIMEOUT(LATE_NS), DO_PAUSE, DO_READ(0), DO_PAUSE, DO_EXACTLY(100000), DO_READ(0));
    fixture_begin(&w, FILCH_NO_WORKERS);
    int fd = connect_to(&server);
    UNTIL(&w, script_stage(&server) == 4);
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    ok(filch_tick(w.sched, 1, NULL)); /* the read waits, because no bytes have arrived */
    same(script_stage(&server), 5);
    same(send(fd, "in time", 7, MSG_NOSIGNAL), 7);
    sleep_past(LATE_NS);
    UNTIL(&w, script_stage(&server) == 6);
    ok(server.result[5].error);
    assert_string_equal(server.result[5].bytes, "in time");
    /* 100000 bytes are more than the I/O budget of one timeout. */
    char *lots = calloc(1, 100000);
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    ok(filch_tick(w.sched, 1, NULL));
    same(script_stage(&server), 7);
    same(send(fd, lots, 100000, MSG_NOSIGNAL), 100000);
    sleep_past(LATE_NS);
    script_ends(&w, &server);
    ok(server.result[7].error);
    same(server.result[7].size, 100000);
    same(server.result[8].error, FILCH_EDEADLINE); /* no byte came before the deadline of this read */
    free(lots);
    fixture_end(&w);
    close(fd);
}

TEST(a_connection_before_the_deadline_is_accepted_though_the_timer_is_due)
{
    script server =
        SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_TIMEOUT(LATE_NS), DO_ACCEPT, DO_USE_LISTENER, DO_ACCEPT);
    fixture_begin(&w, FILCH_NO_WORKERS);
    script_start(&w, &server);
    ok(filch_tick(w.sched, 1, NULL));
    ok(filch_tick(w.sched, 1, NULL));
    same(script_stage(&server), 3);
    int fd = peer_connect(&server);
    sleep_past(LATE_NS);
    script_ends(&w, &server);
    ok(server.result[3].error);
    same(server.result[5].error, FILCH_EDEADLINE);
    fixture_end(&w);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_of_an_exact_size_lets_others_run),
        cmocka_unit_test(an_attempt_after_a_report_may_move_a_whole_budget),
        cmocka_unit_test(a_read_until_a_delimiter_that_does_not_come_lets_others_run),
        cmocka_unit_test(a_write_to_a_peer_that_takes_everything_lets_others_run),
        cmocka_unit_test(an_operation_with_timeout_0_takes_all_bytes_and_lets_others_run),
        cmocka_unit_test(aborted_connections_in_the_backlog_let_others_run),
        cmocka_unit_test(the_clock_is_read_while_a_process_keeps_reading),
        cmocka_unit_test(bytes_that_came_before_the_deadline_are_read_though_the_timer_is_due),
        cmocka_unit_test(a_connection_before_the_deadline_is_accepted_though_the_timer_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
