/* patience.h - a time limit for waiting in a loop, for a test that fails if the condition never holds. The time between
 * two checks counts for at most PATIENCE_LOOK_NS, so that time in which the machine did not run the test hardly counts.
 * So the limit can be short, and a test whose condition never holds fails soon. */
#ifndef FILCH_TEST_PATIENCE_H
#define FILCH_TEST_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "port/clock.h"

/* Maximum time that is counted between two checks. Any time beyond it does not count, because the thread was probably
 * suspended. */
#define PATIENCE_LOOK_NS UINT64_C(1000000)

typedef struct patience {
    uint64_t left_ns, looked_ns;
} patience;

static inline patience patience_begin(uint64_t ns)
{
    return (patience){ .left_ns = ns, .looked_ns = fli_clock_ns() };
}

/* Counts the time since the last check. Returns true if the time limit of `p` is reached. */
static inline bool patience_is_over(patience *p)
{
    uint64_t now_ns = fli_clock_ns(), passed = now_ns - p->looked_ns;
    if (passed > PATIENCE_LOOK_NS) passed = PATIENCE_LOOK_NS;
    p->looked_ns = now_ns;
    p->left_ns -= passed < p->left_ns ? passed : p->left_ns;
    return p->left_ns == 0;
}

#endif
