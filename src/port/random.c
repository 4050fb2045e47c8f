/* random.c - see random.h. Falls back to the clock and an address if the system provides no entropy. */
#include "port/random.h"

#include <sys/random.h>

#include "base/prng.h"
#include "port/clock.h"

uint64_t fli_random_u64(void)
{
    uint64_t value = 0;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != (ssize_t)sizeof value) {
        uint64_t mix = fli_clock_ns() ^ (uint64_t)(uintptr_t)&value;
        value = fli_prng_mix(mix);
    }
    return value != 0 ? value : 1;
}
