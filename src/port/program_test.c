/* program_test.c - starts other programs, reads their status, kills and reaps them; also with system calls that fail,
 * in a host without standard descriptors, and in a host that reaps its children itself. */
#include "port/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filch.h>

#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"
#include "support/until.h"

INSTEAD(int, pipe2, (int ends[2], int flags), (ends, flags))
INSTEAD(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int how), (type, id, info, how))
/* Set if the C library can close all descriptors of a child from a given number on. */
#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#define HAS_CLOSEFROM __GLIBC_PREREQ(2, 34)
#else
#define HAS_CLOSEFROM 0
#endif

INSTEAD_CODE(posix_spawn_file_actions_init, (posix_spawn_file_actions_t * actions), (actions))
INSTEAD_CODE(posix_spawn_file_actions_addopen,
             (posix_spawn_file_actions_t * actions, int fd, const char *path, int how, mode_t mode),
             (actions, fd, path, how, mode))
INSTEAD_CODE(posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t * actions, int from, int to),
             (actions, from, to))
INSTEAD_CODE(posix_spawnattr_init, (posix_spawnattr_t * attr), (attr))
INSTEAD_CODE(posix_spawnattr_setsigmask, (posix_spawnattr_t * attr, const sigset_t *set), (attr, set))
INSTEAD_CODE(posix_spawnattr_setflags, (posix_spawnattr_t * attr, short flags), (attr, flags))
#if HAS_CLOSEFROM
INSTEAD_CODE(posix_spawn_file_actions_addclosefrom_np, (posix_spawn_file_actions_t * actions, int from),
             (actions, from))
#endif
INSTEAD_BEGIN(int, fcntl, (int fd, int what, ...))
{
    va_list list;
    va_start(list, what);
    int with = va_arg(list, int);
    va_end(list);
    return fault_strikes(&fault_of_fcntl) ? -1 : __real_fcntl(fd, what, with);
}
INSTEAD_BEGIN(long, syscall, (long number, ...))
{
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long);
    va_end(list);
    return fault_strikes(&fault_of_syscall) ? -1 : __real_syscall(number, a, b, c, d);
}

static char *const cat[] = { "cat", NULL }, *const ends_with_3[] = { "sh", "-c", "exit 3", NULL },
                   *const sleeps[] = { "sleep", "1000", NULL }, *const no_such[] = { "no-such-program-anywhere", NULL };

enum { ALL = FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS };

static int start(char *const *argv, uint32_t flags, fli_program *out)
{
    return fli_program_start(&(fli_program_plan){ .argv = argv, .flags = flags }, out);
}

static void close_all(const fli_program *program)
{
    const int all[] = { program->fd, program->input, program->output, program->errors };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] >= 0) ok(close(all[i]));
    }
}

static int32_t status_of(const fli_program *program)
{
    int32_t status = 0;
    until(fli_program_status(program->pid, program->fd, &status) != 0);
    same(fli_program_status(program->pid, program->fd, &status), 1); /* the status can be read again */
    return status;
}

/* Checks that bytes written to `cat` come back. */
static void check_cat(const fli_program *program)
{
    char    got[8] = "";
    ssize_t n = -1;
    same(write(program->input, "meow", 4), 4);
    until((n = read(program->output, got, sizeof got)) >= 0 || errno != EAGAIN);
    same(n, 4);
    assert_string_equal(got, "meow");
}

TEST(a_program_is_started_used_and_reaped)
{
    fli_program program;
    int32_t     status;
    int         before = open_descriptors();
    ok(start(cat, ALL, &program));
    same(fli_program_status(program.pid, -1, &status), 0);
    check_cat(&program);
    close_all(&program);
    same(status_of(&program), 0);
    assert_true(fli_program_reap(program.pid, true, false));
    same(fli_program_status(program.pid, -1, &status), -ECHILD);
    ok(start(ends_with_3, 0, &program));
    same(status_of(&program), 3);
    refuse(waitid, 2, EINTR);
    same(status_of(&program), 3);
    same(refused(waitid), 2);
    refuse(waitid, 2, EINTR);
    assert_true(fli_program_reap(program.pid, true, false));
    same(refused(waitid), 2);
    close_all(&program);
    if (is_under_valgrind() || emulator() != NULL) {
        ok(start(no_such, ALL, &program));
        assert_true(status_of(&program) != 0);
        assert_true(fli_program_reap(program.pid, true, false));
        close_all(&program);
    } else {
        same(start(no_such, ALL, &program), -ENOENT);
    }
    same(open_descriptors(), before);
}

TEST(a_running_program_is_killed_before_it_is_reaped)
{
    fli_program program;
    ok(start(sleeps, 0, &program));
    same(fli_program_kill(program.pid, program.fd, 65), -EINVAL);
    ok(fli_program_kill(program.pid, program.fd, SIGTERM));
    same(status_of(&program), -SIGTERM);
    assert_true(fli_program_reap(program.pid, true, false));
    close_all(&program);
    ok(start(sleeps, 0, &program));
    refuse_after(waitid, 1, 2, EINTR); /* the wait for the program's death is interrupted */
    assert_true(fli_program_reap(program.pid, true, true));
    same(refused(waitid), 2);
    same(kill((pid_t)program.pid, 0), -1);
    same(errno, ESRCH);
    close_all(&program);
    ok(start(sleeps, 0, &program));
    until(fli_program_reap(program.pid, true, false)); /* the program takes a moment to die */
    same(kill((pid_t)program.pid, 0), -1);
    close_all(&program);
}

TEST(a_program_that_the_host_has_reaped_counts_as_gone)
{
    fli_program program;
    int32_t     status;
    ok(start(ends_with_3, 0, &program));
    same(waitpid((pid_t)program.pid, NULL, 0), program.pid);
    same(fli_program_status(program.pid, -1, &status), -ECHILD);
    same(fli_program_kill(program.pid, program.fd, SIGTERM), -ESRCH);
    assert_true(fli_program_reap(program.pid, true, true));
    close_all(&program);
    /* The program disappears between the kill and the wait, as in a host program that ignores SIGCHLD. */
    ok(start(sleeps, 0, &program));
    refuse_after(waitid, 1, 1, ECHILD);
    assert_true(fli_program_reap(program.pid, true, true));
    same(refused(waitid), 1);
    assert_true(fli_program_reap(program.pid, true, true));
    close_all(&program);
}

TEST(a_program_works_without_a_pidfd)
{
    fli_program program;
    refuse(syscall, 1, ENOSYS); /* older systems have no pidfd */
    ok(start(ends_with_3, 0, &program));
    same(refused(syscall), 1);
    same(program.fd, -1);
    same(status_of(&program), 3);
    assert_true(fli_program_reap(program.pid, true, false));
}

/* Makes each call of `name` fail in turn, until none fails and the program starts. */
#define SWEEP(name, least)                                              \
    do {                                                                \
        int nth = 0;                                                    \
        for (bool struck = true; struck; nth++) {                       \
            refuse_after(name, nth, 1, ENFILE);                         \
            int why = start(cat, ALL, &program);                        \
            struck = refused(name) > 0;                                 \
            refuse_no_more(name);                                       \
            same(why, struck ? -ENFILE : 0);                            \
            if (!struck) {                                              \
                check_cat(&program);                                    \
                close_all(&program);                                    \
                assert_true(fli_program_reap(program.pid, true, true)); \
            }                                                           \
            same(open_descriptors(), before);                           \
        }                                                               \
        assert_true(nth > (least));                                     \
    } while (0)

TEST(a_failed_step_of_the_start_is_an_error_and_leaks_nothing)
{
    fli_program program;
    int         before = open_descriptors();
    SWEEP(pipe2, 3);
    SWEEP(fcntl, 3);
    SWEEP(posix_spawn_file_actions_init, 1);
    SWEEP(posix_spawnattr_init, 1);
    SWEEP(posix_spawnattr_setsigmask, 1);
    SWEEP(posix_spawnattr_setflags, 1);
    SWEEP(posix_spawn_file_actions_adddup2, 3);
#if HAS_CLOSEFROM
    SWEEP(posix_spawn_file_actions_addclosefrom_np, 1);
#endif
    refuse(posix_spawn_file_actions_addopen, 1, ENOMEM);
    same(start(ends_with_3, FILCH_RUN_OUTPUT | FILCH_RUN_MERGE, &program), -ENOMEM);
    same(open_descriptors(), before);
}

/* The host program has closed the descriptors 0, 1 and 2, so its pipes get those numbers. */
TEST(pipes_work_if_the_host_has_no_standard_descriptors)
{
    fli_program program;
    int         aside[3], why = 0, before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        aside[i] = __real_fcntl(i, F_DUPFD_CLOEXEC, 10);
        (void)close(i);
    }
    /* Runs without a pidfd, because a pidfd may get a number below 3, and `open_there` would count it. */
    refuse(syscall, 1, ENOSYS);
    why = start(cat, ALL, &program);
    bool low = why == 0 && (program.input <= 2 || program.output <= 2 || program.errors <= 2);
    /* No number above 2 is free: the first and then the second pipe is refused. */
    fli_program none;
    refuse(fcntl, 1, EMFILE);
    int first = start(cat, ALL, &none);
    refuse_after(fcntl, 1, 1, EMFILE);
    int second = start(cat, ALL, &none);
    refuse_no_more(fcntl);
    int open_there = 0;
    for (int i = 0; i < 3; i++) {
        open_there += __real_fcntl(i, F_GETFD) >= 0;
        if (aside[i] >= 0) same(dup2(aside[i], i), i);
        if (aside[i] >= 0) ok(close(aside[i]));
    }
    ok(why);
    assert_false(low);
    same(first, -EMFILE);
    same(second, -EMFILE);
    same(open_there, 0);
    check_cat(&program);
    close_all(&program);
    assert_true(fli_program_reap(program.pid, true, true));
    same(open_descriptors(), before);
}

/* A script that prints its open descriptors: 0, 1, 2, and the one with which ls reads the directory. */
static char *const lists[] = { "sh", "-c", "ls /proc/self/fd | tr '\\n' ' '", NULL };

static void read_all(int fd, char *text, size_t room)
{
    size_t  used = 0;
    ssize_t n = -1;
    do {
        until((n = read(fd, text + used, room - 1 - used)) >= 0 || errno != EAGAIN);
        used += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    text[used] = '\0';
}

static void run_and_read(const fli_program_plan *plan, char *text, size_t room)
{
    fli_program program;
    ok(fli_program_start(plan, &program));
    read_all(program.output, text, room);
    same(status_of(&program), 0);
    assert_true(fli_program_reap(program.pid, program.group, true));
    close_all(&program);
}

TEST(a_program_inherits_no_descriptor_of_the_host)
{
    char text[256];
    int  leaks[40], high = __real_fcntl(0, F_DUPFD, 900);
    /* The descriptors are not closed on exec, as in a careless host program. */
    for (int i = 0; i < 40; i++) leaks[i] = dup(2);
    run_and_read(&(fli_program_plan){ .argv = lists, .flags = FILCH_RUN_OUTPUT }, text, sizeof text);
    for (int i = 0; i < 40; i++) ok(close(leaks[i]));
    ok(close(high));
    assert_string_equal(text, "0 1 2 3 ");
}

TEST(a_program_gets_the_environment_and_the_directory_that_it_is_given)
{
    static char *const prints_environment[] = { "/bin/sh", "-c", "pwd; echo ${ONE-none} ${HOME-none}", NULL };
    char *const environment[] = { "ONE=1", NULL }, *const empty[] = { NULL };
    char             text[256];
    fli_program_plan plan = {
        .argv = prints_environment, .environment = environment, .directory = "/", .flags = FILCH_RUN_OUTPUT
    };
    run_and_read(&plan, text, sizeof text);
    assert_string_equal(text, "/\n1 none\n");
    plan.environment = empty;
    run_and_read(&plan, text, sizeof text);
    assert_string_equal(text, "/\nnone none\n");
    plan.directory = "/no/such/directory";
    fli_program program;
    if (!is_under_valgrind() && emulator() == NULL) same(fli_program_start(&plan, &program), -ENOENT);
}

/* Starts a shell that starts a sleeping program and prints its pid. Returns that pid. */
static int64_t start_with_child(uint32_t flags, fli_program *program)
{
    static char *const family[] = { "sh", "-c", "sleep 1000 & echo $!; wait", NULL };
    char               text[64] = "";
    ok(start(family, flags | FILCH_RUN_OUTPUT, program));
    until(read(program->output, text, sizeof text - 1) > 0);
    return atoi(text);
}

static bool is_alive(int64_t pid)
{
    char  path[64], state = 'X';
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL) return false;
    if (fscanf(file, "%*d %*s %c", &state) != 1) state = 'X';
    fclose(file);
    return state != 'Z' && state != 'X'; /* a zombie counts as ended, because its new parent may not have reaped it
                                            yet */
}

TEST(the_children_of_a_program_are_killed_with_it)
{
    fli_program program;
    int64_t     child = start_with_child(0, &program);
    same(getpgid((pid_t)program.pid), program.pid);
    assert_true(is_alive(child));
    assert_true(fli_program_reap(program.pid, program.group, true));
    until(!is_alive(child));
    close_all(&program);
    /* The group is also killed if the program has already ended and has left children behind. */
    child = start_with_child(0, &program);
    ok(fli_program_kill(program.pid, program.fd, SIGKILL));
    same(status_of(&program), -SIGKILL);
    assert_true(is_alive(child));
    assert_true(fli_program_reap(program.pid, program.group, true));
    until(!is_alive(child));
    close_all(&program);
}

TEST(reaping_a_program_in_the_hosts_group_does_not_kill_its_children)
{
    fli_program program;
    int64_t     child = start_with_child(FILCH_RUN_SAME_GROUP, &program);
    same(getpgid((pid_t)program.pid), getpgid(0));
    assert_false(program.group);
    assert_true(fli_program_reap(program.pid, program.group, true));
    assert_true(is_alive(child));
    ok(kill((pid_t)child, SIGKILL));
    close_all(&program);
}

TEST(signals_are_sent_through_the_pidfd_if_there_is_one)
{
    fli_program program;
    ok(start(sleeps, 0, &program));
    if (program.fd >= 0) {
        same(fli_program_kill(1, program.fd, SIGTERM), 0); /* the pid 1 is not used, because there is a pidfd */
        same(status_of(&program), -SIGTERM);
    }
    refuse(syscall, 1, ENOSYS); /* the system has no pidfd_send_signal: the pid is used */
    ok(fli_program_kill(program.pid, program.fd, SIGKILL));
    assert_true(fli_program_reap(program.pid, program.group, true));
    close_all(&program);
    same(fli_program_kill(INT32_MAX, -1, SIGTERM), -ESRCH); /* no process has this pid */
}

TEST(a_status_that_cannot_be_read_is_an_error)
{
    int32_t status = 77;
    refuse(waitid, 1, EINVAL);
    same(fli_program_status(1, -1, &status), -EINVAL);
    same(status, 77);
}

TEST(with_sigchld_ignored_the_status_is_read_if_the_system_keeps_it)
{
    fli_program program;
    int32_t     status = 99;
    int         result = 0;
    ok(start(cat, FILCH_RUN_INPUT, &program));
    assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR); /* from now on the system reaps children by itself */
    ok(close(program.input));
    program.input = -1;
    until((result = fli_program_status(program.pid, program.fd, &status)) != 0);
    (void)signal(SIGCHLD, SIG_DFL);
    if (result > 0) same(status, 0);
    else same(result, -ECHILD);
    same(fli_program_status(program.pid, -1, &status), -ECHILD);
    assert_true(fli_program_reap(program.pid, program.group, true));
    close_all(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_is_started_used_and_reaped),
        cmocka_unit_test(a_running_program_is_killed_before_it_is_reaped),
        cmocka_unit_test(a_program_that_the_host_has_reaped_counts_as_gone),
        cmocka_unit_test(a_program_works_without_a_pidfd),
        cmocka_unit_test(a_failed_step_of_the_start_is_an_error_and_leaks_nothing),
        cmocka_unit_test(pipes_work_if_the_host_has_no_standard_descriptors),
        cmocka_unit_test(a_program_inherits_no_descriptor_of_the_host),
        cmocka_unit_test(a_program_gets_the_environment_and_the_directory_that_it_is_given),
        cmocka_unit_test(the_children_of_a_program_are_killed_with_it),
        cmocka_unit_test(reaping_a_program_in_the_hosts_group_does_not_kill_its_children),
        cmocka_unit_test(signals_are_sent_through_the_pidfd_if_there_is_one),
        cmocka_unit_test(a_status_that_cannot_be_read_is_an_error),
        cmocka_unit_test(with_sigchld_ignored_the_status_is_read_if_the_system_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
