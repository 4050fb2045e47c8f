/* counters.h - the statistics counters. Each worker has a set that only it writes; readers add the sets up. Threads
 * that are no workers share one set, with atomic additions. */
#ifndef FLI_OBSERVE_COUNTERS_H
#define FLI_OBSERVE_COUNTERS_H

#include <stdint.h>

#include "port/atomic.h"

/* clang-format off */
#define FLI_COUNTER_MAP(X) \
    X(spawned) \
    X(ended) \
    X(failed) \
    X(steps) \
    X(sent) \
    X(undelivered) \
    X(refused) \
    X(dropped) \
    X(yields) \
    X(completions) \
    X(late_completions) \
    X(abandoned) \
    X(steals) \
    X(stolen) \
    X(sleeps) \
    X(wakes) \
    X(long_steps)
/* clang-format on */

/* Statistics. No order is defined between the counters, so most accesses are relaxed. Exception: to find out whether
 * any process still exists, sched/stats.c reads `spawned`, `ended` and `leaving` with acquire. The reason is explained
 * there, at fli_stats_alive(). */
typedef struct fli_counters {
#define X(name) FLI_ATOMIC(uint64_t) name;
    FLI_COUNTER_MAP(X)
#undef X
    FLI_ATOMIC(uint64_t) leaving; /* number of ended processes with an on_exit that has not returned yet */
    /* Number of inline steps, which are the iterations of inline completion loops. Each inline step is also one step,
     * one yield and one completion; the counters `steps`, `yields` and `completions` do not include inline steps. */
    FLI_ATOMIC(uint64_t)
    inline_steps;
} fli_counters;

static inline uint64_t fli_counters_steps(const fli_counters *counters)
{
    return fli_load_rlx(&counters->steps) + fli_load_rlx(&counters->inline_steps);
}

#endif
