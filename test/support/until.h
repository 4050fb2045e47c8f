/* until.h - waits for a condition, and scales the length of loops. */
#ifndef FILCH_TEST_UNTIL_H
#define FILCH_TEST_UNTIL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"
#include "support/patience.h"
#include "support/yield_slice.h"

/* Time limit of a wait, in nanoseconds. It is long because sanitizers and valgrind are slow, and because a test reaches
 * it only if the condition never becomes true. */
#define UNTIL_NS UINT64_C(20000000000)

/* Pauses between two checks of a condition: gives up the time slice; after many checks sleeps for 0.2 ms. */
static inline void until_pause(unsigned looks)
{
    struct timespec brief = { .tv_nsec = 200000 };
    if (looks < 200) yield_slice();
    else (void)ppoll(NULL, 0, &brief, NULL);
}

/* Returns true as soon as look(ctx) returns true, or false when the time is up. For threads other than the thread of
 * the test, because only the thread of the test may fail the test. */
static inline bool until_or_late(bool (*look)(void *ctx), void *ctx)
{
    patience left = patience_begin(UNTIL_NS);
    for (unsigned looks = 0; !look(ctx); looks++) {
        if (patience_is_over(&left)) return false;
        until_pause(looks);
    }
    return true;
}

/* Waits until `condition` holds. Fails the test when the time is up. Only for the thread of the test. */
#define until(condition)                                                              \
    do {                                                                              \
        patience until_patience = patience_begin(UNTIL_NS);                           \
        for (unsigned until_looks = 0; !(condition); until_looks++) {                 \
            if (patience_is_over(&until_patience)) fail_msg("never: %s", #condition); \
            until_pause(until_looks);                                                 \
        }                                                                             \
    } while (0)

/* Returns `count` scaled by the percentage in FILCH_TEST_SCALE, at least 1. */
static inline uint64_t scaled(uint64_t count)
{
    const char *percent = getenv("FILCH_TEST_SCALE");
    uint64_t    n = percent != NULL ? count * strtoull(percent, NULL, 10) / 100 : count;
    return n > 0 ? n : 1;
}

/* Returns true if the test runs under valgrind. Under valgrind a child of posix_spawn gets a copy of the memory instead
 * of sharing it, so posix_spawn succeeds for a program that cannot be started, and the child fails later. Valgrind also
 * uses some descriptors itself. */
static inline bool is_under_valgrind(void)
{
    return getenv("FILCH_TEST_VALGRIND") != NULL;
}

/* Returns the command (qemu-user) that runs programs of the emulated machine, or NULL if no machine is emulated. Under
 * qemu-user a child must start a program of the emulated machine by this command, the child of a program with threads
 * cannot start threads, and posix_spawn succeeds for a program that cannot be started: the child fails later. */
static inline const char *emulator(void)
{
    return getenv("FILCH_EMULATOR");
}

#endif
