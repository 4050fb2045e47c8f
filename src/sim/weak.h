/* weak.h - runs every execution of a small closed program under a weak memory model, one after the other. If there are
 * too many, it runs random executions instead.
 *
 * A program is a setup and a few threads, compiled against src/sim/weakseam/port: this port has the same fli_ names,
 * and simulates each atomic operation by the rules of C11 for its memory order. Two kinds of choice are explored
 * completely:
 *   the next thread   at each operation that depends on another thread
 *   the value read    a load may read any store that is not yet overwritten for its thread (weak_memory.c)
 * The newest store is among these stores, so all sequentially consistent executions are included.
 *
 * Violations: fli_weak_must, a failed FLI_ASSERT, a deadlock, an endless run, a data race on non-atomic memory, use
 * after free. Non-atomic accesses are observed because the modelled files are compiled with -fsanitize=thread, and
 * weak_memory.c defines the functions that the compiler then calls.
 *
 * docs/design/testing.md lists what is not modelled.
 */
#ifndef FLI_SIM_WEAK_H
#define FLI_SIM_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLI_WEAK_THREADS 7 /* maximal number of threads in one program */

typedef struct fli_weak_program {
    const char *name, *promise;
    /* Runs once, before the threads. Allocates by fli_weak_new() everything that the threads share. */
    void (*setup)(void);
    void (*threads[FLI_WEAK_THREADS])(void);
    /* Runs after all threads have ended and checks the result. May be NULL. */
    void (*check)(void);
    /* `bound`: limit for the daily runs of a large program. 0: all executions are explored; n: only executions with at
     * most n preemptions. `rare`: true if the daily runs skip the program. */
#define FLI_WEAK_NO_PREEMPTION (-1) /* value of `bound`: threads are switched only where a thread waits or ends */
    int32_t bound;
    bool    rare;
} fli_weak_program;

typedef struct fli_weak_config {
    int32_t     bound;    /* maximal number of preemptions in one execution; -1: explore all executions */
    uint32_t    spurious; /* maximal number of weak compare-and-swaps that fail spuriously in one execution */
    uint64_t    limit;    /* maximal number of executions; 0: no limit */
    const char *replay;   /* choices of the single execution to run, or NULL */
    bool        quiet;    /* true: do not print the failing execution */
    bool        plain;    /* true: no reduction; equivalent interleavings are explored too */
    /* number of random executions; fewer if most of them repeat earlier ones. 0: explore all executions instead */
    uint64_t walks;
    uint64_t seed; /* seed of the random executions */
    /* Called after every 65,536 executions (abandoned ones included) with the number of completed executions so far;
     * may be NULL. */
    void (*progress)(const struct fli_weak_program *program, uint64_t executions);
} fli_weak_config;

typedef struct fli_weak_result {
    uint64_t executions; /* completed executions */
    uint64_t cut;        /* executions that were abandoned because they were equivalent to an explored execution */
    uint64_t points;     /* number of scheduling points in all executions, abandoned ones included */
    /* number of stores that are no read-modify-writes, and that are not ordered (by "happens before" of C11) after the
     * store before them to the same location */
    uint64_t    loose;
    uint64_t    distinct;      /* number of executions that differ in their choices */
    uint64_t    outcomes;      /* number of different outcomes (fli_weak_outcome) */
    bool        complete;      /* true: all executions within `bound` and `spurious` were explored */
    const char *why;           /* text of the first violation, or NULL */
    char        choices[4096]; /* choices of the execution with the first violation; "" if config.quiet is set */
} fli_weak_result;

fli_weak_result fli_weak_explore(const fli_weak_program *program, const fli_weak_config *config);

/* ---- weakening memory orders to test the explorer ---- */

/* A source line with a memory order stronger than relaxed. Recorded when it is first executed. */
typedef struct fli_weak_site {
    const char *where;    /* file, line and operation: "FILE:LINE  NAME(ADDRESS)" */
    const char *function; /* the function that contains the line */
    int         order;    /* the memory order that the source has */
    int         now;      /* the memory order that is used: `order`, or a weaker one */
    bool        used;     /* true: the line was executed since `used` was last set to false */
} fli_weak_site;

/* Returns the recorded source line with index `n`, from 0, or NULL if fewer lines are recorded. */
fli_weak_site *fli_weak_site_at(uint32_t n);
/* Weakens the memory order at the source line of `site`: from now on, operations there use only the halves (acquire,
 * release) that both `site->now` and `order` contain. Several lines may be weakened at the same time. */
void fli_weak_weaken(fli_weak_site *site, int order);
/* From now on, all lines again use the memory order that is written in the source. */
void fli_weak_restore(void);

/* ---- functions for explored programs ---- */

/* Returns zeroed memory that the explorer tracks. All memory that two threads access must be allocated by this
 * function. */
void *fli_weak_new(size_t size);
/* Allocates tracked memory; a filch_alloc_fn. Returns no address twice in one execution. */
void *fli_weak_alloc(void *user, void *old, size_t old_size, size_t size);
/* If `holds` is false, records a violation with the text `what`. In a thread of the program this ends the execution,
 * and the call does not return; in `check` the call returns. */
void fli_weak_must(bool holds, const char *what);
/* Adds a value to the outcome of this execution. The result contains the number of different outcomes. */
void fli_weak_outcome(uint64_t value);
/* Number of the running thread, from 1; 0 in setup and check. */
extern uint32_t fli_weak_self;

/* ---- functions for the port in src/sim/weakseam ---- */

enum { FLI_WEAK_RLX = 0, FLI_WEAK_ACQ, FLI_WEAK_REL, FLI_WEAK_ACQREL };
enum { FLI_WEAK_ADD, FLI_WEAK_SUB, FLI_WEAK_AND, FLI_WEAK_SWAP };

/* `where` and `function`: as in fli_weak_site. */
uint64_t fli_weak_load(const volatile void *at, size_t size, int order, const char *where, const char *function);
void fli_weak_store(volatile void *at, size_t size, uint64_t value, int order, const char *where, const char *function);
uint64_t fli_weak_rmw(volatile void *at, size_t size, int what, uint64_t value, int order, const char *where,
                      const char *function);
bool     fli_weak_cas(volatile void *at, size_t size, void *expected, uint64_t wanted, int order, int fail_order,
                      bool may_fail, const char *where, const char *function);
void     fli_weak_init(volatile void *at, size_t size, uint64_t value);

/* Simulates membarrier: a full barrier in each thread at this moment. The barrier limits which stores later loads may
 * read, but creates no happens-before, so it does not publish non-atomic memory. */
void fli_weak_barrier(void);

/* Called in spin loops: the thread runs again only after another thread has run, and then reads the newest values.
 * Without fli_weak_yield() the loop could read an old value for ever. */
void fli_weak_yield(void);

/* Vector clock of a moment in the execution: for each thread, the number of its last operation that happens before this
 * moment. */
typedef struct fli_weak_clock {
    uint16_t at[8];
} fli_weak_clock;

/* ---- functions that explore.c and weak_memory.c share ---- */

typedef enum fli_weak_kind {
    FLI_WEAK_KIND_LOAD,
    FLI_WEAK_KIND_WRITE,
    FLI_WEAK_KIND_LOCK,
    FLI_WEAK_KIND_SIGNAL
} fli_weak_kind;

/* True inside an execution. Outside, operations access memory directly. */
extern bool           fli_weak_running;
extern fli_weak_clock fli_weak_clocks[FLI_WEAK_THREADS + 1];

/* A scheduling point before an operation of `kind` on the location `at`: other threads may run first. Returns the index
 * of the oldest store that a load must consider; executions that read older stores have been explored already. */
uint32_t fli_weak_point(fli_weak_kind kind, const volatile void *at);
/* Makes a choice: returns a number below `count`. A full exploration returns each of these numbers in some execution.
 * `all`: `count` plus the number of possibilities that were left out because other executions have explored them. If
 * `all` is 1, there is nothing to choose. */
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

void fli_weak_memory_begin(void);    /* called at the start of an execution */
void fli_weak_memory_snapshot(void); /* saves the memory after `setup`, with which each execution begins */
void fli_weak_memory_clear(void);    /* zeroes all memory; called before `setup` of a program */
/* returns the offset of `at` in memory from fli_weak_new(); UINT32_MAX: other memory */
uint32_t fli_weak_offset(const volatile void *at);
void    *fli_weak_at(uint32_t offset);
uint32_t fli_weak_stores(uint32_t offset); /* returns the number of stores to the location at `offset` */
/* joins the running thread's clock into `into`, for a thread that acquires later */
void fli_weak_release(fli_weak_clock *into);
void fli_weak_acquire(const fli_weak_clock *from);
/* From now on `thread` (0: every thread) reads in each location only the store that is the newest at this moment, or a
 * later store. */
void     fli_weak_find_newest(uint32_t thread);
uint64_t fli_weak_newest(const volatile void *at, size_t size);

#define FLI_WEAK_ARENA (512u << 10)

#endif
