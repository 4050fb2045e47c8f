/* explore.c - the search over executions: which thread runs next and which value a load reads. See weak.h.
 *
 * An execution is the list of choices made in it. The next execution repeats these choices up to the last one with an
 * untried alternative (depth-first search; only the choices of the current execution are stored). Threads are fibers;
 * the thread that reaches a point chooses the next thread.
 *
 * Two reductions make the search shorter. Both omit only executions that are equivalent to an explored one:
 * - Points only at shared locations. An operation on a location that no other thread writes is independent of all other
 *   threads: a thread that loads the location can still read the value from before. During the search the explorer
 *   learns which thread writes which location; when a new writer appears, the search starts again.
 * - Sleep sets. When everything that starts with thread T at a point has been explored, T sleeps in the other branches
 *   until another thread writes the location of T's operation. A sleeping *load* wakes for the new stores only: reading
 *   an older store after the new one is equivalent to having loaded before it.
 *
 * With a bound on preemptions there are no sleep sets: the explored representative might exceed the bound.
 *
 * A walk is one execution with random choices: once per walk how often to switch, then at each point whether to switch
 * and to which thread, and for each load which of its possible values it reads. A walk is identified by a hash of its
 * choices.
 *
 * INVARIANT  an unlock needs no point: while the lock is held, no operation of another thread depends on it. The
 * exception is a program that uses trylock, which can observe the held lock; there each unlock is a point (`tries`).
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "port/clock.h"
#include "port/futex.h"
#include "port/thread.h"
#include "sim/fiber.h"
#include "sim/weak.h"

#define STACK_SIZE (128u << 10)
#define NODES_MAX 4096
#define POINTS_MAX 5000 /* an execution with more scheduling points counts as endless */
#define OUTCOMES 4096
#define PROGRESS_EVERY 65536 /* number of executions between two calls of `progress` */
#define WORN_AFTER 100000    /* the search ends after more than WORN_AFTER walks if less than half of them were new */
#define BIT(t) (1u << (t))

enum { UNUSED, READY, WAITING, ENDED };
enum { RUN_ENDED, RUN_CUT, RUN_VIOLATION };

typedef struct thread {
    fli_fiber fiber;
    void (*run)(void);
    void    *worker;
    void    *inside;   /* see port/inside.h */
    uint64_t until_ns; /* deadline of the thread's wait; FLI_NEVER: none */
    uint64_t ticks;
    uint32_t at;   /* offset of the location that the thread's next operation accesses */
    uint32_t cond; /* offset of the condition or futex word that the thread waits for */
    /* Number of stores to the location `at` when the thread was put into the sleep set. If the thread's next operation
     * is a load, the thread leaves the sleep set as soon as `at` has more stores. */
    uint32_t      fresh;
    fli_weak_kind kind;
    uint8_t       state;
    bool          timed_out;
    /* true: the thread is chosen only after another thread has run, or if no other thread can run */
    bool     yields;
    uint32_t points; /* number of scheduling points that this thread has passed */
    /* number of scheduling points that all other threads together had passed when this thread called
     * fli_weak_yield() */
    uint32_t others;
} thread;

/* A choice made in the execution. If a thread was chosen, `left` is the set of threads still to try, and `done` the set
 * of threads already explored. If a value was chosen, `left` is the number of values. */
typedef struct tree_node {
    bool     is_thread;
    uint8_t  chosen;
    uint16_t left, done;
} tree_node;

static struct {
    fli_weak_config         config;
    const fli_weak_program *program;
    fli_weak_result         result;
    thread                  threads[FLI_WEAK_THREADS + 1];
    uint32_t                count;
    fli_fiber               outside, beginning;
    tree_node               nodes[NODES_MAX];
    uint32_t                height, depth;
    uint32_t                asleep;
    uint32_t                preemptions, spurious, points;
    bool                    starting;
    const char             *script;   /* choices that this execution must still repeat (config.replay), or NULL */
    size_t                  recorded; /* number of choices written to result.choices */
    int                     verdict;
    const char             *why;
    uint64_t                now_ns, outcome;
    uint64_t                outcomes[OUTCOMES];
    bool                    walking;
    fli_prng                prng;
    uint32_t                stay;  /* walks: probability, in units of 1/256, that the running thread continues */
    uint64_t                path;  /* walks: hash of the choices made so far */
    uint64_t               *paths; /* hash set of the paths of all walks so far */
    uint64_t                paths_mask;
    /* Learnt during the search, as a bit mask of threads for each location: the threads that write it, and the threads
     * that access it. */
    uint8_t writers[FLI_WEAK_ARENA], users[FLI_WEAK_ARENA];
    bool    tries; /* the program uses trylock */
    /* the program has called fli_weak_barrier() or fli_weak_yield(): then no two operations are independent */
    bool barriers;
    bool learnt;
} x;

uint32_t fli_weak_self;
bool     fli_weak_running, fli_weak_tracing;

/* ---- ending an execution ---- */

static void end_run(int verdict, const char *why)
{
    x.verdict = verdict;
    x.why = why;
    uint32_t self = fli_weak_self;
    fli_weak_running = false;
    fli_weak_self = 0;
    fli_fiber_switch(self != 0 ? &x.threads[self].fiber : &x.beginning, &x.outside);
    __builtin_trap();
}

void fli_weak_fail(const char *why)
{
    FLI_WEAK_NOTE("VIOLATION: %s", why);
    end_run(RUN_VIOLATION, why);
    __builtin_trap();
}

void fli_weak_must(bool holds, const char *what)
{
    if (holds) return;
    if (fli_weak_self != 0) fli_weak_fail(what);
    if (x.verdict == RUN_VIOLATION) return;
    x.verdict = RUN_VIOLATION;
    x.why = what;
    FLI_WEAK_NOTE("VIOLATION: %s", what);
}

/* Handler for SIGILL and SIGSEGV: ends the execution as a violation. A failed FLI_ASSERT raises SIGILL; a mutant (code
 * with a bug planted by a test) may dereference a bad pointer. */
static void on_trap(int number)
{
    if (fli_weak_self != 0) fli_weak_fail(number == SIGILL ? "a broken assertion" : "a bad pointer");
    signal(number, SIG_DFL);
    raise(number);
}

void fli_weak_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("    %*s%u  ", 4 * (int)fli_weak_self, "", fli_weak_self);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void fli_weak_loose(void)
{
    x.result.loose++;
}

void fli_weak_outcome(uint64_t value)
{
    x.outcome = fli_prng_mix(x.outcome ^ value);
}

/* ---- choosing threads and values ---- */

static tree_node *add_tree_node(bool is_thread, uint32_t left)
{
    FLI_ASSERT(x.depth == x.height && x.height < NODES_MAX);
    x.nodes[x.height] = (tree_node){ .is_thread = is_thread, .left = (uint16_t)left };
    return &x.nodes[x.height++];
}

/* Appends a character to result.choices, the text form of the execution: for each operation the digit of its thread,
 * followed by a letter for the value read if several values were possible. The text does not depend on what the search
 * has learnt. */
static void record(char letter)
{
    if (!fli_weak_tracing || x.recorded + 1 >= sizeof x.result.choices) return;
    x.result.choices[x.recorded++] = letter;
    x.result.choices[x.recorded] = 0;
}

static uint32_t scripted(char base)
{
    char letter = *x.script;
    if (letter == 0) return 0;
    x.script++;
    return (uint32_t)(letter - base);
}

/* Adds a choice to the path hash of the walk. */
static uint32_t drawn(uint32_t chosen)
{
    x.path = fli_prng_mix(x.path ^ chosen);
    return chosen;
}

static uint32_t choose(uint32_t count)
{
    if (x.script != NULL) return scripted('a');
    if (count == 1) return 0;
    if (x.walking) return drawn(fli_prng_below(&x.prng, count));
    if (x.depth == x.height) add_tree_node(false, count);
    tree_node *n = &x.nodes[x.depth++];
    FLI_ASSERT(!n->is_thread && n->left == count);
    return n->chosen;
}

uint32_t fli_weak_choose(uint32_t count, uint32_t all)
{
    if (all == 1) return 0;
    uint32_t chosen = choose(count);
    FLI_ASSERT(chosen < count);
    record((char)('a' + chosen));
    return chosen;
}

bool fli_weak_spurious(void)
{
    if (x.spurious >= x.config.spurious || fli_weak_choose(2, 2) == 0) return false;
    x.spurious++;
    return true;
}

static bool can_go(const thread *t)
{
    if (t->state != READY) return false;
    return t->kind != FLI_WEAK_KIND_LOCK || ((const fli_mutex *)fli_weak_at(t->at))->holder == 0;
}

static bool is_awake(uint32_t i)
{
    const thread *t = &x.threads[i];
    if ((x.asleep & BIT(i)) == 0) return true;
    return t->kind == FLI_WEAK_KIND_LOAD && fli_weak_stores(t->at) > t->fresh;
}

/* Called if no thread can run: advances time to the first alarm. Returns false if there is no alarm. */
static bool ring_alarm(void)
{
    thread *first = NULL;
    for (uint32_t i = 1; i <= x.count; i++) {
        thread *t = &x.threads[i];
        if (t->state != WAITING || t->until_ns == FLI_NEVER) continue;
        if (first == NULL || t->until_ns < first->until_ns) first = t;
    }
    if (first == NULL) return false;
    if (first->until_ns > x.now_ns) x.now_ns = first->until_ns;
    first->timed_out = true;
    first->state = READY;
    return true;
}

/* Updates the sleep set before the thread `chosen` runs: puts the threads in `done` to sleep, because all executions in
 * which they run at this point have been explored, and wakes each thread if its operation depends on the operation of
 * `chosen`. Returns the index of the oldest store that a load of `chosen` must consider. */
static uint32_t commit(uint32_t chosen, uint32_t done)
{
    thread *c = &x.threads[chosen];
    for (uint32_t i = 1; i <= x.count; i++) {
        if ((done & BIT(i)) == 0) continue;
        x.asleep |= BIT(i);
        x.threads[i].fresh = fli_weak_stores(x.threads[i].at);
    }
    uint32_t fresh = (x.asleep & BIT(chosen)) != 0 ? c->fresh : 0;
    x.asleep &= ~BIT(chosen);
    for (uint32_t i = 1; i <= x.count && c->kind != FLI_WEAK_KIND_LOAD; i++) {
        if (x.threads[i].kind != FLI_WEAK_KIND_LOAD && x.threads[i].at == c->at) x.asleep &= ~BIT(i);
    }
    return fresh;
}

static uint32_t lowest(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

/* Chooses the next thread of a walk at random. */
static uint32_t draw_thread(uint32_t options, uint32_t self)
{
    if ((options & BIT(self)) != 0 && fli_prng_below(&x.prng, 256) < x.stay) return drawn(self);
    for (uint32_t skip = fli_prng_below(&x.prng, (uint32_t)__builtin_popcount(options)); skip > 0; skip--) {
        options &= options - 1;
    }
    return drawn(lowest(options));
}

/* Returns `able` without the threads that have yielded and must let another thread run first, or `able` itself if no
 * other thread is left. */
static uint32_t without_yielders(uint32_t able)
{
    uint32_t rest = able;
    for (uint32_t i = 1; i <= x.count; i++) {
        const thread *t = &x.threads[i];
        if (t->yields && x.points - t->points == t->others) rest &= ~BIT(i);
    }
    return rest != 0 ? rest : able;
}

/* Chooses the next thread. Returns its number, or 0 if all threads have ended. Sets *fresh to the index of the oldest
 * store that a load of this thread must consider: see commit(). */
static uint32_t decide(uint32_t *fresh)
{
    uint32_t able = 0, alive = 0, options = 0, self = fli_weak_self;
    do {
        alive = able = 0;
        for (uint32_t i = 1; i <= x.count; i++) {
            if (x.threads[i].state != ENDED) alive |= BIT(i);
            if (can_go(&x.threads[i])) able |= BIT(i);
        }
        if (alive == 0) return 0;
    } while (able == 0 && ring_alarm());
    if (able == 0) fli_weak_fail("no thread can run: a wake-up was lost");
    able = without_yielders(able);
    if (x.script != NULL) {
        uint32_t next = scripted('0');
        return (able & BIT(next)) != 0 ? next : lowest(able);
    }
    for (uint32_t i = 1; i <= x.count; i++) {
        if ((able & BIT(i)) != 0 && is_awake(i)) options |= BIT(i);
    }
    if (options == 0) end_run(RUN_CUT, NULL);
    bool bounded = x.config.bound >= 0;
    if (bounded && x.preemptions >= (uint32_t)x.config.bound && (options & BIT(self)) != 0) options = BIT(self);
    uint32_t chosen, done = 0;
    if ((options & (options - 1)) == 0) {
        chosen = lowest(options);
    } else if (x.walking) {
        chosen = draw_thread(options, self);
    } else {
        if (x.depth == x.height) {
            tree_node *n = add_tree_node(true, options);
            n->chosen = (uint8_t)((options & BIT(self)) != 0 ? self : lowest(options));
        }
        tree_node *n = &x.nodes[x.depth++];
        FLI_ASSERT(n->is_thread && (n->left | n->done) == options);
        chosen = n->chosen;
        done = bounded || x.config.plain || x.barriers ? 0 : n->done;
    }
    if (chosen != self && (able & BIT(self)) != 0) x.preemptions++;
    if (++x.points > POINTS_MAX) fli_weak_fail("too many points: an endless loop");
    x.threads[chosen].points++;
    *fresh = commit(chosen, done);
    return chosen;
}

/* Chooses the next thread and switches to it. Returns when the calling thread is chosen again, with the result of
 * commit() for the calling thread. */
static uint32_t pass(void)
{
    uint32_t        self = fli_weak_self, fresh = 0;
    static uint32_t handed; /* result of commit() for the thread that is switched to */
    if (x.starting) {
        fli_weak_self = 0;
        fli_fiber_switch(&x.threads[self].fiber, &x.outside);
        fli_weak_self = self;
        return handed;
    }
    uint32_t chosen = decide(&fresh);
    if (chosen != 0) record((char)('0' + chosen));
    if (chosen == self && chosen != 0) return fresh;
    handed = fresh;
    fli_weak_self = chosen;
    fli_fiber_switch(self != 0 ? &x.threads[self].fiber : &x.beginning,
                     chosen != 0 ? &x.threads[chosen].fiber : &x.outside);
    fli_weak_self = self;
    return handed;
}

/* Records that the running thread accesses the location `at`. Returns true if another thread writes the location, or if
 * the search uses no reduction. */
static bool is_shared(uint32_t at, bool writes)
{
    uint8_t self = (uint8_t)BIT(fli_weak_self);
    if (writes && (x.writers[at] & self) == 0) {
        x.writers[at] |= self;
        if ((x.users[at] & ~self) != 0) x.learnt = true;
    }
    x.users[at] |= self;
    return (x.writers[at] & ~self) != 0 || x.config.plain || x.barriers || x.script != NULL;
}

uint32_t fli_weak_point(fli_weak_kind kind, const volatile void *at)
{
    uint32_t offset = fli_weak_offset(at);
    FLI_ASSERT(offset != UINT32_MAX);
    if (!is_shared(offset, kind != FLI_WEAK_KIND_LOAD)) {
        record((char)('0' + fli_weak_self));
        return 0;
    }
    thread *t = &x.threads[fli_weak_self];
    t->kind = kind;
    t->at = offset;
    return pass();
}

/* ---- locks and conditions (the seam's port/thread.h) ---- */

filch_err fli_mutex_init(fli_mutex *mutex)
{
    *mutex = (fli_mutex){ 0 };
    return FILCH_OK;
}

void fli_mutex_fini(fli_mutex *mutex)
{
    FLI_ASSERT(mutex->holder == 0);
}

/* Waits until the mutex is free, and locks it. */
static void lock(fli_mutex *mutex)
{
    (void)fli_weak_point(FLI_WEAK_KIND_LOCK, mutex);
    FLI_ASSERT(mutex->holder == 0);
    mutex->holder = fli_weak_self;
    fli_weak_acquire(&mutex->clock);
    FLI_WEAK_NOTE("lock +%u", fli_weak_offset(mutex));
}

void fli_mutex_lock(fli_mutex *mutex)
{
    if (fli_weak_running) lock(mutex);
}

bool fli_mutex_try_lock(fli_mutex *mutex)
{
    if (!fli_weak_running) return true;
    if (!x.tries) x.tries = x.learnt = true;
    (void)fli_weak_point(FLI_WEAK_KIND_WRITE, mutex);
    if (mutex->holder != 0) {
        FLI_WEAK_NOTE("try lock +%u: held", fli_weak_offset(mutex));
        return false;
    }
    mutex->holder = fli_weak_self;
    fli_weak_acquire(&mutex->clock);
    FLI_WEAK_NOTE("try lock +%u", fli_weak_offset(mutex));
    return true;
}

static void let_go(fli_mutex *mutex)
{
    FLI_ASSERT(mutex->holder == fli_weak_self);
    mutex->holder = 0;
    fli_weak_release(&mutex->clock);
    FLI_WEAK_NOTE("unlock +%u", fli_weak_offset(mutex));
}

void fli_mutex_unlock(fli_mutex *mutex)
{
    if (!fli_weak_running) return;
    if (x.tries || x.script != NULL) (void)fli_weak_point(FLI_WEAK_KIND_WRITE, mutex);
    else record((char)('0' + fli_weak_self));
    let_go(mutex);
}

filch_err fli_cond_init(fli_cond *cond)
{
    *cond = (fli_cond){ 0 };
    return FILCH_OK;
}

void fli_cond_fini(fli_cond *cond)
{
    (void)cond;
}

static void wake(fli_cond *cond, bool all)
{
    if (!fli_weak_running) return;
    (void)fli_weak_point(FLI_WEAK_KIND_SIGNAL, cond);
    uint32_t waiters[FLI_WEAK_THREADS], n = 0;
    for (uint32_t i = 1; i <= x.count; i++) {
        if (x.threads[i].state == WAITING && x.threads[i].cond == fli_weak_offset(cond)) waiters[n++] = i;
    }
    FLI_WEAK_NOTE("signal +%u: %u wait", fli_weak_offset(cond), n);
    if (n == 0) return;
    uint32_t one = all ? 0 : fli_weak_choose(n, n);
    for (uint32_t i = 0; i < n; i++) {
        if (all || i == one) x.threads[waiters[i]].state = READY;
    }
}

void fli_cond_signal(fli_cond *cond)
{
    wake(cond, false);
}

void fli_cond_broadcast(fli_cond *cond)
{
    wake(cond, true);
}

bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns)
{
    (void)fli_weak_point(FLI_WEAK_KIND_SIGNAL, cond);
    thread *t = &x.threads[fli_weak_self];
    FLI_WEAK_NOTE("wait +%u", fli_weak_offset(cond));
    let_go(mutex);
    (void)is_shared(fli_weak_offset(mutex), true);
    t->state = WAITING;
    t->cond = fli_weak_offset(cond);
    t->until_ns = until_ns;
    t->timed_out = false;
    t->kind = FLI_WEAK_KIND_LOCK;
    t->at = fli_weak_offset(mutex);
    (void)pass();
    FLI_ASSERT(mutex->holder == 0);
    mutex->holder = fli_weak_self;
    fli_weak_acquire(&mutex->clock);
    FLI_WEAK_NOTE("%s, lock +%u", t->timed_out ? "time is up" : "woken", fli_weak_offset(mutex));
    return !t->timed_out;
}

void fli_cond_wait(fli_cond *cond, fli_mutex *mutex)
{
    (void)fli_cond_wait_until(cond, mutex, FLI_NEVER);
}

/* ---- the futex (port/futex.h) and the process-wide barrier (port/barrier.h) ---- */

/* Compares *word with 0 by its newest value, as the kernel does. Executions in which the kernel sees an older value
 * need not be explored: the store that the kernel missed would be followed by a wake-up that finds the sleeping thread.
 * A futex wait does not order memory accesses. */
bool fli_futex_wait(uint32_t *word, uint64_t until_ns)
{
    (void)fli_weak_point(FLI_WEAK_KIND_SIGNAL, word);
    thread *t = &x.threads[fli_weak_self];
    bool    sleeps = fli_weak_newest(word, sizeof *word) == 0;
    FLI_WEAK_NOTE("futex wait +%u: %s", fli_weak_offset(word), sleeps ? "sleeps" : "not 0 any more");
    if (!sleeps) return true;
    t->state = WAITING;
    t->cond = fli_weak_offset(word);
    t->until_ns = until_ns;
    t->timed_out = false;
    (void)pass();
    FLI_WEAK_NOTE("%s", t->timed_out ? "time is up" : "woken");
    return !t->timed_out;
}

void fli_futex_wake(uint32_t *word)
{
    if (!fli_weak_running) return;
    (void)fli_weak_point(FLI_WEAK_KIND_SIGNAL, word);
    for (uint32_t i = 1; i <= x.count; i++) {
        if (x.threads[i].state != WAITING || x.threads[i].cond != fli_weak_offset(word)) continue;
        x.threads[i].state = READY;
        FLI_WEAK_NOTE("futex wake +%u: thread %u", fli_weak_offset(word), i);
        return;
    }
    FLI_WEAK_NOTE("futex wake +%u: no thread waits", fli_weak_offset(word));
}

/* Marks the next operation of the running thread as dependent on all other operations: from now on the search uses no
 * reduction. */
static thread *point_everywhere(void)
{
    if (!x.barriers) x.barriers = x.learnt = true;
    thread *t = &x.threads[fli_weak_self];
    t->kind = FLI_WEAK_KIND_SIGNAL;
    t->at = 0;
    return t;
}

void fli_weak_yield(void)
{
    thread *t = point_everywhere();
    t->yields = true;
    t->others = x.points - t->points;
    (void)pass();
    t->yields = false;
    fli_weak_find_newest(fli_weak_self);
}

void fli_weak_barrier(void)
{
    if (!fli_weak_running) return;
    (void)point_everywhere();
    (void)pass();
    fli_weak_find_newest(0);
    FLI_WEAK_NOTE("a barrier everywhere");
}

fli_thread_mood fli_thread_look(fli_thread *which, uint64_t *cpu_ns)
{
    (void)which;
    *cpu_ns = 0;
    return FLI_THREAD_UNKNOWN;
}

uint64_t fli_program_self(void)
{
    return 1;
}

void fli_thread_prompt(void)
{
}
void fli_thread_yield(void)
{
}
void fli_thread_pause(void)
{
}

void *fli_current_get(void)
{
    return x.threads[fli_weak_self].worker;
}

void fli_current_set(void *worker)
{
    x.threads[fli_weak_self].worker = worker;
}

void *fli_inside_get(void)
{
    return x.threads[fli_weak_self].inside;
}

void fli_inside_set(void *call)
{
    x.threads[fli_weak_self].inside = call;
}

/* Returns the common virtual time plus the number of clock readings of the running thread. A reading does not depend on
 * readings of other threads. */
uint64_t fli_clock_ns(void)
{
    return x.now_ns + x.threads[fli_weak_self].ticks++;
}

/* Must not be called: the threads of a program are given in advance, and none is started or joined in an execution. */
void fli_thread_join(fli_thread *thread_)
{
    (void)thread_;
    FLI_ASSERT(false);
}

/* ---- executions ---- */

static void run_thread(void *arg)
{
    thread *t = arg;
    t->run();
    t->state = ENDED;
    FLI_WEAK_NOTE("ends");
    (void)pass();
    __builtin_trap();
}

static void begin_thread(void *arg)
{
    (void)arg;
    (void)pass();
    __builtin_trap();
}

static void run_once(void)
{
    fli_weak_memory_begin();
    x.depth = x.preemptions = x.spurious = x.points = x.asleep = 0;
    x.verdict = RUN_ENDED;
    x.why = NULL;
    x.now_ns = 1000000000;
    x.outcome = 0;
    x.recorded = 0;
    for (uint32_t i = 1; i <= x.count; i++) {
        thread *t = &x.threads[i];
        t->state = READY;
        t->worker = NULL;
        t->inside = NULL;
        t->ticks = 0;
        t->yields = false;
        t->points = 0;
        fli_fiber_reset(&t->fiber, run_thread, t);
    }
    fli_weak_running = x.starting = true;
    for (uint32_t i = 1; i <= x.count && fli_weak_running; i++) {
        fli_weak_self = i;
        fli_fiber_switch(&x.outside, &x.threads[i].fiber);
    }
    x.starting = false;
    if (fli_weak_running) {
        /* The first thread is chosen on the fiber x.beginning, which behaves like a thread that has ended. */
        fli_fiber_reset(&x.beginning, begin_thread, NULL);
        fli_weak_self = 0;
        fli_fiber_switch(&x.outside, &x.beginning);
    }
    fli_weak_running = false;
    fli_weak_self = 0;
    x.result.points += x.points;
    if (x.verdict == RUN_ENDED && x.program->check != NULL) x.program->check();
}

/* Changes the last choice that has an untried alternative, so that run_once() runs the next execution. Returns false if
 * all executions have been explored. */
static bool advance(void)
{
    while (x.height > 0) {
        tree_node *n = &x.nodes[x.height - 1];
        if (!n->is_thread && n->chosen + 1u < n->left) {
            n->chosen++;
            return true;
        }
        if (n->is_thread) {
            n->done |= (uint16_t)BIT(n->chosen);
            n->left &= (uint16_t)~BIT(n->chosen);
            if (n->left != 0) {
                n->chosen = (uint8_t)lowest(n->left);
                return true;
            }
        }
        x.height--;
    }
    return false;
}

static void note_outcome(void)
{
    uint64_t key = x.outcome | 1;
    for (uint32_t i = (uint32_t)key % OUTCOMES, n = 0; n < OUTCOMES; i = (i + 1) % OUTCOMES, n++) {
        if (x.outcomes[i] == key) return;
        if (x.outcomes[i] != 0) continue;
        x.outcomes[i] = key;
        x.result.outcomes++;
        return;
    }
}

/* Runs the failing execution again, or the execution given by config.replay, and prints each operation. */
static void show(void)
{
    fli_weak_tracing = true;
    run_once();
    fli_weak_tracing = false;
    FLI_ASSERT(x.verdict == RUN_VIOLATION || x.script != NULL);
}

/* Starts the search again. Called when an execution has set x.learnt: it has shown for the first time that a thread
 * writes a certain shared location, that the program uses trylock, or that it calls fli_weak_barrier() or
 * fli_weak_yield(). Executions that were omitted without this knowledge must be explored. */
static void begin_anew(void)
{
    x.learnt = false;
    x.height = 0;
    x.result = (fli_weak_result){ 0 };
    memset(x.outcomes, 0, sizeof x.outcomes);
}

/* Calls `progress` if it is due. The caller has counted the last execution. */
static void report_progress(void)
{
    uint64_t done = x.result.executions + x.result.cut;
    if (x.config.progress != NULL && done % PROGRESS_EVERY == 0) x.config.progress(x.program, x.result.executions);
}

static void search(void)
{
    for (;;) {
        run_once();
        if (x.learnt) {
            begin_anew();
            continue;
        }
        if (x.verdict == RUN_CUT) x.result.cut++;
        else x.result.executions++;
        report_progress();
        if (x.verdict == RUN_ENDED) note_outcome();
        if (x.verdict == RUN_VIOLATION) {
            x.result.why = x.why;
            if (!x.config.quiet) show();
            return;
        }
        if (x.config.limit != 0 && x.result.executions >= x.config.limit) return;
        if (!advance()) break;
    }
    x.result.complete = true;
}

/* Records the choices of this walk. Returns false if an earlier walk made the same choices. */
static bool note_path(void)
{
    uint64_t key = x.path | 1;
    for (uint64_t i = key >> 8 & x.paths_mask;; i = (i + 1) & x.paths_mask) {
        if (x.paths[i] == key) return false;
        if (x.paths[i] != 0) continue;
        x.paths[i] = key;
        return true;
    }
}

/* Runs one walk with random numbers from `from`. Repeats the walk if it has set x.learnt: then it has shown for the
 * first time that a thread writes a certain shared location, that the program uses trylock, or that it calls
 * fli_weak_barrier() or fli_weak_yield(). Without this knowledge, some operations were wrongly treated as
 * independent. */
static void walk_once(fli_prng from)
{
    do {
        x.prng = from;
        x.path = 0;
        x.learnt = false;
        run_once();
    } while (x.learnt);
}

static void walk(void)
{
    uint64_t room = 64;
    while (room < 2 * x.config.walks) room *= 2;
    x.paths_mask = room - 1;
    x.paths = calloc(room, sizeof *x.paths);
    FLI_ASSERT(x.paths != NULL);
    fli_prng_init(&x.prng, x.config.seed);
    for (uint64_t i = 0; i < x.config.walks && x.result.why == NULL; i++) {
        x.stay = 256 - (256u >> fli_prng_below(&x.prng, 5));
        fli_prng from = x.prng;
        walk_once(from);
        x.result.executions++;
        x.result.distinct += note_path();
        report_progress();
        if (x.verdict == RUN_ENDED) note_outcome();
        if (x.verdict != RUN_VIOLATION) {
            if (i >= WORN_AFTER && 2 * x.result.distinct < i) break;
            continue;
        }
        x.result.why = x.why;
        if (x.config.quiet) break;
        x.prng = from;
        show();
    }
    free(x.paths);
}

fli_weak_result fli_weak_explore(const fli_weak_program *program, const fli_weak_config *config)
{
    struct sigaction action = { .sa_handler = on_trap, .sa_flags = SA_NODEFER };
    (void)sigaction(SIGILL, &action, NULL);
    (void)sigaction(SIGSEGV, &action, NULL);
    x.config = *config;
    x.program = program;
    x.result = (fli_weak_result){ 0 };
    x.height = 0;
    x.learnt = x.tries = x.barriers = false;
    x.walking = config->walks > 0 && config->replay == NULL;
    memset(x.writers, 0, sizeof x.writers);
    memset(x.users, 0, sizeof x.users);
    memset(x.outcomes, 0, sizeof x.outcomes);
    fli_weak_memory_clear();
    program->setup();
    fli_weak_memory_snapshot();
    if (x.beginning.stack == NULL) FLI_ASSERT(fli_fiber_init(&x.beginning, STACK_SIZE, begin_thread, NULL));
    for (x.count = 0; x.count < FLI_WEAK_THREADS && program->threads[x.count] != NULL; x.count++) {
        thread *t = &x.threads[x.count + 1];
        t->run = program->threads[x.count];
        if (t->fiber.stack == NULL) FLI_ASSERT(fli_fiber_init(&t->fiber, STACK_SIZE, run_thread, t));
    }
    x.script = config->replay;
    if (x.script != NULL) {
        show();
        x.result.why = x.verdict == RUN_VIOLATION ? x.why : NULL;
        x.result.executions = 1;
    } else if (x.walking) {
        walk();
    } else {
        search();
        x.result.distinct = x.result.executions;
    }
    return x.result;
}
