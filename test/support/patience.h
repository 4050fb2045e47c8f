/* patience.h - how long to wait for what does not come. Only time in which we look counts: a machine that is busy, or that
 * stops us for a while, does not use it up. So it can be short, and whoever waits in vain says so soon. */
#ifndef FILCH_TEST_PATIENCE_H
#define FILCH_TEST_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "port/clock.h"

/* The most that one look can cost, however long we were kept from it. */
#define PATIENCE_LOOK_NS UINT64_C(1000000)

typedef struct patience {
    uint64_t left_ns, looked_ns;
} patience;

static inline patience patience_begin(uint64_t ns)
{
    return (patience){ .left_ns = ns, .looked_ns = fli_clock_ns() };
}

/* One look in vain. True: it was the last. */
static inline bool patience_is_over(patience *p)
{
    uint64_t now_ns = fli_clock_ns(), passed = now_ns - p->looked_ns;
    if (passed > PATIENCE_LOOK_NS) passed = PATIENCE_LOOK_NS;
    p->looked_ns = now_ns;
    p->left_ns -= passed < p->left_ns ? passed : p->left_ns;
    return p->left_ns == 0;
}

#endif
