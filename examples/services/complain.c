/* complain.c - see complain.h. If poll() reports a pipe as writable, the pipe accepts at least PIPE_BUF bytes at once,
 * so a shorter line does not block. A lock makes sure that only one thread at a time polls and writes; it is one lock
 * for stdout and stderr, which may be the same pipe. Other programs may fill the pipe after poll(), so the write says
 * RWF_NOWAIT, which Linux 6.4 and later know for pipes. The descriptor is not made non-blocking, because other programs
 * use it too. */
#include "complain.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE_BYTES 512 /* most bytes of a line; a pipe does not split a write of PIPE_BUF (>= 512) bytes or fewer */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long   lost; /* number of dropped lines; protected by `lock` */

/* Writes without the risk of SIGPIPE, which would end the program if the reader has closed the pipe. The system sends
 * SIGPIPE to the writing thread; this function blocks the signal and removes it. */
static ssize_t write_quietly(int fd, const char *line, size_t size)
{
    struct iovec    piece = { .iov_base = (char *)line, .iov_len = size };
    sigset_t        broken, before, pending;
    struct timespec none = { .tv_sec = 0 };
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    ssize_t n = pwritev2(fd, &piece, 1, -1, RWF_NOWAIT);
    if (n < 0 && errno != EAGAIN && errno != EPIPE) n = write(fd, line, size);
    if (n < 0 && !sigismember(&pending, SIGPIPE)) (void)sigtimedwait(&broken, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

/* Writes the line if this does not block. Returns 1 if the line was written. The caller holds the lock. */
static int put(int fd, const char *line, size_t size)
{
    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 && write_quietly(fd, line, size) > 0;
}

static size_t end_line(char *line, int size)
{
    size_t used = size < 0 ? 0 : (size_t)size < LINE_BYTES - 1 ? (size_t)size : LINE_BYTES - 2;
    line[used] = '\n';
    return used + 1;
}

/* Writes the line to stderr, after the number of lines that were lost. The caller holds the lock. */
static void put_complaint(const char *line, size_t size)
{
    char text[LINE_BYTES];
    if (lost > 0) {
        size_t length = end_line(text, snprintf(text, sizeof text, "%lu lines were lost", lost));
        if (put(STDERR_FILENO, text, length)) lost = 0;
    }
    if (lost > 0 || !put(STDERR_FILENO, line, size)) lost++;
}

void complain_line(const char *format, ...)
{
    char    line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    size_t size = end_line(line, vsnprintf(line, sizeof line, format, list));
    va_end(list);
    pthread_mutex_lock(&lock);
    put_complaint(line, size);
    pthread_mutex_unlock(&lock);
}

void announce_line(const char *format, ...)
{
    char    line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    size_t size = end_line(line, vsnprintf(line, sizeof line, format, list));
    va_end(list);
    pthread_mutex_lock(&lock);
    if (!put(STDOUT_FILENO, line, size)) put_complaint(line, size);
    pthread_mutex_unlock(&lock);
}
