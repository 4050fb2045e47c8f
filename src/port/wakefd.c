/* wakefd.c - an eventfd. See wakefd.h. */
#include "port/wakefd.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"

filch_err fli_wakefd_open(int *out)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return FILCH_ESYS;
    *out = fd;
    return FILCH_OK;
}

void fli_wakefd_close(int fd)
{
    (void)close(fd);
}

void fli_wakefd_ring(int fd)
{
    uint64_t one = 1;
    ssize_t  n;
    do n = write(fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    /* EAGAIN: the counter is at its end after 2^64 rings without a clear. It is readable, which is all we want. */
    FLI_ASSERT(n == (ssize_t)sizeof one || errno == EAGAIN);
}

void fli_wakefd_clear(int fd)
{
    uint64_t rings;
    ssize_t  n;
    do n = read(fd, &rings, sizeof rings);
    while (n < 0 && errno == EINTR);
    FLI_ASSERT(n == (ssize_t)sizeof rings || errno == EAGAIN);
}
