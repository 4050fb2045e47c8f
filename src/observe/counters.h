/* counters.h - what is counted. Each worker has a set of its own that only it writes; readers add them up. Threads the
 * runtime does not know share one set and pay a read-modify-write. */
#ifndef FLI_OBSERVE_COUNTERS_H
#define FLI_OBSERVE_COUNTERS_H

#include <stdint.h>

#include "port/atomic.h"

#define FLI_COUNTER_MAP(X)                                                                                       \
    X(spawned) X(ended) X(failed) X(steps) X(sent) X(undelivered) X(refused) X(dropped) X(yields) X(completions) \
    X(late_completions) X(abandoned) X(steals) X(stolen) X(sleeps) X(wakes) X(long_steps)

/* Statistics, read with no promise about order: relaxed everywhere. `ended` and `spawned` also tell stop when nothing
 * is left, and are read under its rules (sched/stop.c). */
typedef struct fli_counters {
#define X(name) FLI_ATOMIC(uint64_t) name;
    FLI_COUNTER_MAP(X)
#undef X
    FLI_ATOMIC(uint64_t) leaving; /* processes that have ended and whose on_exit has not returned */
    FLI_ATOMIC(uint64_t) inline_steps; /* each a step, its yield and the completion, besides those counted above */
} fli_counters;

static inline uint64_t fli_counters_steps(const fli_counters *counters)
{
    return fli_load_rlx(&counters->steps) + fli_load_rlx(&counters->inline_steps);
}

#endif
