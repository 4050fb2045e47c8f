/* still_clock.h - see still_clock.c. */
#ifndef FILCH_FUZZ_STILL_CLOCK_H
#define FILCH_FUZZ_STILL_CLOCK_H

#include <stdint.h>

extern uint64_t still_clock_ns;

#endif
