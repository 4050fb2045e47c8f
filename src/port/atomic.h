/* atomic.h - names for atomic operations. The only file that includes <stdatomic.h>.
 *
 * The order is part of the name, so that grep lists every ordering the runtime relies on:
 *     rlx  relaxed        acq  acquire        rel  release        acqrel  both
 * There is no sequentially consistent operation and no fence here. Where two threads must not miss each other's
 * writes, both do a read-modify-write of the same word (sched/parking.c). One place needs more: the watchdog of Lua
 * and the threads it watches (lua/memory/safepoint.h). There the frequent side only reads, and the rare side issues
 * a barrier in all threads (port/barrier.h).
 *
 * The simulator and the explorer have their own versions of this file (src/sim), which their builds find first. The
 * macros take the address of an FLI_ATOMIC(T) and work for any T that the machine can handle in one piece.
 */
#ifndef FLI_PORT_ATOMIC_H
#define FLI_PORT_ATOMIC_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define FLI_ATOMIC(T) _Atomic(T)

/* Alignment of objects that different workers write. Two of these objects never share a unit of FLI_LINE bytes: a cache
 * line and the neighbouring line that the prefetcher loads with it. */
#define FLI_LINE 128

#define fli_atomic_init(at, value) atomic_init((at), (value))

#define fli_load_rlx(at) atomic_load_explicit((at), memory_order_relaxed)
#define fli_load_acq(at) atomic_load_explicit((at), memory_order_acquire)

#define fli_store_rlx(at, value) atomic_store_explicit((at), (value), memory_order_relaxed)
#define fli_store_rel(at, value) atomic_store_explicit((at), (value), memory_order_release)

#define fli_add_rlx(at, value) atomic_fetch_add_explicit((at), (value), memory_order_relaxed)
#define fli_add_rel(at, value) atomic_fetch_add_explicit((at), (value), memory_order_release)
#define fli_add_acqrel(at, value) atomic_fetch_add_explicit((at), (value), memory_order_acq_rel)
#define fli_sub_acqrel(at, value) atomic_fetch_sub_explicit((at), (value), memory_order_acq_rel)
#define fli_and_acqrel(at, value) atomic_fetch_and_explicit((at), (value), memory_order_acq_rel)

#define fli_swap_rlx(at, value) atomic_exchange_explicit((at), (value), memory_order_relaxed)
#define fli_swap_acq(at, value) atomic_exchange_explicit((at), (value), memory_order_acquire)
#define fli_swap_rel(at, value) atomic_exchange_explicit((at), (value), memory_order_release)
#define fli_swap_acqrel(at, value) atomic_exchange_explicit((at), (value), memory_order_acq_rel)

/* Compare and swap. Returns true if *at was equal to *expected and is now `wanted`. Otherwise returns false and
 * stores the value found in *expected (loaded with acquire by cas_acqrel_acq, relaxed by all others).
 * The weak variants may fail spuriously: use them in loops only. */
#define fli_cas_acq(at, expected, wanted) \
    atomic_compare_exchange_strong_explicit((at), (expected), (wanted), memory_order_acquire, memory_order_relaxed)
#define fli_cas_rel(at, expected, wanted) \
    atomic_compare_exchange_strong_explicit((at), (expected), (wanted), memory_order_release, memory_order_relaxed)
#define fli_cas_acqrel(at, expected, wanted) \
    atomic_compare_exchange_strong_explicit((at), (expected), (wanted), memory_order_acq_rel, memory_order_relaxed)
#define fli_cas_acqrel_acq(at, expected, wanted) \
    atomic_compare_exchange_strong_explicit((at), (expected), (wanted), memory_order_acq_rel, memory_order_acquire)
#define fli_cas_weak_acqrel(at, expected, wanted) \
    atomic_compare_exchange_weak_explicit((at), (expected), (wanted), memory_order_acq_rel, memory_order_relaxed)
#define fli_cas_weak_rlx(at, expected, wanted) \
    atomic_compare_exchange_weak_explicit((at), (expected), (wanted), memory_order_relaxed, memory_order_relaxed)
#define fli_cas_weak_rel(at, expected, wanted) \
    atomic_compare_exchange_weak_explicit((at), (expected), (wanted), memory_order_release, memory_order_relaxed)

/* Adds to a 64-bit counter that has one writer: a load and a store instead of a read-modify-write; readers never see
 * a half-written value. Compilers make three instructions of the load, the addition and the store. On machines that
 * can add to memory in a single instruction, the macro uses that instruction, except under TSan, which must see the
 * access. */
#if defined(__SANITIZE_THREAD__)
#define FLI_COUNT_SEEN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FLI_COUNT_SEEN 1
#endif
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(FLI_COUNT_SEEN)
#define fli_count(at, value)                                                                       \
    do {                                                                                           \
        static_assert(sizeof *(at) == 8, "a counter has 64 bits");                                 \
        __asm__("addq %1, %0" : "+m"(*(uint64_t *)(void *)(at)) : "er"((uint64_t)(value)) : "cc"); \
    } while (0)
/* fli_count() as a release: a thread that has read the sum with acquire sees all writes that come before
 * fli_count_rel(). On x86-64 every store is a release, so only the compiler must be kept from reordering. */
#define fli_count_rel(at, value)             \
    do {                                     \
        __asm__ volatile("" : : : "memory"); \
        fli_count(at, value);                \
    } while (0)
#else
#define fli_count(at, value) fli_store_rlx((at), fli_load_rlx(at) + (value))
#define fli_count_rel(at, value) fli_store_rel((at), fli_load_rlx(at) + (value))
#endif

#endif
