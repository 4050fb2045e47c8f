/* manual_clock.h - stops the library's clock and advances it by hand, for tests whose result must not depend on how
 * fast the machine is. For programs that are linked with filch_instead(NAME fli_clock_ns). */
#ifndef FILCH_TEST_MANUAL_CLOCK_H
#define FILCH_TEST_MANUAL_CLOCK_H

#include <stdint.h>

#include "port/atomic.h"

/* The time while the clock is stopped. 0: the clock is that of the machine. */
static FLI_ATOMIC(uint64_t) manual_ns;

uint64_t __real_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void)
{
    uint64_t ns = fli_load_rlx(&manual_ns);
    return ns != 0 ? ns : __real_fli_clock_ns();
}

/* From now on the time changes only by clock_advance(), up to clock_go(). */
static void clock_stop(void)
{
    fli_store_rlx(&manual_ns, __real_fli_clock_ns());
}

static void clock_advance(uint64_t ns)
{
    fli_store_rlx(&manual_ns, fli_load_rlx(&manual_ns) + ns);
}

static void clock_go(void)
{
    fli_store_rlx(&manual_ns, 0);
}

#endif
