/* poller_ns.c - see poller_ns.h. Makes the system call by number, because musl and older versions of glibc have no
 * function for it. */
#include "port/poller_ns.h"

#include <errno.h>
#include <linux/time_types.h>
#include <sys/syscall.h>
#include <unistd.h>

int fli_epoll_wait_ns(int epoll, struct epoll_event *events, int max, uint64_t span_ns)
{
#ifdef SYS_epoll_pwait2
    struct __kernel_timespec span = { .tv_sec = (int64_t)(span_ns / 1000000000u),
                                      .tv_nsec = (int64_t)(span_ns % 1000000000u) };
    return (int)syscall(SYS_epoll_pwait2, epoll, events, max, &span, NULL, 0);
#else
    (void)epoll, (void)events, (void)max, (void)span_ns;
    errno = ENOSYS;
    return -1;
#endif
}
