/* assert.h - for what cannot happen. FLI_ASSERT stays on in every build: a broken invariant stops the program before
 * it can do harm. Prints nothing: the trap's address names the line. */
#ifndef FLI_BASE_ASSERT_H
#define FLI_BASE_ASSERT_H

#define FLI_ASSERT(condition)                              \
    do {                                                   \
        if (__builtin_expect(!(condition), 0)) __builtin_trap(); \
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
