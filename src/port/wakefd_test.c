/* wakefd_test.c - a wake descriptor is readable exactly while it has been signalled and not cleared. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "port/clock.h"
#include "port/wakefd.h"
#include "support/check.h"

static bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int           n = poll(&p, 1, 0);
    assert_true(n >= 0);
    return n == 1 && (p.revents & POLLIN) != 0;
}

TEST(many_rings_count_as_one_until_cleared)
{
    int fd = -1;
    ok(fli_wakefd_open(&fd));
    assert_false(readable(fd));
    for (int i = 0; i < 100; i++) fli_wakefd_signal(fd);
    assert_true(readable(fd));
    fli_wakefd_clear(fd);
    assert_false(readable(fd));
    fli_wakefd_clear(fd); /* the descriptor is not readable: the clear returns at once */
    assert_false(readable(fd));
    fli_wakefd_signal(fd);
    assert_true(readable(fd));
    fli_wakefd_close(fd);
}

TEST(a_ring_with_a_full_counter_does_not_block)
{
    int      fd = -1;
    uint64_t most = UINT64_MAX - 1;
    ok(fli_wakefd_open(&fd));
    same(write(fd, &most, sizeof most), sizeof most);
    fli_wakefd_signal(fd);
    assert_true(readable(fd));
    fli_wakefd_clear(fd);
    assert_false(readable(fd));
    fli_wakefd_close(fd);
}

TEST(child_programs_do_not_inherit_the_wake_descriptor)
{
    int fd = -1;
    ok(fli_wakefd_open(&fd));
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    fli_wakefd_close(fd);
    same(fcntl(fd, F_GETFD), -1);
}

TEST(wakefd_open_without_free_descriptors_is_an_error)
{
    struct rlimit before, none;
    ok(getrlimit(RLIMIT_NOFILE, &before));
    none = before;
    none.rlim_cur = 0;
    ok(setrlimit(RLIMIT_NOFILE, &none));
    int       fd = -7;
    filch_err err = fli_wakefd_open(&fd);
    ok(setrlimit(RLIMIT_NOFILE, &before));
    same(err, FILCH_ESYS);
    same(fd, -7);
}

/* In a program that has closed its standard input, the alarm gets descriptor 0. */
TEST(an_alarm_that_is_descriptor_0_is_closed_like_any_other)
{
    int         fd = -1, input = dup(0);
    fli_alarmfd alarm;
    assert_true(input >= 0);
    ok(fli_wakefd_open(&fd));
    ok(close(0));
    ok(fli_alarmfd_open(&alarm, fd));
    int poll_was = alarm.poll, timer_was = alarm.timer;
    fli_alarmfd_close(&alarm);
    bool closed = fcntl(poll_was, F_GETFD) == -1 && fcntl(timer_was, F_GETFD) == -1;
    same(dup2(input, 0), 0);
    ok(close(input));
    same(poll_was, 0);
    assert_true(closed);
    fli_wakefd_close(fd);
}

TEST(an_alarm_that_fired_stays_readable_until_it_is_set_again)
{
    int         fd = -1;
    fli_alarmfd alarm;
    ok(fli_wakefd_open(&fd));
    ok(fli_alarmfd_open(&alarm, fd));
    assert_false(readable(alarm.poll));
    fli_wakefd_signal(fd);
    assert_true(readable(alarm.poll));
    fli_wakefd_clear(fd);
    assert_false(readable(alarm.poll));
    fli_alarmfd_set(&alarm, 0); /* a time in the past */
    struct pollfd p = { .fd = alarm.poll, .events = POLLIN };
    same(poll(&p, 1, 60000), 1);
    assert_true(readable(alarm.poll)); /* still readable */
    fli_alarmfd_set(&alarm, UINT64_MAX);
    assert_false(readable(alarm.poll));
    fli_alarmfd_set(&alarm, fli_clock_ns() + 1000000);
    same(poll(&p, 1, 60000), 1);
    fli_alarmfd_set(&alarm, fli_clock_ns() + UINT64_C(3600000000000));
    assert_false(readable(alarm.poll));
    fli_alarmfd_close(&alarm);
    fli_alarmfd_close(&alarm); /* a second close has no effect */
    fli_wakefd_close(fd);
}

TEST(an_alarm_that_cannot_be_opened_leaks_no_descriptor)
{
    fli_alarmfd alarm = { .poll = -1 };
    same(fli_alarmfd_open(&alarm, -1), FILCH_ESYS); /* -1 cannot be added to an epoll */
    same(alarm.poll, -1);
    int before = dup(0);
    (void)close(before);
    same(fli_alarmfd_open(&alarm, -1), FILCH_ESYS);
    int after = dup(0);
    same(after, before);
    (void)close(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_rings_count_as_one_until_cleared),
        cmocka_unit_test(a_ring_with_a_full_counter_does_not_block),
        cmocka_unit_test(child_programs_do_not_inherit_the_wake_descriptor),
        cmocka_unit_test(wakefd_open_without_free_descriptors_is_an_error),
        cmocka_unit_test(an_alarm_that_is_descriptor_0_is_closed_like_any_other),
        cmocka_unit_test(an_alarm_that_fired_stays_readable_until_it_is_set_again),
        cmocka_unit_test(an_alarm_that_cannot_be_opened_leaks_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
