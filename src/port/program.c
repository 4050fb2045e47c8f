/* program.c - posix_spawn, pidfd and waitid. See program.h.
 *
 * A program that has ended stays a zombie until it is buried, so its pid is nobody else's while anybody may name it.
 */
#include "port/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filch.h>

extern char **environ;

/* Both ends of up to three pipes: [i][0] is the program's, [i][1] is ours. -1: none. */
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

/* Not 0, 1 or 2: those are about to be replaced in the program, and one may not overwrite another. */
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

/* What the program finds at 0, 1 and 2, and nothing else. */
static int plan(posix_spawn_file_actions_t *actions, const pipes *all, uint32_t flags)
{
    int why = 0;
    if (all->ends[0][0] < 0) why = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    for (int i = 0; i < 3 && why == 0; i++) {
        if (all->ends[i][0] >= 0) why = posix_spawn_file_actions_adddup2(actions, all->ends[i][0], i);
    }
    if (why == 0 && (flags & FILCH_RUN_MERGE) != 0) why = posix_spawn_file_actions_adddup2(actions, 1, 2);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    if (why == 0) why = posix_spawn_file_actions_addclosefrom_np(actions, 3);
#endif
#endif
    return why;
}

/* Our threads block all signals; the program must not begin like that. */
static int spawn(pid_t *pid, char *const *argv, const pipes *all, uint32_t flags)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t          attr;
    sigset_t                   none;
    sigemptyset(&none);
    int why = posix_spawn_file_actions_init(&actions);
    if (why != 0) return -why;
    why = posix_spawnattr_init(&attr);
    if (why == 0) {
        why = posix_spawnattr_setsigmask(&attr, &none);
        if (why == 0) why = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
        if (why == 0) why = plan(&actions, all, flags);
        if (why == 0) why = posix_spawnp(pid, argv[0], &actions, &attr, argv, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return -why;
}

int fli_program_start(char *const *argv, uint32_t flags, fli_program *out)
{
    pipes all = { { { -1, -1 }, { -1, -1 }, { -1, -1 } } };
    pid_t pid = 0;
    int   why = make_pipes(&all, flags);
    if (why == 0) why = spawn(&pid, argv, &all, flags);
    close_side(&all, 0);
    if (why != 0) {
        close_side(&all, 1);
        return why;
    }
    *out = (fli_program){
        .pid = pid, .fd = -1, .input = all.ends[0][1], .output = all.ends[1][1], .errors = all.ends[2][1]
    };
#if defined(SYS_pidfd_open)
    long fd = syscall(SYS_pidfd_open, pid, 0); /* closed on exec by itself */
    if (fd >= 0) out->fd = (int)fd;
#endif
    return 0;
}

int fli_program_status(int64_t pid, int32_t *status)
{
    siginfo_t info = { .si_pid = 0 };
    int       n;
    do n = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG);
    while (n != 0 && errno == EINTR);
    if (n != 0) return -errno;
    if (info.si_pid == 0) return 0;
    *status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    return 1;
}

int fli_program_kill(int64_t pid, int number)
{
    return kill((pid_t)pid, number) == 0 ? 0 : -errno;
}

bool fli_program_bury(int64_t pid, bool wait)
{
    siginfo_t info = { .si_pid = 0 };
    int       n;
    do n = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG);
    while (n != 0 && errno == EINTR);
    if (n != 0 || info.si_pid != 0) return true; /* ECHILD: the host program has buried it itself */
    (void)kill((pid_t)pid, SIGKILL);
    do n = waitid(P_PID, (id_t)pid, &info, WEXITED | (wait ? 0 : WNOHANG));
    while (n != 0 && errno == EINTR);
    return n != 0 || info.si_pid != 0;
}
