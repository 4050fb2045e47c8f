/* fiber.h - stacks that switch only by an explicit call. The simulator runs its virtual threads on them. */
#ifndef FLI_SIM_FIBER_H
#define FLI_SIM_FIBER_H

#include <stddef.h>

typedef struct fli_fiber {
    void  *sp;    /* saved stack pointer while it is not running */
    void  *stack; /* NULL: the stack of the real thread */
    size_t size;
} fli_fiber;

/* Prepares a fiber that will call `run(arg)` when first switched to; `run` must never return. Returns false without
 * memory. */
int fli_fiber_init(fli_fiber *fiber, size_t stack_size, void (*run)(void *arg), void *arg);
/* Restarts the fiber with another function on the same stack. The fiber must not be running. */
void fli_fiber_reset(fli_fiber *fiber, void (*run)(void *arg), void *arg);
void fli_fiber_fini(fli_fiber *fiber);

/* Switches from `from`, which is running, to `to`. Returns when another fiber switches back to `from`. */
void fli_fiber_switch(fli_fiber *from, fli_fiber *to);

#endif
