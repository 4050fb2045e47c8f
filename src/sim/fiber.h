/* fiber.h - fibers: stacks between which a program switches only by an explicit call. The simulator runs its virtual
 * threads on fibers. */
#ifndef FLI_SIM_FIBER_H
#define FLI_SIM_FIBER_H

#include <stddef.h>

typedef struct fli_fiber {
    void  *sp;    /* stack pointer, saved while the fiber is not running */
    void  *stack; /* NULL: the fiber uses the stack of the real thread that runs it */
    size_t size;
} fli_fiber;

/* Prepares a fiber that calls `run(arg)` when it is first switched to; `run` must never return. Returns 0 if there is
 * no memory. */
int fli_fiber_init(fli_fiber *fiber, size_t stack_size, void (*run)(void *arg), void *arg);
/* Restarts the fiber with another function on the same stack. The fiber must not be running. */
void fli_fiber_reset(fli_fiber *fiber, void (*run)(void *arg), void *arg);
void fli_fiber_fini(fli_fiber *fiber);

/* Switches from `from`, which is running, to `to`. Returns when another fiber switches back to `from`. */
void fli_fiber_switch(fli_fiber *from, fli_fiber *to);

#endif
