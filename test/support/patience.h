/* patience.h - how long to wait for something that does not happen. Each check counts for at most PATIENCE_LOOK_NS, so
 * time in which the machine did not run the test is not used up. So the limit can be short, and a wait in vain fails
 * soon. */
#ifndef FILCH_TEST_PATIENCE_H
#define FILCH_TEST_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "port/clock.h"

/* The most that one check counts for, however long the thread was suspended before it. */
#define PATIENCE_LOOK_NS UINT64_C(1000000)

typedef struct patience {
    uint64_t left_ns, looked_ns;
} patience;

static inline patience patience_begin(uint64_t ns)
{
    return (patience){ .left_ns = ns, .looked_ns = fli_clock_ns() };
}

/* Counts one check without success. Returns true if the limit is reached. */
static inline bool patience_is_over(patience *p)
{
    uint64_t now_ns = fli_clock_ns(), passed = now_ns - p->looked_ns;
    if (passed > PATIENCE_LOOK_NS) passed = PATIENCE_LOOK_NS;
    p->looked_ns = now_ns;
    p->left_ns -= passed < p->left_ns ? passed : p->left_ns;
    return p->left_ns == 0;
}

#endif
