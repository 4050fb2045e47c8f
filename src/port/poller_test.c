/* poller_test.c - the poller: edges, the wake descriptor, and timeouts. */
#include "port/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/clock.h"
#include "port/poller_ns.h"
#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"

INSTEAD(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), (epoll, what, fd, event))
INSTEAD(int, fli_epoll_wait_ns, (int epoll, struct epoll_event *events, int max, uint64_t span_ns),
        (epoll, events, max, span_ns))

static fli_poller      poller;
static fli_poll_report reports[8];
static int             ends[2];

static void begin(void)
{
    ok(fli_poller_open(&poller));
    ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    same(fli_poller_add(&poller, ends[0], 7), 0);
}

static void end(void)
{
    close(ends[0]);
    close(ends[1]);
    fli_poller_close(&poller);
    fli_poller_close(&poller); /* a second close has no effect */
}

TEST(each_change_is_reported_once_with_its_number)
{
    begin();
    same(fli_poller_wait(&poller, 0, reports, 8), 1); /* the socket is writable from the beginning */
    same(reports[0].number, 7);
    assert_true(reports[0].out && !reports[0].in && !reports[0].ended);
    same(fli_poller_wait(&poller, 0, reports, 8), 0);
    same(write(ends[1], "x", 1), 1);
    same(fli_poller_wait(&poller, FLI_NEVER, reports, 8), 1);
    assert_true(reports[0].in);
    same(fli_poller_wait(&poller, 0, reports, 8), 0);
    ok(shutdown(ends[1], SHUT_WR));
    same(fli_poller_wait(&poller, FLI_NEVER, reports, 8), 1);
    assert_true(reports[0].in && reports[0].ended);
    fli_poller_remove(&poller, ends[0]);
    fli_poller_remove(&poller, ends[0]);
    same(write(ends[0], "y", 1), 1);
    same(fli_poller_wait(&poller, 0, reports, 8), 0);
    end();
}

TEST(a_wake_up_stays_until_a_call_that_waits_consumes_it)
{
    begin();
    (void)!fli_poller_wait(&poller, 0, reports, 8);
    struct pollfd fd = { .fd = fli_poller_fd(&poller), .events = POLLIN };
    same(poll(&fd, 1, 0), 0);
    fli_poller_wake(&poller);
    fli_poller_wake(&poller);
    same(poll(&fd, 1, 0), 1); /* the wake-up makes the poller's descriptor readable */
    same(fli_poller_wait(&poller, 0, reports, 8), 0);
    same(poll(&fd, 1, 0), 1); /* a call that does not wait leaves the wake-up in place */
    same(fli_poller_wait(&poller, FLI_NEVER, reports, 8), 0);
    same(poll(&fd, 1, 0), 0);
    end();
}

TEST(a_wait_ends_at_its_deadline_and_not_before)
{
    begin();
    (void)!fli_poller_wait(&poller, 0, reports, 8);
    static const uint64_t spans[] = { 0, 1, 100000, 3000000 };
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        uint64_t until = fli_clock_ns() + spans[i];
        same(fli_poller_wait(&poller, until, reports, 8), 0);
        assert_true(fli_clock_ns() >= until);
    }
    same(fli_poller_wait(&poller, 1, reports, 8), 0); /* a time in the past */
    end();
}

TEST(descriptors_that_cannot_be_polled_are_refused)
{
    begin();
    int file = open("/proc/self/exe", O_RDONLY);
    same(fli_poller_add(&poller, file, 9), EPERM);
    close(file);
    same(fli_poller_add(&poller, ends[0], 8), EEXIST);
    end();
}

TEST(a_poller_that_cannot_add_its_wake_descriptor_is_not_opened)
{
    int        before = open_descriptors();
    fli_poller none = { .epoll = -1, .wakefd = -1 };
    refuse(epoll_ctl, 1, ENOSPC);
    same(fli_poller_open(&none), FILCH_ESYS);
    same(none.epoll, -1);
    same(open_descriptors(), before);
}

TEST(an_interrupted_wait_returns_no_report)
{
    begin();
    refuse(fli_epoll_wait_ns, 1, EINTR);
    same(fli_poller_wait(&poller, fli_clock_ns() + UINT64_C(60000000000), reports, 8), 0);
    same(refused(fli_epoll_wait_ns), 1);
    same(fli_poller_wait(&poller, 0, reports, 8), 1); /* the report that was pending is not lost */
    end();
}

/* Calls fli_poller_wake() and then waits until `until_ns`. The wait must return at once, whatever its timeout, and must
 * consume the wake-up. */
static void waits_until(uint64_t until_ns)
{
    struct pollfd fd = { .fd = fli_poller_fd(&poller), .events = POLLIN };
    fli_poller_wake(&poller);
    same(fli_poller_wait(&poller, until_ns, reports, 8), 0);
    same(poll(&fd, 1, 0), 0);
}

TEST(a_timeout_of_a_month_or_more_still_waits)
{
    begin();
    same(fli_poller_wait(&poller, 0, reports, 8), 1);
    errno = EINTR; /* fli_poller_wait() must not take this old errno for an error of its own */
    waits_until(fli_clock_ns() + UINT64_C(86400000000000) * 30);
    errno = EINTR;
    waits_until(FLI_NEVER - 1);
    end();
}

TEST(without_nanosecond_timeouts_waits_are_rounded_up_to_milliseconds)
{
    begin();
    same(fli_poller_wait(&poller, 0, reports, 8), 1);
    static const uint64_t spans[] = { 1, 100000, 3000000 };
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        uint64_t until = fli_clock_ns() + spans[i];
        refuse(fli_epoll_wait_ns, 1, EFAULT); /* after a failure with EFAULT the next wait tries nanoseconds again */
        same(fli_poller_wait(&poller, until, reports, 8), 0);
        same(refused(fli_epoll_wait_ns), 1);
        assert_true(fli_clock_ns() >= until);
    }
    refuse(fli_epoll_wait_ns, 3, EFAULT);
    same(fli_poller_wait(&poller, 1, reports, 8), 0); /* a time in the past */
    waits_until(fli_clock_ns() + UINT64_C(86400000000000) * 30);
    waits_until(FLI_NEVER - 1);
    same(refused(fli_epoll_wait_ns), 3);
    end();
}

TEST(a_missing_nanosecond_wait_is_tried_once_only)
{
    static const int reasons[] = { ENOSYS, EPERM }; /* ENOSYS: an old kernel, or valgrind; EPERM: a sandbox */
    for (size_t i = 0; i < 2; i++) {
        begin();
        same(fli_poller_wait(&poller, 0, reports, 8), 1);
        refuse(fli_epoll_wait_ns, 100, reasons[i]);
        for (int k = 0; k < 10; k++) {
            uint64_t until = fli_clock_ns() + 100000;
            same(fli_poller_wait(&poller, until, reports, 8), 0);
            assert_true(fli_clock_ns() >= until);
        }
        same(refused(fli_epoll_wait_ns), 1);
        refuse_no_more(fli_epoll_wait_ns);
        end();
    }
}

TEST(reports_that_do_not_fit_one_wait_come_with_the_next)
{
    enum { MANY = 200 };
    static fli_poll_report many[MANY];
    static int             fds[MANY];
    uint32_t               sum = 0;
    uint64_t               numbers = 0;
    ok(fli_poller_open(&poller));
    for (int i = 0; i < MANY; i++) {
        fds[i] = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_true(fds[i] >= 0);
        same(fli_poller_add(&poller, fds[i], (uint64_t)i + 1), 0);
    }
    for (uint32_t n; (n = fli_poller_wait(&poller, 0, many, MANY)) > 0; sum += n) {
        assert_true(n < MANY);
        for (uint32_t i = 0; i < n; i++) numbers += many[i].number;
    }
    same(sum, MANY);
    same(numbers, MANY * (MANY + 1) / 2); /* each number was reported once */
    for (int i = 0; i < MANY; i++) close(fds[i]);
    fli_poller_close(&poller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_is_reported_once_with_its_number),
        cmocka_unit_test(a_wake_up_stays_until_a_call_that_waits_consumes_it),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_not_before),
        cmocka_unit_test(descriptors_that_cannot_be_polled_are_refused),
        cmocka_unit_test(a_poller_that_cannot_add_its_wake_descriptor_is_not_opened),
        cmocka_unit_test(an_interrupted_wait_returns_no_report),
        cmocka_unit_test(a_timeout_of_a_month_or_more_still_waits),
        cmocka_unit_test(without_nanosecond_timeouts_waits_are_rounded_up_to_milliseconds),
        cmocka_unit_test(a_missing_nanosecond_wait_is_tried_once_only),
        cmocka_unit_test(reports_that_do_not_fit_one_wait_come_with_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
