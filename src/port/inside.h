/* inside.h - the calls of the runtime that the calling thread is inside: jobs of a work pool and spawns, both of which
 * call functions of the program. A function that waits until all such calls of an object are over must not be called
 * inside one of them: it would wait for its own thread. */
#ifndef FLI_PORT_INSIDE_H
#define FLI_PORT_INSIDE_H

#include "port/thread.h"

/* A call, on the stack of its thread. The calls of a thread form a list, the innermost first (fli_inside_get). */
typedef struct fli_inside {
    const void        *object; /* the pool or scheduler that the call belongs to; NULL: the call has not begun */
    struct fli_inside *outer;
} fli_inside;

static inline void fli_inside_begin(fli_inside *call, const void *object)
{
    *call = (fli_inside){ .object = object, .outer = fli_inside_get() };
    fli_inside_set(call);
}

/* Ends the innermost call. Has no effect if `call` has not begun. May be a cleanup function. */
static inline void fli_inside_end(fli_inside *call)
{
    if (call->object != NULL) fli_inside_set(call->outer);
}

/* Returns true if the calling thread is inside a call that belongs to `object`. */
static inline bool fli_is_inside(const void *object)
{
    const fli_inside *call = fli_inside_get();
    while (call != NULL && call->object != object) call = call->outer;
    return call != NULL;
}

#endif
