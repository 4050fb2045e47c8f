/* poller_test.c - edges, the bell, and time. */
#include "port/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/clock.h"
#include "support/check.h"

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
    fli_poller_close(&poller); /* twice is fine */
}

TEST(each_change_is_reported_once_with_its_number)
{
    begin();
    same(fli_poller_wait(&poller, 0, reports, 8), 1); /* writable from the beginning */
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

TEST(the_bell_rings_until_one_who_waits_has_heard_it)
{
    begin();
    (void)!fli_poller_wait(&poller, 0, reports, 8);
    struct pollfd fd = { .fd = fli_poller_fd(&poller), .events = POLLIN };
    same(poll(&fd, 1, 0), 0);
    fli_poller_ring(&poller);
    fli_poller_ring(&poller);
    same(poll(&fd, 1, 0), 1); /* it can itself be polled */
    same(fli_poller_wait(&poller, 0, reports, 8), 0);
    same(poll(&fd, 1, 0), 1); /* a look does not stop it */
    same(fli_poller_wait(&poller, FLI_NEVER, reports, 8), 0);
    same(poll(&fd, 1, 0), 0);
    end();
}

TEST(waiting_ends_when_the_time_is_up_and_not_before)
{
    begin();
    (void)!fli_poller_wait(&poller, 0, reports, 8);
    static const uint64_t spans[] = { 0, 1, 100000, 3000000 };
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        uint64_t until = fli_clock_ns() + spans[i];
        same(fli_poller_wait(&poller, until, reports, 8), 0);
        assert_true(fli_clock_ns() >= until);
    }
    same(fli_poller_wait(&poller, 1, reports, 8), 0); /* long past */
    end();
}

TEST(what_cannot_be_waited_for_is_refused)
{
    begin();
    int file = open("/proc/self/exe", O_RDONLY);
    same(fli_poller_add(&poller, file, 9), EPERM);
    close(file);
    same(fli_poller_add(&poller, ends[0], 8), EEXIST);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_is_reported_once_with_its_number),
        cmocka_unit_test(the_bell_rings_until_one_who_waits_has_heard_it),
        cmocka_unit_test(waiting_ends_when_the_time_is_up_and_not_before),
        cmocka_unit_test(what_cannot_be_waited_for_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
