/* program.c - posix_spawn, pidfd and waitid. See program.h.
 *
 * A program that has ended stays a zombie until it is reaped here, so its pid is not reused while this file may
 * still use it.
 */
#include "port/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filch.h>

extern char **environ;

/* Which actions posix_spawn of the C library supports in the child. Tests set FLI_PROGRAM_CLOSEFROM to compile the code
 * for older libraries. */
#if defined(__GLIBC__)
#if !defined(FLI_PROGRAM_CLOSEFROM)
#define FLI_PROGRAM_CLOSEFROM __GLIBC_PREREQ(2, 34)
#endif
#define HAS_CHDIR __GLIBC_PREREQ(2, 29)
#else
#if !defined(FLI_PROGRAM_CLOSEFROM)
#define FLI_PROGRAM_CLOSEFROM 0
#endif
#define HAS_CHDIR 1 /* musl */
#endif

/* Up to three pipes: ends[i][0] is the end of the started program, ends[i][1] the end of the host program; -1: no
 * pipe. */
typedef struct pipes {
    int ends[3][2];
} pipes;

static void close_side(pipes *all, int side)
{
    for (int i = 0; i < 3; i++) {
        if (all->ends[i][side] >= 0) (void)close(all->ends[i][side]);
        all->ends[i][side] = -1;
    }
}

/* Moves a descriptor to a number above 2, because the descriptors 0, 1 and 2 of the program are set one after the
 * other and must not overwrite each other. */
static int move_up(int *fd)
{
    if (*fd > 2) return 0;
    int up = fcntl(*fd, F_DUPFD_CLOEXEC, 3), why = errno;
    (void)close(*fd);
    *fd = up;
    return up >= 0 ? 0 : -why;
}

static int make_pipe(int *theirs, int *ours, bool they_read)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -errno;
    *theirs = ends[they_read ? 0 : 1];
    *ours = ends[they_read ? 1 : 0];
    int why = move_up(theirs);
    if (why == 0) why = move_up(ours);
    if (why == 0 && fcntl(*ours, F_SETFL, O_NONBLOCK) != 0) why = -errno;
    return why;
}

static int make_pipes(pipes *all, uint32_t flags)
{
    static const uint32_t asked[] = { FILCH_RUN_INPUT, FILCH_RUN_OUTPUT, FILCH_RUN_ERRORS };
    for (int i = 0; i < 3; i++) {
        int why = (flags & asked[i]) != 0 ? make_pipe(&all->ends[i][0], &all->ends[i][1], i == 0) : 0;
        if (why != 0) return why;
    }
    return 0;
}

#if !FLI_PROGRAM_CLOSEFROM
/* close_others() also closes MARGIN numbers above the highest open descriptor, because other threads may open
 * descriptors before the program starts, and new descriptors get the lowest free numbers. */
#define MARGIN 64
/* Below DENSE_MAX, close_others() closes every number up to the highest open descriptor, open or not. From DENSE_MAX
 * on, it closes only the descriptors that are open now. */
#define DENSE_MAX 4096

/* Sets *highest to the highest open descriptor below DENSE_MAX. For each open descriptor from DENSE_MAX on, adds an
 * action that closes it in the program. A descriptor that is not below `limit` stays open, because posix_spawn of glibc
 * would fail for its number. (Such a descriptor was opened before the host program lowered RLIMIT_NOFILE.) */
static int close_open(posix_spawn_file_actions_t *actions, rlim_t limit, int *highest)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) dir = opendir("/dev/fd");
    if (dir == NULL) return errno;
    int why = 0;
    for (struct dirent *entry; why == 0 && (entry = readdir(dir)) != NULL;) {
        int fd = atoi(entry->d_name); /* the entries . and .. give 0 */
        if (fd > *highest && fd < DENSE_MAX) *highest = fd;
        if (fd >= DENSE_MAX && (rlim_t)fd < limit) why = posix_spawn_file_actions_addclose(actions, fd);
    }
    closedir(dir);
    return why;
}
#endif

/* Adds actions that close all descriptors above 2 in the program. Closing a descriptor that is not open is no error for
 * posix_spawn, in glibc and in musl. The function has two bodies in one place, because gcovr cannot merge a function
 * that begins at two lines of one file, and program_old_libc_test.c compiles the second body. */
static int close_others(posix_spawn_file_actions_t *actions)
{
#if FLI_PROGRAM_CLOSEFROM
    return posix_spawn_file_actions_addclosefrom_np(actions, 3);
#else
    struct rlimit limit = { .rlim_cur = DENSE_MAX };
    int           highest = 2;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    int why = close_open(actions, limit.rlim_cur, &highest);
    for (int fd = 3; why == 0 && fd <= highest + MARGIN && (rlim_t)fd < limit.rlim_cur; fd++) {
        why = posix_spawn_file_actions_addclose(actions, fd);
    }
    return why;
#endif
}

static int change_directory(posix_spawn_file_actions_t *actions, const char *directory)
{
#if HAS_CHDIR
    return posix_spawn_file_actions_addchdir_np(actions, directory);
#else
    (void)actions, (void)directory;
    return ENOSYS;
#endif
}

/* Sets the working directory of the program and its descriptors 0, 1 and 2, and closes all others. */
static int prepare(posix_spawn_file_actions_t *actions, const pipes *all, const fli_program_plan *plan)
{
    int why = 0;
    if (plan->directory != NULL) why = change_directory(actions, plan->directory);
    if (why != 0) return why;
    if (all->ends[0][0] < 0) why = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    for (int i = 0; i < 3 && why == 0; i++) {
        if (all->ends[i][0] >= 0) why = posix_spawn_file_actions_adddup2(actions, all->ends[i][0], i);
    }
    if (why == 0 && (plan->flags & FILCH_RUN_MERGE) != 0) why = posix_spawn_file_actions_adddup2(actions, 1, 2);
    return why == 0 ? close_others(actions) : why;
}

/* Sets the signal mask and the process group of the program. Threads of the library block all signals; the program
 * must start with none blocked. With `group` the program leads a process group of its own, so that the programs that it
 * starts can be killed together with it. */
static int describe(posix_spawnattr_t *attr, bool group)
{
    sigset_t none;
    sigemptyset(&none);
    int why = posix_spawnattr_setsigmask(attr, &none);
    if (why == 0 && group) why = posix_spawnattr_setpgroup(attr, 0);
    short flags = (short)(POSIX_SPAWN_SETSIGMASK | (group ? POSIX_SPAWN_SETPGROUP : 0));
    return why == 0 ? posix_spawnattr_setflags(attr, flags) : why;
}

static bool leads_group(const fli_program_plan *plan)
{
    return (plan->flags & FILCH_RUN_SAME_GROUP) == 0;
}

static int spawn(pid_t *pid, const fli_program_plan *plan, const pipes *all)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t          attr;
    char *const               *environment = plan->environment != NULL ? plan->environment : environ;
    int                        why = posix_spawn_file_actions_init(&actions);
    if (why != 0) return -why;
    why = posix_spawnattr_init(&attr);
    if (why == 0) {
        why = describe(&attr, leads_group(plan));
        if (why == 0) why = prepare(&actions, all, plan);
        if (why == 0) why = posix_spawnp(pid, plan->argv[0], &actions, &attr, plan->argv, environment);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return -why;
}

int fli_program_start(const fli_program_plan *plan, fli_program *out)
{
    pipes all = { { { -1, -1 }, { -1, -1 }, { -1, -1 } } };
    pid_t pid = 0;
    int   why = make_pipes(&all, plan->flags);
    if (why == 0) why = spawn(&pid, plan, &all);
    close_side(&all, 0);
    if (why != 0) {
        close_side(&all, 1);
        return why;
    }
    *out = (fli_program){ .pid = pid,
                          .group = leads_group(plan),
                          .fd = -1,
                          .input = all.ends[0][1],
                          .output = all.ends[1][1],
                          .errors = all.ends[2][1] };
#if defined(SYS_pidfd_open)
    long fd = syscall(SYS_pidfd_open, pid, 0); /* a pidfd is closed on exec by default */
    if (fd >= 0) out->fd = (int)fd;
#endif
    return 0;
}

/* ---- the end of a program ---- */

/* Returns the status of a program that was already reaped, by the host program or, if SIGCHLD is ignored, by the
 * system. Its pidfd keeps the status since Linux 6.15. */
static int remembered(int fd, int32_t *status)
{
#if defined(__linux__)
    struct {
        uint64_t mask, cgroup;
        uint32_t ids[11];
        int32_t  exit_code;                               /* in the format of wait() */
    } info = { .mask = UINT64_C(1) << 3 };                /* PIDFD_INFO_EXIT */
    const unsigned long get_info = _IOWR(0xff, 11, info); /* PIDFD_GET_INFO, passed to syscall() because ioctl() of musl
                                                             takes its request as an int */
    if (fd < 0 || syscall(SYS_ioctl, fd, get_info, &info) != 0 || (info.mask & UINT64_C(1) << 3) == 0) return -ECHILD;
    *status = WIFEXITED(info.exit_code) ? WEXITSTATUS(info.exit_code) : -WTERMSIG(info.exit_code);
    return 1;
#else
    (void)fd, (void)status;
    return -ECHILD;
#endif
}

/* Calls waitid(), and repeats the call if a signal interrupts it. info->si_pid is 0 if the program has not ended. */
static int await(int64_t child, int how, siginfo_t *info)
{
    int n;
    *info = (siginfo_t){ .si_pid = 0 };
    do n = waitid(P_PID, (id_t)child, info, WEXITED | how);
    while (n != 0 && errno == EINTR);
    return n != 0 ? -errno : 0;
}

int fli_program_status(int64_t pid, int fd, int32_t *status)
{
    siginfo_t info;
    int       why = await(pid, WNOWAIT | WNOHANG, &info);
    if (why == -ECHILD) return remembered(fd, status);
    if (why != 0 || info.si_pid == 0) return why;
    *status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    return 1;
}

int fli_program_kill(int64_t pid, int fd, int number)
{
#if defined(SYS_pidfd_send_signal)
    if (fd >= 0) {
        if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) == 0) return 0;
        if (errno != ENOSYS) return -errno;
    }
#else
    (void)fd;
#endif
    return kill((pid_t)pid, number) == 0 ? 0 : -errno;
}

bool fli_program_reap(int64_t pid, bool group, bool wait)
{
    siginfo_t info;
    /* Until the program is reaped, no other process of the system and no other process group has its number, so the
     * kill() calls below cannot reach another program. An error (ECHILD) means that the host program has reaped it. */
    if (await(pid, WNOWAIT | WNOHANG, &info) != 0) return true;
    bool ended = info.si_pid != 0;
    if (group) (void)kill((pid_t)-pid, SIGKILL);
    if (!ended) (void)kill((pid_t)pid, SIGKILL); /* the kill of the group misses a program that has left its group */
    int why = await(pid, wait ? 0 : WNOHANG, &info);
    return why != 0 || info.si_pid != 0;
}
