/* complain.c - see complain.h. If poll() reports a pipe as writable, the pipe accepts at least PIPE_BUF bytes at once,
 * so a shorter line does not block. A lock makes sure that only one thread at a time polls and writes. The descriptor
 * is not made non-blocking, because other programs use it too. */
#include "complain.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 512 /* the maximum size of a line; a pipe writes so few bytes at once (PIPE_BUF is at least 512) */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long   lost; /* number of dropped lines; protected by `lock` */

/* Writes without the risk of SIGPIPE, which would end the program if the reader has closed the pipe. The signal goes to
 * the writing thread, which blocks it and removes it. */
static ssize_t write_quietly(const char *line, size_t size)
{
    sigset_t        broken, before, pending;
    struct timespec none = { .tv_sec = 0 };
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    ssize_t n = write(STDERR_FILENO, line, size);
    if (n < 0 && !sigismember(&pending, SIGPIPE)) (void)sigtimedwait(&broken, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

/* Writes the line if this does not block. Returns 1 if the line was written. The caller holds the lock. */
static int put(const char *line, size_t size)
{
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 && write_quietly(line, size) > 0;
}

static size_t end_line(char *line, int size)
{
    size_t used = size < 0 ? 0 : (size_t)size < LINE_BYTES - 1 ? (size_t)size : LINE_BYTES - 2;
    line[used] = '\n';
    return used + 1;
}

void complain_line(const char *format, ...)
{
    char    line[LINE_BYTES], before[LINE_BYTES];
    va_list list;
    va_start(list, format);
    size_t size = end_line(line, vsnprintf(line, sizeof line, format, list));
    va_end(list);
    pthread_mutex_lock(&lock);
    if (lost > 0 && put(before, end_line(before, snprintf(before, sizeof before, "%lu lines were lost", lost))))
        lost = 0;
    if (lost > 0 || !put(line, size)) lost++;
    pthread_mutex_unlock(&lock);
}
