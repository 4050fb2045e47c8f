/* still_clock.c - a replacement of port/clock.c: a clock that only the program advances. Every read advances it by
 * STEP_NS, so that loops that wait for it end. With this clock a run does not depend on the machine.
 *
 * The clock starts at zero, in the distant past of the system's clock. filch_sched_stop waits for one of these times by
 * the system's clock; that wait ends at once.
 */
#include "fuzz/still_clock.h"

#include "port/clock.h"

#define STEP_NS 5000

uint64_t still_clock_ns;

uint64_t fli_clock_ns(void)
{
    return still_clock_ns += STEP_NS;
}
