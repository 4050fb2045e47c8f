/* adopt.c - descriptors that are already open: what they are ready for, their kinds, and copies of them. See desc.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filch.h>

#include "port/desc.h"

int fli_desc_poll(int fd, uint32_t events)
{
    struct pollfd one = { .fd = fd };
    int           n, ready = 0;
    if ((events & FILCH_POLL_IN) != 0) one.events |= POLLIN;
    if ((events & FILCH_POLL_OUT) != 0) one.events |= POLLOUT;
    do n = poll(&one, 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0) return -errno;
    if ((one.revents & POLLNVAL) != 0) return -EBADF;
    if ((one.revents & POLLIN) != 0) ready |= FILCH_POLL_IN;
    if ((one.revents & POLLOUT) != 0) ready |= FILCH_POLL_OUT;
    if ((one.revents & POLLERR) != 0) ready |= FILCH_POLL_ERROR;
    if ((one.revents & POLLHUP) != 0) ready |= FILCH_POLL_HANGUP;
    return ready;
}

/* ---- kinds ---- */

static int kind_of_socket(int fd)
{
    int       type = 0, listens = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return -errno;
    size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) return FLI_DESC_LISTENER;
    return type == SOCK_STREAM || type == SOCK_SEQPACKET ? FLI_DESC_STREAM : FLI_DESC_DATAGRAM;
}

/* Returns true if an epoll can wait for the descriptor. Only the system knows for which devices an epoll can wait, so
 * the function tries to add the descriptor to a new epoll. */
static bool can_be_waited_for(int fd)
{
    struct epoll_event event = { .events = EPOLLIN };
    int                epoll = epoll_create1(EPOLL_CLOEXEC);
    /* no epoll could be made: the error is reported later, when a stream waits for the descriptor */
    if (epoll < 0) return true;
    bool can = epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 || errno != EPERM;
    (void)close(epoll);
    return can;
}

int fli_desc_kind_of(int fd)
{
    struct stat what;
    if (fstat(fd, &what) != 0) return -errno;
    if (S_ISSOCK(what.st_mode)) return kind_of_socket(fd);
    if (S_ISREG(what.st_mode) || S_ISDIR(what.st_mode) || S_ISBLK(what.st_mode)) return FLI_DESC_FILE;
    return S_ISFIFO(what.st_mode) || can_be_waited_for(fd) ? FLI_DESC_PIPE : FLI_DESC_FILE;
}

/* ---- copies ---- */

int fli_desc_copy(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy >= 0 ? copy : -errno;
}

/* Duplicates the descriptor and sets O_NONBLOCK. This flag belongs to the open file, which other programs may share.
 * The flag is never cleared, because other streams may use the same file, and a read that blocks would occupy a
 * worker. */
int fli_desc_copy_flagged(int fd)
{
    int copy = fli_desc_copy(fd), flags = copy >= 0 ? fcntl(copy, F_GETFL) : -1;
    if (copy < 0 || (flags >= 0 && (flags & O_NONBLOCK) != 0)) return copy;
    if (flags >= 0 && fcntl(copy, F_SETFL, flags | O_NONBLOCK) == 0) return copy;
    int why = errno;
    (void)close(copy);
    return -why;
}

/* Returns true if opening the descriptor's path again gives the same object: for a FIFO, and for a terminal that is
 * neither a master nor /dev/tty. Other devices may make a new object with each open, as /dev/ptmx does; /dev/tty is the
 * terminal of the program that opens it. */
static bool is_one_thing(int fd)
{
    struct stat what;
    char        slave[64]; /* path of the slave, which only a master has */
    if (fstat(fd, &what) != 0) return false;
    if (S_ISFIFO(what.st_mode)) return true;
    return isatty(fd) && major(what.st_rdev) != TTYAUX_MAJOR && ptsname_r(fd, slave, sizeof slave) != 0;
}

/* Opens the descriptor's file again: the new descriptor has its own flags, while a duplicate would share the flags.
 * Some files cannot be opened again (ENXIO: a pipe with a closed other end). */
static int open_again(int fd, int flags)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, (flags & (O_ACCMODE | O_APPEND)) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

int fli_desc_copy_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    int again = (flags & O_NONBLOCK) == 0 && is_one_thing(fd) ? open_again(fd, flags) : -1;
    return again >= 0 ? again : fli_desc_copy_flagged(fd);
}
