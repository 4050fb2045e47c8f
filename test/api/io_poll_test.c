/* io_poll_test.c - descriptors that Filch did not open: processes wait until a descriptor is ready, several for one
 * descriptor, with deadlines and cancels. Also descriptors that are closed or reused while a process waits, and streams
 * made from open descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/io_script.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 2 };

static void make_pipe(int ends[2])
{
    ok(pipe2(ends, O_CLOEXEC));
}

static void make_pair(int ends[2])
{
    ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
}

static void close_both(const int ends[2])
{
    ok(close(ends[0]));
    ok(close(ends[1]));
}

/* Writes to `fd` until its buffer is full. */
static void fill(int fd)
{
    char    bytes[4096] = { 0 };
    ssize_t n;
    do n = send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n > 0);
    same(errno, EAGAIN);
}

static void read_all(int fd)
{
    char    bytes[4096];
    ssize_t n;
    do n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (n > 0);
}

/* Returns true if the script is at line `stage` and its process is idle. */
static bool waits(script *s, uint32_t stage)
{
    return script_stage(s) == stage && fixture_inspect(&w, s->actor.pid).state == FILCH_STATE_IDLE;
}

/* ---- waiting for one descriptor ---- */

TEST(a_poll_completes_when_its_descriptor_becomes_readable)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[2];
        make_pipe(ends);
        script s = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN), DO_POLL(ends[0], FILCH_POLL_IN));
        script_start(&w, &s);
        UNTIL(&w, waits(&s, 0));
        same(write(ends[1], "x", 1), 1);
        script_ends(&w, &s);
        ok(s.result[0].error);
        same(s.result[0].number, FILCH_POLL_IN);
        ok(s.result[1].error); /* the first poll read no byte, so the descriptor is still readable */
        same(s.result[1].number, FILCH_POLL_IN);
        close_both(ends);
    })
    same(open_descriptors(), before);
}

TEST(a_poll_of_a_ready_descriptor_completes_at_once){ FOR_WORKER_COUNTS({
    int  ends[2];
    char path[] = "/tmp/filch-io-poll-XXXXXX";
    int  file = mkstemp(path);
    make_pair(ends);
    script s = SCRIPT(DO_TIMEOUT(0), DO_POLL(ends[0], FILCH_POLL_IN), DO_POLL(ends[0], FILCH_POLL_OUT),
                      DO_POLL(ends[0], FILCH_POLL_IN | FILCH_POLL_OUT), DO_TIMEOUT(FILCH_FOREVER),
                      DO_POLL(ends[0], FILCH_POLL_IN | FILCH_POLL_OUT), DO_POLL(file, FILCH_POLL_IN | FILCH_POLL_OUT));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[1].error, FILCH_EDEADLINE);
    same(s.result[2].number, FILCH_POLL_OUT);
    same(s.result[3].number, FILCH_POLL_OUT);
    same(s.result[5].number, FILCH_POLL_OUT);
    same(s.result[6].number, FILCH_POLL_IN | FILCH_POLL_OUT); /* regular files are always readable and writable */
    close_both(ends);
    close(file);
    ok(unlink(path));
}) }

TEST(a_poll_has_a_deadline_and_refuses_bad_descriptors)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[2];
        make_pipe(ends);
        script s =
            SCRIPT(DO_TIMEOUT(FILCH_MILLISECONDS(2)), DO_POLL(ends[0], FILCH_POLL_IN), DO_POLL(99999, FILCH_POLL_IN),
                   DO_POLL(-1, FILCH_POLL_IN), DO_POLL(ends[0], 0), DO_POLL(ends[0], 4), DO_ADOPT(99999, 0),
                   DO_ADOPT(-1, 0), DO_ADOPT(ends[0], 2), DO_POLL_CANCEL(-1), DO_POLL_CANCEL(ends[0]));
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[1].error, FILCH_EDEADLINE);
        same(s.result[2].error, FILCH_EDESC);
        same(s.result[2].number, EBADF);
        for (int i = 3; i <= 5; i++) same(s.result[i].error, FILCH_EINVAL);
        same(s.result[6].error, FILCH_EDESC);
        same(s.result[7].error, FILCH_EINVAL);
        same(s.result[8].error, FILCH_EINVAL);
        same(s.result[9].error, FILCH_EINVAL);
        ok(s.result[10].error); /* the cancel completes without an error although no poll is outstanding */
        same(s.result[10].number, 0);
        close_both(ends);
    })
    same(open_descriptors(), before);
}

TEST(hangup_and_error_are_reported_whatever_was_requested){ FOR_WORKER_COUNTS({
    int ends[2];
    int other[2];
    make_pipe(ends);
    make_pipe(other);
    script reads = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
    script_start(&w, &reads);
    UNTIL(&w, waits(&reads, 0));
    ok(close(ends[1]));
    script_ends(&w, &reads);
    same(reads.result[0].number, FILCH_POLL_HANGUP);
    ok(close(other[0]));
    script writes = SCRIPT(DO_POLL(other[1], FILCH_POLL_IN));
    script_start(&w, &writes);
    script_ends(&w, &writes);
    same(writes.result[0].number, FILCH_POLL_ERROR);
    close(ends[0]);
    close(other[1]);
}) }

TEST(a_completed_poll_holds_no_descriptor){ FOR_WORKER_COUNTS({
    int ends[2];
    make_pipe(ends);
    script s = SCRIPT(DO_TIMEOUT(FILCH_MILLISECONDS(1)), DO_POLL(ends[0], FILCH_POLL_IN), DO_PAUSE,
                      DO_TIMEOUT(FILCH_FOREVER), DO_POLL(ends[0], FILCH_POLL_IN), DO_PAUSE);
    script_start(&w, &s);
    UNTIL(&w, waits(&s, 2)); /* the script has made a poll, so the poller exists */
    int before = open_descriptors();
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    UNTIL(&w, waits(&s, 4));
    same(open_descriptors(), before + 1);
    same(write(ends[1], "x", 1), 1);
    UNTIL(&w, waits(&s, 5));
    same(open_descriptors(), before); /* the poll has closed its own descriptor although its process lives on */
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    script_ends(&w, &s);
    close_both(ends);
}) }

/* ---- several polls of one descriptor ---- */

TEST(several_polls_of_one_descriptor_each_get_the_requested_events)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[2];
        make_pair(ends);
        fill(ends[0]);
        script  in = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
        script  out = SCRIPT(DO_POLL(ends[0], FILCH_POLL_OUT));
        script  both = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN | FILCH_POLL_OUT), DO_PAUSE);
        script  in_too = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
        script *all[] = { &in, &out, &both, &in_too };
        for (size_t i = 0; i < 4; i++) script_start(&w, all[i]);
        for (size_t i = 0; i < 4; i++) UNTIL(&w, waits(all[i], 0));
        read_all(ends[1]);
        script_ends(&w, &out);
        same(out.result[0].number, FILCH_POLL_OUT);
        UNTIL(&w, script_stage(&both) == 1);
        same(both.result[0].number, FILCH_POLL_OUT);
        same(script_stage(&in), 0);
        same(send(ends[1], "x", 1, 0), 1);
        script_ends(&w, &in);
        script_ends(&w, &in_too);
        same(in.result[0].number, FILCH_POLL_IN);
        same(in_too.result[0].number, FILCH_POLL_IN);
        ok(filch_send(w.sched, both.actor.pid, filch_none()));
        script_ends(&w, &both);
        close_both(ends);
    })
    same(open_descriptors(), before);
}

enum { POLLS = 150 };

/* Makes POLLS polls of one descriptor and one poll of another descriptor, cancels the polls of the first descriptor,
 * and counts the completions. */
static filch_err play_cancels(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const int     *ends = me->user;
    static int64_t cancelled, counted;
    if (me->steps == 1) {
        cancelled = counted = 0;
        for (int i = 0; i < POLLS; i++) me->note |= filch_yield_poll(out, 1, ends[0], FILCH_POLL_IN, FILCH_FOREVER);
        me->note |= filch_yield_poll(out, 3, ends[2], FILCH_POLL_IN, FILCH_FOREVER);
        me->note |= filch_yield_poll_cancel(out, 2, ends[0]);
        return filch_idle(out);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].tag == 1 && events[i].error == FILCH_ECANCELLED) cancelled++;
        else if (events[i].tag == 2) counted = filch_as_int(&events[i].data);
        else if (events[i].tag == 3) me->stage = events[i].error == FILCH_OK ? 1 : 2;
        else me->note = FILCH_EUSER;
    }
    if (cancelled == POLLS && counted == POLLS && me->stage == 0)
        me->note |= write(ends[3], "x", 1) == 1 ? FILCH_OK : FILCH_EUSER;
    return me->stage != 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(a_cancel_ends_all_polls_of_one_descriptor_and_no_others)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[4];
        make_pipe(ends);
        make_pipe(ends + 2);
        actor a = { .user = ends };
        actor_start(&w, &a, play_cancels);
        actor_ends(&w, &a, FILCH_OK);
        ok(a.note);
        same(a.stage, 1);
        close_both(ends);
        close_both(ends + 2);
    })
    same(open_descriptors(), before);
}

TEST(a_process_that_ends_during_a_poll_leaks_nothing)
{
    int before = open_descriptors();
    int ends[2];
    make_pipe(ends);
    script stays; /* script of a process that does not end before the scheduler stops */
    FOR_WORKER_COUNTS({
        script killed = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
        stays = (script)SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
        script_start(&w, &killed);
        script_start(&w, &stays);
        UNTIL(&w, waits(&killed, 0) && waits(&stays, 0));
        ok(filch_terminate(w.sched, killed.actor.pid));
        script_ends(&w, &killed);
    })
    close_both(ends);
    same(open_descriptors(), before);
}

/* ---- closed and reused descriptors ---- */

TEST(a_poll_stays_with_its_file_when_the_descriptor_number_is_reused){ FOR_WORKER_COUNTS({
    int ends[2];
    int other[2];
    make_pipe(ends);
    make_pipe(other);
    int    number = ends[0];
    script s = SCRIPT(DO_POLL(number, FILCH_POLL_IN), DO_POLL(number, FILCH_POLL_IN));
    script_start(&w, &s);
    UNTIL(&w, waits(&s, 0));
    /* dup3() closes the descriptor `number` and reuses the number at once */
    same(dup3(other[0], number, O_CLOEXEC), number);
    same(write(other[1], "x", 1), 1);
    for (int i = 0; i < 20; i++) fixture_turn(&w);
    same(script_stage(&s), 0);
    same(write(ends[1], "x", 1), 1);
    script_ends(&w, &s);
    same(s.result[0].number, FILCH_POLL_IN); /* completion of the poll that was made before dup3() */
    same(s.result[1].number, FILCH_POLL_IN); /* completion of the poll that was made after dup3() */
    close(number);
    close(ends[1]);
    close_both(other);
}) }

TEST(the_wake_descriptor_is_readable_when_a_polled_descriptor_is)
{
    int ends[2];
    make_pipe(ends);
    fixture_begin(&w, FILCH_NO_WORKERS);
    script s = SCRIPT(DO_POLL(ends[0], FILCH_POLL_IN));
    script_start(&w, &s);
    (void)fixture_tick(&w);
    (void)fixture_tick(&w);
    struct pollfd wake = { .fd = filch_wake_fd(w.sched), .events = POLLIN };
    same(poll(&wake, 1, 0), 0);
    same(write(ends[1], "x", 1), 1);
    same(poll(&wake, 1, 10000), 1);
    script_ends(&w, &s);
    same(s.result[0].number, FILCH_POLL_IN);
    fixture_end(&w);
    close_both(ends);
}

/* ---- adopting ---- */

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool blocks(int fd)
{
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

TEST(a_connected_socket_becomes_a_stream_and_is_closed_with_it)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[2];
        make_pair(ends);
        script s = SCRIPT(DO_ADOPT(ends[0], 0), DO_UNTIL("\n", 99), DO_WRITE("an answer"), DO_READ(0), DO_CLOSE);
        script_start(&w, &s);
        UNTIL(&w, waits(&s, 1));
        assert_false(is_open(ends[0])); /* the stream has a descriptor of its own, and ends[0] was closed */
        assert_true(blocks(ends[1]));
        char bytes[16] = "";
        same(send(ends[1], "a question\n", 11, 0), 11);
        UNTIL(&w, script_stage(&s) == 3);
        same(recv(ends[1], bytes, sizeof bytes, 0), 9);
        assert_string_equal(bytes, "an answer");
        ok(shutdown(ends[1], SHUT_WR));
        script_ends(&w, &s);
        assert_string_equal(s.result[1].bytes, "a question\n");
        same(s.result[3].error, FILCH_EEND);
        ok(close(ends[1]));
    })
    same(open_descriptors(), before);
}

TEST(a_pipe_adopted_with_keep_is_read_and_its_flags_are_restored)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        int ends[2];
        make_pipe(ends);
        script s = SCRIPT(DO_ADOPT(ends[0], FILCH_ADOPT_KEEP), DO_UNTIL("\n", 99), DO_CLOSE,
                          DO_ADOPT(ends[1], FILCH_ADOPT_KEEP), DO_WRITE("to ourselves"), DO_CLOSE);
        script_start(&w, &s);
        UNTIL(&w, waits(&s, 1));
        /* the pipe stays blocking: other programs may share the open file, as a shell shares its standard input */
        assert_true(blocks(ends[0]));
        same(write(ends[1], "a line\n", 7), 7);
        script_ends(&w, &s);
        assert_string_equal(s.result[1].bytes, "a line\n");
        same(s.result[4].number, 12);
        assert_true(is_open(ends[0]) && blocks(ends[0]) && is_open(ends[1]) && blocks(ends[1]));
        close_both(ends);
    })
    same(open_descriptors(), before);
}

TEST(a_descriptor_that_did_not_block_before_does_not_block_afterwards){ FOR_WORKER_COUNTS({
    int ends[2];
    int pair[2];
    ok(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
    script s = SCRIPT(DO_ADOPT(ends[0], FILCH_ADOPT_KEEP), DO_CLOSE, DO_ADOPT(pair[0], FILCH_ADOPT_KEEP), DO_CLOSE);
    script_start(&w, &s);
    script_ends(&w, &s);
    for (int i = 0; i < 4; i++) ok(s.result[i].error);
    assert_false(blocks(ends[0]));
    assert_false(blocks(pair[0]));
    close_both(ends);
    close_both(pair);
}) }

TEST(a_file_that_cannot_be_reopened_is_made_non_blocking_and_stays_so){ FOR_WORKER_COUNTS({
    int      counter = eventfd(0, EFD_CLOEXEC);
    uint64_t three = 3;
    script   s = SCRIPT(DO_ADOPT(counter, FILCH_ADOPT_KEEP), DO_READ(0), DO_PAUSE, DO_CLOSE);
    script_start(&w, &s);
    UNTIL(&w, waits(&s, 1));
    assert_false(blocks(counter));
    same(write(counter, &three, sizeof three), sizeof three);
    UNTIL(&w, waits(&s, 2));
    same(s.result[1].size, sizeof three);
    same(s.result[1].bytes[0], 3);
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    script_ends(&w, &s);
    /* the descriptor stays non-blocking after the close, because another stream may use the file */
    assert_true(is_open(counter) && !blocks(counter));
    close(counter);
}) }

/* Closing a stream must not make the shared file blocking again: the read or accept of the other stream would block its
 * worker. */
TEST(closing_one_of_two_streams_of_a_file_leaves_the_other_non_blocking){ FOR_WORKER_COUNTS({
    int counter = eventfd(0, EFD_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok(listen(listener, 4));
    const int both[] = { counter, listener };
    for (int i = 0; i < 2; i++) {
        script first = SCRIPT(DO_ADOPT(both[i], FILCH_ADOPT_KEEP), DO_PAUSE, DO_CLOSE);
        script second = SCRIPT(DO_ADOPT(both[i], FILCH_ADOPT_KEEP), DO_PAUSE, DO_TIMEOUT(0), DO_READ(0), DO_ACCEPT);
        script_start(&w, &first);
        UNTIL(&w, waits(&first, 1));
        script_start(&w, &second);
        UNTIL(&w, waits(&second, 1));
        ok(filch_send(w.sched, first.actor.pid, filch_none()));
        script_ends(&w, &first);
        assert_false(blocks(both[i]));
        ok(filch_send(w.sched, second.actor.pid, filch_none()));
        script_ends(&w, &second);
        same(second.result[i == 0 ? 3 : 4].error, FILCH_EDEADLINE);
        ok(close(both[i]));
    }
}) }

TEST(adopting_a_terminal_master_does_not_open_another_terminal){ FOR_WORKER_COUNTS({
    char name[64];
    int  master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    ok(grantpt(master));
    ok(unlockpt(master));
    ok(ptsname_r(master, name, sizeof name));
    int    terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    script s = SCRIPT(DO_ADOPT(master, 0), DO_UNTIL("\n", 99));
    script_start(&w, &s);
    UNTIL(&w, waits(&s, 1));
    same(write(terminal, "hello\n", 6), 6);
    script_ends(&w, &s);
    ok(s.result[1].error);
    assert_memory_equal(s.result[1].bytes, "hello", 5);
    close(terminal);
}) }

/* All packets have arrived before the first read, and none arrives later. */
TEST(packets_and_terminal_lines_are_all_read_although_each_ends_a_read){ FOR_WORKER_COUNTS({
    int  ends[2];
    char name[64];
    int  master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    ok(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    ok(unlockpt(master));
    ok(ptsname_r(master, name, sizeof name));
    int terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    same(write(master, "one\ntwo\n", 8), 8);
    same(send(ends[1], "one\n", 4, 0), 4);
    same(send(ends[1], "two\n", 4, 0), 4);
    /* The pause lets the poller report all bytes before the first read, so no report comes during the second read. */
    script s = SCRIPT(DO_ADOPT(terminal, 0), DO_PAUSE, DO_READ(0), DO_READ(0), DO_ADOPT(ends[0], 0), DO_PAUSE,
                      DO_READ(0), DO_READ(0));
    script_start(&w, &s);
    for (uint32_t stage = 1; stage <= 5; stage += 4) {
        UNTIL(&w, waits(&s, stage));
        for (int i = 0; i < 20; i++) fixture_turn(&w);
        ok(filch_send(w.sched, s.actor.pid, filch_none()));
    }
    script_ends(&w, &s);
    for (int i = 2; i <= 6; i += 4) {
        assert_string_equal(s.result[i].bytes, "one\n");
        assert_string_equal(s.result[i + 1].bytes, "two\n");
    }
    close(master);
    close(ends[1]);
}) }

TEST(bytes_after_an_urgent_byte_are_read){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_PAUSE, DO_READ(0), DO_READ(0));
    script_start(&w, &s);
    UNTIL(&w, is_ready(&s));
    int fd = peer_connect(&s);
    same(send(fd, "abc", 3, 0), 3);
    same(send(fd, "!", 1, MSG_OOB), 1);
    same(send(fd, "defgh", 5, 0), 5);
    UNTIL(&w, waits(&s, 3));
    for (int i = 0; i < 20; i++) fixture_turn(&w);
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    script_ends(&w, &s);
    assert_string_equal(s.result[4].bytes, "abc");
    assert_string_equal(s.result[5].bytes, "defgh");
    close(fd);
}) }

TEST(files_devices_and_listeners_become_streams_of_their_kind)
{
    FOR_WORKER_COUNTS({
        char               path[] = "/tmp/filch-io-adopt-XXXXXX";
        int                file = mkstemp(path), null = open("/dev/null", O_RDWR | O_CLOEXEC);
        int                listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int                datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in any_port = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        ok(bind(listener, (struct sockaddr *)&any_port, sizeof any_port));
        ok(listen(listener, 4));
        ok(bind(datagrams, (struct sockaddr *)&any_port, sizeof any_port));
        script s = SCRIPT(DO_ADOPT(file, 0), DO_WRITE("in a file"), DO_SEEK(3, 0), DO_READ(0), DO_ADOPT(null, 0),
                          DO_READ(0), DO_WRITE("x"), DO_ADOPT(datagrams, 0), DO_TIMEOUT(0), DO_RECEIVE_FROM(0),
                          DO_TIMEOUT(FILCH_FOREVER), DO_ADOPT(listener, 0), DO_ADDRESS, DO_ACCEPT, DO_READ(0));
        script_start(&w, &s);
        UNTIL(&w, is_ready(&s));
        int fd = peer_connect(&s);
        same(send(fd, "hello", 5, 0), 5);
        script_ends(&w, &s);
        same(s.result[2].number, 3);
        assert_string_equal(s.result[3].bytes, "a file");
        ok(s.result[0].error);
        ok(s.result[4].error);
        ok(s.result[7].error);
        ok(s.result[11].error);
        same(s.result[5].error, FILCH_EEND);
        same(s.result[6].number, 1);
        same(s.result[9].error, FILCH_EDEADLINE);
        assert_string_equal(s.result[14].bytes, "hello");
        close(fd);
        ok(unlink(path));
    })
}

/* ---- in a simulation ---- */

static filch_err step_simulated(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count > 0) return events[0].error != FILCH_OK ? events[0].error : filch_done(out, events[0].data);
    filch_err err = filch_yield_poll(out, 1, 42, FILCH_POLL_OUT, FILCH_SECONDS(1));
    return err == FILCH_OK ? filch_wait(out) : err;
}

static const filch_type simulated = { .name = "simulated", .step = step_simulated };

static filch_err scenario(filch_sched *sched, void *user)
{
    (void)user;
    return filch_spawn(sched, &simulated, NULL, NULL);
}

static filch_err own_poll(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    filch_io_request request = { .size = sizeof request };
    filch_err        err = filch_io_read(command, &request);
    bool             right = err == FILCH_OK && request.number == 42 && request.how == FILCH_POLL_OUT &&
                 request.timeout_ns == FILCH_SECONDS(1);
    *(int *)user += right;
    return filch_complete(receiver, tag, filch_int(FILCH_POLL_OUT), right ? FILCH_OK : FILCH_EUSER);
}

TEST(a_simulation_refuses_polls_and_accepts_a_users_handler)
{
    int               handler_calls = 0;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    ok(filch_sim_run(NULL, scenario, NULL, &report));
    same(report.verdict, FILCH_SIM_REFUSED);
    filch_sim_report_free(&report);
    ok(filch_registry_create(&sched.registry));
    ok(filch_registry_remove(sched.registry, FILCH_CMD_POLL));
    ok(filch_registry_add(sched.registry, FILCH_CMD_POLL, own_poll, &handler_calls));
    opt.sched = &sched;
    report = (filch_sim_report)FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(&opt, scenario, NULL, &report));
    same(report.verdict, FILCH_SIM_OK);
    same(handler_calls, 1);
    filch_sim_report_free(&report);
    filch_registry_destroy(sched.registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poll_completes_when_its_descriptor_becomes_readable),
        cmocka_unit_test(a_poll_of_a_ready_descriptor_completes_at_once),
        cmocka_unit_test(a_poll_has_a_deadline_and_refuses_bad_descriptors),
        cmocka_unit_test(hangup_and_error_are_reported_whatever_was_requested),
        cmocka_unit_test(a_completed_poll_holds_no_descriptor),
        cmocka_unit_test(several_polls_of_one_descriptor_each_get_the_requested_events),
        cmocka_unit_test(a_cancel_ends_all_polls_of_one_descriptor_and_no_others),
        cmocka_unit_test(a_process_that_ends_during_a_poll_leaks_nothing),
        cmocka_unit_test(a_poll_stays_with_its_file_when_the_descriptor_number_is_reused),
        cmocka_unit_test(the_wake_descriptor_is_readable_when_a_polled_descriptor_is),
        cmocka_unit_test(a_connected_socket_becomes_a_stream_and_is_closed_with_it),
        cmocka_unit_test(a_pipe_adopted_with_keep_is_read_and_its_flags_are_restored),
        cmocka_unit_test(a_descriptor_that_did_not_block_before_does_not_block_afterwards),
        cmocka_unit_test(a_file_that_cannot_be_reopened_is_made_non_blocking_and_stays_so),
        cmocka_unit_test(closing_one_of_two_streams_of_a_file_leaves_the_other_non_blocking),
        cmocka_unit_test(adopting_a_terminal_master_does_not_open_another_terminal),
        cmocka_unit_test(packets_and_terminal_lines_are_all_read_although_each_ends_a_read),
        cmocka_unit_test(bytes_after_an_urgent_byte_are_read),
        cmocka_unit_test(files_devices_and_listeners_become_streams_of_their_kind),
        cmocka_unit_test(a_simulation_refuses_polls_and_accepts_a_users_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
