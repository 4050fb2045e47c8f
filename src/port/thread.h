/* thread.h - threads, locks, condition variables, and "where am I".
 *
 * Thin names over POSIX threads. Locks and conditions cannot fail once made: misuse is a broken invariant and stops
 * the program (base/assert.h). Waiting uses the monotonic clock of port/clock.h.
 */
#ifndef FLI_PORT_THREAD_H
#define FLI_PORT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef struct fli_mutex {
    pthread_mutex_t posix;
} fli_mutex;

typedef struct fli_cond {
    pthread_cond_t posix;
} fli_cond;

/* A bell for one listener. Ringing it ends the wait he is in, or his next one; rings before that count as one. What was
 * done before a ring is seen after the wait that hears it. */
#if defined(__linux__)
typedef struct fli_bell {
    FLI_ATOMIC(uint32_t) rung; /* 1: and not heard yet.  writes: any.  PAIR bell.rung */
} fli_bell;
#else
typedef struct fli_bell {
    fli_mutex lock;
    fli_cond  cond;
    bool      rung; /* under lock */
} fli_bell;
#endif

typedef struct fli_thread {
    pthread_t posix;
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
/* Until signalled or until the monotonic clock reads `until_ns` (UINT64_MAX: for ever). False when the time is up. */
bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);

filch_err fli_bell_init(fli_bell *bell);
void      fli_bell_fini(fli_bell *bell);
/* Thread: any. */
void fli_bell_ring(fli_bell *bell);
/* Until it rings or the monotonic clock reads `until_ns` (UINT64_MAX: for ever). False when the time is up. Thread: the
 * listener. */
bool fli_bell_wait(fli_bell *bell, uint64_t until_ns);

/* Starts a thread that takes no signals, so that the host program's handlers never run on it. `name` up to 15 bytes.
 * Its timed waits end as soon after their time as the system can: no slack is added. */
filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg);
void      fli_thread_join(fli_thread *thread);

/* The calling thread wants to start as soon as somebody calls it, and takes shorter turns for that where it has to share
 * a processor: its share stays what it was. Threads and programs that it starts do not inherit the wish. A wish: where the
 * system does not know it, or may not be asked, nothing changes. */
void fli_thread_prompt(void);

void fli_thread_yield(void);
/* What a tight loop does between two looks. */
static inline void fli_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* One pointer per thread: the worker this thread is being, or NULL for threads the runtime does not know.
 * Kept behind functions because the simulator runs many workers on one thread. */
extern __thread void *fli_here_slot __attribute__((tls_model("initial-exec")));
static inline void   *fli_here_get(void)
{
    return fli_here_slot;
}
static inline void fli_here_set(void *here)
{
    fli_here_slot = here;
}

#endif
