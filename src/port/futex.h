/* futex.h - sleeping on a word: what the bell of thread.h is made of on Linux.
 *
 * The system compares the word and falls asleep in one step. A wake that comes before has found nobody, but the word has
 * been changed by then; one that comes after finds the sleeper. Neither call orders memory: the word's own operations do.
 */
#ifndef FLI_PORT_FUTEX_H
#define FLI_PORT_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

#include "port/atomic.h"

/* Sleeps if the word is 0: until fli_futex_wake, until the monotonic clock reads `until_ns` (UINT64_MAX: for ever), or for
 * no reason. Returns false if the time is up. */
bool fli_futex_wait(FLI_ATOMIC(uint32_t) *word, uint64_t until_ns);
/* Wakes one that sleeps on the word. */
void fli_futex_wake(FLI_ATOMIC(uint32_t) *word);

#endif
