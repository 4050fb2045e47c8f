/* engine.c - see engine.h.
 *
 * All threads of a run live in one array; fibers are kept from run to run. The engine itself has no fiber: whoever
 * reaches a point and has to choose does the choosing, and switches straight to the chosen one.
 */
#include "sim/engine.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/prng.h"
#include "sim/fiber.h"

#define THREADS_MAX 160
#define STACK_SIZE (256u << 10)
#define POINT_NS 20 /* virtual time that passes at every point */
#define CHANGES_MAX 16
#define FAIR_AFTER 20 /* PCT: times `length` points, after which the rest of the run is a random walk */
#define FOREVER UINT64_MAX
#define EPOCH_NS UINT64_C(1000000000) /* when a run begins */

enum { UNUSED, READY, BLOCKED, ENDED };

typedef struct fli_sim_thread {
    fli_fiber fiber;
    void    (*run)(void *arg);
    void     *arg;
    void     *here;
    struct fli_sim_thread *next; /* in the queue it waits in */
    fli_sim_queue         *queue;
    uint64_t  until_ns;
    uint64_t  stalled_until; /* points; not chosen before, if there is anybody else */
    uint64_t  priority;      /* PCT */
    uint8_t   state;
    bool      timed_out;
    fli_sim_queue joiners;
} thread;

static struct {
    fli_sim_config config;
    fli_prng       prng;
    thread         threads[THREADS_MAX];
    uint32_t       count, alive;
    thread        *current;
    fli_fiber      outside; /* the caller of fli_sim_run */
    bool           running;
    uint64_t       granted; /* points handed out as credit so far */
    uint64_t       time_base_ns;
    uint64_t       next_change, changes[CHANGES_MAX], lowest;
    uint32_t       change_count;
    uint64_t       hold; /* while tracing: points until the real decision */
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

void *fli_sim_here_get(void)
{
    return sim.running ? sim.current->here : NULL;
}

void fli_sim_here_set(void *here)
{
    sim.current->here = here;
}

/* ---- ending ---- */

/* Leaves the run for good. The fiber that calls this is never resumed. */
static void leave(fli_sim_verdict verdict, const char *why)
{
    sim.result.verdict = verdict;
    sim.result.why = why;
    fli_fiber_switch(&sim.current->fiber, &sim.outside);
    __builtin_trap();
}

void fli_sim_fail(const char *why)
{
    leave(FLI_SIM_FAILED, why);
    __builtin_trap();
}

/* ---- choosing ---- */

static void mix(uint64_t value)
{
    sim.result.hash = fli_prng_mix(sim.result.hash ^ value);
}

/* Grants credit until the next decision. */
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
        /* Look at least every so often: timers of blocked threads come due by the passing of points. */
        uint64_t until = sim.next_change > done ? sim.next_change - done : 1;
        grant(until < 512 ? until : 512);
        return;
    }
    /* Between 1 and 2 * mean - 1. */
    grant(1 + (uint64_t)fli_sim_choose(2 * sim.config.switch_mean - 1));
}

static void unqueue(thread *t)
{
    thread **at = &t->queue->first;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    t->queue = NULL;
}

/* Those whose alarm has rung become ready. Returns the next alarm. */
static uint64_t ring_alarms(uint64_t now_ns)
{
    uint64_t next = FOREVER;
    for (uint32_t i = 0; i < sim.count; i++) {
        thread *t = &sim.threads[i];
        if (t->state != BLOCKED || t->until_ns == FOREVER) continue;
        if (t->until_ns <= now_ns) {
            unqueue(t);
            t->timed_out = true;
            t->state = READY;
        } else if (t->until_ns < next) {
            next = t->until_ns;
        }
    }
    return next;
}

/* A thread that can run, by the strategy; NULL if there is none. */
static thread *pick(void)
{
    uint64_t now = points();
    thread  *best = NULL;
    uint32_t ready = 0;
    bool     best_stalled = false;
    for (uint32_t i = 0; i < sim.count; i++) {
        thread *t = &sim.threads[i];
        if (t->state != READY) continue;
        bool stalled = t->stalled_until > now;
        if (sim.config.strategy == FLI_SIM_PCT) {
            if (best == NULL || t->priority > best->priority) best = t;
            continue;
        }
        if (best != NULL && stalled && !best_stalled) continue;
        if (best != NULL && best_stalled && !stalled) ready = 0;
        /* Each of the k seen so far is kept with the same chance. */
        if (fli_sim_choose(++ready) == 0) {
            best = t;
            best_stalled = stalled;
        }
    }
    return best;
}

/* Goes on with whoever can run. */
static void dispatch(void)
{
    thread *from = sim.current;
    if (points() > sim.config.point_max) leave(FLI_SIM_ENDLESS, "too many points: somebody goes round for ever");
    /* Priorities may starve a thread for ever, if the others never rest; a real system does not. */
    if (points() > FAIR_AFTER * sim.config.length) sim.config.strategy = FLI_SIM_RANDOM;
    (void)ring_alarms(sim.time_base_ns + points() * POINT_NS);
    thread *to = pick();
    while (to == NULL) {
        uint64_t next = ring_alarms(0);
        if (next == FOREVER) leave(FLI_SIM_DEADLOCK, "nobody can run and nobody has an alarm: a wake-up was lost");
        /* Everybody waits: time jumps. */
        sim.time_base_ns = next - points() * POINT_NS;
        (void)ring_alarms(next);
        to = pick();
    }
    mix((uint64_t)(to - sim.threads) + (points() << 8));
    grant_for_strategy();
    if (to == from) return;
    sim.result.switches++;
    if (sim.config.check_every != 0 && sim.result.switches % sim.config.check_every == 0) sim.config.check();
    if (fli_sim_chance(sim.config.stall)) from->stalled_until = points() + 1000 + fli_sim_choose(20000);
    sim.current = to;
    fli_fiber_switch(&from->fiber, &to->fiber);
}

static void demote(thread *t)
{
    t->priority = --sim.lowest;
}

/* The change points of PCT that have been passed. */
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
    /* The one with the highest priority would look again for ever. */
    if (sim.config.strategy == FLI_SIM_PCT) demote(sim.current);
    dispatch();
}

bool fli_sim_block(fli_sim_queue *queue, uint64_t until_ns, const char *what)
{
    thread *t = sim.current;
    (void)what;
    t->state = BLOCKED;
    t->timed_out = false;
    t->until_ns = until_ns;
    t->queue = queue;
    t->next = queue->first;
    queue->first = t;
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
        unqueue(t);
        t->state = READY;
        return true;
    }
    while (queue->first != NULL) {
        thread *t = queue->first;
        unqueue(t);
        t->state = READY;
    }
    return true;
}

/* ---- threads ---- */

static void begin(void *arg)
{
    thread *t = arg;
    t->run(t->arg);
    t->state = ENDED;
    sim.alive--;
    (void)fli_sim_wake(&t->joiners, true);
    if (sim.alive == 0) leave(FLI_SIM_OK, NULL);
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
    if (t->fiber.stack == NULL) FLI_ASSERT(fli_fiber_init(&t->fiber, STACK_SIZE, begin, t));
    else fli_fiber_reset(&t->fiber, begin, t);
    t->priority = (UINT64_C(1) << 63) + (fli_prng_next(&sim.prng) >> 2);
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
    sim.granted = fli_sim_credit = 0;
    sim.time_base_ns = EPOCH_NS;
    sim.result = (fli_sim_result){ .verdict = FLI_SIM_OK };
    sim.lowest = UINT64_C(1) << 62;
    sim.change_count = sim.config.depth - 1 < CHANGES_MAX ? sim.config.depth - 1 : CHANGES_MAX;
    for (uint32_t i = 0; i < sim.change_count; i++) sim.changes[i] = 1 + fli_prng_next(&sim.prng) % sim.config.length;
    /* Latest first, so that the next one is at the end. */
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
