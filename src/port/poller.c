/* poller.c - epoll and an eventfd. See poller.h. Design: docs/design/io.md. */
#include "port/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "port/clock.h"
#include "port/poller_ns.h"
#include "port/wakefd.h"

#define REPORTS_MAX 128
/* 10^15 ns, about eleven days. A longer wait returns after this time and reads the clock again. */
#define SPAN_NS_MAX UINT64_C(1000000000000000)

filch_err fli_poller_open(fli_poller *poller)
{
    int       epoll = epoll_create1(EPOLL_CLOEXEC), wakefd = -1;
    filch_err err = FILCH_ESYS;
    if (epoll < 0) goto no_epoll;
    err = fli_wakefd_open(&wakefd);
    if (err != FILCH_OK) goto no_wakefd;
    /* Level triggered: the wake descriptor is reported until it is cleared. */
    struct epoll_event event = { .events = EPOLLIN, .data = { .u64 = FLI_POLLER_WAKEFD } };
    err = FILCH_ESYS;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, wakefd, &event) != 0) goto no_place;
    *poller = (fli_poller){ .epoll = epoll, .wakefd = wakefd };
    return FILCH_OK;
no_place:
    fli_wakefd_close(wakefd);
no_wakefd:
    (void)close(epoll);
no_epoll:
    return err;
}

void fli_poller_close(fli_poller *poller)
{
    if (poller->epoll < 0) return;
    fli_wakefd_close(poller->wakefd);
    (void)close(poller->epoll);
    poller->epoll = poller->wakefd = -1;
}

static int set(fli_poller *poller, int operation, int fd, uint64_t number)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLET,
                                 .data = { .u64 = number } };
    return epoll_ctl(poller->epoll, operation, fd, &event) == 0 ? 0 : errno;
}

int fli_poller_add(fli_poller *poller, int fd, uint64_t number)
{
    return set(poller, EPOLL_CTL_ADD, fd, number);
}

/* EPOLL_CTL_MOD makes the system check the descriptor again: if it is ready, it is reported as a new edge. */
int fli_poller_again(fli_poller *poller, int fd, uint64_t number)
{
    return set(poller, EPOLL_CTL_MOD, fd, number);
}

void fli_poller_remove(fli_poller *poller, int fd)
{
    struct epoll_event unused = { .events = 0 };
    /* An error is ignored: a file, for example, was never added to the poller. */
    (void)epoll_ctl(poller->epoll, EPOLL_CTL_DEL, fd, &unused);
}

/* Returns the remaining time in milliseconds, rounded up, so that the wait does not end early. */
static int span_ms(uint64_t until_ns)
{
    if (until_ns == 0) return 0;
    if (until_ns == FLI_NEVER) return -1;
    uint64_t now_ns = fli_clock_ns(), ms = until_ns > now_ns ? (until_ns - now_ns + 999999u) / 1000000u : 0;
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

/* Waits with a timeout in nanoseconds where the system supports it (Linux 5.11), so that timers are as exact as with
 * a condition variable. Older systems, sandboxes (EPERM) and valgrind refuse that call each time, so after one
 * refusal it is not tried again. */
static int wait_for(fli_poller *poller, struct epoll_event *events, int max, uint64_t until_ns)
{
    if (until_ns != 0 && until_ns != FLI_NEVER && !fli_load_rlx(&poller->coarse)) {
        uint64_t now_ns = fli_clock_ns(), span_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        if (span_ns > SPAN_NS_MAX) span_ns = SPAN_NS_MAX;
        int n = fli_epoll_wait_ns(poller->epoll, events, max, span_ns);
        if (n >= 0 || errno == EINTR) return n;
        if (errno == ENOSYS || errno == EPERM) fli_store_rlx(&poller->coarse, true);
    }
    return epoll_wait(poller->epoll, events, max, span_ms(until_ns));
}

uint32_t fli_poller_wait(fli_poller *poller, uint64_t until_ns, fli_poll_report *reports, uint32_t max)
{
    struct epoll_event events[REPORTS_MAX];
    int                n = wait_for(poller, events, (int)(max < REPORTS_MAX ? max : REPORTS_MAX), until_ns);
    FLI_ASSERT(n >= 0 || errno == EINTR);
    uint32_t count = 0;
    for (int i = 0; i < n; i++) {
        uint32_t what = events[i].events;
        if (events[i].data.u64 == FLI_POLLER_WAKEFD) {
            /* A call with `until_ns` 0 does not wait, so it must not consume the wake-up, which is meant for a waiting
             * thread. */
            if (until_ns != 0) fli_wakefd_clear(poller->wakefd);
            continue;
        }
        bool gone = (what & (EPOLLHUP | EPOLLERR)) != 0, ended = gone || (what & EPOLLRDHUP) != 0;
        reports[count++] = (fli_poll_report){ .number = events[i].data.u64,
                                              .in = ended || (what & EPOLLIN) != 0,
                                              .out = gone || (what & EPOLLOUT) != 0,
                                              .urgent = (what & EPOLLPRI) != 0,
                                              .ended = ended };
    }
    return count;
}

void fli_poller_wake(fli_poller *poller)
{
    fli_wakefd_signal(poller->wakefd);
}

int fli_poller_fd(const fli_poller *poller)
{
    return poller->epoll;
}
