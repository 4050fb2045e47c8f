/* interrupt.h - interrupting a thread where it runs: a signal to that thread alone, and a function that is called there.
 *
 * The runtime itself never uses this. A guest that runs other people's code does (src/lua/preempt/preempt.c), if its user lets it.
 */
#ifndef FLI_PORT_INTERRUPT_H
#define FLI_PORT_INTERRUPT_H

#include <stdint.h>

#include <filch.h>

/* Calls `handler` on the signal from now on, for the whole program. `signal` 0: SIGURG, which programs ignore unless
 * they ask for urgent data. Installing the same handler again is counted. FILCH_EBUSY: another signal or handler is in
 * place. */
filch_err fli_interrupt_install(int signal, void (*handler)(void));
/* As often as installed; the last one restores what was there before. */
void fli_interrupt_remove(void);

/* This thread can be interrupted from now on. */
void fli_interrupt_allow(void);

/* What to interrupt a thread by. A thread that has ended is not interrupted, or another one of this program is: the
 * handler has to look whether it is meant. */
uint64_t fli_interrupt_me(void);
void     fli_interrupt_send(uint64_t thread);

#endif
