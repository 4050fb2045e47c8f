/* output_test.c - a reader that does not read never blocks a writer, and every accepted line is written whole. */
#include "port/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "port/clock.h"
#include "support/check.h"
#include "support/descriptors.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8 /* musl 1.2 does not define it */
#endif

static int        ends[2]; /* ends[0] is the reading end */
static fli_output out;

/* If set, the next poll() that finds the pipe full empties the pipe before it returns. */
static bool reads_after_look;

/* If set, the next poll() that finds room in the pipe fills the pipe before it returns, as another program could. */
static bool fills_after_look;
/* If set, each poll() that finds room returns late. */
static atomic_bool looks_slowly;
/* If set, each write may wait, as on a system that does not know RWF_NOWAIT for pipes. */
static bool old_system;

static int fill_pipe(void)
{
    static const char bytes[4096];
    char              path[64];
    int               count = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    while (write(fd, bytes, sizeof bytes) > 0) count++;
    close(fd);
    return count;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number != SYS_pwritev2 || !old_system) return __real_syscall(number, a, b, c, d, e, f);
    errno = EOPNOTSUPP;
    return -1;
}

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
    if (fills_after_look && n == 1 && fds[0].fd == ends[1]) {
        fills_after_look = false;
        (void)fill_pipe();
    }
    if (n == 1 && fds[0].events == POLLOUT && atomic_load(&looks_slowly)) {
        /* long enough for another thread to call poll() too, unless a lock prevents it */
        uint64_t until = fli_clock_ns() + FILCH_MILLISECONDS(50);
        while (fli_clock_ns() < until) sched_yield();
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
    same(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0); /* O_NONBLOCK is not set, because other programs share the file */
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
    assert_true(fli_output_finish(&out, 0)); /* true: the rest of the line was dropped, because the reader is gone */
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

TEST(a_pipe_that_another_program_fills_after_the_look_blocks_no_caller)
{
    struct iovec none = { .iov_base = NULL };
    begin_pipe();
    if (__real_syscall(SYS_pwritev2, ends[1], (long)&none, 1, -1, -1, RWF_NOWAIT) < 0) {
        print_message("not tested: the system knows no RWF_NOWAIT for pipes (Linux before 6.4)\n");
        end();
        return;
    }
    fills_after_look = true;
    alarm(30); /* ends the test if the write waits */
    assert_false(fli_output_write(&out, "x\n", 2));
    alarm(0);
    assert_false(fills_after_look);
    same(fli_output_dropped(&out), 0);
    end();
}

static void *write_page(void *arg)
{
    static char page[4096];
    return fli_output_write(arg, page, sizeof page) ? arg : NULL;
}

TEST(two_outputs_on_one_pipe_never_use_the_same_room)
{
    static char page[4096];
    fli_output  other;
    pthread_t   threads[2];
    void       *taken[2];
    begin_pipe();
    ok(fli_output_init(&other, ends[1]));
    assert_true(fill_pipe() > 1);
    same(read(ends[0], page, sizeof page), sizeof page); /* the pipe has room for one of the two lines now */
    old_system = true;
    looks_slowly = true;
    alarm(30);
    ok(pthread_create(&threads[0], NULL, write_page, &out));
    ok(pthread_create(&threads[1], NULL, write_page, &other));
    for (int i = 0; i < 2; i++) ok(pthread_join(threads[i], &taken[i]));
    alarm(0);
    old_system = false;
    looks_slowly = false;
    same((taken[0] != NULL) + (taken[1] != NULL), 1);
    fli_output_fini(&other);
    end();
}

TEST(a_write_that_may_wait_waits_for_the_reader_and_not_longer_than_allowed)
{
    begin_pipe();
    (void)fill_pipe();
    uint64_t until = fli_clock_ns() + FILCH_MILLISECONDS(30);
    assert_false(fli_output_write_by(&out, "x\n", 2, until));
    assert_true(fli_clock_ns() >= until);
    reads_after_look = true;
    assert_true(fli_output_write_by(&out, "x\n", 2, fli_clock_ns() + FILCH_SECONDS(60)));
    char text[2];
    same(read(ends[0], text, 2), 2);
    same(text[0], 'x');
    end();
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
        cmocka_unit_test(a_pipe_that_another_program_fills_after_the_look_blocks_no_caller),
        cmocka_unit_test(two_outputs_on_one_pipe_never_use_the_same_room),
        cmocka_unit_test(a_write_that_may_wait_waits_for_the_reader_and_not_longer_than_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
