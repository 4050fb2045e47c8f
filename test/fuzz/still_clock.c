/* still_clock.c - a second port/clock.c: a clock that only the program moves. Every look takes STEP_NS, so that loops
 * that wait for it end. With it, what an input does never depends on the machine.
 *
 * It begins at zero, that is: long ago. Whoever waits for a moment of it with the system's own clock (only
 * filch_sched_stop does) does not wait at all. */
#include "fuzz/still_clock.h"

#include "port/clock.h"

#define STEP_NS 5000

uint64_t still_clock_ns;

uint64_t fli_clock_ns(void)
{
    return still_clock_ns += STEP_NS;
}
