/* desc_test.c - descriptors of any kind: reading, writing, files, signals; calls that are interrupted; and a broken
 * pipe, which must neither end the program nor consume a pending SIGPIPE of other code. */
#include "port/desc.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filch.h>

#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"

INSTEAD(ssize_t, read, (int fd, void *bytes, size_t room), (fd, bytes, room))
INSTEAD(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
INSTEAD(int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
INSTEAD(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *span), (set, info, span))
INSTEAD_CODE(pthread_sigmask, (int how, const sigset_t *set, sigset_t *before), (how, set, before))
INSTEAD_BEGIN(int, open, (const char *path, int flags, ...))
{
    va_list list;
    va_start(list, flags);
    mode_t mode = va_arg(list, mode_t);
    va_end(list);
    return fault_strikes(&fault_of_open) ? -1 : __real_open(path, flags, mode);
}

static bool is_pending(int number)
{
    sigset_t pending;
    ok(sigpending(&pending));
    return sigismember(&pending, number) == 1;
}

static bool is_blocked(int number)
{
    sigset_t now;
    ok(__real_pthread_sigmask(SIG_SETMASK, NULL, &now));
    return sigismember(&now, number) == 1;
}

/* Returns the write end of a pipe without a reader. */
static int broken_pipe(void)
{
    int ends[2];
    ok(pipe2(ends, O_CLOEXEC));
    ok(close(ends[0]));
    return ends[1];
}

TEST(interrupted_reads_and_writes_are_repeated)
{
    int  ends[2];
    char got[8] = "";
    ok(pipe2(ends, O_CLOEXEC));
    refuse(write, 2, EINTR);
    same(fli_desc_write(ends[1], "hello", 5), 5);
    same(refused(write), 2);
    refuse(read, 2, EINTR);
    same(fli_desc_read(ends[0], got, sizeof got), 5);
    same(refused(read), 2);
    assert_string_equal(got, "hello");
    (void)fli_desc_close(ends[0]);
    (void)fli_desc_close(ends[1]);
    same(fli_desc_read(ends[0], got, sizeof got), -EBADF);
    same(fli_desc_write(ends[1], "x", 1), -EBADF);
}

/* A write of 0 bytes returns 0, whatever value errno has before the call. */
TEST(a_write_of_0_bytes_returns_0)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    errno = EIO;
    same(fli_desc_write(fd, "", 0), 0);
    close(fd);
}

TEST(a_write_to_a_broken_pipe_is_an_error_and_no_signal)
{
    int fd = broken_pipe();
    same(fli_desc_write(fd, "x", 1), -EPIPE);
    assert_false(is_pending(SIGPIPE));
    assert_false(is_blocked(SIGPIPE));
    /* The call that consumes the SIGPIPE is interrupted. */
    refuse(sigtimedwait, 2, EINTR);
    same(fli_desc_write(fd, "x", 1), -EPIPE);
    same(refused(sigtimedwait), 2);
    assert_false(is_pending(SIGPIPE));
    /* Simulates a system that returns EPIPE without a SIGPIPE. */
    refuse(write, 1, EPIPE);
    same(fli_desc_write(fd, "x", 1), -EPIPE);
    assert_false(is_blocked(SIGPIPE));
    (void)fli_desc_close(fd);
}

TEST(a_sigpipe_that_was_pending_before_stays_pending)
{
    sigset_t        pipe, before;
    struct timespec none = { .tv_sec = 0 };
    int             fd = broken_pipe();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ok(__real_pthread_sigmask(SIG_BLOCK, &pipe, &before));
    ok(raise(SIGPIPE));
    same(fli_desc_write(fd, "x", 1), -EPIPE);
    assert_true(is_pending(SIGPIPE));
    assert_true(is_blocked(SIGPIPE)); /* the signal mask is as the caller had set it */
    same(__real_sigtimedwait(&pipe, NULL, &none), SIGPIPE);
    ok(__real_pthread_sigmask(SIG_SETMASK, &before, NULL));
    (void)fli_desc_close(fd);
}

TEST(bytes_are_written_also_if_sigpipe_cannot_be_blocked)
{
    int  ends[2];
    char got[4] = "";
    ok(pipe2(ends, O_CLOEXEC));
    refuse(pthread_sigmask, 1, EINVAL);
    same(fli_desc_write(ends[1], "abc", 3), 3);
    same(refused(pthread_sigmask), 1);
    same(fli_desc_read(ends[0], got, sizeof got), 3);
    (void)fli_desc_close(ends[0]);
    (void)fli_desc_close(ends[1]);
}

/* ---- files ---- */

static char path[64];

static void write_all(int fd, const char *text)
{
    assert_true(fd >= 0);
    same(fli_desc_write(fd, text, strlen(text)), (int64_t)strlen(text));
    (void)fli_desc_close(fd);
}

static void file_is(const char *text)
{
    char got[64] = "";
    int  fd = fli_desc_open(path, FILCH_OPEN_READ);
    assert_true(fd >= 0);
    same(fli_desc_read(fd, got, sizeof got - 1), (int64_t)strlen(text));
    assert_string_equal(got, text);
    same(fli_desc_write(fd, "x", 1), -EBADF); /* the file was opened for reading only */
    (void)fli_desc_close(fd);
}

TEST(each_flag_of_open_has_its_documented_effect)
{
    snprintf(path, sizeof path, "/tmp/filch-desc-%d", (int)getpid());
    (void)unlink(path);
    int before = open_descriptors();
    same(fli_desc_open(path, FILCH_OPEN_WRITE), -ENOENT);
    write_all(fli_desc_open(path, FILCH_OPEN_WRITE | FILCH_OPEN_CREATE), "first");
    same(fli_desc_open(path, FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_NEW), -EEXIST);
    file_is("first");
    write_all(fli_desc_open(path, FILCH_OPEN_WRITE | FILCH_OPEN_APPEND), " second");
    file_is("first second");
    write_all(fli_desc_open(path, FILCH_OPEN_WRITE), "FIRST"); /* overwrites the content */
    file_is("FIRST second");
    refuse(open, 2, EINTR);
    write_all(fli_desc_open(path, FILCH_OPEN_WRITE | FILCH_OPEN_EMPTY), "new");
    same(refused(open), 2);
    file_is("new");
    same(open_descriptors(), before);
    ok(unlink(path));
}

TEST(seek_counts_from_the_start_the_position_or_the_end)
{
    char byte;
    snprintf(path, sizeof path, "/tmp/filch-desc-%d", (int)getpid());
    int fd = fli_desc_open(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY);
    assert_true(fd >= 0);
    same(fli_desc_write(fd, "0123456789", 10), 10);
    same(fli_desc_seek(fd, 3, 0), 3);
    same(fli_desc_seek(fd, 2, 1), 5);
    same(fli_desc_read(fd, &byte, 1), 1);
    same(byte, '5');
    same(fli_desc_seek(fd, -1, 2), 9);
    same(fli_desc_seek(fd, -1, 0), -EINVAL);
    (void)fli_desc_close(fd);
    ok(unlink(path));
}

/* ---- signals ---- */

TEST(blocked_signals_are_read_from_the_descriptor)
{
    static const int numbers[] = { SIGUSR1, SIGUSR2 }, nonsense[] = { SIGUSR1, 65 };
    sigset_t         set, mask;
    int              before = open_descriptors();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    ok(__real_pthread_sigmask(SIG_BLOCK, &set, &mask));
    same(fli_desc_signals(nonsense, 2), -EINVAL);
    refuse(signalfd, 1, EMFILE);
    same(fli_desc_signals(numbers, 2), -EMFILE);
    int fd = fli_desc_signals(numbers, 2);
    assert_true(fd >= 0);
    same(fli_desc_read_signal(fd), -EAGAIN);
    ok(raise(SIGUSR2));
    same(fli_desc_read_signal(fd), SIGUSR2);
    same(fli_desc_read_signal(fd), -EAGAIN);
    (void)fli_desc_close(fd);
    ok(__real_pthread_sigmask(SIG_SETMASK, &mask, NULL));
    same(open_descriptors(), before);
}

TEST(a_read_shorter_than_a_signal_is_an_error)
{
    int ends[2];
    ok(pipe2(ends, O_CLOEXEC));
    same(fli_desc_write(ends[1], "?", 1), 1);
    same(fli_desc_read_signal(ends[0]), -EIO);
    (void)fli_desc_close(ends[0]);
    (void)fli_desc_close(ends[1]);
}

TEST(programs_do_not_inherit_an_opened_file)
{
    int fd = fli_desc_open("/dev/null", FILCH_OPEN_READ);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fli_desc_close(fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_do_not_inherit_an_opened_file),
        cmocka_unit_test(interrupted_reads_and_writes_are_repeated),
        cmocka_unit_test(a_write_of_0_bytes_returns_0),
        cmocka_unit_test(a_write_to_a_broken_pipe_is_an_error_and_no_signal),
        cmocka_unit_test(a_sigpipe_that_was_pending_before_stays_pending),
        cmocka_unit_test(bytes_are_written_also_if_sigpipe_cannot_be_blocked),
        cmocka_unit_test(each_flag_of_open_has_its_documented_effect),
        cmocka_unit_test(seek_counts_from_the_start_the_position_or_the_end),
        cmocka_unit_test(blocked_signals_are_read_from_the_descriptor),
        cmocka_unit_test(a_read_shorter_than_a_signal_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
