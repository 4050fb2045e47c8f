/* barrier.h - the explorer's process-wide barrier: after it no thread reads a value that was overwritten before it. */
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
/* A compiler barrier. Empty here, because the compiler does not reorder the calls of the explorer that stand for atomic
 * operations. */
static inline void fli_barrier_here(void)
{
}

#endif
