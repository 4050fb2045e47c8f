/* barrier.h - a barrier in all threads of the program, at the cost of the calling thread.
 *
 * Two threads that must not miss each other's writes both write and then read; each needs a full barrier in between.
 * If one side does this often and the other rarely, the rare side can execute the barrier for both: when its call
 * returns, every thread of the program has passed a full barrier since the call began. The frequent side then needs
 * no barrier instruction. */
#ifndef FLI_PORT_BARRIER_H
#define FLI_PORT_BARRIER_H

#include <stdbool.h>

/* Returns true if the barrier is available (Linux 4.14, unless a sandbox forbids it). Call fli_barrier_ready() before
 * the first fli_barrier_everywhere(). */
bool fli_barrier_ready(void);
/* Executes a full barrier in every thread of the program. Requires that fli_barrier_ready() returned true. */
void fli_barrier_everywhere(void);
/* Called by the thread that writes and then reads often, between the write and the read; the thread that does this
 * rarely calls fli_barrier_everywhere() instead. Keeps the compiler from reordering the write and the read; compiles to
 * no instruction. */
static inline void fli_barrier_here(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
