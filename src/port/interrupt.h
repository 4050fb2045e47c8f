/* interrupt.h - interrupts a running thread: a signal to that thread alone calls a function on it.
 *
 * The runtime itself never uses this. A client of the library that runs code of other people does
 * (src/lua/preempt/preempt.c), if its user allows it. */
#ifndef FLI_PORT_INTERRUPT_H
#define FLI_PORT_INTERRUPT_H

#include <stdint.h>

#include <filch.h>

/* Installs `handler` for `signal` in the whole program. `signal` 0: SIGURG, which programs ignore unless they ask for
 * urgent data. If this handler is already installed for this signal, only counts the call. FILCH_EBUSY: another
 * handler, or a handler for another signal, is installed. */
filch_err fli_interrupt_install(int signal, void (*handler)(void));
/* Undoes one call of fli_interrupt_install(); call it as often as fli_interrupt_install(). The last call restores the
 * handler that the signal had before. */
void fli_interrupt_remove(void);

/* Unblocks the signal in the calling thread, so that the thread can be interrupted from now on. */
void fli_interrupt_allow(void);

/* Returns the id by which the calling thread can be interrupted. After this thread has ended, an interrupt reaches no
 * thread, or a later thread of the program that has got the same id. So the handler must check whether the interrupt is
 * meant for the thread on which it runs. */
uint64_t fli_interrupt_me(void);
void     fli_interrupt_send(uint64_t thread);

#endif
