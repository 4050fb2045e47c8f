/* futex.h - sleeping on a word: the base of the parker of thread.h on Linux.
 *
 * The system compares the word and goes to sleep in one step. A wake before this step finds no sleeper, but then the
 * word has been changed already; a wake after this step finds the sleeper. Neither call orders memory; the atomic
 * operations on the word do.
 */
#ifndef FLI_PORT_FUTEX_H
#define FLI_PORT_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

#include "port/atomic.h"

/* If *word is 0, sleeps until fli_futex_wake(), until the monotonic clock reads `until_ns` (UINT64_MAX: for ever), or
 * until a spurious wake-up. If *word is not 0, returns at once. Returns false if the time is up. */
bool fli_futex_wait(FLI_ATOMIC(uint32_t) *word, uint64_t until_ns);
/* Wakes one thread that sleeps on `word` in fli_futex_wait(). */
void fli_futex_wake(FLI_ATOMIC(uint32_t) *word);

#endif
