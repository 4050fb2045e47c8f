/* full_idle.h - waits until a scheduler is in full idle: all workers are parked, and none of them is a sentinel (a
 * parked worker with a timeout to check the others). */
#ifndef FILCH_TEST_FULL_IDLE_H
#define FILCH_TEST_FULL_IDLE_H

#include <filch.h>

#include "port/thread.h"
#include "support/check.h"
#include "support/patience.h"
#include "support/yield_slice.h"

#define FULL_IDLE_PATIENCE_NS UINT64_C(20000000000)
/* Time for which all workers must stay parked before a scheduler counts as in full idle. It is longer than the timeout
 * of a sentinel, which is at most 8 ms. */
#define FULL_IDLE_QUIET_NS UINT64_C(30000000)

/* Waits until the scheduler is in full idle. Returns false if it does not reach full idle. Sentinels may stay parked
 * with timeouts for timers that are due later. */
static inline bool full_idle_comes(filch_sched *sched)
{
    patience    left = patience_begin(FULL_IDLE_PATIENCE_NS), quiet = patience_begin(FULL_IDLE_QUIET_NS);
    filch_stats stats = FILCH_STATS_INIT;
    uint64_t    sleeps = 0;
    while (!patience_is_over(&left)) {
        ok(filch_sched_stats(sched, &stats));
        if (stats.asleep < stats.workers || stats.sleeps != sleeps) quiet = patience_begin(FULL_IDLE_QUIET_NS);
        sleeps = stats.sleeps;
        if (patience_is_over(&quiet)) return true;
        yield_slice();
    }
    return false;
}

#endif
