/* thread.h - threads, locks, condition variables, and the current worker of a thread.
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

/* A parker: one thread parks, others unpark it. fli_unpark() ends the current wait, or the next one; several calls
 * before the next wait count as one. Writes before fli_unpark() are visible after the wait that fli_unpark() ends. */
#if defined(__linux__)
typedef struct fli_parker {
    FLI_ATOMIC(uint32_t) signalled; /* 1: an unpark is pending.  writes: any.  PAIR parker.signal */
} fli_parker;
#else
#define FLI_PARKER_OF_LOCK
typedef struct fli_parker {
    fli_mutex lock;
    fli_cond  cond;
    bool      signalled; /* true: an unpark is pending. Protected by `lock` */
} fli_parker;
#endif

typedef struct fli_thread {
    pthread_t posix;
} fli_thread;

/* Smallest stack of a thread, in bytes. Lua's C functions may nest 200 deep, which overflows musl's default of 128 KiB
 * (lua_limits_test). */
enum { FLI_THREAD_STACK_MIN = 2 << 20 };

#include "port/thread_calls.h"

/* Called by a spinning loop between two checks. */
static inline void fli_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Attribute of a thread-local variable that lets it be accessed without a function call. glibc reserves space for
 * such variables in libraries loaded with dlopen. musl reserves none and refuses to load the library, so there the
 * compiler's default is used. */
#ifdef __GLIBC__
#define FLI_TLS_DIRECT __attribute__((tls_model("initial-exec")))
#else
#define FLI_TLS_DIRECT
#endif

/* One pointer per thread: the worker that runs on this thread, or NULL on a thread that is not a worker. Accessed by
 * functions only, because the simulator runs many workers on one thread. */
extern __thread void *fli_current_slot FLI_TLS_DIRECT;
static inline void                    *fli_current_get(void)
{
    return fli_current_slot;
}
static inline void fli_current_set(void *worker)
{
    fli_current_slot = worker;
}

/* One more pointer per thread: the innermost call of the runtime that the thread is inside. See port/inside.h. */
extern __thread void *fli_inside_slot FLI_TLS_DIRECT;
static inline void                   *fli_inside_get(void)
{
    return fli_inside_slot;
}
static inline void fli_inside_set(void *call)
{
    fli_inside_slot = call;
}

#endif
