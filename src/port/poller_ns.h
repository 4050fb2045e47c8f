/* poller_ns.h - epoll_wait with a timeout in nanoseconds. */
#ifndef FLI_PORT_POLLER_NS_H
#define FLI_PORT_POLLER_NS_H

#include <stdint.h>
#include <sys/epoll.h>

/* Waits like epoll_wait(), but with a timeout in nanoseconds. Returns the number of events, or -1 with errno set:
 * ENOSYS if the kernel (before Linux 5.11) or the machine has no epoll_pwait2. */
int fli_epoll_wait_ns(int epoll, struct epoll_event *events, int max, uint64_t span_ns);

#endif
