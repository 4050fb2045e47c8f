/* desc.c - descriptors of any kind. See desc.h. */
#include "port/desc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <filch.h>

int fli_desc_close(int fd)
{
    /* EINTR counts as success: Linux has closed the descriptor, and buffered data will still be written. */
    return close(fd) == 0 || errno == EINTR ? 0 : -errno;
}

int64_t fli_desc_read(int fd, void *bytes, size_t room)
{
    ssize_t n;
    do n = read(fd, bytes, room);
    while (n < 0 && errno == EINTR);
    return n >= 0 ? n : -errno;
}

/* Writes without raising SIGPIPE. Pipes have no MSG_NOSIGNAL; a write to a broken pipe sends SIGPIPE to the writing
 * thread. So the thread blocks the signal, consumes it after the write, and restores its mask. */
int64_t fli_desc_write(int fd, const void *bytes, size_t size)
{
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    bool    was_pending = sigismember(&pending, SIGPIPE) == 1;
    bool    masked = pthread_sigmask(SIG_BLOCK, &pipe, &before) == 0;
    ssize_t n;
    do n = write(fd, bytes, size);
    while (n < 0 && errno == EINTR);
    int why = errno;
    if (n < 0 && why == EPIPE && !was_pending) {
        struct timespec none = { .tv_sec = 0 };
        while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR) {}
    }
    if (masked) (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n >= 0 ? n : -why;
}

int64_t fli_desc_seek(int fd, int64_t offset, int whence)
{
    static const int names[] = { SEEK_SET, SEEK_CUR, SEEK_END };
    off_t            at = lseek(fd, (off_t)offset, names[whence]);
    return at >= 0 ? at : -errno;
}

int fli_desc_open(const char *path, uint32_t flags)
{
    bool reads = (flags & FILCH_OPEN_READ) != 0, writes = (flags & FILCH_OPEN_WRITE) != 0;
    int  how = O_CLOEXEC | O_NOCTTY | (reads && writes ? O_RDWR : writes ? O_WRONLY : O_RDONLY);
    if ((flags & FILCH_OPEN_CREATE) != 0) how |= O_CREAT;
    if ((flags & FILCH_OPEN_EMPTY) != 0) how |= O_TRUNC;
    if ((flags & FILCH_OPEN_APPEND) != 0) how |= O_APPEND;
    if ((flags & FILCH_OPEN_NEW) != 0) how |= O_EXCL;
    int fd;
    do fd = open(path, how, 0644);
    while (fd < 0 && errno == EINTR);
    return fd >= 0 ? fd : -errno;
}

int fli_desc_signals(const int *numbers, size_t count)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < count; i++) {
        if (sigaddset(&set, numbers[i]) != 0) return -errno;
    }
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

int fli_desc_read_signal(int fd)
{
    struct signalfd_siginfo info;
    int64_t                 n = fli_desc_read(fd, &info, sizeof info);
    if (n < 0) return (int)n;
    return n == (int64_t)sizeof info ? (int)info.ssi_signo : -EIO;
}
