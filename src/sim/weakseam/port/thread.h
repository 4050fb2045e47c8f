/* thread.h - the explorer's locks and condition variables, with the functions of src/port/thread.h. Time passes only
 * when no thread can run. The explored program declares its threads; it starts none. */
#ifndef FLI_PORT_THREAD_H
#define FLI_PORT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "sim/weak.h"

typedef struct fli_mutex {
    uint32_t       holder; /* number of the thread that has locked the mutex; 0: free */
    fli_weak_clock clock;  /* clock of the thread that unlocked the mutex last */
} fli_mutex;

typedef struct fli_cond {
    uint32_t unused;
} fli_cond;

/* The parker of src/port/parker.c; a thread parks on `signalled` by the explorer's futex. */
typedef struct fli_parker {
    FLI_ATOMIC(uint32_t) signalled;
} fli_parker;

typedef struct fli_thread {
    uint32_t unused;
} fli_thread;

#include "port/thread_calls.h"

void fli_thread_pause(void);

void *fli_current_get(void);
void  fli_current_set(void *worker);
void *fli_inside_get(void);
void  fli_inside_set(void *call);

#endif
