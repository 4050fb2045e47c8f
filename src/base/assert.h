/* assert.h - checks of invariants. FLI_ASSERT is active in every build: a broken invariant stops the program before
 * it can do harm. A failed check prints nothing: it calls the host's handler (filch_assert_handler), then traps. */
#ifndef FLI_BASE_ASSERT_H
#define FLI_BASE_ASSERT_H

#include <filch.h>

/* The last part of the path of the source file, determined at compile time. */
#ifdef __FILE_NAME__
#define FLI_FILE __FILE_NAME__
#else
#define FLI_FILE (__builtin_strrchr(__FILE__, '/') != 0 ? __builtin_strrchr(__FILE__, '/') + 1 : __FILE__)
#endif

#define FLI_ASSERT(condition)                                                                       \
    do {                                                                                            \
        if (__builtin_expect(!(condition), 0)) filch_assert_failed(FLI_FILE, __LINE__, #condition); \
    } while (0)

/* Tells the compiler that `condition` holds. The condition is not checked: if it is false, the behaviour is
 * undefined. */
#define FLI_ASSUME(condition)                      \
    do {                                           \
        if (!(condition)) __builtin_unreachable(); \
    } while (0)

#define FLI_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define FLI_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Prefetches the cache line at `at`, which will be written soon. Never faults. */
#define FLI_FETCH(at) __builtin_prefetch((at), 1)

/* Returns the struct that has its `member` at the address `at`. */
#define FLI_OUTER(type, member, at) ((type *)(void *)((char *)(at)-offsetof(type, member)))

#endif
