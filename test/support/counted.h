/* counted.h - for a program that ends without exit() (by a signal, or by _exit() after a fork): writes the counters of
 * a coverage build, which would be lost otherwise. Has no effect in other builds. */
#ifndef FILCH_TEST_COUNTED_H
#define FILCH_TEST_COUNTED_H

#include <signal.h>

#ifdef FLI_COVERAGE
void __gcov_dump(void);
void __gcov_reset(void);

/* Writes the coverage counters to their files. Code that runs after this call is counted by the next call, or by
 * exit(). */
static inline void counted_dump(void)
{
    __gcov_dump();
    __gcov_reset();
}

static inline void counted_dump_and_die(int number)
{
    counted_dump();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

#define COUNTED_DEATH counted_dump_and_die
#else
static inline void counted_dump(void)
{
}

#define COUNTED_DEATH SIG_DFL
#endif

#endif
