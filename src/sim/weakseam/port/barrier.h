/* barrier.h - the explorer's barrier for all threads: from then on no thread finds a value that was overwritten before. */
#ifndef FLI_PORT_BARRIER_H
#define FLI_PORT_BARRIER_H

#include <stdbool.h>

#include "sim/weak.h"

static inline bool fli_barrier_ready(void)
{
    return true;
}
static inline void fli_barrier_everywhere(void)
{
    fli_weak_barrier();
}
/* For the compiler, which keeps the explorer's calls in their order anyway. */
static inline void fli_barrier_here(void)
{
}

#endif
