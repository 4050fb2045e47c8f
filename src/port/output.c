/* output.c - see output.h. */
#include "port/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "port/clock.h"

enum { PLAIN, SOCKET, ASKED };

/* Sizes of one write. A pipe that poll() reports as writable accepts CHUNK_PIPE bytes at once. A terminal that poll()
 * reports as writable has a nearly empty queue, and accepts CHUNK_TERMINAL bytes at once. */
enum { CHUNK_PIPE = 4096, CHUNK_TERMINAL = 256, PAUSE_MS = 10 };

/* All outputs of the program hold this lock from a poll() to the write that follows it. Standard output and standard
 * error may be one pipe (2>&1); if a thread has found room for one chunk in the pipe, no other thread may use this room
 * first. A thread that holds this lock waits for nothing. */
static pthread_mutex_t room_lock = PTHREAD_MUTEX_INITIALIZER;

filch_err fli_output_init(fli_output *out, int fd)
{
    struct stat st;
    *out = (fli_output){ .fd = fd, .kind = ASKED };
    if (fstat(fd, &st) == 0) {
        if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) out->kind = PLAIN;
        if (S_ISSOCK(st.st_mode)) out->kind = SOCKET;
    }
    return fli_mutex_init(&out->lock);
}

void fli_output_fini(fli_output *out)
{
    fli_mutex_fini(&out->lock);
    free(out->rest);
}

/* Returns how many bytes can be written to a pipe or terminal without waiting; 0: none. */
static size_t room_now(int fd, size_t size)
{
    struct pollfd ask = { .fd = fd, .events = POLLOUT };
    if (poll(&ask, 1, 0) <= 0) return 0;
    size_t chunk = isatty(fd) ? CHUNK_TERMINAL : CHUNK_PIPE;
    return size < chunk ? size : chunk;
}

/* Writes like write(), but fails with EAGAIN instead of waiting, although the descriptor has no O_NONBLOCK. This is
 * needed because the room that poll() has found may be gone: another program may have written to the same pipe. Linux
 * before 6.4 does not know RWF_NOWAIT for pipes; there an ordinary write() follows, which can wait in that case. */
static ssize_t write_now(int fd, const char *bytes, size_t size)
{
#if defined(SYS_pwritev2) && defined(RWF_NOWAIT)
    struct iovec piece = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    ssize_t      n = syscall(SYS_pwritev2, fd, &piece, 1, -1L, -1L, RWF_NOWAIT);
    if (n >= 0 || errno == EAGAIN || errno == EPIPE || errno == EINTR) return n;
#endif
    return write(fd, bytes, size);
}

/* write_now() without SIGPIPE: blocks the signal, which would go to the writing thread, consumes it after the write,
 * and restores the mask. A copy of fli_desc_write(), because a build without I/O does not contain that function. */
static ssize_t write_quietly(int fd, const char *bytes, size_t size)
{
    sigset_t        broken, before, pending;
    struct timespec none = { .tv_sec = 0 };
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    bool    was_pending = sigismember(&pending, SIGPIPE) == 1;
    bool    masked = pthread_sigmask(SIG_BLOCK, &broken, &before) == 0;
    ssize_t n = write_now(fd, bytes, size);
    int     why = errno;
    if (n < 0 && why == EPIPE && !was_pending) {
        while (sigtimedwait(&broken, NULL, &none) < 0 && errno == EINTR) {}
    }
    if (masked) (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return n;
}

/* Writes as much to a pipe or terminal as it accepts without waiting. Returns 0 if it accepts nothing. */
static ssize_t write_asked(int fd, const char *bytes, size_t size)
{
    pthread_mutex_lock(&room_lock);
    size_t  room = room_now(fd, size);
    ssize_t n = room > 0 ? write_quietly(fd, bytes, room) : 0;
    int     why = errno;
    pthread_mutex_unlock(&room_lock);
    errno = why;
    return n;
}

/* Makes one attempt to write. Returns the number of bytes written, 0 if the descriptor accepts none now, or -1 if the
 * system refuses the bytes permanently. */
static ssize_t attempt(fli_output *out, const char *bytes, size_t size)
{
    ssize_t n = out->kind == PLAIN    ? write(out->fd, bytes, size)
                : out->kind == SOCKET ? send(out->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                      : write_asked(out->fd, bytes, size);
    if (n < 0 && errno == EPIPE) out->closed = true;
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) return 0;
    return n;
}

/* Writes until the descriptor accepts no more. Returns how many bytes need no further attempt. Bytes that the system
 * refuses permanently (closed pipe, full disk) are among them, and their line is counted as dropped. */
static size_t push(fli_output *out, const char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = attempt(out, bytes + done, size - done);
        if (n == 0) break;
        if (n < 0) {
            out->dropped++;
            return size;
        }
        done += (size_t)n;
    }
    return done;
}

static bool flush_locked(fli_output *out)
{
    if (out->rest == NULL) return true;
    out->rest_at += push(out, out->rest + out->rest_at, out->rest_size - out->rest_at);
    if (out->rest_at < out->rest_size) return false;
    free(out->rest);
    out->rest = NULL;
    return true;
}

/* Keeps the bytes at the end of a line that the descriptor did not accept. If there is no memory for them, drops them
 * and counts the line as dropped. */
static void keep_rest(fli_output *out, const char *bytes, size_t size)
{
    out->rest = malloc(size);
    if (out->rest == NULL) {
        out->dropped++;
        return;
    }
    memcpy(out->rest, bytes, size);
    out->rest_at = 0;
    out->rest_size = size;
}

static bool write_locked(fli_output *out, const char *text, size_t size)
{
    if (!flush_locked(out)) return false;
    size_t done = push(out, text, size);
    if (done == 0 && size > 0) return false;
    if (done < size) keep_rest(out, text + done, size - done);
    return true;
}

/* Waits until the descriptor accepts bytes, PAUSE_MS at most. */
static void wait_for_room(const fli_output *out)
{
    struct pollfd ask = { .fd = out->fd, .events = POLLOUT };
    (void)poll(&ask, 1, PAUSE_MS);
}

bool fli_output_write(fli_output *out, const char *text, size_t size)
{
    fli_mutex_lock(&out->lock);
    bool taken = write_locked(out, text, size);
    fli_mutex_unlock(&out->lock);
    return taken;
}

bool fli_output_write_by(fli_output *out, const char *text, size_t size, uint64_t until_ns)
{
    while (!fli_output_write(out, text, size)) {
        if (fli_clock_ns() >= until_ns) return false;
        wait_for_room(out);
    }
    (void)fli_output_finish(out, until_ns);
    return true;
}

bool fli_output_flush(fli_output *out)
{
    fli_mutex_lock(&out->lock);
    bool empty = flush_locked(out);
    fli_mutex_unlock(&out->lock);
    return empty;
}

bool fli_output_finish(fli_output *out, uint64_t until_ns)
{
    for (;;) {
        if (fli_output_flush(out)) return true;
        if (fli_clock_ns() >= until_ns) return false;
        wait_for_room(out);
    }
}

void fli_output_drop(fli_output *out)
{
    fli_mutex_lock(&out->lock);
    out->dropped++;
    fli_mutex_unlock(&out->lock);
}

uint64_t fli_output_dropped(fli_output *out)
{
    fli_mutex_lock(&out->lock);
    uint64_t dropped = out->dropped;
    fli_mutex_unlock(&out->lock);
    return dropped;
}

bool fli_output_is_closed(fli_output *out)
{
    fli_mutex_lock(&out->lock);
    bool closed = out->closed;
    fli_mutex_unlock(&out->lock);
    return closed;
}
