/* thread.h - the explorer's locks and condition variables. Same names as src/port/thread.h. */
#ifndef FLI_PORT_THREAD_H
#define FLI_PORT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "sim/weak.h"

typedef struct fli_mutex {
    uint32_t       holder; /* 0: free */
    fli_weak_clock clock;  /* of the last one who let go */
} fli_mutex;

typedef struct fli_cond {
    uint32_t unused;
} fli_cond;

typedef struct fli_bell {
    fli_mutex lock;
    fli_cond  cond;
    bool      rung; /* under lock */
} fli_bell;

typedef struct fli_thread {
    uint32_t unused;
} fli_thread;

filch_err fli_mutex_init(fli_mutex *mutex);
void      fli_mutex_fini(fli_mutex *mutex);
void      fli_mutex_lock(fli_mutex *mutex);
bool      fli_mutex_try_lock(fli_mutex *mutex);
void      fli_mutex_unlock(fli_mutex *mutex);

filch_err fli_cond_init(fli_cond *cond);
void      fli_cond_fini(fli_cond *cond);
void      fli_cond_signal(fli_cond *cond);
void      fli_cond_broadcast(fli_cond *cond);
void      fli_cond_wait(fli_cond *cond, fli_mutex *mutex);
/* Time passes only when nobody can go on. */
bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);

filch_err fli_bell_init(fli_bell *bell);
void      fli_bell_fini(fli_bell *bell);
void      fli_bell_ring(fli_bell *bell);
bool      fli_bell_wait(fli_bell *bell, uint64_t until_ns);

/* Only so that files compile: threads are part of the program, and none is started inside. */
filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg);
void      fli_thread_join(fli_thread *thread);
void      fli_thread_prompt(void);
void      fli_thread_yield(void);
void      fli_thread_pause(void);

void *fli_here_get(void);
void  fli_here_set(void *here);

#endif
