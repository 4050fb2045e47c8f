/* refused_test.c - system calls that fail or are interrupted: each function returns what its header says, and no
 * descriptor is left open. A real system cannot be made to fail in most of these ways. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <filch.h>

#include "port/desc.h"
#include "port/output.h"
#include "port/path.h"
#include "port/regular.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"
#include "support/until.h"

INSTEAD(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
INSTEAD(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size), (fd, level, name, value, size))
INSTEAD(int, epoll_create1, (int flags), (flags))
INSTEAD(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event))
INSTEAD(int, fsync, (int fd), (fd))
INSTEAD(int, fdatasync, (int fd), (fd))
INSTEAD(int, ftruncate, (int fd, off_t size), (fd, size))
INSTEAD(int, fstatat, (int fd, const char *path, struct stat *what, int flags), (fd, path, what, flags))
INSTEAD(ssize_t, read, (int fd, void *bytes, size_t room), (fd, bytes, room))
INSTEAD(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
INSTEAD(ssize_t, send, (int fd, const void *bytes, size_t size, int flags), (fd, bytes, size, flags))
INSTEAD(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *span), (set, info, span))
INSTEAD(int, clock_gettime, (clockid_t clock, struct timespec *time), (clock, time))
INSTEAD_CODE(pthread_sigmask, (int how, const sigset_t *set, sigset_t *before), (how, set, before))
INSTEAD_CODE(pthread_attr_init, (pthread_attr_t * attr), (attr))
INSTEAD_CODE(pthread_attr_getstacksize, (const pthread_attr_t *attr, size_t *size), (attr, size))
INSTEAD_CODE(pthread_getcpuclockid, (pthread_t thread, clockid_t *clock), (thread, clock))

/* Replaces syscall(): pwritev2 acts as on Linux before 6.4, so that outputs use write(). */
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number != SYS_pwritev2) return __real_syscall(number, a, b, c, d, e, f);
    errno = EOPNOTSUPP;
    return -1;
}

/* Replaces close(). The descriptor is closed even if the call is made to fail, as on Linux when a signal interrupts
 * close(). */
INSTEAD_BEGIN(int, close, (int fd))
{
    int result = __real_close(fd);
    return fault_strikes(&fault_of_close) ? -1 : result;
}

INSTEAD_BEGIN(int, open, (const char *path, int flags, ...))
{
    va_list list;
    va_start(list, flags);
    mode_t mode = va_arg(list, mode_t);
    va_end(list);
    return fault_strikes(&fault_of_open) ? -1 : __real_open(path, flags, mode);
}

INSTEAD_BEGIN(int, fcntl, (int fd, int what, ...))
{
    va_list list;
    va_start(list, what);
    long value = va_arg(list, long);
    va_end(list);
    return fault_strikes(&fault_of_fcntl) ? -1 : __real_fcntl(fd, what, value);
}

INSTEAD_BEGIN(void *, malloc, (size_t size))
{
    return fault_strikes(&fault_of_malloc) ? NULL : __real_malloc(size);
}

/* What fstat and readdir return instead of the real value; 0: the real value. */
static mode_t pretended_mode;
static dev_t  pretended_device;
static bool   pretended_unknown;

INSTEAD_BEGIN(int, fstat, (int fd, struct stat *what))
{
    if (fault_strikes(&fault_of_fstat)) return -1;
    int result = __real_fstat(fd, what);
    if (pretended_mode != 0) what->st_mode = pretended_mode | 0600;
    if (pretended_device != 0) what->st_rdev = pretended_device;
    return result;
}

struct dirent *__real_readdir(DIR *folder);
struct dirent *__wrap_readdir(DIR *folder);
struct dirent *__wrap_readdir(DIR *folder)
{
    struct dirent *entry = __real_readdir(folder);
    if (entry != NULL && pretended_unknown) entry->d_type = DT_UNKNOWN;
    return entry;
}

static int pair[2], open_before;

static int open_pipe(void **state)
{
    (void)state;
    pretended_mode = 0;
    pretended_device = 0;
    pretended_unknown = false;
    open_before = open_descriptors();
    return pipe2(pair, O_CLOEXEC);
}

static int close_pipe(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0) (void)__real_close(pair[i]);
    }
    same(open_descriptors(), open_before);
    return 0;
}

/* ---- descriptors ---- */

TEST(an_interrupted_poll_of_a_descriptor_is_repeated)
{
    refuse(poll, 2, EINTR);
    same(fli_desc_poll(pair[1], FILCH_POLL_OUT), FILCH_POLL_OUT);
    same(refused(poll), 2);
    refuse(poll, 1, ENOMEM);
    same(fli_desc_poll(pair[1], FILCH_POLL_OUT), -ENOMEM);
}

TEST(an_interrupted_close_counts_as_closed)
{
    int copy = dup(pair[0]);
    refuse(close, 1, EINTR);
    same(fli_desc_close(copy), 0);
    copy = dup(pair[0]);
    refuse(close, 1, EIO);
    same(fli_desc_close(copy), -EIO);
}

TEST(a_socket_without_readable_options_gets_an_error_or_the_kind_stream)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    refuse(getsockopt, 1, ENOMEM);
    same(fli_desc_kind_of(fd), -ENOMEM);
    refuse_after(getsockopt, 1, 1, ENOPROTOOPT); /* an older system does not know SO_ACCEPTCONN */
    same(fli_desc_kind_of(fd), FLI_DESC_STREAM);
    ok(__real_close(fd));
}

TEST(a_device_counts_as_pollable_if_the_check_fails)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    same(fli_desc_kind_of(fd), FLI_DESC_FILE);
    refuse(epoll_create1, 1, EMFILE);
    same(fli_desc_kind_of(fd), FLI_DESC_PIPE);
    refuse(epoll_ctl, 1, ENOSPC);
    same(fli_desc_kind_of(fd), FLI_DESC_PIPE);
    pretended_mode = S_IFBLK;
    same(fli_desc_kind_of(fd), FLI_DESC_FILE);
    ok(__real_close(fd));
}

TEST(a_copy_whose_flags_cannot_be_set_is_not_left_open)
{
    refuse_after(fcntl, 1, 1, EPERM); /* reading the flags fails */
    same(fli_desc_copy_flagged(pair[0]), -EPERM);
    refuse_after(fcntl, 2, 1, EPERM); /* setting the flags fails */
    same(fli_desc_copy_flagged(pair[0]), -EPERM);
    same(open_descriptors(), open_before + 2);
    same(fli_desc_copy_nonblocking(1000), -EBADF);
}

TEST(a_descriptor_that_cannot_be_reopened_safely_is_duplicated)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    refuse(fstat, 1, EIO);
    int copy = fli_desc_copy_nonblocking(pair[0]);
    assert_true(copy >= 0);
    /* O_NONBLOCK is set for pair[0] too, because the copy is a duplicate: the file was not opened again. */
    assert_true((fcntl(pair[0], F_GETFL) & O_NONBLOCK) != 0);
    ok(__real_close(copy));
    assert_true(terminal >= 0);
    pretended_device = makedev(128, 0); /* the master of a terminal under another device number */
    copy = fli_desc_copy_nonblocking(terminal);
    assert_true(copy >= 0);
    assert_true((fcntl(terminal, F_GETFL) & O_NONBLOCK) != 0);
    ok(__real_close(copy));
    ok(__real_close(terminal));
}

/* ---- output ---- */

TEST(an_interrupted_line_is_accepted_by_the_next_call)
{
    fli_output out;
    char       text[6];
    ok(fli_output_init(&out, pair[1]));
    refuse(write, 1, EINTR);
    assert_false(fli_output_write(&out, "hello\n", 6));
    refuse(write, 1, EAGAIN);
    assert_false(fli_output_write(&out, "hello\n", 6));
    refuse(pthread_sigmask, 1, EINVAL);
    assert_true(fli_output_write(&out, "hello\n", 6));
    same(read(pair[0], text, 6), 6);
    assert_memory_equal(text, "hello\n", 6);
    assert_true(fli_output_write(&out, "", 0));
    same(fli_output_dropped(&out), 0);
    fli_output_fini(&out);
}

TEST(a_line_refused_for_lack_of_buffers_is_accepted_by_the_next_call)
{
    fli_output out;
    int        ends[2];
    char       text[3];
    ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    ok(fli_output_init(&out, ends[1]));
    refuse(send, 1, ENOBUFS);
    assert_false(fli_output_write(&out, "hi\n", 3));
    assert_true(fli_output_write(&out, "hi\n", 3));
    same(read(ends[0], text, 3), 3);
    assert_memory_equal(text, "hi\n", 3);
    fli_output_fini(&out);
    ok(__real_close(ends[0]));
    ok(__real_close(ends[1]));
}

TEST(a_block_device_is_written_without_a_poll)
{
    fli_output out;
    char       text[3];
    pretended_mode = S_IFBLK;
    ok(fli_output_init(&out, pair[1]));
    refuse(poll, 1, EIO); /* poll() must not be called */
    assert_true(fli_output_write(&out, "hi\n", 3));
    same(refused(poll), 0);
    refuse_no_more(poll);
    same(read(pair[0], text, 3), 3);
    fli_output_fini(&out);
}

TEST(output_of_unknown_kind_is_written_as_a_pipe)
{
    fli_output out;
    char       text[3];
    refuse(fstat, 1, EIO);
    ok(fli_output_init(&out, pair[1]));
    assert_true(fli_output_write(&out, "hi\n", 3));
    same(read(pair[0], text, 3), 3);
    fli_output_fini(&out);
}

TEST(a_rest_that_cannot_be_stored_is_dropped_and_counted)
{
    fli_output out;
    char      *line = malloc(300000);
    memset(line, 'x', 300000);
    ok(fli_output_init(&out, pair[1]));
    refuse(malloc, 1, ENOMEM);
    assert_true(fli_output_write(&out, line, 300000)); /* more than a pipe holds */
    same(refused(malloc), 1);
    same(fli_output_dropped(&out), 1);
    assert_true(fli_output_flush(&out)); /* true: no part of the line is stored */
    fli_output_fini(&out);
    free(line);
}

static bool sigpipe_is_pending(void)
{
    sigset_t pending;
    ok(sigpending(&pending));
    return sigismember(&pending, SIGPIPE) == 1;
}

TEST(output_to_a_broken_pipe_consumes_only_its_own_sigpipe)
{
    fli_output      out;
    sigset_t        one, before;
    struct timespec none = { .tv_sec = 0 };
    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    ok(fli_output_init(&out, pair[1]));
    ok(__real_close(pair[0]));
    pair[0] = -1;
    ok(__real_pthread_sigmask(SIG_BLOCK, &one, &before));
    refuse(sigtimedwait, 1, EINTR);
    assert_true(fli_output_write(&out, "lost\n", 5));
    same(refused(sigtimedwait), 1);
    assert_false(sigpipe_is_pending());
    ok(raise(SIGPIPE)); /* a SIGPIPE that no write has caused, blocked by the host program */
    assert_true(fli_output_write(&out, "lost\n", 5));
    assert_true(sigpipe_is_pending());
    same(sigtimedwait(&one, NULL, &none), SIGPIPE);
    ok(__real_pthread_sigmask(SIG_SETMASK, &before, NULL));
    same(fli_output_dropped(&out), 2);
    fli_output_fini(&out);
}

/* ---- files by path ---- */

static char folder[64];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/filch-refused-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    return open_pipe(state);
}

static int remove_folder(void **state)
{
    ok(rmdir(folder));
    return close_pipe(state);
}

static const char *in(const char *name)
{
    static char paths[4][128];
    static int  next;
    char       *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    ok(fclose(file));
}

TEST(an_interrupted_sync_or_truncate_is_repeated)
{
    struct stat what;
    int         fd = open(in("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    refuse(fsync, 1, EINTR);
    same(fli_path_sync(fd, false), 0);
    refuse(fdatasync, 2, EINTR);
    same(fli_path_sync(fd, true), 0);
    same(refused(fdatasync), 2);
    refuse(fsync, 1, EIO);
    same(fli_path_sync(fd, false), -EIO);
    refuse(ftruncate, 1, EINTR);
    same(fli_path_truncate(fd, 77), 0);
    ok(__real_fstat(fd, &what));
    same(what.st_size, 77);
    refuse(ftruncate, 1, EFBIG);
    same(fli_path_truncate(fd, 78), -EFBIG);
    ok(__real_close(fd));
    ok(unlink(in("file")));
}

TEST(a_synced_rename_between_directories_with_equally_long_names_syncs_both)
{
    ok(mkdir(in("a"), 0700));
    ok(mkdir(in("b"), 0700));
    put(in("a/x"), "1");
    refuse_after(fsync, 1, 1, EIO);
    same(fli_path_rename(in("a/x"), in("b/x"), FILCH_RENAME_SYNC), -EIO); /* the second sync fails */
    same(refused(fsync), 1);
    ok(unlink(in("b/x")));
    ok(rmdir(in("a")));
    ok(rmdir(in("b")));
}

TEST(a_path_longer_than_path_max_is_refused_before_the_rename)
{
    char path[5000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 2] = '/';
    path[sizeof path - 1] = '\0';
    path[0] = '/';
    path[sizeof path - 3] = '/';
    path[4500] = '/';
    put(in("x"), "1");
    same(fli_path_rename(in("x"), path, FILCH_RENAME_SYNC), -ENAMETOOLONG);
    ok(unlink(in("x")));
}

/* Lists `folder` and compares the result with `want`. An entry is its kind and its name. */
static int lists(const char *want, size_t want_size)
{
    test_alloc alloc = { 0 };
    fli_mem    mem;
    char      *bytes = NULL;
    size_t     room = 0, size = 0;
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    int why = fli_path_list(&mem, folder, 1000, &bytes, &room, &size);
    if (why == 0) {
        same(size, want_size);
        if (size > 0) assert_memory_equal(bytes, want, size);
        fli_free(&mem, bytes, room);
    }
    test_alloc_balanced(&alloc);
    return why;
}

TEST(entries_of_unknown_kind_are_looked_up_one_by_one)
{
    static const char want[] = "\x02"
                               "dir\0\x01"
                               "file\0\x03"
                               "link";
    same(FILCH_FILE_REGULAR, 1);
    same(FILCH_FILE_DIRECTORY, 2);
    same(FILCH_FILE_LINK, 3);
    ok(mkdir(in("dir"), 0700));
    put(in("file"), "1");
    ok(symlink("file", in("link")));
    pretended_unknown = true;
    same(lists(want, sizeof want), 0);
    refuse(fstatat, 3, ENOENT); /* as if all entries were removed after readdir() returned them */
    same(lists("", 0), 0);
    refuse(fstatat, 1, EACCES);
    same(lists("", 0), -EACCES);
    refuse_no_more(fstatat);
    ok(unlink(in("link")));
    ok(unlink(in("file")));
    ok(rmdir(in("dir")));
}

/* ---- regular files ---- */

static fli_regular reads(const char *path, const char *roots, const char *text)
{
    char       *bytes = NULL;
    size_t      size = 0;
    fli_regular result = fli_regular_read(path, roots, 1000, &bytes, &size);
    if (result == FLI_REGULAR_OK) {
        same(size, strlen(text));
        assert_memory_equal(bytes, text, size);
        free(bytes);
    }
    return result;
}

TEST(an_interrupted_file_read_is_repeated_and_a_failed_one_is_reported)
{
    put(in("code"), "return 1");
    refuse(read, 2, EINTR);
    same(reads(in("code"), NULL, "return 1"), FLI_REGULAR_OK);
    same(refused(read), 2);
    refuse(read, 1, EIO);
    same(reads(in("code"), NULL, ""), FLI_REGULAR_BROKEN);
    refuse(fstat, 1, EIO);
    same(reads(in("code"), NULL, ""), FLI_REGULAR_OTHER);
    refuse(malloc, 1, ENOMEM);
    same(reads(in("code"), NULL, ""), FLI_REGULAR_NO_MEMORY);
    ok(unlink(in("code")));
}

TEST(a_file_larger_than_its_reported_size_is_refused)
{
    /* the system reports a size of 0 bytes for this file */
    same(reads("/proc/self/status", NULL, ""), FLI_REGULAR_BROKEN);
}

TEST(roots_that_are_empty_or_too_long_contain_no_file)
{
    char *roots = malloc(PATH_MAX + 200);
    put(in("code"), "return 1");
    same(reads(in("code"), ";", ""), FLI_REGULAR_OUTSIDE);
    same(reads(in("code"), "", ""), FLI_REGULAR_OUTSIDE);
    memset(roots, 'x', PATH_MAX + 50);
    snprintf(roots + PATH_MAX + 50, 150, ";%s", folder);
    same(reads(in("code"), roots, "return 1"), FLI_REGULAR_OK);
    roots[PATH_MAX + 50] = '\0';
    same(reads(in("code"), roots, ""), FLI_REGULAR_OUTSIDE);
    free(roots);
    ok(unlink(in("code")));
}

/* ---- threads ---- */

static atomic_int runs;

/* Runs until a byte can be read from the pipe. */
static void run(void *arg)
{
    char byte;
    (void)arg;
    atomic_fetch_add(&runs, 1);
    while (__real_read(pair[0], &byte, 1) != 1) {}
    atomic_fetch_sub(&runs, 1);
}

static void start_thread(fli_thread *thread, const char *name)
{
    ok(fli_thread_start(thread, name, run, NULL));
    until(atomic_load(&runs) == 1);
}

static void end_thread(fli_thread *thread)
{
    same(__real_write(pair[1], "x", 1), 1);
    fli_thread_join(thread);
    same(atomic_load(&runs), 0);
}

TEST(a_thread_starts_without_attributes)
{
    fli_thread thread;
    refuse(pthread_attr_init, 1, ENOMEM);
    start_thread(&thread, "test");
    same(refused(pthread_attr_init), 1);
    end_thread(&thread);
    refuse(pthread_attr_getstacksize, 1, EINVAL);
    start_thread(&thread, "test");
    same(refused(pthread_attr_getstacksize), 1);
    end_thread(&thread);
}

TEST(a_thread_whose_state_cannot_be_read_is_unknown)
{
    fli_thread thread;
    uint64_t   used_ns = 77;
    start_thread(&thread, "te) R (st");
    until(fli_thread_look(&thread, &used_ns) == FLI_THREAD_SLEEPS);
    refuse(pthread_getcpuclockid, 1, ESRCH);
    same(fli_thread_look(&thread, &used_ns), FLI_THREAD_UNKNOWN);
    same(used_ns, 0);
    refuse(clock_gettime, 1, EINVAL);
    same(fli_thread_look(&thread, &used_ns), FLI_THREAD_UNKNOWN);
    refuse(open, 1, ENOENT); /* no /proc */
    same(fli_thread_look(&thread, &used_ns), FLI_THREAD_UNKNOWN);
    refuse(read, 1, EIO);
    same(fli_thread_look(&thread, &used_ns), FLI_THREAD_UNKNOWN);
    end_thread(&thread);
}

TEST(an_alarm_that_cannot_be_added_to_the_poller_leaves_nothing_open)
{
    fli_alarmfd alarm;
    refuse_after(epoll_ctl, 1, 1, ENOSPC);
    same(fli_alarmfd_open(&alarm, pair[0]), FILCH_ESYS);
    same(open_descriptors(), open_before + 2);
}

#define WITH_PIPE(test) cmocka_unit_test_setup_teardown(test, open_pipe, close_pipe)
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PIPE(an_interrupted_poll_of_a_descriptor_is_repeated),
        WITH_PIPE(an_interrupted_close_counts_as_closed),
        WITH_PIPE(a_socket_without_readable_options_gets_an_error_or_the_kind_stream),
        WITH_PIPE(a_device_counts_as_pollable_if_the_check_fails),
        WITH_PIPE(a_copy_whose_flags_cannot_be_set_is_not_left_open),
        WITH_PIPE(a_descriptor_that_cannot_be_reopened_safely_is_duplicated),
        WITH_PIPE(an_interrupted_line_is_accepted_by_the_next_call),
        WITH_PIPE(a_line_refused_for_lack_of_buffers_is_accepted_by_the_next_call),
        WITH_PIPE(a_block_device_is_written_without_a_poll),
        WITH_PIPE(output_of_unknown_kind_is_written_as_a_pipe),
        WITH_PIPE(a_rest_that_cannot_be_stored_is_dropped_and_counted),
        WITH_PIPE(output_to_a_broken_pipe_consumes_only_its_own_sigpipe),
        WITH_FOLDER(an_interrupted_sync_or_truncate_is_repeated),
        WITH_FOLDER(a_synced_rename_between_directories_with_equally_long_names_syncs_both),
        WITH_FOLDER(a_path_longer_than_path_max_is_refused_before_the_rename),
        WITH_FOLDER(entries_of_unknown_kind_are_looked_up_one_by_one),
        WITH_FOLDER(an_interrupted_file_read_is_repeated_and_a_failed_one_is_reported),
        WITH_PIPE(a_file_larger_than_its_reported_size_is_refused),
        WITH_FOLDER(roots_that_are_empty_or_too_long_contain_no_file),
        WITH_PIPE(a_thread_starts_without_attributes),
        WITH_PIPE(a_thread_whose_state_cannot_be_read_is_unknown),
        WITH_PIPE(an_alarm_that_cannot_be_added_to_the_poller_leaves_nothing_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
