/* io_tcp_test.c - connections over loopback: listening, accepting, connecting, reading and writing; peers that
 * disconnect, slow readers, ports in use. Each process runs a script (io_script.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/io_script.h"
#include "support/until.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 2 };

/* ---- a peer without Filch ---- */

static int peer_listen(uint16_t *port, int backlog)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t          size = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    ok(bind(fd, (struct sockaddr *)&at, sizeof at));
    ok(listen(fd, backlog));
    ok(getsockname(fd, (struct sockaddr *)&at, &size));
    *port = ntohs(at.sin_port);
    return fd;
}

/* Closes the connection so that the server gets a reset instead of the end of the stream. */
static void peer_reset(int fd)
{
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    ok(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    ok(close(fd));
}

/* Reads `at_least` bytes, or all bytes until the end of the stream. Runs the scheduler while it waits. Returns the
 * number of bytes read. */
static size_t peer_read(int fd, size_t at_least)
{
    char   bytes[65536];
    size_t sum = 0;
    while (sum < at_least) {
        struct pollfd one = { .fd = fd, .events = POLLIN };
        if (poll(&one, 1, w.ticks ? 0 : 100) == 0) {
            fixture_turn(&w);
            continue;
        }
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) break;
        sum += (size_t)n;
    }
    return sum;
}

/* ---- an echo server and its clients ---- */

TEST(written_bytes_are_read_and_the_end_of_the_stream_is_reported){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ(0), DO_WRITE_BACK, DO_READ(0), DO_CLOSE);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    script client = SCRIPT(DO_CONNECT(server.local), DO_WRITE("hello, loopback: longer than an event"), DO_READ(0),
                           DO_SHUTDOWN, DO_READ(0));
    script_start(&w, &client);
    script_ends(&w, &client);
    script_ends(&w, &server);
    assert_string_equal(client.result[2].bytes, "hello, loopback: longer than an event");
    same(client.result[1].number, 37);
    /* the client has closed its sending half of the connection; the server can still send */
    same(server.result[5].error, FILCH_EEND);
    same(client.result[4].error, FILCH_EEND);
}) }

TEST(an_empty_write_completes_at_once_and_the_peer_reads_nothing){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ(0), DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    script client = SCRIPT(DO_CONNECT(server.local), DO_WRITE(""), DO_WRITE("x"), DO_WRITE(""), DO_CLOSE);
    script_start(&w, &client);
    script_ends(&w, &client);
    script_ends(&w, &server);
    ok(client.result[1].error);
    same(client.result[1].number, 0);
    ok(client.result[3].error);
    assert_string_equal(server.result[3].bytes, "x");
    same(server.result[4].error, FILCH_EEND);
}) }

TEST(a_reset_by_the_peer_is_an_error_and_not_a_signal){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ(0), DO_READ(0), DO_WRITE("x"), DO_WRITE("y"));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    same(send(fd, "a", 1, 0), 1);
    UNTIL(&w, script_stage(&server) == 4); /* the server is at its line 4, a read, and waits for bytes */
    peer_reset(fd);
    script_ends(&w, &server);
    same(server.result[4].error, FILCH_ERESET);
    same(server.result[4].number, ECONNRESET);
    same(server.result[6].error, FILCH_ERESET);
    same(server.result[6].number, EPIPE); /* the write failed with EPIPE, and SIGPIPE did not kill the program */
}) }

TEST(a_write_completes_only_when_a_slow_reader_has_made_room)
{
    enum { LOTS = 8 << 20 };
    char *lots = malloc(LOTS);
    memset(lots, 'x', LOTS);
    FOR_WORKER_COUNTS({
        script server = SCRIPT(SERVE, DO_WRITE_LOTS(lots, LOTS));
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        int fd = peer_connect(&server);
        UNTIL(&w, script_stage(&server) == 3);
        for (int i = 0; i < 100; i++) fixture_turn(&w);
        /* the write has not completed, because 8 MiB do not fit into the system's buffers */
        same(script_stage(&server), 3);
        same(peer_read(fd, LOTS), LOTS);
        script_ends(&w, &server);
        same(server.result[3].error, FILCH_OK);
        same(server.result[3].number, LOTS);
        close(fd);
    })
    free(lots);
}

TEST(connect_without_a_listener_is_refused_and_a_taken_port_is_in_use)
{
    FOR_WORKER_COUNTS({
        script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT);
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        script second = SCRIPT(DO_LISTEN(server.local));
        script_start(&w, &second);
        script_ends(&w, &second);
        same(second.result[0].error, FILCH_EINUSE);
        same(second.result[0].number, EADDRINUSE);
        ok(filch_cancel(w.sched, server.actor.pid));
        script_ends(&w, &server); /* the process of the server has ended, so its port is free again */
        script late = SCRIPT(DO_CONNECT(server.local));
        script_start(&w, &late);
        script_ends(&w, &late);
        same(late.result[0].error, FILCH_EREFUSED);
        same(late.result[0].number, ECONNREFUSED);
    })
}

static filch_err play_reads_peer_address(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char text[128];
    if (me->stage++ == 0) {
        me->note = filch_yield_listen(out, 1, "127.0.0.1:0", NULL);
        return filch_wait(out);
    }
    memset(text, 'x', sizeof text);
    me->note |= count == 1 ? events[0].error : FILCH_EUSER;
    me->note |= filch_stream_address(out, filch_as_stream(&events[0].data), FILCH_ADDRESS_PEER, text, sizeof text);
    me->user = text;
    return filch_done(out, filch_none());
}

TEST(a_listener_has_no_peer_and_that_is_no_error)
{
    actor me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_reads_peer_address);
    actor_ends(&w, &me, FILCH_OK);
    ok(me.note);
    assert_string_equal(me.user, "");
    fixture_end(&w);
}

TEST(a_listener_that_ended_leaves_its_port_to_the_next){ FOR_WORKER_COUNTS({
    script first = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS);
    script_start(&w, &first);
    script_ends(&w, &first);
    script second = SCRIPT(DO_LISTEN(first.local), DO_ADDRESS);
    script_start(&w, &second);
    script_ends(&w, &second);
    same(second.result[0].error, FILCH_OK);
    assert_string_equal(first.local, second.local);
}) }

/* ---- timeouts ---- */

TEST(each_kind_of_wait_ends_when_its_time_is_up)
{
    enum { LOTS = 8 << 20 };
    char *lots = calloc(1, LOTS);
    FOR_WORKER_COUNTS({
        script server =
            SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_TIMEOUT(FILCH_MILLISECONDS(5)), DO_ACCEPT,
                   DO_TIMEOUT(FILCH_FOREVER), DO_ACCEPT, DO_TIMEOUT(FILCH_MILLISECONDS(5)), DO_READ(0),
                   DO_UNTIL("\n", 100), DO_EXACTLY(10), DO_WRITE_LOTS(lots, LOTS), DO_TIMEOUT(0), DO_READ(0));
        script_start(&w, &server);
        UNTIL(&w, script_stage(&server) == 5);
        int fd = peer_connect(&server);
        script_ends(&w, &server);
        same(server.result[3].error, FILCH_EDEADLINE);
        same(server.result[5].error, FILCH_OK);
        for (int i = 7; i <= 10; i++) same(server.result[i].error, FILCH_EDEADLINE);
        same(server.result[12].error, FILCH_EDEADLINE); /* a read with a timeout of 0 fails at once */
        close(fd);
    })
    free(lots);
}

TEST(bytes_that_came_before_the_time_was_up_are_kept_for_the_next_read){ FOR_WORKER_COUNTS({
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_PAUSE, DO_ACCEPT, DO_TIMEOUT(FILCH_MILLISECONDS(5)),
                           DO_EXACTLY(10), DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    same(send(fd, "half", 4, 0), 4);
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    script_ends(&w, &server);
    same(server.result[5].error, FILCH_EDEADLINE);
    same(server.result[6].error, FILCH_OK);
    assert_string_equal(server.result[6].bytes, "half");
    close(fd);
}) }

TEST(a_connect_without_a_response_times_out_and_leaks_nothing)
{
    uint16_t port;
    int      listener = peer_listen(&port, 0), full[8], count = 0;
    /* Fills the connection queue of the listener. The system then drops new connections, as if the host did not
     * answer. */
    for (; count < 8; count++) {
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        full[count] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(full[count], (struct sockaddr *)&at, sizeof at);
    }
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    FOR_WORKER_COUNTS({
        script client = SCRIPT(DO_CONNECT_WITHIN(address, FILCH_MILLISECONDS(20)));
        int    before = open_descriptors();
        script_start(&w, &client);
        UNTIL(&w, script_stage(&client) == 1);
        same(client.result[0].error, FILCH_EDEADLINE);
        script_ends(&w, &client);
        assert_true(open_descriptors() <= before + 2); /* the only new descriptors are the two of the poller */
    })
    while (count-- > 0) close(full[count]);
    close(listener);
}

/* ---- reading in pieces ---- */

TEST(until_and_exactly_return_the_requested_parts_of_a_stream){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_UNTIL("\r\n", 100), DO_UNTIL("\r\n", 100), DO_EXACTLY(3), DO_READ(2),
                           DO_EXACTLY(30), DO_UNTIL("!", 5), DO_READ(0), DO_UNTIL("!", 100));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    same(send(fd, "one\r", 4, 0), 4);
    UNTIL(&w, script_stage(&server) == 3);
    const char *rest = "\ntwo is longer than the twenty-four of an event\r\nabcdefgh";
    same(send(fd, rest, strlen(rest), 0), (ssize_t)strlen(rest));
    UNTIL(&w, script_stage(&server) == 7);
    same(send(fd, "ijklmnopqrstuvwxyz0123456789too long", 36, 0), 36);
    UNTIL(&w, script_stage(&server) == 10);
    same(send(fd, "rest", 4, 0), 4);
    close(fd);
    script_ends(&w, &server);
    assert_string_equal(server.result[3].bytes, "one\r\n");
    assert_string_equal(server.result[4].bytes, "two is longer than the twenty-four of an event\r\n");
    assert_string_equal(server.result[5].bytes, "abc");
    assert_string_equal(server.result[6].bytes, "de");
    assert_string_equal(server.result[7].bytes, "fghijklmnopqrstuvwxyz012345678");
    same(server.result[8].error, FILCH_ETOOBIG);
    assert_string_equal(server.result[9].bytes, "9too long");
    /* the result also has the bytes that came before the end of the stream */
    same(server.result[10].error, FILCH_EEND);
    assert_string_equal(server.result[10].bytes, "rest");
}) }

TEST(bytes_that_arrive_while_read_ahead_bytes_are_left_are_not_lost){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_EXACTLY(10), DO_PAUSE, DO_EXACTLY(10), DO_READ(0), DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    same(send(fd, "0123456789abcdefghijXYZ", 23, 0), 23);
    UNTIL(&w, script_stage(&server) == 4);
    same(send(fd, "later", 5, 0), 5); /* the poller reports these bytes now, while no read is outstanding */
    for (int i = 0; i < 20; i++) fixture_turn(&w);
    UNTIL(&w, w.ticks || fixture_stats(&w).asleep > 0);
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    for (int i = 0; i < 20; i++) fixture_turn(&w);
    /* the reads needed no further readiness report of the poller, because all bytes had arrived */
    if (w.ticks) assert_true(script_is_over(&server));
    script_ends(&w, &server);
    assert_string_equal(server.result[5].bytes, "abcdefghij");
    assert_string_equal(server.result[6].bytes, "XYZ");
    assert_string_equal(server.result[7].bytes, "later");
    close(fd);
}) }

TEST(a_kept_block_is_not_overwritten_by_later_reads){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_EXACTLY(40), DO_KEEP, DO_EXACTLY(40), DO_KEEP, DO_EXACTLY(40000));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    for (int i = 0; i < 2; i++) {
        char bytes[40];
        memset(bytes, 'a' + i, sizeof bytes);
        same(send(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
        UNTIL(&w, script_stage(&server) >= 5 + 2 * (uint32_t)i);
    }
    char *many = malloc(40000);
    memset(many, 'z', 40000);
    same(send(fd, many, 40000, 0), 40000);
    free(many);
    UNTIL(&w, script_is_over(&server));
    for (int i = 0; i < 2; i++) {
        same(filch_size(&server.kept[i]), 40);
        for (int k = 0; k < 40; k++) same(((const char *)filch_raw(&server.kept[i]))[k], 'a' + i);
        filch_drop(&server.kept[i]);
    }
    script_ends(&w, &server);
    same(server.result[7].size, 40000);
    close(fd);
}) }

/* ---- ownership ---- */

TEST(stream_ids_of_other_processes_and_made_up_ones_are_refused){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    UNTIL(&w, script_stage(&server) == 3);
    script thief = SCRIPT(DO_USE(server.stream), DO_READ(0), DO_WRITE("mine now"), DO_SHUTDOWN, DO_CLOSE, DO_CANCEL,
                          DO_ACCEPT, DO_USE((filch_stream){ 0 }), DO_READ(0), DO_USE((filch_stream){ UINT64_MAX }),
                          DO_READ(0), DO_USE((filch_stream){ 1 }), DO_READ(0),
                          DO_USE((filch_stream){ UINT64_C(1) << 32 | 0xffffff }), DO_READ(0));
    script_start(&w, &thief);
    script_ends(&w, &thief);
    for (int i = 1; i <= 6; i++) same(thief.result[i].error, FILCH_ESTREAM);
    for (int i = 8; i <= 14; i += 2) same(thief.result[i].error, FILCH_ESTREAM);
    same(send(fd, "still his", 9, 0), 9);
    script_ends(&w, &server);
    assert_string_equal(server.result[3].bytes, "still his");
    close(fd);
}) }

TEST(the_id_of_a_closed_stream_stays_invalid_when_its_slot_is_reused){ FOR_WORKER_COUNTS({
    script one = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_CLOSE, DO_CLOSE, DO_READ(0));
    script_start(&w, &one);
    script_ends(&w, &one);
    same(one.result[1].error, FILCH_OK);
    same(one.result[2].error, FILCH_ESTREAM);
    same(one.result[3].error, FILCH_ESTREAM);
    script two = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_USE(one.stream), DO_ACCEPT, DO_CLOSE);
    script_start(&w, &two);
    script_ends(&w, &two);
    same(two.result[2].error, FILCH_ESTREAM);
    same(two.result[3].error, FILCH_ESTREAM);
}) }

TEST(a_given_stream_belongs_to_the_receiver_alone){ FOR_WORKER_COUNTS({
    script taker = SCRIPT(DO_TAKE, DO_READ(0), DO_WRITE("taken"));
    script_start(&w, &taker);
    script server = SCRIPT(SERVE, DO_GIVE(taker.actor.pid), DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    script_ends(&w, &server);
    same(server.result[3].error, FILCH_OK);
    same(server.result[4].error, FILCH_ESTREAM);
    same(send(fd, "over to you", 11, 0), 11);
    script_ends(&w, &taker);
    assert_string_equal(taker.result[1].bytes, "over to you");
    char got[8] = "";
    same(recv(fd, got, 5, MSG_WAITALL), 5);
    assert_string_equal(got, "taken");
    same(recv(fd, got, 1, 0), 0); /* the stream was closed when the process that owned it ended */
    close(fd);
}) }

TEST(a_given_stream_that_is_never_taken_is_closed){ FOR_WORKER_COUNTS({
    actor never_takes = { .user = NULL };
    actor_start(&w, &never_takes, play_idle);
    script server = SCRIPT(SERVE, DO_GIVE(never_takes.pid));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int  fd = peer_connect(&server);
    char got;
    script_ends(&w, &server);
    UNTIL(&w, recv(fd, &got, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN);
    same(recv(fd, &got, 1, 0), 0);
    close(fd);
    ok(filch_cancel(w.sched, never_takes.pid));
    actor_ends(&w, &never_takes, FILCH_OK);
}) }

TEST(a_stream_that_cannot_be_given_stays_with_its_owner){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_GIVE((filch_pid){ 0, 0 }), DO_GIVE((filch_pid){ 5, 5 }), DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    same(send(fd, "mine", 4, 0), 4);
    script_ends(&w, &server);
    same(server.result[3].error, FILCH_EDEAD);
    same(server.result[4].error, FILCH_EFOREIGN);
    assert_string_equal(server.result[5].bytes, "mine");
    close(fd);
}) }

/* ---- cancelling operations, and processes that end during an operation ---- */

TEST(a_waiting_read_is_cancelled_by_cancel_and_by_close){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ_AND(FILCH_CMD_IO_CANCEL), DO_READ_AND(FILCH_CMD_CLOSE));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    script_ends(&w, &server);
    same(server.result[3].error, FILCH_ECANCELLED);
    same(server.extra[3].number, 1);
    same(server.result[4].error, FILCH_ECANCELLED);
    same(server.extra[4].error, FILCH_OK);
    close(fd);
}) }

TEST(a_second_read_while_one_is_outstanding_is_busy){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_READ_AND(FILCH_CMD_READ));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    int fd = peer_connect(&server);
    UNTIL(&w, fli_load_acq(&server.extra_seen) > 0);
    same(server.extra[3].error, FILCH_EBUSY);
    same(send(fd, "a", 1, 0), 1);
    script_ends(&w, &server);
    assert_string_equal(server.result[3].bytes, "a");
    close(fd);
}) }

TEST(a_process_killed_during_its_io_closes_its_streams){ FOR_WORKER_COUNTS({
    for (uint32_t round = 0; round < fixture_scale(50, 5); round++) {
        script server = SCRIPT(SERVE, DO_READ(0));
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        int fd = peer_connect(&server);
        if (round % 2 == 0) UNTIL(&w, script_stage(&server) == 3);
        same(send(fd, "x", 1, 0), 1);
        (void)!filch_terminate(w.sched, server.actor.pid);
        UNTIL(&w, script_is_over(&server));
        char    got;
        ssize_t n;
        UNTIL(&w, (n = recv(fd, &got, 1, MSG_DONTWAIT)) >= 0 || errno != EAGAIN);
        assert_true(n <= 0);
        close(fd);
    }
}) }

TEST(stop_cancels_processes_that_wait_for_io)
{
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        int before = open_descriptors();
        fixture_begin(&w, worker_counts[each]);
        script server = SCRIPT(SERVE, DO_READ(0));
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        int fd = peer_connect(&server);
        UNTIL(&w, script_stage(&server) == 3);
        fixture_end(&w);
        same(server.actor.exit_error, FILCH_ECANCELLED);
        close(fd);
        same(open_descriptors(), before);
    }
}

/* ---- a stop while a read is outstanding; accepts that fail because no descriptor is free ---- */

static filch_stream last_client;

/* The process connects to itself and reads one end of the connection. On a cancel it writes a byte to the other end;
 * when the read gets the byte, the process ends. */
static filch_err play_last_bytes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    enum { LISTENING = 1, ACCEPTED, CONNECTED, SENT, BYTES };
    if (count == 0) me->note = filch_yield_listen(out, LISTENING, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < count; i++) {
        filch_stream stream = filch_as_stream(&events[i].data);
        char         at[128];
        if (events[i].type == FILCH_EVENT_CANCEL) {
            me->note |= filch_yield_write(out, SENT, last_client, filch_str("x"), FILCH_FOREVER);
        } else if (events[i].tag == LISTENING) {
            me->note |= filch_stream_address(out, stream, FILCH_ADDRESS_LOCAL, at, sizeof at);
            me->note |= filch_yield_accept(out, ACCEPTED, stream, FILCH_FOREVER);
            me->note |= filch_yield_connect(out, CONNECTED, at, NULL);
        } else if (events[i].tag == CONNECTED) {
            last_client = stream;
            me->stage++;
        } else if (events[i].tag == ACCEPTED) {
            me->note |= filch_yield_read(out, BYTES, stream, 0, FILCH_FOREVER);
            me->stage++;
        } else if (events[i].tag == BYTES) {
            me->note |= events[i].error;
            return filch_done(out, filch_none());
        }
    }
    return filch_idle(out);
}

TEST(stop_without_workers_still_polls_streams)
{
    actor a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_last_bytes);
    UNTIL(&w, a.stage == 2);
    fixture_end(&w); /* the bytes arrived during the stop, so the stop kills no process */
    ok(a.note);
    same(a.exit_error, FILCH_OK);
}

TEST(accept_without_free_descriptors_fails_and_does_not_spin)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        (void)getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 64;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(10);
        fixture_begin(&w, 1);
        script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_USE_LISTENER, DO_ACCEPT,
                               DO_USE_LISTENER, DO_ACCEPT, DO_USE_LISTENER, DO_ACCEPT);
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        int fd = peer_connect(&server);
        UNTIL(&w, script_stage(&server) == 4);
        int hoard[64], count = 0, one, second = socket(AF_INET, SOCK_STREAM, 0);
        while ((one = dup(fd)) >= 0) hoard[count++] = one;
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_port = htons(port_of(&server)),
                                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
        uint64_t           began = fli_clock_ns();
        if (connect(second, (struct sockaddr *)&at, sizeof at) != 0) _exit(11);
        /* two accepts have failed, and the listener paused after the first failure */
        UNTIL(&w, script_stage(&server) == 8);
        if (server.result[4].error != FILCH_EFILES || server.result[6].error != FILCH_EFILES) _exit(12);
        if (server.result[4].number != EMFILE) _exit(13);
        if (fli_clock_ns() - began < FILCH_MILLISECONDS(10)) _exit(14);
        if (fixture_stats(&w).steps > 100) _exit(15);
        while (count > 0) close(hoard[--count]);
        UNTIL(&w, script_is_over(&server)); /* there are descriptors again, so the connection is accepted */
        if (server.result[8].error != FILCH_OK) _exit(16);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    same(WEXITSTATUS(status), 0);
}

/* ---- unix sockets ---- */

TEST(unix_sockets_work_like_tcp)
{
    FOR_WORKER_COUNTS({
        char address[64];
        snprintf(address, sizeof address, "unix:@filch-test-%d-%zu", (int)getpid(), each);
        script server = SCRIPT(DO_LISTEN(address), DO_ADDRESS, DO_ACCEPT, DO_UNTIL("\n", 64), DO_WRITE_BACK);
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        assert_string_equal(server.local, address);
        script client = SCRIPT(DO_CONNECT(address), DO_WRITE("by name\n"), DO_READ(0), DO_READ(0));
        script_start(&w, &client);
        script_ends(&w, &client);
        script_ends(&w, &server);
        assert_string_equal(client.result[2].bytes, "by name\n");
        same(client.result[3].error, FILCH_EEND);
        script no_listener = SCRIPT(DO_CONNECT("unix:/nonexistent/filch"), DO_CONNECT(address));
        script_start(&w, &no_listener);
        script_ends(&w, &no_listener);
        same(no_listener.result[0].error, FILCH_ENOFILE);
        same(no_listener.result[1].error, FILCH_EREFUSED);
    })
}

/* ---- a scheduler in the poll loop of its program ---- */

static bool is_readable(int fd)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };
    return poll(&one, 1, 0) == 1;
}

TEST(the_wake_descriptor_is_readable_when_a_stream_is_ready)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    script server = SCRIPT(SERVE, DO_READ(0), DO_TIMEOUT(FILCH_SECONDS(30)), DO_READ(0));
    int    wake = filch_wake_fd(w.sched);
    script_start(&w, &server);
    assert_true(is_readable(wake));
    (void)fixture_tick(&w);
    assert_false(is_readable(wake));
    assert_true(filch_next_timeout(w.sched) == FILCH_FOREVER);
    int fd = peer_connect(&server);
    assert_true(is_readable(wake));
    (void)fixture_tick(&w);
    (void)fixture_tick(&w); /* a second tick, because the poller also reports that the new stream is writable */
    assert_false(is_readable(wake));
    same(send(fd, "hello", 5, 0), 5);
    assert_true(is_readable(wake));
    (void)fixture_tick(&w);
    same(script_stage(&server), 5);
    assert_string_equal(server.result[3].bytes, "hello");
    assert_false(is_readable(wake));
    /* the only timer is the timeout of the outstanding read */
    uint64_t ns = filch_next_timeout(w.sched);
    /* the timeout of 30 s, plus one tick of the timer wheel */
    assert_true(ns > 0 && ns <= FILCH_SECONDS(30) + FILCH_MICROSECONDS(200));
    close(fd);
    assert_true(is_readable(wake));
    script_ends(&w, &server);
    same(server.result[5].error, FILCH_EEND);
    fixture_end(&w);
}

/* ---- an idle scheduler ---- */

TEST(waiting_for_a_connection_uses_no_cpu)
{
    fixture_begin(&w, 2);
    script server = SCRIPT(SERVE, DO_READ(0));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    /* Sentinel timeouts that were set while there was work may still expire. When all of them have expired, the
     * scheduler must make no context switch. */
    bool silent = false;
    for (int i = 0; i < 100 && !silent; i++) {
        filch_stats   before = fixture_stats(&w);
        struct rusage then;
        struct rusage now;
        struct pollfd none = { .fd = -1 };
        getrusage(RUSAGE_SELF, &then);
        (void)poll(&none, 1, 50);
        getrusage(RUSAGE_SELF, &now);
        filch_stats after = fixture_stats(&w);
        silent = after.asleep == 2 && after.sleeps == before.sleeps && now.ru_nvcsw - then.ru_nvcsw <= 1;
    }
    assert_true(silent);
    int fd = peer_connect(&server); /* the connection wakes the idle scheduler at once */
    same(send(fd, "hi", 2, 0), 2);
    script_ends(&w, &server);
    close(fd);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_bytes_are_read_and_the_end_of_the_stream_is_reported),
        cmocka_unit_test(an_empty_write_completes_at_once_and_the_peer_reads_nothing),
        cmocka_unit_test(a_reset_by_the_peer_is_an_error_and_not_a_signal),
        cmocka_unit_test(a_write_completes_only_when_a_slow_reader_has_made_room),
        cmocka_unit_test(connect_without_a_listener_is_refused_and_a_taken_port_is_in_use),
        cmocka_unit_test(a_listener_has_no_peer_and_that_is_no_error),
        cmocka_unit_test(a_listener_that_ended_leaves_its_port_to_the_next),
        cmocka_unit_test(each_kind_of_wait_ends_when_its_time_is_up),
        cmocka_unit_test(bytes_that_came_before_the_time_was_up_are_kept_for_the_next_read),
        cmocka_unit_test(a_connect_without_a_response_times_out_and_leaks_nothing),
        cmocka_unit_test(until_and_exactly_return_the_requested_parts_of_a_stream),
        cmocka_unit_test(bytes_that_arrive_while_read_ahead_bytes_are_left_are_not_lost),
        cmocka_unit_test(a_kept_block_is_not_overwritten_by_later_reads),
        cmocka_unit_test(stream_ids_of_other_processes_and_made_up_ones_are_refused),
        cmocka_unit_test(the_id_of_a_closed_stream_stays_invalid_when_its_slot_is_reused),
        cmocka_unit_test(a_given_stream_belongs_to_the_receiver_alone),
        cmocka_unit_test(a_given_stream_that_is_never_taken_is_closed),
        cmocka_unit_test(a_stream_that_cannot_be_given_stays_with_its_owner),
        cmocka_unit_test(a_waiting_read_is_cancelled_by_cancel_and_by_close),
        cmocka_unit_test(a_second_read_while_one_is_outstanding_is_busy),
        cmocka_unit_test(a_process_killed_during_its_io_closes_its_streams),
        cmocka_unit_test(stop_cancels_processes_that_wait_for_io),
        cmocka_unit_test(unix_sockets_work_like_tcp),
        cmocka_unit_test(the_wake_descriptor_is_readable_when_a_stream_is_ready),
        cmocka_unit_test(waiting_for_a_connection_uses_no_cpu),
        cmocka_unit_test(stop_without_workers_still_polls_streams),
        cmocka_unit_test(accept_without_free_descriptors_fails_and_does_not_spin),
    };
    /* The last test lowers the limit of descriptors. Valgrind itself needs descriptors, so the last test is left out
     * under valgrind. */
    return _cmocka_run_group_tests("io_tcp", tests, COUNT_OF(tests) - (is_under_valgrind() ? 1 : 0), NULL, NULL);
}
