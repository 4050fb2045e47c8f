/* clock.c - the monotonic clock over POSIX. */
#include "port/clock.h"

#include <time.h>

#include "base/assert.h"

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    FLI_ASSERT(clock_gettime(clock, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t fli_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t fli_clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t fli_clock_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
