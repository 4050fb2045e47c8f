/* clock_test.c - the clock goes forward at the pace of the system's clock, and sums do not wrap. */
#include <time.h>

#include "port/clock.h"
#include "support/check.h"

static uint64_t system_ns(void)
{
    struct timespec now;
    ok(clock_gettime(CLOCK_MONOTONIC, &now));
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

TEST(the_clock_reads_monotonic_nanoseconds)
{
    for (int i = 0; i < 10000; i++) {
        uint64_t before = system_ns(), now = fli_clock_ns(), after = system_ns();
        assert_true(before <= now && now <= after);
    }
}

TEST(processor_time_grows_while_the_thread_runs)
{
    uint64_t began = fli_clock_cpu_ns(), now = began;
    while (now < began + 1000000) { /* until the thread has used a millisecond of CPU time */
        uint64_t next = fli_clock_cpu_ns();
        assert_true(next >= now);
        now = next;
    }
}

TEST(sums_of_times_saturate_at_never)
{
    assert_true(fli_clock_after(10, 5) == 15);
    assert_true(fli_clock_after(0, 0) == 0);
    assert_true(fli_clock_after(10, FLI_NEVER) == FLI_NEVER);
    assert_true(fli_clock_after(FLI_NEVER, 1) == FLI_NEVER);
    assert_true(fli_clock_after(FLI_NEVER - 5, 5) == FLI_NEVER);
    assert_true(fli_clock_after(FLI_NEVER - 5, 4) == FLI_NEVER - 1);
    assert_true(fli_clock_after(FLI_NEVER - 5, 6) == FLI_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_reads_monotonic_nanoseconds),
        cmocka_unit_test(processor_time_grows_while_the_thread_runs),
        cmocka_unit_test(sums_of_times_saturate_at_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
