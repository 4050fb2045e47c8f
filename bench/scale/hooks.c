/* hooks.c - every memory access of the runtime and of the benchmarks. Both are compiled with -fsanitize=thread and
 * linked without the sanitizer. This file defines the functions that the compiler calls before each plain access and
 * instead of each atomic access.
 *
 * A plain access only has a cost. An atomic access lets all threads run first whose clock is earlier, then is done here
 * without an atomic instruction: there is one real thread. */
#include "scale/engine.h"

#define CALLER __builtin_return_address(0)

static inline void plain(const volatile void *at, scale_access access, const void *pc)
{
    if (scale_running) scale_touch((uintptr_t)at, access, pc);
}

static void range(const volatile void *at, unsigned long size, scale_access access, const void *pc)
{
    if (!scale_running || size == 0) return;
    uintptr_t line = (uintptr_t)at & ~(uintptr_t)63;
    for (; line < (uintptr_t)at + size; line += 64) scale_touch(line, access, pc);
}

static inline void atomic(const volatile void *at, scale_access access, const void *pc)
{
    if (!scale_running) return;
    scale_sync();
    scale_touch((uintptr_t)at, access, pc);
}

/* clang-format off */
#define PLAIN(name, access) \
    void __tsan_##name(void *at); \
    void __tsan_##name(void *at) { plain(at, access, CALLER); }
#define PLAIN_SIZE(size) \
    PLAIN(read##size, SCALE_LOAD) PLAIN(write##size, SCALE_STORE) \
    PLAIN(unaligned_read##size, SCALE_LOAD) PLAIN(unaligned_write##size, SCALE_STORE) \
    PLAIN(volatile_read##size, SCALE_LOAD) PLAIN(volatile_write##size, SCALE_STORE)
PLAIN_SIZE(1) PLAIN_SIZE(2) PLAIN_SIZE(4) PLAIN_SIZE(8) PLAIN_SIZE(16)

void __tsan_read_range(void *at, unsigned long size);
void __tsan_read_range(void *at, unsigned long size) { range(at, size, SCALE_LOAD, CALLER); }
void __tsan_write_range(void *at, unsigned long size);
void __tsan_write_range(void *at, unsigned long size) { range(at, size, SCALE_STORE, CALLER); }
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order) { (void)order; }
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order) { (void)order; }

#define FETCH(bits, T, name, value) \
    T __tsan_atomic##bits##_##name(volatile T *at, T with, int order); \
    T __tsan_atomic##bits##_##name(volatile T *at, T with, int order) \
    { \
        (void)order; \
        atomic(at, SCALE_RMW, CALLER); \
        T old = *at; \
        *at = (T)(value); \
        return old; \
    }
#define CAS(bits, T, name) \
    int __tsan_atomic##bits##_##name(volatile T *at, T *expected, T wanted, int order, int failed); \
    int __tsan_atomic##bits##_##name(volatile T *at, T *expected, T wanted, int order, int failed) \
    { \
        (void)order; \
        (void)failed; \
        atomic(at, SCALE_RMW, CALLER); \
        if (*at != *expected) { \
            *expected = *at; \
            return 0; \
        } \
        *at = wanted; \
        return 1; \
    }
/* The compare-and-swap function that code compiled by clang calls. The function returns the value that was in memory
 * before. */
#define CAS_VALUE(bits, T) \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *at, T expected, T wanted, int order, int failed); \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *at, T expected, T wanted, int order, int failed) \
    { \
        (void)order; \
        (void)failed; \
        atomic(at, SCALE_RMW, CALLER); \
        T old = *at; \
        if (old == expected) *at = wanted; \
        return old; \
    }
#define ATOMIC(bits, T) \
    T __tsan_atomic##bits##_load(const volatile T *at, int order); \
    T __tsan_atomic##bits##_load(const volatile T *at, int order) \
    { \
        (void)order; \
        atomic(at, SCALE_LOAD, CALLER); \
        return *at; \
    } \
    void __tsan_atomic##bits##_store(volatile T *at, T value, int order); \
    void __tsan_atomic##bits##_store(volatile T *at, T value, int order) \
    { \
        (void)order; \
        atomic(at, SCALE_STORE, CALLER); \
        *at = value; \
    } \
    FETCH(bits, T, exchange, with) \
    FETCH(bits, T, fetch_add, old + with) \
    FETCH(bits, T, fetch_sub, old - with) \
    FETCH(bits, T, fetch_and, old & with) \
    FETCH(bits, T, fetch_or, old | with) \
    FETCH(bits, T, fetch_xor, old ^ with) \
    CAS(bits, T, compare_exchange_strong) \
    CAS(bits, T, compare_exchange_weak) \
    CAS_VALUE(bits, T)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
/* clang-format on */
