/* counted.c - the counters and the model of caches. See counted.h.
 *
 * The model uses no locks: if two threads access the same line at the same moment, a move may be missed. For one
 * thread, and for threads that take turns, the counts are exact; tools/bench_gate uses only such programs.
 */
#include "counting/counted.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREADS 64
#define LINE_SHIFT 6
/* Number of entries of `table`, which is direct-mapped. If two cache lines belong to the same entry, the line accessed
 * later replaces the earlier one, and this access is not counted as a move. */
#define LINES (UINT64_C(1) << 20)
#define HOLDERS_BITS 16

/* Counters of each thread: written by that thread, read by counted_read. With more than THREADS threads, some threads
 * share an element and may lose counts. */
static struct {
    _Alignas(128) _Atomic(uint64_t) rmws;
    _Atomic(uint64_t) lines;
} tallies[THREADS];

/* Table of cache lines. Bits of an entry: low HOLDERS_BITS = one bit for each thread that holds the line, high = line
 * number. */
static _Atomic(uint64_t) table[LINES];

static _Atomic(unsigned) thread_count;
/* number of the running thread, from 1; 0: the thread has not counted anything yet */
static _Thread_local unsigned me;

static unsigned my_index(void)
{
    if (me == 0) me = atomic_fetch_add(&thread_count, 1) + 1;
    return (me - 1) % THREADS;
}

static void bump(_Atomic(uint64_t) *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void touch(const volatile void *at, bool writes)
{
    unsigned           index = my_index();
    uint64_t           line = (uint64_t)(uintptr_t)at >> LINE_SHIFT;
    uint64_t           mine = UINT64_C(1) << (index % HOLDERS_BITS), all_holders = (UINT64_C(1) << HOLDERS_BITS) - 1;
    _Atomic(uint64_t) *entry = &table[(line * UINT64_C(0x9e3779b97f4a7c15)) >> 44];
    uint64_t           before = atomic_load_explicit(entry, memory_order_relaxed);
    uint64_t           holders = before >> HOLDERS_BITS == line ? before & all_holders : mine;
    bool               moves = writes ? holders != mine : (holders & mine) == 0;
    uint64_t           after = line << HOLDERS_BITS | (writes ? mine : holders | mine);
    if (after != before) atomic_store_explicit(entry, after, memory_order_relaxed);
    if (moves) bump(&tallies[index].lines);
}

void counted_rmw(const volatile void *at)
{
    bump(&tallies[my_index()].rmws);
    touch(at, true);
}

void counted_store(const volatile void *at)
{
    touch(at, true);
}

void counted_load(const volatile void *at)
{
    touch(at, false);
}

void counted_read(uint64_t *rmws, uint64_t *lines)
{
    *rmws = *lines = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        *rmws += atomic_load_explicit(&tallies[i].rmws, memory_order_relaxed);
        *lines += atomic_load_explicit(&tallies[i].lines, memory_order_relaxed);
    }
}

/* ---- locks: the linker redirects the library's calls to these functions (--wrap) ---- */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    counted_rmw(mutex);
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    counted_rmw(mutex);
    return __real_pthread_mutex_trylock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    counted_rmw(mutex);
    return __real_pthread_mutex_unlock(mutex);
}
