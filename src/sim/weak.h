/* weak.h - every execution of a small closed program under a weak memory model, one after the other; or, where there
 * are too many, random ones of them.
 *
 * A program is a setup and a few threads, compiled against src/sim/weakseam/port: the same fli_ names, and each atomic
 * operation is simulated by the rules of C11 for the order in its name. Two things are open in a program, and all of
 * both is tried:
 *   who goes on    at every operation that another thread could disturb
 *   what is read   a load may find any value that is not yet overwritten for its thread (weak_memory.c)
 * A load may also find the newest; so what a sequentially consistent machine does is among it.
 *
 * What ends an execution as a violation: fli_weak_must, a broken FLI_ASSERT, a deadlock, an endless run, two accesses
 * to plain memory that nothing orders (a data race), plain memory used after it was freed. Plain accesses are seen
 * because the parts are compiled with -fsanitize=thread, and weak_memory.c answers the calls that this puts in.
 *
 * What is not modelled is said in docs/design/testing.md.
 */
#ifndef FLI_SIM_WEAK_H
#define FLI_SIM_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLI_WEAK_THREADS 7 /* in one program, at most */

typedef struct fli_weak_program {
    const char *name, *promise;
    /* Runs once, before everything. All that threads share is made here, by fli_weak_new. */
    void (*setup)(void);
    void (*threads[FLI_WEAK_THREADS])(void);
    /* After all threads have ended: is everything as it must be? May be NULL. */
    void (*check)(void);
    /* Too large for every day: 0 all executions, otherwise those with so many preemptions; `rare`: not at all. */
#define FLI_WEAK_NO_PREEMPTION (-1) /* for `bound`: threads change only where one waits or ends */
    int32_t bound;
    bool    rare;
} fli_weak_program;

typedef struct fli_weak_config {
    int32_t     bound;    /* preemptions in one execution; -1: all executions */
    uint32_t    spurious; /* weak compare-and-swaps that fail for no reason, in one execution */
    uint64_t    limit;    /* executions at most; 0: all */
    const char *replay;   /* choices of the one execution to run, or NULL */
    bool        quiet;    /* do not print the execution that is wrong */
    bool        plain;    /* leave out the reduction: every interleaving, also those that come to the same */
    uint64_t    walks;    /* so many random executions instead of all, fewer if they only repeat; 0: all */
    uint64_t    seed;     /* of those */
    /* Called now and then with what there is so far; may be NULL. */
    void (*progress)(const struct fli_weak_program *program, uint64_t executions);
} fli_weak_config;

typedef struct fli_weak_result {
    uint64_t    executions;    /* that ran to their end */
    uint64_t    cut;           /* begun, and found to be the same as one that was explored before */
    uint64_t    points;        /* operations in all of them */
    uint64_t    loose;         /* blind stores that nothing orders after an earlier store: see the note */
    uint64_t    distinct;      /* executions of which no two made the same choices */
    uint64_t    outcomes;      /* different ones, by fli_weak_outcome */
    bool        complete;      /* nothing was left out but for bound and spurious */
    const char *why;           /* the first violation, or NULL */
    char        choices[4096]; /* of that execution; it has been printed */
} fli_weak_result;

fli_weak_result fli_weak_explore(const fli_weak_program *program, const fli_weak_config *config);

/* ---- breaking things on purpose ---- */

/* One place in the code with an order stronger than relaxed, as it was met. */
typedef struct fli_weak_site {
    const char *where;
    int         order;
    bool        used; /* since this was last set to false */
} fli_weak_site;

/* The nth place met so far; NULL: there are not so many. */
fli_weak_site *fli_weak_site_at(uint32_t n);
/* From now on the operations at this place have that order instead. `where` NULL: as they are written. */
void fli_weak_weaken(const char *where, int order);

/* ---- for programs ---- */

/* Zeroed memory that the explorer knows. Everything that two threads touch must lie in such. */
void *fli_weak_new(size_t size);
/* The same as a filch_alloc_fn. Never gives the same memory twice in one execution. */
void *fli_weak_alloc(void *user, void *old, size_t old_size, size_t size);
/* This must hold. Does not return if not. */
void fli_weak_must(bool holds, const char *what);
/* Adds to the outcome of this execution: what the program wants to tell apart. */
void fli_weak_outcome(uint64_t value);
/* The running thread: 1 is the first; 0 in setup and check. */
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

/* A full barrier in every thread at this moment (membarrier). It orders what is found, and nothing happens before because of
 * it: plain memory is not handed over by it. */
void fli_weak_barrier(void);

/* What a loop says that waits for others: it goes on when another thread has, and then finds what is newest by then. Without
 * it such a loop would have no end, because an old value can be found for ever. */
void fli_weak_yield(void);

/* Vector clock: how much of each thread's past one knows. */
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

/* Inside an execution? Outside, operations are plain. */
extern bool           fli_weak_running;
extern fli_weak_clock fli_weak_clocks[FLI_WEAK_THREADS + 1];

/* An operation is about to happen: others may go first. Gives the oldest store that a load has to consider: those
 * before it have been explored. */
uint32_t fli_weak_point(fli_weak_kind kind, const volatile void *at);
/* One of `count`, all of them in turn. There were `all`, of which the others have been explored. */
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

void     fli_weak_memory_begin(void);              /* of an execution */
void     fli_weak_memory_snapshot(void);           /* this is how every execution begins */
void     fli_weak_memory_clear(void);              /* of a program */
uint32_t fli_weak_offset(const volatile void *at); /* of memory from fli_weak_new; UINT32_MAX: it is not */
void    *fli_weak_at(uint32_t offset);
uint32_t fli_weak_stores(uint32_t offset);       /* how many there have been to this location */
void     fli_weak_release(fli_weak_clock *into); /* the running thread hands on what it knows */
void     fli_weak_acquire(const fli_weak_clock *from);
/* From now on this thread (0: every one) finds the newest stores that there are now, or later ones. */
void     fli_weak_find_newest(uint32_t thread);
uint64_t fli_weak_newest(const volatile void *at, size_t size);

#define FLI_WEAK_ARENA (512u << 10)

#endif
