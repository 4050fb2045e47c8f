/* engine.c - see engine.h.
 *
 * INVARIANT  the running thread is in no heap slot; every other thread that is ready or has an alarm is in exactly one.
 * INVARIANT  the running thread has run, since its last scale_sync(), only code that no other thread can observe before
 *            its clock: plain accesses are ordered by atomic ones, and those begin with scale_sync().
 */
#include "scale/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "scale/blame.h"
#include "sim/fiber.h"

#define STACK_BYTES ((size_t)1 << 20)
/* start of the scale model's clock; not 0, because programs use the time 0 as "never" */
#define BEGIN_AT (1000000 * SCALE_US)
#define NOT_IN_HEAP UINT32_MAX

enum state { READY, BLOCKED, ENDED };

struct scale_thread {
    scale_core core;
    fli_fiber  fiber;
    void (*run)(void *arg);
    void         *arg;
    void         *current; /* what fli_current_get() returns in this thread */
    void         *inside;  /* what fli_inside_get() returns in this thread */
    enum state    state;
    bool          timed_out;
    scale_ps      until;   /* while blocked: time at which the thread stops waiting by itself */
    scale_ps      began;   /* when the thread was started */
    scale_queue  *queue;   /* while blocked: the queue in which the thread waits; may be NULL */
    scale_thread *next;    /* in that queue */
    scale_queue   joiners; /* threads that wait until this thread ends */
    uint32_t      heap_at;
    scale_ps      asleep;
};

bool scale_running;

static struct {
    scale_config  config;
    scale_lines  *lines;
    scale_thread *threads[SCALE_CORES_MAX];
    uint32_t      thread_count;
    scale_thread *running;
    scale_thread *heap[SCALE_CORES_MAX]; /* heap[0] is the thread that runs next */
    uint32_t      heap_size;
    fli_fiber     outside; /* context of the real thread that called scale_run() */
    uint64_t      random;
    /* only the totals that no core counts for itself: scale_totals_now() adds the counts of the cores */
    scale_totals totals;
} engine;

/* ---- the heap: ordered by time, then by the number of the thread ---- */

static inline scale_ps time_of(const scale_thread *thread)
{
    return thread->state == READY ? thread->core.now : thread->until;
}

static inline bool is_before(const scale_thread *a, const scale_thread *b)
{
    scale_ps x = time_of(a), y = time_of(b);
    return x != y ? x < y : a->core.index < b->core.index;
}

static void put_at(uint32_t at, scale_thread *thread)
{
    engine.heap[at] = thread;
    thread->heap_at = at;
}

static void move_up(scale_thread *thread)
{
    uint32_t at = thread->heap_at;
    while (at > 0 && is_before(thread, engine.heap[(at - 1) / 2])) {
        put_at(at, engine.heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put_at(at, thread);
}

static void move_down(scale_thread *thread)
{
    uint32_t at = thread->heap_at;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= engine.heap_size) break;
        if (child + 1 < engine.heap_size && is_before(engine.heap[child + 1], engine.heap[child])) child++;
        if (!is_before(engine.heap[child], thread)) break;
        put_at(at, engine.heap[child]);
        at = child;
    }
    put_at(at, thread);
}

static void heap_add(scale_thread *thread)
{
    thread->heap_at = engine.heap_size++;
    move_up(thread);
}

static void heap_remove(scale_thread *thread)
{
    scale_thread *last = engine.heap[--engine.heap_size];
    uint32_t      at = thread->heap_at;
    thread->heap_at = NOT_IN_HEAP;
    if (last == thread) return;
    last->heap_at = at;
    move_up(last);
    move_down(last);
}

/* ---- switching ---- */

static void leave_queue(scale_thread *thread)
{
    if (thread->queue == NULL) return;
    scale_thread **at = &thread->queue->first;
    while (*at != thread) at = &(*at)->next;
    *at = thread->next;
    thread->queue = NULL;
}

static void continue_at(scale_thread *thread, scale_ps at)
{
    thread->state = READY;
    if (at <= thread->core.now) return;
    thread->asleep += at - thread->core.now;
    thread->core.now = at;
}

/* Switches to the thread whose time is earliest. Precondition: the running thread is in the heap, is blocked without an
 * alarm, or has ended. */
static void switch_to_earliest(void)
{
    if (engine.heap_size == 0) {
        fprintf(stderr, "scale: no thread can run: deadlock\n");
        exit(3);
    }
    scale_thread *to = engine.heap[0], *from = engine.running;
    heap_remove(to);
    if (to->state == BLOCKED) {
        to->timed_out = true;
        leave_queue(to);
        continue_at(to, to->until);
    }
    engine.running = to;
    if (to != from) fli_fiber_switch(&from->fiber, &to->fiber);
}

void scale_sync(void)
{
    if (!scale_running || engine.heap_size == 0 || !is_before(engine.heap[0], engine.running)) return;
    heap_add(engine.running);
    switch_to_earliest();
}

bool scale_block(scale_queue *queue, scale_ps until)
{
    scale_thread *me = engine.running;
    me->core.now += engine.config.machine.block;
    me->state = BLOCKED;
    me->timed_out = false;
    me->until = until;
    me->queue = queue;
    me->next = NULL;
    if (queue != NULL) {
        scale_thread **at = &queue->first;
        while (*at != NULL) at = &(*at)->next;
        *at = me;
    }
    if (until != SCALE_NEVER) heap_add(me);
    switch_to_earliest();
    return !me->timed_out;
}

/* Returns the latency of one wake-up: the mean of the machine, plus or minus up to an eighth of the mean, drawn from
 * the seed. With equal latencies, threads would run in lockstep for ever, which happens on no real machine. */
static scale_ps wake_latency(void)
{
    scale_ps mean = engine.config.machine.wake;
    return mean == 0 ? 0 : mean - mean / 8 + scale_random() % (mean / 4 + 1);
}

bool scale_wake(scale_queue *queue, scale_ps from)
{
    scale_thread *thread = queue->first;
    if (thread == NULL) return false;
    leave_queue(thread);
    if (thread->heap_at != NOT_IN_HEAP) heap_remove(thread);
    continue_at(thread, from);
    /* the wake-up latency counts as running time: the core of the woken thread is busy in the kernel */
    thread->core.now += wake_latency();
    heap_add(thread);
    engine.totals.wakes++;
    return true;
}

/* ---- threads ---- */

static void begin(void *arg)
{
    scale_thread *me = arg;
    me->run(me->arg);
    scale_sync(); /* lets threads with earlier clocks run first: at their times this thread has not ended yet */
    me->state = ENDED;
    while (scale_wake(&me->joiners, me->core.now)) {}
    switch_to_earliest();
    __builtin_unreachable();
}

/* Returns the socket of a thread. Thread 0 is the main thread of the program; it is on the first socket, with the first
 * workers. */
static uint32_t socket_of(uint32_t index)
{
    return index == 0 ? 0 : (index - 1) / engine.config.cores;
}

static scale_thread *add_thread(void (*run)(void *arg), void *arg, scale_ps at)
{
    scale_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL || engine.thread_count == SCALE_CORES_MAX ||
        !fli_fiber_init(&thread->fiber, STACK_BYTES, begin, thread)) {
        fprintf(stderr, "scale: cannot start a thread: there are %u, of at most %u, or memory is out\n",
                engine.thread_count, (unsigned)SCALE_CORES_MAX);
        exit(1);
    }
    scale_core_init(&thread->core, engine.thread_count, socket_of(engine.thread_count));
    engine.threads[engine.thread_count++] = thread;
    thread->run = run;
    thread->arg = arg;
    thread->began = thread->core.now = at;
    thread->heap_at = NOT_IN_HEAP;
    return thread;
}

uint32_t scale_thread_start(void (*run)(void *arg), void *arg)
{
    scale_thread *thread = add_thread(run, arg, engine.running->core.now + engine.config.machine.start);
    heap_add(thread);
    return thread->core.index;
}

void scale_thread_join(uint32_t index)
{
    scale_sync();
    if (engine.threads[index]->state != ENDED) (void)scale_block(&engine.threads[index]->joiners, SCALE_NEVER);
}

static void forget_all(void)
{
    for (uint32_t i = 0; i < engine.thread_count; i++) {
        fli_fiber_fini(&engine.threads[i]->fiber);
        scale_core_fini(&engine.threads[i]->core);
        free(engine.threads[i]);
    }
    scale_lines_destroy(engine.lines);
}

/* ---- a run ---- */

static struct {
    void (*run)(void *arg);
    void *arg;
} body;

static void run_body(void *arg)
{
    (void)arg;
    body.run(body.arg);
    scale_running = false;
    fli_fiber_switch(&engine.running->fiber, &engine.outside);
}

void scale_run(const scale_config *config, void (*run)(void *arg), void *arg)
{
    body.run = run;
    body.arg = arg;
    engine.config = *config;
    engine.lines = scale_lines_create(&config->machine);
    engine.thread_count = engine.heap_size = 0;
    engine.random = config->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    engine.totals = (scale_totals){ .wakes = 0 };
    engine.running = add_thread(run_body, NULL, BEGIN_AT);
    scale_running = true;
    fli_fiber_switch(&engine.outside, &engine.running->fiber);
    forget_all();
}

/* ---- the running thread ---- */

void scale_spend(scale_ps time)
{
    engine.running->core.now += time;
}

void scale_touch(uintptr_t at, scale_access access, const void *pc)
{
    scale_ps waited = scale_lines_access(engine.lines, &engine.running->core, at, access);
    if (waited > 0) scale_blame(SCALE_BLAME_LINE, pc, waited);
}

uint32_t scale_thread_index(void)
{
    return engine.running->core.index;
}

void *scale_current_get(void)
{
    return scale_running ? engine.running->current : NULL;
}

void *scale_inside_get(void)
{
    return scale_running ? engine.running->inside : NULL;
}

void scale_inside_set(void *call)
{
    if (scale_running) engine.running->inside = call;
}

void scale_current_set(void *worker)
{
    engine.running->current = worker;
}

scale_ps scale_now(void)
{
    return engine.running->core.now;
}

const scale_machine *scale_machine_now(void)
{
    return &engine.config.machine;
}

uint64_t scale_random(void)
{
    engine.random ^= engine.random >> 12;
    engine.random ^= engine.random << 25;
    engine.random ^= engine.random >> 27;
    return engine.random * UINT64_C(2685821657736338717);
}

/* ---- totals ---- */

void scale_count_lock_wait(scale_ps since)
{
    engine.totals.lock_waits++;
    engine.totals.locked += engine.running->core.now - since;
}

static scale_ps cpu_of(const scale_thread *thread)
{
    return thread->core.now - thread->began - thread->asleep;
}

scale_ps scale_cpu(bool all)
{
    scale_ps sum = 0;
    if (!all) return cpu_of(engine.running);
    for (uint32_t i = 0; i < engine.thread_count; i++) sum += cpu_of(engine.threads[i]);
    return sum;
}

static void add_counts(scale_counts *sum, const scale_counts *more)
{
    sum->accesses += more->accesses;
    sum->rmws += more->rmws;
    sum->l2 += more->l2;
    sum->l3 += more->l3;
    sum->pages += more->pages;
    sum->transfers += more->transfers;
    sum->far += more->far;
    sum->stall += more->stall;
}

scale_totals scale_totals_now(void)
{
    scale_totals totals = engine.totals;
    for (uint32_t i = 1; i < engine.thread_count; i++) {
        add_counts(&totals.counts, &engine.threads[i]->core.counts);
        totals.asleep += engine.threads[i]->asleep;
    }
    return totals;
}
