/* barrier.h - a barrier in all threads of the program, at the cost of the calling thread.
 *
 * Two threads that must not miss each other's writes both write and then read; each needs a full barrier in between.
 * If one side does this often and the other rarely, the rare side can execute the barrier for both: when its call
 * returns, every thread of the program has passed a full barrier since the call began. The frequent side then needs
 * no barrier instruction. */
#ifndef FLI_PORT_BARRIER_H
#define FLI_PORT_BARRIER_H

#include <stdbool.h>

/* Returns true if the barrier is available (Linux 4.14, unless a sandbox forbids it). Call it before the first barrier.
 */
bool fli_barrier_ready(void);
/* Executes a full barrier in every thread of the program. Requires that fli_barrier_ready() returned true. */
void fli_barrier_everywhere(void);
/* Called by the side that writes and reads often, between its write and its read. Keeps the compiler from reordering
 * the two; compiles to no instruction. */
static inline void fli_barrier_here(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
