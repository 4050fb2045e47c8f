/* wakefd.c - an eventfd; with an alarm, an epoll that holds it and a timerfd. See wakefd.h. */
#include "port/wakefd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "port/clock.h"

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

void fli_wakefd_signal(int fd)
{
    uint64_t one = 1;
    ssize_t  n;
    do n = write(fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    /* EAGAIN: the counter is full after 2^64 calls without a clear. The descriptor is readable in this case, so no
     * wake-up is lost. */
    FLI_ASSERT(n == (ssize_t)sizeof one || errno == EAGAIN);
}

void fli_wakefd_clear(int fd)
{
    uint64_t signals;
    ssize_t  n;
    do n = read(fd, &signals, sizeof signals);
    while (n < 0 && errno == EINTR);
    FLI_ASSERT(n == (ssize_t)sizeof signals || errno == EAGAIN);
}

static bool add(int epoll, int fd)
{
    struct epoll_event event = { .events = EPOLLIN };
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

filch_err fli_alarmfd_open(fli_alarmfd *alarm, int fd)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = -1;
    if (epoll < 0) goto no_epoll;
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0) goto no_timer;
    if (!add(epoll, fd) || !add(epoll, timer)) goto no_place;
    *alarm = (fli_alarmfd){ .poll = epoll, .timer = timer, .at_ns = FLI_NEVER };
    return FILCH_OK;
no_place:
    (void)close(timer);
no_timer:
    (void)close(epoll);
no_epoll:
    return FILCH_ESYS;
}

void fli_alarmfd_close(fli_alarmfd *alarm)
{
    if (alarm->poll < 0) return;
    (void)close(alarm->timer);
    (void)close(alarm->poll);
    alarm->poll = alarm->timer = -1;
}

void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns)
{
    struct itimerspec spec = { .it_interval = { 0, 0 } };
    bool              ever = at_ns >= (uint64_t)INT64_MAX; /* a time that does not fit into time_t means for ever */
    if (!ever) spec.it_value = (struct timespec){ (time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u) };
    if (at_ns == 0) spec.it_value.tv_nsec = 1; /* an all-zero value would disarm the timer */
    int err = timerfd_settime(alarm->timer, TFD_TIMER_ABSTIME, &spec, NULL);
    FLI_ASSERT(err == 0);
    alarm->at_ns = at_ns;
}
