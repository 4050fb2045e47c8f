/* barrier.h - a barrier for all threads of the program, paid for by the one that asks.
 *
 * Two threads that must not miss each other both write and then read; each needs a full barrier in between. Where one of
 * them does this all the time and the other hardly ever, the rare one can pay for both: when its call returns, every
 * thread of the program has passed a full barrier since it began. The frequent side then reads and writes plainly.
 */
#ifndef FLI_PORT_BARRIER_H
#define FLI_PORT_BARRIER_H

#include <stdbool.h>

/* Returns true if the barrier is available (Linux 4.14, unless a sandbox forbids it). Call it before the first barrier.
 */
bool fli_barrier_ready(void);
/* Only where it is ready. */
void fli_barrier_everywhere(void);
/* What the frequent side says between its write and its read: the compiler keeps them in this order. Costs nothing. */
static inline void fli_barrier_here(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
