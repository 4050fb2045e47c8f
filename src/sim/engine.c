/* engine.c - see engine.h.
 *
 * All virtual threads of a run are in one array; their fibers are reused by the next run. The engine has no fiber of
 * its own: the virtual thread that reaches a point chooses the next thread and switches to it directly.
 */
#include "sim/engine.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/prng.h"
#include "sim/fiber.h"

#define THREADS_MAX 160
#define STACK_SIZE (256u << 10)
#define POINT_NS 20 /* virtual time in ns that passes at each scheduling point (engine.h) */
#define CHANGES_MAX 16
/* maximum number of scheduling points between two checks of the alarms, under PCT or while only one thread can run */
#define LOOK_EVERY 512
/* a run with the strategy PCT continues as a random walk after FAIR_AFTER * config.length scheduling points */
#define FAIR_AFTER 20
#define FOREVER UINT64_MAX
#define EPOCH_NS UINT64_C(1000000000) /* virtual time at the start of a run */

enum { UNUSED, READY, BLOCKED, ENDED };

typedef struct fli_sim_thread {
    fli_fiber fiber;
    void (*run)(void *arg);
    void                  *arg;
    void                  *worker;
    void                  *inside; /* see port/inside.h */
    struct fli_sim_thread *next;   /* next thread in the queue of the object that this thread waits for */
    fli_sim_queue         *queue;
    uint64_t               until_ns;
    /* number of the scheduling point up to which the thread is in `stalled` and is chosen only if `ready` is empty */
    uint64_t stalled_until;
    uint64_t priority; /* used by the strategy PCT only */
    /* the set that contains the thread. READY: `ready` or `stalled`; BLOCKED with an alarm: `timed`; otherwise NULL */
    struct set   *in;
    uint32_t      place; /* index of the thread in the set `in` */
    uint8_t       state;
    bool          timed_out;
    fli_sim_queue joiners;
} thread;

/* A set of threads. The order of the threads depends only on the run, not on addresses. */
typedef struct set {
    thread  *at[THREADS_MAX];
    uint32_t count;
} set;

static struct {
    fli_sim_config config;
    fli_prng       prng;
    thread         threads[THREADS_MAX];
    uint32_t       count, alive;
    set            ready;      /* threads that can run; under PCT a heap, the highest priority first */
    set            stalled;    /* threads that can run, but are chosen only if `ready` is empty */
    set            timed;      /* blocked threads with an alarm */
    uint64_t       stall_ends; /* lower bound of the stalled_until of the threads in `stalled` */
    uint64_t       alarm_ns;   /* lower bound of the alarms (until_ns) of the threads in `timed` */
    bool           alone;      /* strategy random walk: true while no thread but the running one can run */
    thread        *current;
    fli_fiber      outside; /* fiber of the caller of fli_sim_run */
    bool           running;
    /* number of scheduling points that the run will have passed when fli_sim_credit has counted down to 0; grant() sets
     * both */
    uint64_t granted;
    uint64_t time_base_ns;
    uint64_t next_change, changes[CHANGES_MAX], lowest;
    uint32_t change_count;
    /* Scheduling points left until the next choice. Used only while tracing: then fli_sim_credit is always 1, so that
     * each scheduling point can be printed. */
    uint64_t       hold;
    fli_sim_result result;
} sim;

uint64_t fli_sim_credit = UINT64_MAX;

bool fli_sim_running(void)
{
    return sim.running;
}

static uint64_t points(void)
{
    return sim.granted - fli_sim_credit;
}

uint64_t fli_sim_points(void)
{
    return points();
}

uint32_t fli_sim_choose(uint32_t bound)
{
    return fli_prng_below(&sim.prng, bound);
}

bool fli_sim_chance(uint32_t per_mille)
{
    return per_mille != 0 && fli_prng_below(&sim.prng, 1000) < per_mille;
}

bool fli_sim_weak_fails(void)
{
    return fli_sim_chance(sim.config.weak_fail);
}

bool fli_sim_spurious(void)
{
    return fli_sim_chance(sim.config.spurious);
}

bool fli_sim_no_thread(void)
{
    return fli_sim_chance(sim.config.no_thread);
}

uint64_t fli_sim_now_ns(void)
{
    if (sim.running && fli_sim_chance(sim.config.clock_jump)) sim.time_base_ns += 1u << fli_sim_choose(30);
    return sim.time_base_ns + points() * POINT_NS;
}

void *fli_sim_current_get(void)
{
    return sim.running ? sim.current->worker : NULL;
}

void fli_sim_current_set(void *worker)
{
    sim.current->worker = worker;
}

void *fli_sim_inside_get(void)
{
    return sim.running ? sim.current->inside : NULL;
}

void fli_sim_inside_set(void *call)
{
    sim.current->inside = call;
}

/* ---- ending a run ---- */

/* Ends the run. The calling fiber is never resumed. */
static void end_run(fli_sim_verdict verdict, const char *why)
{
    sim.result.verdict = verdict;
    sim.result.why = why;
    fli_fiber_switch(&sim.current->fiber, &sim.outside);
    __builtin_trap();
}

void fli_sim_fail(const char *why)
{
    end_run(FLI_SIM_FAILED, why);
    __builtin_trap();
}

/* ---- drawing choices from the seed ---- */

/* Adds `value` to the hash of the run. Cheap (one multiplication), because it is called for each choice. */
static void mix(uint64_t value)
{
    uint64_t hash = (sim.result.hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    sim.result.hash = hash ^ (hash >> 29);
}

/* Sets the number of scheduling points that pass until the next choice of a thread. */
static void grant(uint64_t credit)
{
    uint64_t done = points();
    if (credit == 0) credit = 1;
    if (sim.config.trace) {
        sim.hold = credit;
        credit = 1;
    }
    sim.granted = done + credit;
    fli_sim_credit = credit;
}

static void grant_for_strategy(void)
{
    if (sim.config.strategy == FLI_SIM_PCT) {
        uint64_t done = points();
        /* Checks the alarms at least every LOOK_EVERY scheduling points, because virtual time advances at each of them
         * and alarms of blocked threads become due. */
        uint64_t until = sim.next_change > done ? sim.next_change - done : 1;
        grant(until < LOOK_EVERY ? until : LOOK_EVERY);
        return;
    }
    /* If only one thread can run, the next choice is made when this thread makes another thread ready (add_ready), when
     * an alarm is due, or after LOOK_EVERY scheduling points. */
    sim.alone = sim.ready.count + sim.stalled.count == 1;
    if (sim.alone) {
        uint64_t now_ns = sim.time_base_ns + points() * POINT_NS;
        uint64_t until = sim.alarm_ns > now_ns ? (sim.alarm_ns - now_ns - 1) / POINT_NS + 1 : 1;
        grant(until < LOOK_EVERY ? until : LOOK_EVERY);
        return;
    }
    /* The next choice is made after a random number of scheduling points, uniform from 1 to 2 * switch_mean - 1. */
    grant(1 + (uint64_t)fli_sim_choose(2 * sim.config.switch_mean - 1));
}

/* ---- the sets of threads ---- */

static void set_place(set *s, uint32_t place, thread *t)
{
    s->at[place] = t;
    t->place = place;
}

/* Under PCT the set `ready` is a heap: no thread has a higher priority than its parent in the heap. */
static void rise(set *s, thread *t)
{
    uint32_t at = t->place;
    for (; at > 0 && s->at[(at - 1) / 2]->priority < t->priority; at = (at - 1) / 2)
        set_place(s, at, s->at[(at - 1) / 2]);
    set_place(s, at, t);
}

static void sink(set *s, thread *t)
{
    uint32_t at = t->place;
    for (uint32_t below = 2 * at + 1; below < s->count; below = 2 * at + 1) {
        if (below + 1 < s->count && s->at[below + 1]->priority > s->at[below]->priority) below++;
        if (s->at[below]->priority <= t->priority) break;
        set_place(s, at, s->at[below]);
        at = below;
    }
    set_place(s, at, t);
}

static void set_add(set *s, thread *t)
{
    t->in = s;
    set_place(s, s->count++, t);
    if (s == &sim.ready && sim.config.strategy == FLI_SIM_PCT) rise(s, t);
}

static void set_remove(thread *t)
{
    set    *s = t->in;
    thread *last = s->at[--s->count];
    t->in = NULL;
    if (last == t) return;
    set_place(s, t->place, last);
    if (s != &sim.ready || sim.config.strategy != FLI_SIM_PCT) return;
    rise(s, last);
    sink(s, last);
}

static void add_ready(thread *t)
{
    bool was_alone = sim.alone;
    sim.alone = false;
    if (sim.config.strategy == FLI_SIM_PCT || t->stalled_until <= points()) {
        set_add(&sim.ready, t);
    } else {
        set_add(&sim.stalled, t);
        if (t->stalled_until < sim.stall_ends) sim.stall_ends = t->stalled_until;
    }
    if (was_alone) grant_for_strategy();
}

/* Makes a blocked thread ready. */
static void unblock(thread *t)
{
    thread **at = &t->queue->first;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    t->queue = NULL;
    if (t->in != NULL) set_remove(t);
    t->state = READY;
    add_ready(t);
}

/* Makes the threads with a due alarm ready. */
static void ring_alarms(uint64_t now_ns)
{
    uint64_t next = FOREVER;
    for (uint32_t i = 0; i < sim.timed.count;) {
        thread *t = sim.timed.at[i];
        if (t->until_ns <= now_ns) {
            unblock(t); /* set_remove() has moved another thread to index i, so i is checked again */
            t->timed_out = true;
            continue;
        }
        if (t->until_ns < next) next = t->until_ns;
        i++;
    }
    sim.alarm_ns = next;
}

/* Moves the threads with an expired stall from `stalled` to `ready`. */
static void end_stalls(uint64_t now)
{
    uint64_t next = FOREVER;
    for (uint32_t i = 0; i < sim.stalled.count;) {
        thread *t = sim.stalled.at[i];
        if (t->stalled_until <= now) {
            set_remove(t);
            set_add(&sim.ready, t);
            continue;
        }
        if (t->stalled_until < next) next = t->stalled_until;
        i++;
    }
    sim.stall_ends = next;
}

/* Returns the thread that the strategy chooses among the threads that can run, or NULL if no thread can run. */
static thread *pick(void)
{
    set *from = sim.ready.count > 0 ? &sim.ready : &sim.stalled;
    if (from->count == 0) return NULL;
    return from->at[sim.config.strategy == FLI_SIM_PCT ? 0 : fli_sim_choose(from->count)];
}

static void stall(thread *t)
{
    t->stalled_until = points() + 1000 + fli_sim_choose(20000);
    if (t->state != READY) return; /* if the thread is blocked, the stall takes effect when it becomes ready */
    set_remove(t);
    add_ready(t);
}

/* Switches to the next thread that the strategy chooses. */
static void dispatch(void)
{
    thread  *from = sim.current, *to;
    uint64_t now = points();
    sim.alone = false;
    if (now > sim.config.point_max) end_run(FLI_SIM_ENDLESS, "too many points: an endless loop");
    /* Under PCT a thread of low priority starves if the other threads never block. A real scheduler would not starve
     * it, so the run continues as a random walk. */
    if (now > FAIR_AFTER * sim.config.length) sim.config.strategy = FLI_SIM_RANDOM;
    if (now >= sim.stall_ends) end_stalls(now);
    if (sim.time_base_ns + now * POINT_NS >= sim.alarm_ns) ring_alarms(sim.time_base_ns + now * POINT_NS);
    while ((to = pick()) == NULL) {
        ring_alarms(0);
        if (sim.alarm_ns == FOREVER)
            end_run(FLI_SIM_DEADLOCK, "no thread can run and none has a timeout: a wake-up was lost");
        /* All threads are blocked: virtual time jumps to the next alarm. */
        if (sim.config.rest != NULL) sim.config.rest();
        sim.time_base_ns = sim.alarm_ns - now * POINT_NS;
        ring_alarms(sim.alarm_ns);
    }
    mix((uint64_t)(to - sim.threads) + (now << 8));
    grant_for_strategy();
    if (to == from) return;
    sim.result.switches++;
    if (sim.config.check_every != 0 && sim.result.switches % sim.config.check_every == 0) sim.config.check();
    if (sim.config.strategy == FLI_SIM_RANDOM && fli_sim_chance(sim.config.stall)) stall(from);
    sim.current = to;
    fli_fiber_switch(&from->fiber, &to->fiber);
}

static void demote(thread *t)
{
    t->priority = --sim.lowest;
    sink(&sim.ready, t);
}

/* Applies the PCT priority changes that are due at the current scheduling point. */
static void change_priorities(void)
{
    while (sim.change_count > 0 && sim.next_change <= points()) {
        demote(sim.current);
        sim.next_change = --sim.change_count > 0 ? sim.changes[sim.change_count - 1] : FOREVER;
    }
}

void fli_sim_decide(const char *what)
{
    if (!sim.running) {
        fli_sim_credit = UINT64_MAX;
        return;
    }
    if (sim.config.trace) {
        sim.config.trace_line(sim.config.trace_user, points(), (uint32_t)(sim.current - sim.threads), what);
        if (--sim.hold > 0) {
            sim.granted++;
            fli_sim_credit = 1;
            return;
        }
    }
    if (sim.config.strategy == FLI_SIM_PCT) change_priorities();
    dispatch();
}

void fli_sim_yield(const char *what)
{
    (void)what;
    if (!sim.running) return;
    /* Under PCT a spinning thread with the highest priority would run for ever, so its priority is lowered. */
    if (sim.config.strategy == FLI_SIM_PCT) demote(sim.current);
    dispatch();
}

bool fli_sim_block(fli_sim_queue *queue, uint64_t until_ns, const char *what)
{
    thread *t = sim.current;
    (void)what;
    set_remove(t);
    t->state = BLOCKED;
    t->timed_out = false;
    t->until_ns = until_ns;
    t->queue = queue;
    t->next = queue->first;
    queue->first = t;
    if (until_ns != FOREVER) {
        set_add(&sim.timed, t);
        if (until_ns < sim.alarm_ns) sim.alarm_ns = until_ns;
    }
    dispatch();
    return !t->timed_out;
}

bool fli_sim_wake(fli_sim_queue *queue, bool all)
{
    if (queue->first == NULL) return false;
    if (!all) {
        uint32_t n = 0, k;
        for (thread *t = queue->first; t != NULL; t = t->next) n++;
        thread *t = queue->first;
        for (k = fli_sim_choose(n); k > 0; k--) t = t->next;
        unblock(t);
        return true;
    }
    while (queue->first != NULL) unblock(queue->first);
    return true;
}

/* ---- virtual threads ---- */

static void begin_thread(void *arg)
{
    thread *t = arg;
    t->run(t->arg);
    set_remove(t);
    t->state = ENDED;
    sim.alive--;
    (void)fli_sim_wake(&t->joiners, true);
    if (sim.alive == 0) end_run(FLI_SIM_OK, NULL);
    dispatch();
    __builtin_trap();
}

uint32_t fli_sim_thread_start(void (*run)(void *arg), void *arg)
{
    FLI_ASSERT(sim.count < THREADS_MAX);
    uint32_t  index = sim.count++;
    thread   *t = &sim.threads[index];
    fli_fiber fiber = t->fiber;
    *t = (thread){ .fiber = fiber, .run = run, .arg = arg, .state = READY };
    if (t->fiber.stack == NULL) FLI_ASSERT(fli_fiber_init(&t->fiber, STACK_SIZE, begin_thread, t));
    else fli_fiber_reset(&t->fiber, begin_thread, t);
    t->priority = (UINT64_C(1) << 63) + (fli_prng_next(&sim.prng) >> 2);
    add_ready(t);
    sim.alive++;
    return index;
}

void fli_sim_thread_join(uint32_t index)
{
    thread *t = &sim.threads[index];
    while (t->state != ENDED) (void)fli_sim_block(&t->joiners, FOREVER, "join");
}

/* ---- a run ---- */

static void set_up(const fli_sim_config *config)
{
    sim.config = *config;
    if (sim.config.depth == 0) sim.config.depth = 3;
    if (sim.config.length == 0) sim.config.length = 20000;
    if (sim.config.point_max == 0) sim.config.point_max = 50000000;
    fli_prng_init(&sim.prng, config->seed);
    if (sim.config.switch_mean == 0) sim.config.switch_mean = 1u << fli_sim_choose(9);
    sim.count = sim.alive = 0;
    sim.ready.count = sim.stalled.count = sim.timed.count = 0;
    sim.stall_ends = sim.alarm_ns = FOREVER;
    sim.alone = false;
    sim.granted = fli_sim_credit = 0;
    sim.time_base_ns = EPOCH_NS;
    sim.result = (fli_sim_result){ .verdict = FLI_SIM_OK };
    sim.lowest = UINT64_C(1) << 62;
    sim.change_count = sim.config.depth - 1 < CHANGES_MAX ? sim.config.depth - 1 : CHANGES_MAX;
    for (uint32_t i = 0; i < sim.change_count; i++) sim.changes[i] = 1 + fli_prng_next(&sim.prng) % sim.config.length;
    /* Sorts `changes`, the latest first, so that the next change is the last entry. */
    for (uint32_t i = 1; i < sim.change_count; i++) {
        for (uint32_t k = i; k > 0 && sim.changes[k] > sim.changes[k - 1]; k--) {
            uint64_t swap = sim.changes[k];
            sim.changes[k] = sim.changes[k - 1];
            sim.changes[k - 1] = swap;
        }
    }
    sim.next_change = sim.change_count > 0 ? sim.changes[sim.change_count - 1] : FOREVER;
}

fli_sim_result fli_sim_run(const fli_sim_config *config, void (*body)(void *arg), void *arg)
{
    FLI_ASSERT(!sim.running);
    set_up(config);
    (void)fli_sim_thread_start(body, arg);
    sim.current = &sim.threads[0];
    sim.running = true;
    grant_for_strategy();
    fli_fiber_switch(&sim.outside, &sim.current->fiber);
    sim.running = false;
    sim.result.points = points();
    sim.result.time_ns = sim.time_base_ns + points() * POINT_NS - EPOCH_NS;
    fli_sim_credit = UINT64_MAX;
    return sim.result;
}
