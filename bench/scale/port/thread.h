/* thread.h - the scale model's threads, locks and condition variables, with the functions of src/port/thread.h.
 *
 * Each type has the size and the alignment of the real one, so that the fields of the runtime's structures share cache
 * lines as they do in the library. */
#ifndef FLI_PORT_THREAD_H
#define FLI_PORT_THREAD_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "scale/engine.h"

typedef struct fli_mutex {
    scale_queue waiters;
    bool        held;
    char        rest[sizeof(pthread_mutex_t) - 2 * sizeof(void *)];
} fli_mutex;

typedef struct fli_cond {
    scale_queue waiters;
    char        rest[sizeof(pthread_cond_t) - sizeof(void *)];
} fli_cond;

/* A parker is one futex word. The scale model finds the thread that waits for it by the address of the word. */
typedef struct fli_parker {
    uint32_t signalled;
} fli_parker;

typedef struct fli_thread {
    uint64_t index;
} fli_thread;

static_assert(sizeof(fli_mutex) == sizeof(pthread_mutex_t), "the lock of the scale model has another size");
static_assert(sizeof(fli_cond) == sizeof(pthread_cond_t), "the condition of the scale model has another size");

#include "port/thread_calls.h"

void fli_thread_pause(void);

void *fli_current_get(void);
void  fli_current_set(void *worker);
void *fli_inside_get(void);
void  fli_inside_set(void *call);

#endif
