/* barrier.h - a barrier in all threads of the program, at the cost of the calling thread.
 *
 * Two threads that must not miss each other's writes both write and then read; each thread needs a full barrier between
 * its write and its read. If one of the threads writes and reads often and the other rarely, the rare thread can
 * execute the barrier for both: when its call of fli_barrier_everywhere() returns, every thread of the program has
 * passed a full barrier since the call began. The frequent thread then needs no barrier instruction. */
#ifndef FLI_PORT_BARRIER_H
#define FLI_PORT_BARRIER_H

#include <stdbool.h>

/* Returns true if the barrier is available (Linux 4.14, unless a sandbox forbids it). Call fli_barrier_ready() before
 * the first fli_barrier_everywhere(). */
bool fli_barrier_ready(void);
/* Executes a full barrier in every thread of the program. Requires that fli_barrier_ready() returned true. */
void fli_barrier_everywhere(void);
/* The cheap half of the barrier: called between the write and the read by the thread that often writes and then reads.
 * The other thread, which rarely writes and then reads, calls fli_barrier_everywhere() between its write and its read.
 * fli_barrier_here() keeps the compiler from reordering the write and the read; it compiles to no instruction. */
static inline void fli_barrier_here(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
