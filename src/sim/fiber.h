/* fiber.h - threads of control that switch only when told to: what the simulator runs virtual workers on. */
#ifndef FLI_SIM_FIBER_H
#define FLI_SIM_FIBER_H

#include <stddef.h>

typedef struct fli_fiber {
    void *sp;       /* saved stack pointer while it is not running */
    void *stack;    /* NULL for the thread that started it all */
    size_t size;
} fli_fiber;

/* Prepares a fiber that will call `run(arg)` when first switched to; `run` must never return. False: no memory. */
int  fli_fiber_init(fli_fiber *fiber, size_t stack_size, void (*run)(void *arg), void *arg);
/* Makes it run something else from the start, on the same stack. It must not be the one running. */
void fli_fiber_reset(fli_fiber *fiber, void (*run)(void *arg), void *arg);
void fli_fiber_fini(fli_fiber *fiber);

/* Leaves `from` (the one running) and goes on in `to`. Returns when somebody switches back. */
void fli_fiber_switch(fli_fiber *from, fli_fiber *to);

#endif
