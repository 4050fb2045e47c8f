/* adopt_test.c - fli_desc_poll() is correct whatever value errno has before the call, and copies of descriptors do
 * not block. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filch.h>

#include "port/desc.h"
#include "support/check.h"

static int pair[2];

static int open_pipe(void **state)
{
    (void)state;
    return pipe2(pair, O_CLOEXEC);
}

static int close_pipe(void **state)
{
    (void)state;
    (void)close(pair[0]);
    if (pair[1] >= 0) (void)close(pair[1]);
    return 0;
}

TEST(desc_poll_returns_what_a_pipe_is_ready_for)
{
    errno = EINTR; /* fli_desc_poll() must not take this old errno for an error of its own */
    same(fli_desc_poll(pair[0], FILCH_POLL_IN), 0);
    same(fli_desc_poll(pair[0], FILCH_POLL_OUT), 0);
    same(fli_desc_poll(pair[1], FILCH_POLL_IN), 0);
    same(fli_desc_poll(pair[1], FILCH_POLL_OUT), FILCH_POLL_OUT);
    same(fli_desc_poll(pair[1], FILCH_POLL_IN | FILCH_POLL_OUT), FILCH_POLL_OUT);
    same(write(pair[1], "x", 1), 1);
    same(fli_desc_poll(pair[0], FILCH_POLL_IN | FILCH_POLL_OUT), FILCH_POLL_IN);
    same(fli_desc_poll(pair[0], FILCH_POLL_OUT), 0); /* pair[0] is readable, but the call asks for OUT only */
    (void)close(pair[1]);
    pair[1] = -1;
    same(fli_desc_poll(pair[0], FILCH_POLL_IN), FILCH_POLL_IN | FILCH_POLL_HANGUP);
    same(fli_desc_poll(-1, FILCH_POLL_IN), 0); /* poll() ignores negative descriptors */
    same(fli_desc_poll(1000, FILCH_POLL_IN), -EBADF);
}

TEST(a_pipe_without_a_reader_is_polled_as_an_error)
{
    (void)close(pair[0]);
    same(fli_desc_poll(pair[1], FILCH_POLL_OUT) & FILCH_POLL_ERROR, FILCH_POLL_ERROR);
    pair[0] = pair[1];
    pair[1] = -1;
}

/* O_RDONLY is 0, so the flags of the reading end are 0 before the call. */
TEST(a_copy_does_not_block_and_neither_does_the_original)
{
    for (int i = 0; i < 2; i++) {
        int copy = fli_desc_copy_flagged(pair[i]);
        assert_true(copy >= 0);
        assert_true((fcntl(copy, F_GETFL) & O_NONBLOCK) != 0 && (fcntl(pair[i], F_GETFL) & O_NONBLOCK) != 0);
        assert_true((fcntl(copy, F_GETFD) & FD_CLOEXEC) != 0);
        (void)close(copy);
        copy = fli_desc_copy_flagged(pair[i]); /* succeeds also if O_NONBLOCK is set already */
        assert_true(copy >= 0);
        (void)close(copy);
    }
    same(fli_desc_copy_flagged(1000), -EBADF);
}

TEST(the_kind_of_each_descriptor_is_recognized)
{
    int sockets[2], listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int folder = open("/", O_RDONLY | O_CLOEXEC);
    ok(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets));
    same(fli_desc_kind_of(pair[0]), FLI_DESC_PIPE);
    same(fli_desc_kind_of(folder), FLI_DESC_FILE);
    same(fli_desc_kind_of(sockets[0]), FLI_DESC_DATAGRAM);
    same(fli_desc_kind_of(1000), -EBADF);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    (void)close(listener);
    (void)close(file);
    (void)close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_pipe, close_pipe)
        T(desc_poll_returns_what_a_pipe_is_ready_for),
        T(a_pipe_without_a_reader_is_polled_as_an_error),
        T(a_copy_does_not_block_and_neither_does_the_original),
        T(the_kind_of_each_descriptor_is_recognized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
