/* output_test.c - a reader that does not read never blocks a writer, and every accepted line is written whole. */
#include "port/output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/clock.h"
#include "support/check.h"
#include "support/descriptors.h"

static int        ends[2]; /* ends[0] is the reading end */
static fli_output out;

/* If set, the next poll() that finds the pipe full empties the pipe before it returns. */
static bool reads_after_look;

int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    static char bytes[1 << 16];
    int         n = __real_poll(fds, count, ms);
    if (reads_after_look && n == 0 && fds[0].fd == ends[1]) {
        struct pollfd more = { .fd = ends[0], .events = POLLIN };
        reads_after_look = false;
        while (__real_poll(&more, 1, 0) > 0 && read(ends[0], bytes, sizeof bytes) > 0) {}
    }
    return n;
}

static void begin_pipe(void)
{
    ok(pipe(ends));
    ok(fli_output_init(&out, ends[1]));
}

static void end(void)
{
    fli_output_fini(&out);
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
}

/* Writes numbered lines until one is refused. Returns the number of accepted lines. */
static int fill(size_t width)
{
    char *line = malloc(width + 1);
    for (int n = 0;; n++) {
        memset(line, '.', width);
        snprintf(line, 16, "%08d", n);
        line[8] = '.';
        line[width - 1] = '\n';
        if (!fli_output_write(&out, line, width)) {
            free(line);
            return n;
        }
    }
}

/* Reads all available bytes and checks that they continue the numbered lines from line `*line`, position `*at`. */
static void read_lines(size_t width, int *line, size_t *at)
{
    static char   bytes[1 << 16];
    struct pollfd ask = { .fd = ends[0], .events = POLLIN };
    while (poll(&ask, 1, 0) > 0) {
        ssize_t n = read(ends[0], bytes, sizeof bytes);
        assert_true(n > 0);
        for (ssize_t i = 0; i < n; i++) {
            char number[16], want = '.';
            snprintf(number, sizeof number, "%08d", *line);
            if (*at < 8) want = number[*at];
            if (*at == width - 1) want = '\n';
            same(bytes[i], want);
            if (++*at == width) *at = 0, ++*line;
        }
    }
}

static void check_full_then_read(size_t width)
{
    int    taken = fill(width), line = 0;
    size_t at = 0;
    assert_true(taken > 0);
    same(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0); /* the flag is not set, because other programs share the file */
    assert_false(fli_output_write(&out, "x\n", 2));
    read_lines(width, &line, &at);
    while (!fli_output_flush(&out)) read_lines(width, &line, &at);
    read_lines(width, &line, &at);
    same(line, taken);
    same(at, 0);
    same(fli_output_dropped(&out), 0);
    assert_true(fli_output_write(&out, "after\n", 6));
    char text[6];
    same(read(ends[0], text, 6), 6);
    assert_memory_equal(text, "after\n", 6);
}

TEST(a_full_pipe_accepts_no_line_and_blocks_no_caller)
{
    begin_pipe();
    check_full_then_read(100);
    end();
}

TEST(a_line_larger_than_a_pipe_is_written_whole_and_in_order)
{
    begin_pipe();
    check_full_then_read(200000);
    end();
}

TEST(a_line_never_overtakes_the_rest_of_the_line_before_it)
{
    char        text[16] = "";
    static char large[70000];
    begin_pipe();
    same(fcntl(ends[1], F_SETPIPE_SZ, 65536), 65536);
    memset(large, '.', sizeof large);
    assert_true(fli_output_write(&out, large, sizeof large));
    reads_after_look = true;
    assert_false(fli_output_write(&out, "next\n", 5));
    assert_false(reads_after_look);
    assert_true(fli_output_write(&out, "next\n", 5));
    static char left[sizeof large];
    same(read(ends[0], left, sizeof left), sizeof large - 65536 + 5);
    same(left[sizeof large - 65536 - 1], '.');
    memcpy(text, left + sizeof large - 65536, 5);
    assert_string_equal(text, "next\n");
    end();
}

TEST(a_full_socket_accepts_no_line_and_keeps_its_flags)
{
    ok(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    ok(fli_output_init(&out, ends[1]));
    check_full_then_read(300);
    end();
}

TEST(a_file_accepts_every_line_at_once)
{
    char name[] = "/tmp/filch-output-XXXXXX";
    int  fd = mkstemp(name);
    ok(fli_output_init(&out, fd));
    for (int i = 0; i < 1000; i++) assert_true(fli_output_write(&out, "a line\n", 7));
    same(lseek(fd, 0, SEEK_END), 7000);
    fli_output_fini(&out);
    close(fd);
    unlink(name);
}

TEST(a_line_that_the_system_refuses_is_dropped_and_counted)
{
    begin_pipe();
    int fd = ends[1];
    close(fd);
    ends[1] = open("/dev/full", O_WRONLY);
    if (ends[1] != fd) {
        dup2(ends[1], fd);
        close(ends[1]);
        ends[1] = fd;
    }
    assert_true(fli_output_write(&out, "lost\n", 5));
    same(fli_output_dropped(&out), 1);
    fli_output_drop(&out);
    same(fli_output_dropped(&out), 2);
    end();
}

static volatile sig_atomic_t raised;

static void on_signal(int number)
{
    (void)number;
    raised = raised + 1;
}

static void check_reader_gone(void)
{
    struct sigaction mine = { .sa_handler = on_signal }, before;
    ok(sigaction(SIGPIPE, &mine, &before));
    (void)fill(100000);
    assert_false(fli_output_is_closed(&out));
    close(ends[0]);
    ends[0] = -1;
    assert_true(fli_output_finish(&out, 0)); /* true: the rest of the line was dropped, as the reader is gone */
    assert_true(fli_output_write(&out, "lost\n", 5));
    assert_true(fli_output_is_closed(&out));
    same(fli_output_dropped(&out), 2);
    ok(sigaction(SIGPIPE, &before, NULL));
    same(raised, 0);
}

TEST(a_write_after_the_reader_has_gone_raises_no_signal)
{
    begin_pipe();
    check_reader_gone();
    end();
    ok(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    ok(fli_output_init(&out, ends[1]));
    check_reader_gone();
    end();
}

TEST(finish_waits_for_a_reader_until_its_deadline)
{
    begin_pipe();
    (void)fill(100000);
    bool left = !fli_output_flush(&out);
    assert_true(left);
    assert_false(fli_output_finish(&out, 0)); /* a time in the past */
    assert_false(fli_output_finish(&out, fli_clock_ns() + 20000000));
    int    line = 0;
    size_t at = 0;
    read_lines(100000, &line, &at);
    read_lines(100000, &line, &at);
    while (!fli_output_flush(&out)) read_lines(100000, &line, &at);
    assert_true(fli_output_finish(&out, 0));
    end();
}

TEST(an_unwritten_rest_is_freed)
{
    int before = open_descriptors();
    begin_pipe();
    (void)fill(100000);
    end();
    same(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pipe_accepts_no_line_and_blocks_no_caller),
        cmocka_unit_test(a_line_larger_than_a_pipe_is_written_whole_and_in_order),
        cmocka_unit_test(a_line_never_overtakes_the_rest_of_the_line_before_it),
        cmocka_unit_test(a_full_socket_accepts_no_line_and_keeps_its_flags),
        cmocka_unit_test(a_file_accepts_every_line_at_once),
        cmocka_unit_test(a_line_that_the_system_refuses_is_dropped_and_counted),
        cmocka_unit_test(a_write_after_the_reader_has_gone_raises_no_signal),
        cmocka_unit_test(finish_waits_for_a_reader_until_its_deadline),
        cmocka_unit_test(an_unwritten_rest_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
