/* clock.c - the monotonic clock over POSIX. */
#include "port/clock.h"

#include <time.h>

#include "base/assert.h"

uint64_t fli_clock_ns(void)
{
    struct timespec now;
    FLI_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t fli_clock_cpu_ns(void)
{
    struct timespec used;
    FLI_ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}
