/* thread.h - the simulator's threads, locks and condition variables, with the functions of src/port/thread.h. */
#ifndef FLI_PORT_THREAD_H
#define FLI_PORT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "sim/engine.h"

typedef struct fli_mutex {
    bool          held;
    fli_sim_queue waiters;
} fli_mutex;

typedef struct fli_cond {
    fli_sim_queue waiters;
} fli_cond;

typedef struct fli_parker {
    bool          signalled;
    fli_sim_queue waiters;
} fli_parker;

typedef struct fli_thread {
    uint32_t index;
} fli_thread;

#include "port/thread_calls.h"

void fli_thread_pause(void);

void *fli_current_get(void);
void  fli_current_set(void *worker);
void *fli_inside_get(void);
void  fli_inside_set(void *call);

#endif
