/* random.h - entropy from the system, for seeds and node names. Not for secrets. */
#ifndef FLI_PORT_RANDOM_H
#define FLI_PORT_RANDOM_H

#include <stdint.h>

/* Returns a random number that is never zero. */
uint64_t fli_random_u64(void);

#endif
