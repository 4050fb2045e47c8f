/* patience.h - a time limit for waiting in a loop, for a test that fails if the condition never holds. The time between
 * two checks counts for at most PATIENCE_LOOK_NS, so that time in which the machine did not run the test hardly counts.
 * So the limit can be short, and a test whose condition never holds fails soon. */
#ifndef FILCH_TEST_PATIENCE_H
#define FILCH_TEST_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "port/clock.h"

/* The most that the time between two checks counts, however long the thread was suspended. */
#define PATIENCE_LOOK_NS UINT64_C(1000000)

typedef struct patience {
    uint64_t left_ns, looked_ns;
} patience;

static inline patience patience_begin(uint64_t ns)
{
    return (patience){ .left_ns = ns, .looked_ns = fli_clock_ns() };
}

/* Counts one unsuccessful check. Returns true if the limit is reached. */
static inline bool patience_is_over(patience *p)
{
    uint64_t now_ns = fli_clock_ns(), passed = now_ns - p->looked_ns;
    if (passed > PATIENCE_LOOK_NS) passed = PATIENCE_LOOK_NS;
    p->looked_ns = now_ns;
    p->left_ns -= passed < p->left_ns ? passed : p->left_ns;
    return p->left_ns == 0;
}

#endif
