/* weak.h - runs every execution of a small closed program under a weak memory model, one after the other; or random
 * executions where there are too many.
 *
 * A program is a setup and a few threads, compiled against src/sim/weakseam/port: the same fli_ names, and each atomic
 * operation is simulated by the rules of C11 for its memory order. Two kinds of choice are explored completely:
 *   the next thread   at each operation that depends on another thread
 *   the value read    a load may read any store that is not yet overwritten for its thread (weak_memory.c)
 * The newest store is among them, so all sequentially consistent executions are included.
 *
 * Violations: fli_weak_must, a failed FLI_ASSERT, a deadlock, an endless run, a data race on plain memory, use after
 * free. Plain accesses are seen because the modelled files are compiled with -fsanitize=thread, and weak_memory.c
 * defines the functions that the compiler then calls.
 *
 * docs/design/testing.md lists what is not modelled.
 */
#ifndef FLI_SIM_WEAK_H
#define FLI_SIM_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLI_WEAK_THREADS 7 /* in one program, at most */

typedef struct fli_weak_program {
    const char *name, *promise;
    /* Runs once, first. Allocates everything that the threads share by fli_weak_new(). */
    void (*setup)(void);
    void (*threads[FLI_WEAK_THREADS])(void);
    /* Runs after all threads have ended and checks the result. May be NULL. */
    void (*check)(void);
    /* For daily runs of a large program: 0 explores all executions, n those with at most n preemptions. `rare`: skip
     * it. */
#define FLI_WEAK_NO_PREEMPTION (-1) /* for `bound`: a switch only where a thread waits or ends */
    int32_t bound;
    bool    rare;
} fli_weak_program;

typedef struct fli_weak_config {
    int32_t     bound;    /* preemptions in one execution; -1: all executions */
    uint32_t    spurious; /* weak compare-and-swaps that fail for no reason, in one execution */
    uint64_t    limit;    /* executions at most; 0: all */
    const char *replay;   /* choices of the one execution to run, or NULL */
    bool        quiet;    /* do not print the failing execution */
    bool        plain;    /* no reduction: explore equivalent interleavings too */
    uint64_t    walks;    /* number of random executions, fewer if most repeat earlier ones; 0: explore all instead */
    uint64_t    seed;     /* of the random executions */
    /* Called every 65,536 executions with the figures so far; may be NULL. */
    void (*progress)(const struct fli_weak_program *program, uint64_t executions);
} fli_weak_config;

typedef struct fli_weak_result {
    uint64_t executions; /* completed */
    uint64_t cut;        /* begun, and abandoned because equivalent to an explored one */
    uint64_t points;     /* operations in all of them */
    uint64_t
        loose; /* stores that are neither read-modify-writes nor ordered after the previous store of their location */
    uint64_t    distinct;      /* executions that differ in their choices */
    uint64_t    outcomes;      /* number of different outcomes (fli_weak_outcome) */
    bool        complete;      /* all executions within `bound` and `spurious` were explored */
    const char *why;           /* the first violation, or NULL */
    char        choices[4096]; /* of the first violation's execution */
} fli_weak_result;

fli_weak_result fli_weak_explore(const fli_weak_program *program, const fli_weak_config *config);

/* ---- weakening memory orders on purpose ---- */

/* A source line with a memory order stronger than relaxed, as encountered. */
typedef struct fli_weak_site {
    const char *where;
    int         order;
    bool        used; /* executed since `used` was last set to false */
} fli_weak_site;

/* Returns the nth place encountered so far, or NULL. */
fli_weak_site *fli_weak_site_at(uint32_t n);
/* Replaces the memory order at this place from now on. `where` NULL: restores all orders as written. */
void fli_weak_weaken(const char *where, int order);

/* ---- for programs ---- */

/* Returns zeroed memory that the explorer tracks. Everything that two threads access must be in such memory. */
void *fli_weak_new(size_t size);
/* Tracked memory as a filch_alloc_fn. Returns no address twice in one execution. */
void *fli_weak_alloc(void *user, void *old, size_t old_size, size_t size);
/* Checks `holds`; if false, ends the execution as a violation and does not return. */
void fli_weak_must(bool holds, const char *what);
/* Adds a value to the outcome of this execution. Outcomes that differ are counted. */
void fli_weak_outcome(uint64_t value);
/* Returns the number of the running thread, from 1; 0 in setup and check. */
extern uint32_t fli_weak_self;

/* ---- for the seam ---- */

enum { FLI_WEAK_RLX = 0, FLI_WEAK_ACQ, FLI_WEAK_REL, FLI_WEAK_ACQREL };
enum { FLI_WEAK_ADD, FLI_WEAK_SUB, FLI_WEAK_AND, FLI_WEAK_SWAP };

uint64_t fli_weak_load(const volatile void *at, size_t size, int order, const char *where);
void     fli_weak_store(volatile void *at, size_t size, uint64_t value, int order, const char *where);
uint64_t fli_weak_rmw(volatile void *at, size_t size, int what, uint64_t value, int order, const char *where);
bool     fli_weak_cas(volatile void *at, size_t size, void *expected, uint64_t wanted, int order, int fail_order,
                      bool may_fail, const char *where);
void     fli_weak_init(volatile void *at, size_t size, uint64_t value);

/* A full barrier in each thread at this moment (membarrier). It orders what loads read but creates no happens-before:
 * it does not publish plain memory. */
void fli_weak_barrier(void);

/* For spin loops: the thread runs again after another thread has run, and then reads the newest values. Without it the
 * loop could read an old value for ever. */
void fli_weak_yield(void);

/* Vector clock: for each thread, the last of its operations that happened before. */
typedef struct fli_weak_clock {
    uint16_t at[8];
} fli_weak_clock;

/* ---- between explore.c and weak_memory.c ---- */

typedef enum fli_weak_kind {
    FLI_WEAK_KIND_LOAD,
    FLI_WEAK_KIND_WRITE,
    FLI_WEAK_KIND_LOCK,
    FLI_WEAK_KIND_SIGNAL
} fli_weak_kind;

/* Returns true inside an execution. Outside, operations are plain. */
extern bool           fli_weak_running;
extern fli_weak_clock fli_weak_clocks[FLI_WEAK_THREADS + 1];

/* A point before an operation: other threads may run first. Returns the oldest store that a load must consider; reading
 * an older one has been explored. */
uint32_t fli_weak_point(fli_weak_kind kind, const volatile void *at);
/* Chooses one of `count` values, each of them in some execution. `all` is the number before those already explored were
 * removed. */
uint32_t    fli_weak_choose(uint32_t count, uint32_t all);
bool        fli_weak_spurious(void);
void        fli_weak_fail(const char *why) __attribute__((noreturn));
void        fli_weak_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void        fli_weak_loose(void);
extern bool fli_weak_tracing;
#define FLI_WEAK_NOTE(...)                                \
    do {                                                  \
        if (fli_weak_tracing) fli_weak_note(__VA_ARGS__); \
    } while (0)

void     fli_weak_memory_begin(void);              /* at the start of an execution */
void     fli_weak_memory_snapshot(void);           /* saves the state that each execution begins with */
void     fli_weak_memory_clear(void);              /* at the end of a program */
uint32_t fli_weak_offset(const volatile void *at); /* in memory from fli_weak_new(); UINT32_MAX: elsewhere */
void    *fli_weak_at(uint32_t offset);
uint32_t fli_weak_stores(uint32_t offset);       /* number of stores to this location */
void     fli_weak_release(fli_weak_clock *into); /* copies the running thread's clock, for an acquirer */
void     fli_weak_acquire(const fli_weak_clock *from);
/* From now on this thread (0: each thread) reads the stores that are newest now, or later ones. */
void     fli_weak_find_newest(uint32_t thread);
uint64_t fli_weak_newest(const volatile void *at, size_t size);

#define FLI_WEAK_ARENA (512u << 10)

#endif
