/* assert.h - for what cannot happen. FLI_ASSERT stays on in every build: a broken invariant stops the program before
 * it can do harm. Prints nothing: tells the handler of the host (filch_assert_handler), then traps. */
#ifndef FLI_BASE_ASSERT_H
#define FLI_BASE_ASSERT_H

#include <filch.h>

/* The last part of a path, at compile time. */
#ifdef __FILE_NAME__
#define FLI_FILE __FILE_NAME__
#else
#define FLI_FILE (__builtin_strrchr(__FILE__, '/') != 0 ? __builtin_strrchr(__FILE__, '/') + 1 : __FILE__)
#endif

#define FLI_ASSERT(condition)                                                                       \
    do {                                                                                            \
        if (__builtin_expect(!(condition), 0)) filch_assert_failed(FLI_FILE, __LINE__, #condition); \
    } while (0)

/* What the compiler cannot know and need not test. Nothing happens if it is wrong, and then anything. */
#define FLI_ASSUME(condition)                      \
    do {                                           \
        if (!(condition)) __builtin_unreachable(); \
    } while (0)

#define FLI_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define FLI_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Asks for the cache line at `at`, to be written soon. Never faults. */
#define FLI_FETCH(at) __builtin_prefetch((at), 1)

/* The struct that `member` at `at` is part of. */
#define FLI_OUTER(type, member, at) ((type *)(void *)((char *)(at)-offsetof(type, member)))

#endif
