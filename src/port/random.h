/* random.h - a little entropy from the system, for seeds and node names. Never for secrets. */
#ifndef FLI_PORT_RANDOM_H
#define FLI_PORT_RANDOM_H

#include <stdint.h>

/* Never zero. */
uint64_t fli_random_u64(void);

#endif
