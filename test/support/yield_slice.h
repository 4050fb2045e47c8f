/* yield_slice.h - how a thread of a test waits for another thread, also on a loaded machine. */
#ifndef FILCH_TEST_YIELD_SLICE_H
#define FILCH_TEST_YIELD_SLICE_H

#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

/* Gives up the time slice, for a thread that waits for another one in a loop. If other programs occupy the machine, a
 * sched_yield() takes several milliseconds, because the other programs run first; a thread that sleeps runs soon
 * after it wakes. So after a slow sched_yield() the next calls of this thread sleep for a moment instead. */
static inline void yield_slice(void)
{
    static _Thread_local unsigned sleeps;
    struct timespec               before, after, brief = { .tv_nsec = 20000 };
    if (sleeps > 0) {
        sleeps--;
        (void)ppoll(NULL, 0, &brief, NULL);
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    sched_yield();
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    int64_t took_ns = (after.tv_sec - before.tv_sec) * INT64_C(1000000000) + after.tv_nsec - before.tv_nsec;
    if (took_ns > 500000) sleeps = 100;
}

#endif
