/* until.h - waits for a condition, and scales the length of loops. */
#ifndef FILCH_TEST_UNTIL_H
#define FILCH_TEST_UNTIL_H

#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"
#include "support/patience.h"

/* Time limit of a wait. It is long because sanitizers and valgrind are slow, and because it matters only if the
 * condition never becomes true. */
#define UNTIL_NS UINT64_C(20000000000)

/* Pauses between two checks: gives up the time slice; after many checks sleeps 0.2 ms. */
static inline void until_pause(unsigned looks)
{
    struct timespec brief = { .tv_nsec = 200000 };
    if (looks < 200) sched_yield();
    else (void)ppoll(NULL, 0, &brief, NULL);
}

/* Returns true as soon as look(ctx) returns true, or false when the time is up. For threads other than the thread of
 * the test, because only the thread of the test may make it fail. */
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
        for (unsigned looks = 0; !(condition); looks++) {                             \
            if (patience_is_over(&until_patience)) fail_msg("never: %s", #condition); \
            until_pause(looks);                                                       \
        }                                                                             \
    } while (0)

/* Returns `count` scaled by the percentage in FILCH_TEST_SCALE, at least 1. */
static inline uint64_t scaled(uint64_t count)
{
    const char *percent = getenv("FILCH_TEST_SCALE");
    uint64_t    n = percent != NULL ? count * strtoull(percent, NULL, 10) / 100 : count;
    return n > 0 ? n : 1;
}

/* Returns true if the test runs under valgrind. There a child of posix_spawn gets a copy of the memory instead of
 * sharing it, so a program that cannot be started seems to start and then fails. Valgrind also uses some descriptors
 * itself. */
static inline bool is_under_valgrind(void)
{
    return getenv("FILCH_TEST_VALGRIND") != NULL;
}

/* Returns the command (qemu-user) that runs programs of the emulated machine, or NULL if no machine is emulated.
 * qemu-user does not start programs of the emulated machine for a child, and cannot start threads in the child of a
 * program with threads; a program that cannot be started seems to start and then fails. */
static inline const char *emulator(void)
{
    return getenv("FILCH_EMULATOR");
}

#endif
