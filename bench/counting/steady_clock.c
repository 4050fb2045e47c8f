/* steady_clock.c - a deterministic clock for counting: each reading is 2 us after the previous one. tools/bench_gate
 * preloads it, so that it replaces the clock of the C library. A worker reads the clock less often if little time
 * passes between readings, and makes fairness picks more often if steps take long. With this clock it behaves as on a
 * fast machine, equally in every run, also under valgrind and beside other programs. */
#include <stdatomic.h>
#include <time.h>

#define STEP_NS 2000

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *now)
{
    static _Atomic(unsigned long long) readings;
    unsigned long long ns = STEP_NS * (atomic_fetch_add_explicit(&readings, 1, memory_order_relaxed) + 1);
    (void)id;
    now->tv_sec = (time_t)(1000 + ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return 0;
}
