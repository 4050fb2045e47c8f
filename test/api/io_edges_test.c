/* io_edges_test.c - edge cases of I/O with a correct program and a working system: limits of reads, reads with a
 * timeout whose bytes arrive in pieces, many streams at once, streams without an address or position, results that are
 * too large. Also streams that are given to another process: kept in a message, lost, or taken by a wrong process. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/io_script.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

static void peer_send(int fd, const char *text)
{
    same(send(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

/* Starts the script `server`. Returns the client's end of a connection to it. */
static int serve(script *server)
{
    script_start(&w, server);
    UNTIL(&w, is_ready(server));
    int fd = peer_connect(server);
    UNTIL(&w, script_stage(server) >= 3);
    return fd;
}

/* ---- reading ---- */

TEST(a_read_takes_no_more_than_was_requested){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_PAUSE, DO_READ(2), DO_READ(30), DO_READ(30));
    int    fd = serve(&server);
    peer_send(fd, "ab0123456789012345678901234567890123456789");
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    script_ends(&w, &server);
    assert_string_equal(server.result[4].bytes, "ab");
    assert_string_equal(server.result[5].bytes, "012345678901234567890123456789");
    assert_string_equal(server.result[6].bytes, "0123456789");
    close(fd);
}) }

TEST(a_line_that_is_too_long_is_an_error_even_if_its_end_has_come){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_PAUSE, DO_UNTIL("\n", 5), DO_UNTIL("\n", 9), DO_UNTIL("\n", 4));
    int    fd = serve(&server);
    peer_send(fd, "12345678\nabc\n");
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    script_ends(&w, &server);
    same(server.result[4].error, FILCH_ETOOBIG);
    /* the failed read has left the line in the stream; the limit of 9 bytes includes the newline */
    assert_string_equal(server.result[5].bytes, "12345678\n");
    assert_string_equal(server.result[6].bytes, "abc\n");
    close(fd);
}) }

TEST(bytes_of_a_read_with_a_timeout_may_come_in_pieces){ FOR_WORKER_COUNTS({
    script server = SCRIPT(SERVE, DO_TIMEOUT(FILCH_SECONDS(60)), DO_READ(0), DO_EXACTLY(6), DO_TIMEOUT(0), DO_READ(0));
    int    fd = serve(&server);
    peer_send(fd, "first");
    UNTIL(&w, script_stage(&server) == 5);
    for (int i = 0; i < 3; i++) {
        peer_send(fd, "ab");
        for (int turns = 0; turns < 20; turns++) fixture_turn(&w);
        /* the read still waits, because not all of its bytes have arrived */
        if (i < 2) same(script_stage(&server), 5);
    }
    script_ends(&w, &server);
    assert_string_equal(server.result[5].bytes, "ababab");
    same(server.result[7].error, FILCH_EDEADLINE); /* this read has a timeout of 0, and there are no bytes */
    close(fd);
}) }

TEST(a_hundred_streams_ready_at_once_are_all_served)
{
    enum { MANY = 100 };
    FOR_WORKER_COUNTS({
        static script servers[MANY];
        static int    fds[MANY];
        for (int i = 0; i < MANY; i++) {
            servers[i] = (script)SCRIPT(SERVE, DO_READ(0), DO_WRITE_BACK);
            fds[i] = serve(&servers[i]);
        }
        for (int i = 0; i < MANY; i++) peer_send(fds[i], "one of many, and more than fits into an event");
        for (int i = 0; i < MANY; i++) {
            char got[64] = "";
            script_ends(&w, &servers[i]);
            same(recv(fds[i], got, 45, MSG_WAITALL), 45);
            assert_string_equal(got, "one of many, and more than fits into an event");
            close(fds[i]);
        }
    })
}

/* ---- writing ---- */

static const char *const cat[] = { "cat", NULL };
static char              megabyte[1 << 20];

/* Writes to the child program `cat` and reads its output at the same time. */
static filch_err play_through_cat(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    if (me->stage++ == 0) {
        me->note = filch_yield_run(out, 1, cat, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT);
        return filch_wait(out);
    }
    for (size_t i = 0; i < count; i++) {
        filch_program p;
        me->note |= events[i].error;
        if (events[i].tag == 1) {
            me->note |= filch_as_program(&events[i].data, &p);
            me->note |= filch_yield_write(out, 2, p.input, filch_bytes(megabyte, sizeof megabyte), FILCH_FOREVER);
            me->note |= filch_yield_read_exactly(out, 3, p.output, sizeof megabyte, FILCH_FOREVER);
        }
        if (events[i].tag == 2 && filch_as_int(&events[i].data) != sizeof megabyte) me->note = FILCH_EUSER;
        if (events[i].tag == 3 && memcmp(filch_raw(&events[i].data), megabyte, sizeof megabyte) != 0) {
            me->note = FILCH_EUSER + 1;
        }
    }
    return me->seen_count == 3 ? filch_done(out, filch_none()) : filch_wait(out);
}

TEST(a_megabyte_goes_through_pipes_that_hold_much_less)
{
    for (size_t i = 0; i < sizeof megabyte; i++) megabyte[i] = (char)(i * 31 >> 3);
    FOR_WORKER_COUNTS({
        actor me = { 0 };
        actor_start(&w, &me, play_through_cat);
        actor_ends(&w, &me, FILCH_OK);
        ok(me.note);
    })
}

/* ---- addresses of streams, and operations that are refused ---- */

static filch_err read_address_short(script *s, filch_out *out)
{
    char text[4];
    return filch_stream_address(out, s->stream, FILCH_ADDRESS_LOCAL, text, sizeof text);
}

static filch_err read_address(script *s, filch_out *out)
{
    char text[128];
    return filch_stream_address(out, s->stream, FILCH_ADDRESS_LOCAL, text, sizeof text);
}

static filch_err read_sender(script *s, filch_out *out)
{
    char      text[128] = "x";
    filch_err err = filch_stream_address(out, s->stream, FILCH_ADDRESS_SENDER, text, sizeof text);
    /* FILCH_EUSER: a sender was reported although no datagram has arrived */
    return err == FILCH_OK && text[0] != '\0' ? FILCH_EUSER : err;
}

/* Yields a receive, then asks for the sender of the last datagram. While a receive is outstanding the sender may change
 * at any time. */
static filch_err receive_and_read_sender(script *s, filch_out *out)
{
    filch_err err = filch_yield_receive_from(out, TAG_EXTRA, s->stream, 0, FILCH_FOREVER);
    return err == FILCH_OK ? read_sender(s, out) : err;
}

TEST(the_address_of_a_stream_without_one_is_an_error)
{
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ), DO_CALL(read_address), DO_DATAGRAM("127.0.0.1:0"),
                          DO_CALL(read_address), DO_CALL(read_address_short), DO_CALL(read_sender), DO_CLOSE,
                          DO_CALL(read_address));
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[1].error, FILCH_ESYS);
        ok(s.result[3].error);
        same(s.result[4].error, FILCH_ETOOBIG);
        ok(s.result[5].error);
        same(s.result[7].error, FILCH_ESTREAM);
    })
}

static filch_err play_reads_sender_while_receiving(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    script *s = me->user;
    switch (me->stage++) {
    case 0: me->note = filch_yield_datagram(out, 1, "127.0.0.1:0", NULL); return filch_wait(out);
    case 1:
        s->stream = filch_as_stream(&events[0].data);
        s->result[0].error = receive_and_read_sender(s, out);
        return filch_continue(out);
    case 2: /* the receive of the last step is outstanding */
        s->result[1].error = read_sender(s, out);
        me->note |= filch_yield_io_cancel(out, 2, s->stream);
        return filch_wait(out);
    default:
        for (size_t i = 0; i < count; i++) {
            if (events[i].tag == TAG_EXTRA) note(&s->result[2], &events[i]);
        }
        if (me->seen_count < 3)
            /* one completion has arrived; the process also waits for the other one (of the receive or of its cancel) */
            return filch_wait(out);
        s->result[3].error = read_sender(s, out);
        return filch_done(out, filch_none());
    }
}

TEST(the_sender_of_a_datagram_is_not_available_during_the_next_receive){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_PAUSE);
    s.actor.user = &s;
    actor_start(&w, &s.actor, play_reads_sender_while_receiving);
    actor_ends(&w, &s.actor, FILCH_OK);
    ok(s.actor.note);
    /* the receive was yielded in this step and starts after it, so the sender could still be read */
    ok(s.result[0].error);
    same(s.result[1].error, FILCH_EBUSY);
    same(s.result[2].error, FILCH_ECANCELLED);
    ok(s.result[3].error);
}) }

TEST(arguments_that_only_the_handler_can_check_are_refused){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_LISTEN("nonsense"), DO_CONNECT("127.0.0.1:x"), DO_DATAGRAM("[::1"), DO_SEEK(0, 0), DO_KILL(9),
                      DO_OPEN("/dev/null", FILCH_OPEN_READ), DO_ACCEPT, DO_SEND_TO("127.0.0.1:9", "x"), DO_KILL(9));
    script_start(&w, &s);
    script_ends(&w, &s);
    for (int i = 0; i <= 2; i++) same(s.result[i].error, FILCH_EINVAL);
    for (int i = 3; i <= 4; i++) same(s.result[i].error, FILCH_ESTREAM);
    ok(s.result[5].error);
    for (int i = 6; i <= 8; i++) same(s.result[i].error, FILCH_EINVAL);
}) }

TEST(shutdown_after_a_reset_is_an_error){ FOR_WORKER_COUNTS({
    script        server = SCRIPT(SERVE, DO_READ(0), DO_SHUTDOWN);
    int           fd = serve(&server);
    struct linger now = { .l_onoff = 1 };
    ok(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close(fd);
    script_ends(&w, &server);
    same(server.result[3].error, FILCH_ERESET);
    same(server.result[4].error, FILCH_ERESET);
    same(server.result[4].number, ENOTCONN);
}) }

TEST(a_datagram_to_an_unbound_address_is_refused){ FOR_WORKER_COUNTS({
    char own_address[64];
    snprintf(own_address, sizeof own_address, "unix:@filch-edges-%d-%zu", (int)getpid(), each);
    script s = SCRIPT(DO_DATAGRAM(own_address), DO_SEND_TO("unix:@filch-nobody-is-here", "x"),
                      DO_SEND_TO(own_address, "to myself"), DO_RECEIVE_FROM(0));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[1].error, FILCH_EREFUSED);
    same(s.result[1].number, ECONNREFUSED);
    ok(s.result[2].error);
    assert_string_equal(s.result[3].bytes, "to myself");
    assert_string_equal(s.sender, own_address);
}) }

TEST(a_name_may_be_a_host_or_a_service_alone){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_RESOLVE("127.0.0.1", NULL), DO_RESOLVE(NULL, "80"));
    script_start(&w, &s);
    script_ends(&w, &s);
    assert_string_equal(s.result[0].bytes, "127.0.0.1:0");
    ok(s.result[1].error);
    assert_non_null(strstr(s.result[1].bytes, ":80"));
}) }

TEST(a_datagram_over_payload_max_completes_with_an_error)
{
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.payload_max = 80;
        fixture_begin_with(&w, worker_counts[each], opt);
        script s = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS, DO_RECEIVE_FROM(0), DO_RECEIVE_FROM(0));
        script_start(&w, &s);
        UNTIL(&w, is_ready(&s));
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_addr = { htonl(INADDR_LOOPBACK) },
                                  .sin_port = htons((uint16_t)atoi(strrchr(s.local, ':') + 1)) };
        int                fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        char               large[200];
        memset(large, 'x', sizeof large);
        same(sendto(fd, large, sizeof large, 0, (struct sockaddr *)&at, sizeof at), sizeof large);
        same(sendto(fd, large, 80, 0, (struct sockaddr *)&at, sizeof at), 80);
        script_ends(&w, &s);
        same(s.result[2].error, FILCH_ETOOBIG);
        ok(s.result[3].error);
        same(s.result[3].size, 80);
        close(fd);
        fixture_end(&w);
    }
}

/* ---- files without a position ---- */

TEST(bytes_read_ahead_from_a_fifo_are_not_lost_and_do_not_block_writes)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/filch-edges-%d", (int)getpid());
    FOR_WORKER_COUNTS({
        (void)unlink(path);
        ok(mkfifo(path, 0600));
        script s = SCRIPT(DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE), DO_WRITE("question\nanswer\n"),
                          DO_UNTIL("\n", 99), DO_SEEK(0, 0), DO_WRITE("and another\n"), DO_UNTIL("\n", 99),
                          DO_UNTIL("\n", 99));
        script_start(&w, &s);
        script_ends(&w, &s);
        assert_string_equal(s.result[2].bytes, "question\n");
        same(s.result[3].error, FILCH_ESYS);
        same(s.result[3].number, ESPIPE);
        ok(s.result[4].error);
        assert_string_equal(s.result[5].bytes, "answer\n");
        assert_string_equal(s.result[6].bytes, "and another\n");
    })
    ok(unlink(path));
}

/* The FIFO has no writer, so the first read stays outstanding. */
TEST(a_file_that_is_being_read_is_busy_and_can_be_cancelled)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/filch-edges-%d", (int)getpid());
    FOR_WORKER_COUNTS({
        (void)unlink(path);
        ok(mkfifo(path, 0600));
        script s = SCRIPT(DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE), DO_READ_AND(FILCH_CMD_READ),
                          DO_READ_AND(FILCH_CMD_IO_CANCEL));
        script_start(&w, &s);
        UNTIL(&w, fli_load_acq(&s.extra_seen) == 1);
        same(s.extra[1].error, FILCH_EBUSY);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs("one", file) >= 0);
        ok(fflush(file));
        UNTIL(&w, fli_load_acq(&s.extra_seen) == 2);
        ok(s.extra[2].error);
        same(s.extra[2].number, 1);
        script_ends(&w, &s); /* the process ends although a thread of the pool is still inside the read */
        assert_string_equal(s.result[1].bytes, "one");
        same(s.result[2].error, FILCH_ECANCELLED);
        assert_true(fputs("two", file) >= 0);
        ok(fclose(file));
    })
    ok(unlink(path));
}

/* ---- streams that are in a message to another process ---- */

/* A process that keeps a message with a stream, but does not take the stream. It ends when it is cancelled. */
typedef struct keeper {
    actor            actor;
    filch_data       stream_message;
    FLI_ATOMIC(bool) has_kept;
} keeper;

static filch_err play_keeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    keeper *k = me->user;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        me->note = filch_keep(&events[i].data, &k->stream_message);
        fli_store_rel(&k->has_kept, true);
    }
    return filch_idle(out);
}

static void keeper_start(fixture *in, keeper *k)
{
    *k = (keeper){ .actor = { .user = k } };
    actor_start(in, &k->actor, play_keeps);
}

static void keeper_ends(fixture *in, keeper *k)
{
    UNTIL(in, fli_load_acq(&k->has_kept));
    ok(k->actor.note);
    ok(filch_cancel(in->sched, k->actor.pid));
    actor_ends(in, &k->actor, FILCH_OK);
}

/* Calls filch_stream_take() with the message that `user` points to, whatever it contains. */
static filch_err play_takes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_stream stream;
    (void)events, (void)count;
    me->note = filch_stream_take(out, me->user, &stream);
    return filch_done(out, filch_none());
}

static filch_err take(fixture *in, const filch_data *stream_message)
{
    actor me = { .user = (void *)(uintptr_t)stream_message };
    actor_start(in, &me, play_takes);
    actor_ends(in, &me, FILCH_OK);
    return me.note;
}

TEST(a_stream_message_that_outlives_its_scheduler_holds_nothing)
{
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        keeper  keepers[2];
        int     fds[2], before = open_descriptors();
        char    got;
        fixture later;
        fixture_begin(&w, worker_counts[each]);
        for (int i = 0; i < 2; i++) {
            keeper_start(&w, &keepers[i]);
            script server = SCRIPT(SERVE, DO_GIVE(keepers[i].actor.pid));
            fds[i] = serve(&server);
            script_ends(&w, &server);
            keeper_ends(&w, &keepers[i]);
        }
        /* the stream in keepers[1] has not been taken before, so this take succeeds */
        ok(take(&w, &keepers[1].stream_message));
        ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
        for (int i = 0; i < 2; i++) {
            same(recv(fds[i], &got, 1, 0), 0); /* the stream was closed when the scheduler stopped */
            close(fds[i]);
        }
        same(open_descriptors(), before);
        fixture_begin(&later, FILCH_NO_WORKERS);
        same(take(&later, &keepers[0].stream_message), FILCH_EFOREIGN);
        fixture_end(&later);
        for (int i = 0; i < 2; i++) filch_drop(&keepers[i].stream_message);
        same(fli_load_rlx(&w.blocks), 0);
        same(fli_load_rlx(&w.bytes), 0);
    }
}

TEST(only_a_stream_message_of_the_same_scheduler_can_be_taken)
{
    fixture    other;
    keeper     k;
    filch_data block = filch_none(), text = filch_str("a text that is longer than what fits into an event");
    char       got;
    ok(filch_keep(&text, &block));
    fixture_begin(&w, FILCH_NO_WORKERS);
    fixture_begin(&other, FILCH_NO_WORKERS);
    keeper_start(&w, &k);
    script server = SCRIPT(SERVE, DO_GIVE(k.actor.pid));
    int    fd = serve(&server);
    script_ends(&w, &server);
    keeper_ends(&w, &k);
    same(take(&w, &block), FILCH_EINVAL);
    same(take(&other, &k.stream_message), FILCH_EFOREIGN);
    ok(take(&w, &k.stream_message));
    same(recv(fd, &got, 1, 0), 0); /* the stream was closed when the process that took it ended */
    close(fd);
    same(take(&w, &k.stream_message), FILCH_ESTREAM);
    filch_drop(&k.stream_message);
    filch_drop(&block);
    fixture_end(&other);
    fixture_end(&w);
}

static filch_err give_closed(script *s, filch_out *out)
{
    return filch_stream_give(out, (filch_stream){ s->stream.id + 1 }, s->lines[0].pid);
}

static filch_err give(script *s, filch_out *out)
{
    return filch_stream_give(out, s->stream, s->lines[0].pid);
}

/* The process of play_gives_while_it_is_busy() makes its stream busy, with a receive of a datagram that never comes or
 * with a write to a program that does not read, and then tries to give the stream away. */
static const char *const sleeps[] = { "sleep", "1000", NULL };
static char              lots[1 << 20];

static filch_err play_gives_while_it_is_busy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    script *s = me->user;
    (void)count;
    switch (me->stage++) {
    case 0:
        me->note = s->lines[0].number != 0 ? filch_yield_run(out, 1, sleeps, FILCH_RUN_INPUT)
                                           : filch_yield_datagram(out, 1, "127.0.0.1:0", NULL);
        return filch_wait(out);
    case 1:
        s->stream = filch_as_stream(&events[0].data);
        if (s->lines[0].number != 0) {
            me->note |= filch_as_program(&events[0].data, &s->program);
            s->stream = s->program.input;
            me->note |= filch_yield_write(out, 2, s->stream, filch_bytes(lots, sizeof lots), FILCH_FOREVER);
        } else {
            me->note |= filch_yield_receive_from(out, 2, s->stream, 0, FILCH_FOREVER);
        }
        return filch_continue(out);
    case 2:
        s->result[0].error = give(s, out);
        me->note |= filch_yield_io_cancel(out, 3, s->stream);
        return filch_wait(out);
    default:
        if (me->seen_count < 3)
            /* one completion has arrived; the process also waits for the other one (of the operation or of its
             * cancel) */
            return filch_wait(out);
        s->result[1].error = give(s, out);
        return filch_done(out, filch_none());
    }
}

TEST(a_stream_with_an_outstanding_operation_is_busy_and_can_be_given_later)
{
    FOR_WORKER_COUNTS({
        for (uint64_t writes = 0; writes <= 1; writes++) {
            keeper k;
            keeper_start(&w, &k);
            script s = SCRIPT({ .what = PAUSE, .pid = k.actor.pid, .number = writes });
            s.actor.user = &s;
            actor_start(&w, &s.actor, play_gives_while_it_is_busy);
            actor_ends(&w, &s.actor, FILCH_OK);
            ok(s.actor.note);
            same(s.result[0].error, FILCH_EBUSY);
            ok(s.result[1].error);
            keeper_ends(&w, &k);
            filch_drop(&k.stream_message);
        }
    })
}

/* The process waits for a yield that is not completed, so messages to it stay in its mailbox. */
static filch_err play_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    me->note = filch_yield_sleep(out, 1, FILCH_SECONDS(3600));
    return filch_wait(out);
}

TEST(a_stream_refused_by_a_full_mailbox_stays_with_its_owner)
{
    FOR_WORKER_COUNTS({
        filch_spawn_options small = FILCH_SPAWN_OPTIONS_INIT;
        actor               full = { 0 };
        small.mailbox_max = 1;
        small.overflow = FILCH_OVERFLOW_FAIL;
        actor_start_with(&w, &full, play_waits, small);
        UNTIL(&w, fixture_inspect(&w, full.pid).state == FILCH_STATE_BLOCKED);
        while (filch_send(w.sched, full.pid, filch_none()) == FILCH_OK) {}
        script server = SCRIPT({ .what = LISTEN, .text = "127.0.0.1:0", .pid = full.pid }, DO_ADDRESS, DO_ACCEPT,
                               DO_CALL(give_closed), DO_CALL(give), DO_READ(0));
        int    fd = serve(&server);
        peer_send(fd, "still mine");
        script_ends(&w, &server);
        same(server.result[3].error, FILCH_ESTREAM);
        same(server.result[4].error, FILCH_EFULL);
        assert_string_equal(server.result[5].bytes, "still mine");
        close(fd);
        ok(filch_cancel(w.sched, full.pid));
        actor_ends(&w, &full, FILCH_OK);
    })
}

/* ---- writes that are outstanding when the process that yielded them ends ---- */

static struct {
    filch_out *out; /* `out` of an earlier step, kept although that is not allowed */
    uint32_t   freed;
    filch_err  yielded;
} unwritten;

static void free_and_yield(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    unwritten.freed++;
    unwritten.yielded = filch_yield_sleep(unwritten.out, 9, 0);
}

/* The process listens, connects to itself, and writes more than the socket buffers hold. No process reads the bytes. */
static filch_err play_writes_lots(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const size_t size = (size_t)8 << 20;
    unwritten.out = out;
    if (count > 0) me->note |= events[0].error;
    switch (me->stage++) {
    case 0: me->note |= filch_yield_listen(out, 1, me->user, NULL); break;
    case 1: me->note |= filch_yield_connect(out, 2, me->user, NULL); break;
    case 2:
        me->note |= filch_yield_write(out, 3, filch_as_stream(&events[0].data),
                                      filch_move(calloc(1, size), size, free_and_yield), FILCH_FOREVER);
        break;
    }
    return filch_idle(out);
}

TEST(a_write_of_a_killed_process_is_freed_and_its_free_calls_have_no_effect)
{
    char name[64];
    snprintf(name, sizeof name, "unix:@filch_unwritten_%ld", (long)getpid());
    actor writer = { .user = name }, bystander = { 0 };
    memset(&unwritten, 0, sizeof unwritten);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &writer, play_writes_lots);
    UNTIL(&w, writer.stage >= 3);
    ok(writer.note);
    same(unwritten.freed, 0);
    ok(filch_terminate(w.sched, writer.pid));
    actor_ends(&w, &writer, FILCH_EKILLED);
    same(unwritten.freed, 1);
    same(unwritten.yielded, FILCH_ESTATE);
    actor_start(&w, &bystander, play_idle);
    fixture_tick(&w);
    same(bystander.seen_count, 0);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_takes_no_more_than_was_requested),
        cmocka_unit_test(a_line_that_is_too_long_is_an_error_even_if_its_end_has_come),
        cmocka_unit_test(bytes_of_a_read_with_a_timeout_may_come_in_pieces),
        cmocka_unit_test(a_hundred_streams_ready_at_once_are_all_served),
        cmocka_unit_test(a_megabyte_goes_through_pipes_that_hold_much_less),
        cmocka_unit_test(the_address_of_a_stream_without_one_is_an_error),
        cmocka_unit_test(the_sender_of_a_datagram_is_not_available_during_the_next_receive),
        cmocka_unit_test(arguments_that_only_the_handler_can_check_are_refused),
        cmocka_unit_test(shutdown_after_a_reset_is_an_error),
        cmocka_unit_test(a_datagram_to_an_unbound_address_is_refused),
        cmocka_unit_test(a_name_may_be_a_host_or_a_service_alone),
        cmocka_unit_test(a_datagram_over_payload_max_completes_with_an_error),
        cmocka_unit_test(bytes_read_ahead_from_a_fifo_are_not_lost_and_do_not_block_writes),
        cmocka_unit_test(a_file_that_is_being_read_is_busy_and_can_be_cancelled),
        cmocka_unit_test(a_stream_message_that_outlives_its_scheduler_holds_nothing),
        cmocka_unit_test(only_a_stream_message_of_the_same_scheduler_can_be_taken),
        cmocka_unit_test(a_stream_with_an_outstanding_operation_is_busy_and_can_be_given_later),
        cmocka_unit_test(a_stream_refused_by_a_full_mailbox_stays_with_its_owner),
        cmocka_unit_test(a_write_of_a_killed_process_is_freed_and_its_free_calls_have_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
