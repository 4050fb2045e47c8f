/* clock.h - the monotonic clock, in nanoseconds. */
#ifndef FLI_PORT_CLOCK_H
#define FLI_PORT_CLOCK_H

#include <stdint.h>

#define FLI_NEVER UINT64_MAX

uint64_t fli_clock_ns(void);
/* The time of day, as nanoseconds since 1970-01-01 00:00 UTC. The system may set it back: for people, not for spans. */
uint64_t fli_clock_wall_ns(void);

/* The processor time that the calling thread has used. Its beginning means nothing. */
uint64_t fli_clock_cpu_ns(void);

/* `from_ns` + `span_ns`, or FLI_NEVER if that is past the end of time. */
static inline uint64_t fli_clock_after(uint64_t from_ns, uint64_t span_ns)
{
    return span_ns > FLI_NEVER - from_ns ? FLI_NEVER : from_ns + span_ns;
}

#endif
