/* libc.c - functions of the C library that the runtime and the benchmarks call. The linker redirects their calls
 * (--wrap): time is virtual, waiting blocks a virtual thread, and copies are accesses to memory. */
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "scale/engine.h"
#include "scale/heap.h"

#define CALLER __builtin_return_address(0)

/* ---- time ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    scale_spend(scale_machine_now()->clock);
    scale_sync();
    uint64_t ns = (id == CLOCK_PROCESS_CPUTIME_ID  ? scale_cpu(true)
                   : id == CLOCK_THREAD_CPUTIME_ID ? scale_cpu(false)
                                                   : scale_now()) /
                  1000;
    *out = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    return 0;
}

int __wrap_nanosleep(const struct timespec *span, struct timespec *left);
int __wrap_nanosleep(const struct timespec *span, struct timespec *left)
{
    (void)left;
    scale_ps lasts = ((uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec) * SCALE_NS;
    scale_spend(scale_machine_now()->call);
    (void)scale_block(NULL, scale_now() + lasts);
    scale_spend(scale_machine_now()->alarm);
    return 0;
}

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    scale_spend(scale_machine_now()->yield);
    scale_sync();
    return 0;
}

/* ---- semaphores: a benchmark has only one, which marks the end of its measurement ---- */

static struct {
    unsigned    value;
    scale_queue waiters;
} semaphore;

int __wrap_sem_wait(sem_t *sem);
int __wrap_sem_wait(sem_t *sem)
{
    (void)sem;
    scale_sync();
    while (semaphore.value == 0) (void)scale_block(&semaphore.waiters, SCALE_NEVER);
    semaphore.value--;
    return 0;
}

int __wrap_sem_post(sem_t *sem);
int __wrap_sem_post(sem_t *sem)
{
    (void)sem;
    scale_sync();
    semaphore.value++;
    if (semaphore.waiters.first != NULL) scale_spend(scale_machine_now()->wake_call);
    (void)scale_wake(&semaphore.waiters, scale_now());
    return 0;
}

/* ---- memory ---- */

static void touch_all(const void *at, size_t size, scale_access access, const void *pc)
{
    if (!scale_running || size == 0) return;
    uintptr_t line = (uintptr_t)at & ~(uintptr_t)63;
    for (; line < (uintptr_t)at + size; line += 64) scale_touch(line, access, pc);
}

void *__real_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size)
{
    touch_all(from, size, SCALE_LOAD, CALLER);
    touch_all(to, size, SCALE_STORE, CALLER);
    return __real_memcpy(to, from, size);
}

void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size)
{
    touch_all(from, size, SCALE_LOAD, CALLER);
    touch_all(to, size, SCALE_STORE, CALLER);
    return __real_memmove(to, from, size);
}

void *__real_memset(void *at, int value, size_t size);
void *__wrap_memset(void *at, int value, size_t size);
void *__wrap_memset(void *at, int value, size_t size)
{
    touch_all(at, size, SCALE_STORE, CALLER);
    return __real_memset(at, value, size);
}

/* Charges the time of an allocator call, and the write of the list link at the start of the block that is allocated or
 * freed. */
static void spend_alloc(const void *block, const void *pc)
{
    scale_spend(scale_machine_now()->alloc);
    if (block != NULL) scale_touch((uintptr_t)block, SCALE_STORE, pc);
}

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void  __real_free(void *old);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *old, size_t size);
void  __wrap_free(void *old);

static void *allocate(size_t size, const void *pc)
{
    if (!scale_running) return __real_malloc(size);
    void *block = size > SCALE_HEAP_MAX ? __real_malloc(size) : scale_heap_alloc(scale_thread_index(), size);
    spend_alloc(block, pc);
    return block;
}

/* Frees a block. After the run, blocks of the heap of the scale model are not freed, because the program ends soon. */
static void release(void *old, const void *pc)
{
    if (scale_running) spend_alloc(old, pc);
    if (!scale_heap_owns(old)) __real_free(old);
    else if (scale_running) scale_heap_free(scale_thread_index(), old);
}

void *__wrap_malloc(size_t size)
{
    return allocate(size, CALLER);
}

void __wrap_free(void *old)
{
    release(old, CALLER);
}

void *__wrap_realloc(void *old, size_t size)
{
    if (old == NULL) return allocate(size, CALLER);
    if (!scale_heap_owns(old)) return __real_realloc(old, size);
    size_t had = scale_heap_size(old);
    if (size <= had) return old;
    void *block = allocate(size, CALLER);
    if (block == NULL) return NULL;
    __wrap_memcpy(block, old, had);
    release(old, CALLER);
    return block;
}
