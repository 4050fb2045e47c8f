/* clock.h - the monotonic clock, in nanoseconds. */
#ifndef FLI_PORT_CLOCK_H
#define FLI_PORT_CLOCK_H

#include <stdint.h>

#define FLI_NEVER UINT64_MAX

uint64_t fli_clock_ns(void);
/* Returns the time of day as nanoseconds since 1970-01-01 00:00 UTC. The system may set this clock back: use it for
 * display, not for measuring intervals. */
uint64_t fli_clock_wall_ns(void);

/* Returns the CPU time that the calling thread has used. Only differences are meaningful. */
uint64_t fli_clock_cpu_ns(void);

/* Returns `from_ns` + `span_ns`, or FLI_NEVER if the sum overflows. */
static inline uint64_t fli_clock_after(uint64_t from_ns, uint64_t span_ns)
{
    return span_ns > FLI_NEVER - from_ns ? FLI_NEVER : from_ns + span_ns;
}

#endif
