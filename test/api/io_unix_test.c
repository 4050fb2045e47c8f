/* io_unix_test.c - unix sockets with peers that pass descriptors: a read ends after each passed descriptor, and Filch
 * closes all passed descriptors. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/io_script.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 2 };

/* The ways in which a process gets its stream. */
enum stream_origin { ACCEPTED, ACCEPTED_OF_ADOPTED, CONNECTED, ADOPTED, STREAM_ORIGINS };

static bool waits(script *s, uint32_t stage)
{
    return script_stage(s) == stage && fixture_inspect(&w, s->actor.pid).state == FILCH_STATE_IDLE;
}

/* Returns a socket on which `attach` (bind or connect) was called with the address `text`, "unix:@NAME". */
static int open_unix(const char *text, int (*attach)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t             size = strlen(text + strlen("unix:@"));
    int                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path + 1, text + strlen("unix:@"), size);
    ok(attach(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + size)));
    return fd;
}

/* Sends `words` and passes the only writing end of a pipe with them. Returns the reading end of the pipe. */
static int send_with_pipe(int fd, const char *words)
{
    union {
        struct cmsghdr head;
        char           room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec  from = { .iov_base = (void *)(uintptr_t)words, .iov_len = strlen(words) };
    struct msghdr message = {
        .msg_iov = &from, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    int ends[2];
    ok(pipe(ends));
    control.head =
        (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.head), &ends[1], sizeof(int));
    same(sendmsg(fd, &message, MSG_NOSIGNAL), strlen(words));
    ok(close(ends[1]));
    return ends[0];
}

static void send_text(int fd, const char *words)
{
    same(send(fd, words, strlen(words), MSG_NOSIGNAL), strlen(words));
}

/* Fails if the writing end of the pipe still exists: the passed descriptor would have leaked. */
static void is_gone(int reading)
{
    struct pollfd look = { .fd = reading, .events = POLLIN };
    same(poll(&look, 1, 0), 1);
    same(look.revents, POLLHUP);
    ok(close(reading));
}

/* Starts the script; its first two lines open the stream. Returns the other end of the stream. */
static int start(script *s, enum stream_origin stream_origin, const char *name)
{
    int listener = -1, pair[2] = { -1, -1 }, peer = -1;
    if (stream_origin == ACCEPTED_OF_ADOPTED || stream_origin == CONNECTED) {
        listener = open_unix(name, bind);
        ok(listen(listener, 1));
    }
    if (stream_origin == ADOPTED) ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    const line first[] = { [ACCEPTED] = DO_LISTEN(name),
                           [ACCEPTED_OF_ADOPTED] = DO_ADOPT(listener, 0),
                           [CONNECTED] = DO_CONNECT(name),
                           [ADOPTED] = DO_ADOPT(pair[0], 0) };
    const line accept_one = DO_ACCEPT, nothing = DO_TIMEOUT(FILCH_FOREVER);
    s->lines[0] = first[stream_origin];
    s->lines[1] = stream_origin == ACCEPTED || stream_origin == ACCEPTED_OF_ADOPTED ? accept_one : nothing;
    script_start(&w, s);
    if (stream_origin == ADOPTED) return pair[1];
    if (stream_origin == CONNECTED) {
        UNTIL(&w, waits(s, 2));
        peer = accept(listener, NULL, NULL);
        ok(close(listener));
        return peer;
    }
    UNTIL(&w, waits(s, 1));
    return open_unix(name, connect);
}

TEST(bytes_after_a_passed_descriptor_are_read_and_the_descriptor_is_closed)
{
    for (enum stream_origin stream_origin = 0; stream_origin < STREAM_ORIGINS; stream_origin++) {
        FOR_WORKER_COUNTS({
            char name[64];
            snprintf(name, sizeof name, "unix:@filch-passed-%d-%d-%zu", (int)getpid(), (int)stream_origin, each);
            script s =
                SCRIPT(DO_PAUSE, DO_PAUSE, DO_PAUSE, DO_READ(0), DO_UNTIL("\n", 99), DO_EXACTLY(5), DO_EXACTLY(2));
            int peer = start(&s, stream_origin, name);
            int first = send_with_pipe(peer, "one");
            send_text(peer, "t");
            int second = send_with_pipe(peer, "wo\n");
            send_text(peer, "th");
            int third = send_with_pipe(peer, "ree");
            send_text(peer, "45");
            /* The poller reports all bytes before the first read, so no report comes during the reads. */
            UNTIL(&w, waits(&s, 2));
            for (int i = 0; i < 20; i++) fixture_turn(&w);
            ok(filch_send(w.sched, s.actor.pid, filch_none()));
            script_ends(&w, &s);
            assert_string_equal(s.result[3].bytes, "one");
            assert_string_equal(s.result[4].bytes, "two\n");
            assert_string_equal(s.result[5].bytes, "three");
            assert_string_equal(s.result[6].bytes, "45");
            is_gone(first);
            is_gone(second);
            is_gone(third);
            ok(close(peer));
        })
    }
}

TEST(a_descriptor_that_is_not_read_is_closed_with_the_stream)
{
    FOR_WORKER_COUNTS({
        char name[64];
        snprintf(name, sizeof name, "unix:@filch-unread-%d-%zu", (int)getpid(), each);
        script s = SCRIPT(DO_PAUSE, DO_PAUSE, DO_PAUSE);
        int    peer = start(&s, ACCEPTED, name);
        int    passed = send_with_pipe(peer, "one");
        UNTIL(&w, waits(&s, 2));
        ok(filch_send(w.sched, s.actor.pid, filch_none()));
        script_ends(&w, &s);
        is_gone(passed);
        ok(close(peer));
    })
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_after_a_passed_descriptor_are_read_and_the_descriptor_is_closed),
        cmocka_unit_test(a_descriptor_that_is_not_read_is_closed_with_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
