/* floor.c - lower bounds for the benchmarks on this machine: programs of the same shape with as little runtime as
 * possible.
 *
 *     floor NAME [--size N] [--run K]        NAME: a benchmark, or timerop
 *
 * One thread, no stealing, no limits, no links, no tracing. What is left is what every such runtime must do: look a pid
 * up, take a message from a free list, put it into a mailbox, queue the receiver, call it, free the message. Lines with
 * system "floor" use no atomic read-modify-write, as if everything belonged to one worker. Lines with system "floor2"
 * use the two read-modify-writes that a mailbox with several senders needs: one to put the message in, one to go idle.
 * skynet runs on two threads that share nothing. wake uses only a futex, timers only a sorted array.
 */
#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- processes and their queue, for one thread ---- */

typedef struct message       message;
typedef struct process       process;
typedef struct floor_runtime floor_runtime;
typedef void (*step_fn)(floor_runtime *w, process *p, const message *m);

struct message {
    _Atomic(message *) next;
    int64_t            value;
    uint32_t           from;
};

struct process {
    step_fn step;
    /* newest message; lowest bit set: the mailbox is empty, and the process is in no queue */
    _Atomic(message *) newest;
    message           *oldest; /* the message that was read last; oldest->next is the next message to read */
    uint32_t           generation;
    uint32_t           peer;
    int64_t            number, left, first;
    process           *next_free;
    bool               has_run;
};

struct floor_runtime {
    process  *processes;
    message  *free_messages;
    process  *free_processes;
    process **queue; /* a ring buffer */
    uint64_t  head, tail, mask;
    uint64_t  sent_in_step;
    uint64_t  random;
    bool      is_over;
};

#define EMPTY ((uintptr_t)1)

static message *message_take(floor_runtime *w)
{
    message *m = w->free_messages;
    if (m == NULL) return bench_alloc(1, 64);
    w->free_messages = atomic_load_explicit(&m->next, memory_order_relaxed);
    return m;
}

static void message_give(floor_runtime *w, message *m)
{
    atomic_store_explicit(&m->next, w->free_messages, memory_order_relaxed);
    w->free_messages = m;
}

static void queue(floor_runtime *w, process *p)
{
    w->queue[w->tail++ & w->mask] = p;
}

/* Sends a message. `rmws` is the number of atomic read-modify-writes per message, 0 or 2. Every caller passes a
 * constant, so that the compiler removes the other variant. */
static inline void send(floor_runtime *w, int rmws, uint32_t to, uint32_t from, int64_t value)
{
    process *p = &w->processes[to];
    if (p->generation == 0) abort(); /* stands in for the check of Filch that a pid is valid */
    message *m = message_take(w);
    m->value = value;
    m->from = from;
    atomic_store_explicit(&m->next, NULL, memory_order_relaxed);
    message *before;
    if (rmws == 0) {
        before = atomic_load_explicit(&p->newest, memory_order_relaxed);
        atomic_store_explicit(&p->newest, m, memory_order_relaxed);
    } else {
        before = atomic_exchange_explicit(&p->newest, m, memory_order_acq_rel);
    }
    message *last = (message *)((uintptr_t)before & ~EMPTY);
    atomic_store_explicit(&last->next, m, memory_order_release);
    if (((uintptr_t)before & EMPTY) != 0) queue(w, p);
    w->sent_in_step++;
}

/* Reads one message. Returns true if the mailbox was empty; the process is idle then. */
static inline bool run_one(floor_runtime *w, int rmws, process *p)
{
    message *m = atomic_load_explicit(&p->oldest->next, memory_order_acquire);
    if (m != NULL) {
        message_give(w, p->oldest);
        p->oldest = m;
        p->step(w, p, m);
        return false;
    }
    message *empty = (message *)((uintptr_t)p->oldest | EMPTY), *expected = p->oldest;
    if (rmws == 0) {
        atomic_store_explicit(&p->newest, empty, memory_order_relaxed);
        return true;
    }
    return atomic_compare_exchange_strong(&p->newest, &expected, empty);
}

static inline void run_all(floor_runtime *w, int rmws)
{
    while (!w->is_over && w->head != w->tail) {
        process *p = w->queue[w->head++ & w->mask];
        while (!run_one(w, rmws, p)) {}
    }
}

static void process_begin(floor_runtime *w, uint32_t index, step_fn step)
{
    process *p = &w->processes[index];
    message *placeholder = message_take(w);
    atomic_store_explicit(&placeholder->next, NULL, memory_order_relaxed);
    *p = (process){ .step = step, .generation = 1, .oldest = placeholder };
    atomic_store_explicit(&p->newest, (message *)((uintptr_t)placeholder | EMPTY), memory_order_relaxed);
}

static floor_runtime *floor_runtime_create(uint32_t processes, step_fn step)
{
    floor_runtime *w = bench_alloc(1, sizeof *w);
    w->mask = 1;
    while (w->mask < 2u * processes + 2) w->mask *= 2;
    w->queue = bench_alloc(w->mask, sizeof *w->queue);
    w->mask--;
    w->processes = bench_alloc(processes, sizeof *w->processes);
    w->random = 1;
    for (uint32_t i = 0; i < processes; i++) process_begin(w, i, step);
    return w;
}

static uint32_t index_of(const floor_runtime *w, const process *p)
{
    return (uint32_t)(p - w->processes);
}

/* ---- benchmarks that send messages; each exists with 0 and with 2 atomic read-modify-writes per message ---- */

#define RING 1000
#define PRODUCERS 100
#define BIG 500
#define JOINERS 10000
#define BUDGET 256
enum { PING, PONG };

static uint64_t received;

#define SHAPES(R)                                                                            \
    static void relay##R(floor_runtime *w, process *p, const message *m)                     \
    {                                                                                        \
        if (m->value == 0) w->is_over = true;                                                \
        else send(w, R, p->peer, index_of(w, p), m->value - 1);                              \
    }                                                                                        \
    static uint64_t relay_all##R(uint64_t size, uint32_t processes)                          \
    {                                                                                        \
        floor_runtime *w = floor_runtime_create(processes, relay##R);                        \
        for (uint32_t i = 0; i < processes; i++) w->processes[i].peer = (i + 1) % processes; \
        send(w, R, 0, 0, (int64_t)size);                                                     \
        run_all(w, R);                                                                       \
        return size;                                                                         \
    }                                                                                        \
    static void count##R(floor_runtime *w, process *p, const message *m)                     \
    {                                                                                        \
        (void)w;                                                                             \
        (void)p;                                                                             \
        received += (uint64_t)m->value;                                                      \
    }                                                                                        \
    /* sends BUDGET messages to the receivers in turn, then runs them */                     \
    static uint64_t pour##R(uint64_t messages, uint32_t receivers)                           \
    {                                                                                        \
        floor_runtime *w = floor_runtime_create(receivers, count##R);                        \
        for (uint64_t i = 0; i < messages; i++) {                                            \
            send(w, R, (uint32_t)(i % receivers), 0, 1);                                     \
            if (w->sent_in_step < BUDGET) continue;                                          \
            w->sent_in_step = 0;                                                             \
            run_all(w, R);                                                                   \
        }                                                                                    \
        run_all(w, R);                                                                       \
        return received == messages ? messages : 0;                                          \
    }                                                                                        \
    static void exchange_step##R(floor_runtime *w, process *p, const message *m)             \
    {                                                                                        \
        if (m->value == PING) {                                                              \
            send(w, R, m->from, index_of(w, p), PONG);                                       \
        } else if (p->left-- > 0) {                                                          \
            send(w, R, (uint32_t)(bench_random(&w->random) % BIG), index_of(w, p), PING);    \
            received += 2;                                                                   \
        }                                                                                    \
    }                                                                                        \
    static uint64_t exchange_all##R(uint64_t size)                                           \
    {                                                                                        \
        floor_runtime *w = floor_runtime_create(BIG, exchange_step##R);                      \
        for (uint32_t i = 0; i < BIG; i++) w->processes[i].left = (int64_t)size;             \
        for (uint32_t i = 0; i < BIG; i++) send(w, R, i, i, PONG);                           \
        run_all(w, R);                                                                       \
        return received;                                                                     \
    }

SHAPES(0)
SHAPES(2)

static uint64_t pingpong0(uint64_t size)
{
    return relay_all0(2 * size, 2);
}
static uint64_t pingpong2(uint64_t size)
{
    return relay_all2(2 * size, 2);
}
static uint64_t ring0(uint64_t size)
{
    return relay_all0(size, RING);
}
static uint64_t ring2(uint64_t size)
{
    return relay_all2(size, RING);
}
static uint64_t counting0(uint64_t size)
{
    return pour0(size, 1);
}
static uint64_t counting2(uint64_t size)
{
    return pour2(size, 1);
}
static uint64_t fanin0(uint64_t size)
{
    return pour0(PRODUCERS * size, 1);
}
static uint64_t fanin2(uint64_t size)
{
    return pour2(PRODUCERS * size, 1);
}
static uint64_t forkjoin0(uint64_t size)
{
    return pour0(JOINERS * size, JOINERS);
}
static uint64_t forkjoin2(uint64_t size)
{
    return pour2(JOINERS * size, JOINERS);
}
static uint64_t big0(uint64_t size)
{
    return exchange_all0(size);
}
static uint64_t big2(uint64_t size)
{
    return exchange_all2(size);
}

/* ---- short-lived processes ---- */

static process *process_take(floor_runtime *w)
{
    process *p = w->free_processes;
    if (p == NULL) return bench_alloc(1, 128);
    w->free_processes = p->next_free;
    return p;
}

static void process_give(floor_runtime *w, process *p)
{
    p->generation++;
    p->next_free = w->free_processes;
    w->free_processes = p;
}

static void short_lived(floor_runtime *w, process *p, const message *m)
{
    (void)m;
    received++;
    process_give(w, p);
}

/* Creates BUDGET processes, then runs them until they end, and repeats this. Their slots are reused. */
static uint64_t spawn(uint64_t size)
{
    floor_runtime *w = floor_runtime_create(BUDGET, short_lived);
    for (uint64_t i = 0; i < size; i++) {
        process *p = process_take(w);
        p->step = short_lived;
        p->left = 0;
        queue(w, p);
        if ((i + 1) % BUDGET != 0) continue;
        while (w->head != w->tail) {
            process *next = w->queue[w->head++ & w->mask];
            next->step(w, next, NULL);
        }
    }
    while (w->head != w->tail) {
        process *next = w->queue[w->head++ & w->mask];
        next->step(w, next, NULL);
    }
    return received == size ? size : 0;
}

/* Step of a process that continues by itself: the process is queued again, taken from the queue, and called. */
static void again(floor_runtime *w, process *p, const message *m)
{
    (void)m;
    received++;
    if (--p->left > 0) queue(w, p);
}

static uint64_t yield(uint64_t size)
{
    floor_runtime *w = floor_runtime_create(JOINERS, again);
    for (uint32_t i = 0; i < JOINERS; i++) {
        w->processes[i].left = (int64_t)size;
        queue(w, &w->processes[i]);
    }
    while (w->head != w->tail) {
        process *next = w->queue[w->head++ & w->mask];
        next->step(w, next, NULL);
    }
    return received;
}

/* ---- skynet: each of two threads builds half of the tree with its own floor_runtime, and runs the process that was
 * queued last first ---- */

/* Number of process slots of one thread. 128 slots suffice because the process that was queued last runs first: at
 * most ten processes per level of the tree exist at once. */
#define SLOTS 128

typedef struct half {
    pthread_t thread;
    int64_t   first, count;
    int64_t   sum;
} half;

static void grow(floor_runtime *w, process *p, const message *m);

static void plant(floor_runtime *w, uint32_t parent, int64_t first, int64_t count)
{
    process *p = w->free_processes;
    w->free_processes = p->next_free;
    process_begin(w, index_of(w, p), grow);
    p->peer = parent;
    p->first = first;
    p->left = count;
    queue(w, p);
}

/* Slot 0 is not a process: the number sent to it is the result of the thread's half of the tree. */
static void report(floor_runtime *w, process *p, int64_t sum)
{
    send(w, 0, p->peer, index_of(w, p), sum);
    message_give(w, p->oldest);
    process_give(w, p);
}

static void grow(floor_runtime *w, process *p, const message *m)
{
    if (m != NULL) {
        p->number += m->value;
        if (--p->left == 0) report(w, p, p->number);
        return;
    }
    if (p->left == 1) {
        report(w, p, p->first);
        return;
    }
    int64_t children = p->left % 10 == 0 ? 10 : 5, part = p->left / children;
    p->left = children;
    for (int64_t i = 0; i < children; i++) plant(w, index_of(w, p), p->first + i * part, part);
}

static void *grow_half(void *arg)
{
    half          *h = arg;
    floor_runtime *w = floor_runtime_create(SLOTS, again);
    for (uint32_t i = SLOTS; i-- > 1;) process_give(w, &w->processes[i]);
    plant(w, 0, h->first, h->count);
    for (;;) {
        process *p = w->queue[--w->tail];
        if (p == w->processes) break;
        uint32_t generation = p->generation;
        if (!p->has_run) {
            p->has_run = true;
            /* In its first run a process has no message. In each later run it has one: the sender of the message has
             * queued the process. */
            grow(w, p, NULL);
        } else {
            while (p->generation == generation && !run_one(w, 0, p)) {}
        }
    }
    h->sum = atomic_load_explicit(&w->processes->oldest->next, memory_order_relaxed)->value;
    return NULL;
}

static uint64_t skynet(uint64_t size)
{
    half halves[2] = { { .count = (int64_t)size / 2 }, { .first = (int64_t)size / 2, .count = (int64_t)size / 2 } };
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&halves[i].thread, NULL, grow_half, &halves[i]) != 0) return 0;
    }
    for (int i = 0; i < 2; i++) pthread_join(halves[i].thread, NULL);
    return halves[0].sum + halves[1].sum == (int64_t)(size * (size - 1) / 2) ? (size * 10 - 1) / 9 : 0;
}

/* ---- idle: each idle process takes one cache line of memory ---- */

static uint64_t idle(uint64_t size)
{
    memset(bench_alloc(size, 64), 1, size * 64);
    return size;
}

/* ---- wake: one thread sleeps on a futex, the other thread wakes it ---- */

static _Atomic(uint32_t) wake_word, answered;
static _Atomic(uint64_t) wake_sent_ns;
static uint64_t         *late_ns;
static uint64_t          wakes;

static long futex(_Atomic(uint32_t) *at, int operation, uint32_t value)
{
    return syscall(SYS_futex, at, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void *wait_for_wakes(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < wakes; i++) {
        while (atomic_load(&wake_word) == i) (void)futex(&wake_word, FUTEX_WAIT, i);
        late_ns[i] = bench_now_ns() - atomic_load(&wake_sent_ns);
        atomic_store(&answered, i + 1);
    }
    return NULL;
}

static uint64_t wake(uint64_t size)
{
    pthread_t thread;
    wakes = size;
    late_ns = bench_alloc(size, sizeof *late_ns);
    if (pthread_create(&thread, NULL, wait_for_wakes, NULL) != 0) return 0;
    for (uint32_t i = 0; i < size; i++) {
        bench_sleep_ns(500000);
        atomic_store(&wake_sent_ns, bench_now_ns());
        atomic_store(&wake_word, i + 1);
        (void)futex(&wake_word, FUTEX_WAKE, 1);
        while (atomic_load(&answered) == i) bench_sleep_ns(50000);
    }
    pthread_join(thread, NULL);
    return size;
}

/* ---- timers: sorted due times, and a thread that sleeps until the next due time ---- */

/* After a wake-up the thread sleeps at least SLEEP_MIN_NS, so that one wake-up serves several timers. */
#define SLEEP_MIN_NS 150000

static int by_due(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t timers(uint64_t size)
{
    uint64_t *due_ns = bench_alloc(size, sizeof *due_ns), random = 1, now_ns = bench_now_ns();
    late_ns = bench_alloc(size, sizeof *late_ns);
    prctl(PR_SET_TIMERSLACK, 1);
    for (uint64_t i = 0; i < size; i++) due_ns[i] = now_ns + bench_random(&random) % FILCH_SECONDS(1);
    qsort(due_ns, size, sizeof *due_ns, by_due);
    for (uint64_t i = 0; i < size;) {
        now_ns = bench_now_ns();
        for (; i < size && due_ns[i] <= now_ns; i++) late_ns[i] = now_ns - due_ns[i];
        if (i == size) break;
        uint64_t until = due_ns[i] > now_ns + SLEEP_MIN_NS ? due_ns[i] : now_ns + SLEEP_MIN_NS;
        bench_sleep_ns(until - now_ns);
    }
    return size;
}

/* Benchmark timerop: arms and cancels one timer. A slot of the timer wheel has a doubly linked list, and a bit that
 * tells whether the list is empty. */
typedef struct alarm_node {
    struct alarm_node *next, *prev;
} alarm_node;

static uint64_t timerop(uint64_t size)
{
    static alarm_node slots[64], node;
    volatile uint64_t occupied = 0;
    for (int i = 0; i < 64; i++) slots[i].next = slots[i].prev = &slots[i];
    for (uint64_t i = 0; i < size; i++) {
        uint64_t    slot = i * 7 % 64;
        alarm_node *at = &slots[slot];
        node.next = at;
        node.prev = at->prev;
        at->prev->next = &node;
        at->prev = &node;
        occupied |= UINT64_C(1) << slot;
        node.prev->next = node.next;
        node.next->prev = node.prev;
        if (at->next == at) occupied &= ~(UINT64_C(1) << slot);
    }
    return occupied == 0 ? size : 0;
}

/* ---- the table of benchmarks that this program can run ---- */

typedef struct shape {
    const char *name;
    uint64_t    size; /* default of --size, as in the Filch benchmark with this name */
    int         rmws;
    /* runs the benchmark; returns the number of operations, or 0 if a result was wrong */
    uint64_t (*run)(uint64_t size);
} shape;

static const shape shapes[] = {
    { "pingpong", 1000000, 0, pingpong0 },
    { "pingpong", 1000000, 2, pingpong2 },
    { "ring", 2000000, 0, ring0 },
    { "ring", 2000000, 2, ring2 },
    { "spawn", 1000000, 0, spawn },
    { "skynet", 1000000, 0, skynet },
    { "counting", 5000000, 0, counting0 },
    { "counting", 5000000, 2, counting2 },
    { "fanin", 50000, 0, fanin0 },
    { "fanin", 50000, 2, fanin2 },
    { "big", 5000, 0, big0 },
    { "big", 5000, 2, big2 },
    { "forkjoin", 100, 0, forkjoin0 },
    { "forkjoin", 100, 2, forkjoin2 },
    { "idle", 1000000, 0, idle },
    { "wake", 5000, 0, wake },
    { "yield", 100, 0, yield },
    { "timers", 100000, 0, timers },
    { "timerop", 10000000, 0, timerop },
};

static bool measure(const shape *s, const bench *given)
{
    bench b = *given;
    b.system = s->rmws == 0 ? "floor" : "floor2";
    b.name = s->name;
    if (b.size == 0) b.size = s->size;
    received = 0;
    uint64_t rss = bench_rss_bytes();
    bench_begin(&b);
    uint64_t operations = s->run(b.size);
    if (operations == 0) {
        fprintf(stderr, "floor: %s: the result is wrong\n", s->name);
        return false;
    }
    bench_end(&b, operations);
    b.rmws = (uint64_t)s->rmws * operations;
    b.counted = true;
    if (strcmp(s->name, "skynet") == 0) bench_value(&b, (double)b.took_ns / 1e6, "ms");
    if (strcmp(s->name, "timers") == 0) bench_value(&b, (double)b.cpu_ns / 1e6, "ms cpu");
    if (strcmp(s->name, "idle") == 0) bench_value(&b, (double)(bench_rss_bytes() - rss) / (double)b.size, "bytes");
    if (late_ns != NULL) {
        double median = bench_percentiles(&b, "", late_ns, b.size);
        if (strcmp(s->name, "wake") == 0) bench_value(&b, median, "us p50");
    }
    bench_print(&b);
    return true;
}

int main(int argc, char **argv)
{
    bench b;
    int   found = 0;
    bench_open(&b, "floor NAME", 0, argc - 1, argv + 1);
    b.workers = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && argc > 1; i++) {
        if (strcmp(argv[1], shapes[i].name) != 0) continue;
        found++;
        if (!measure(&shapes[i], &b)) return 1;
    }
    if (found == 0) {
        fprintf(stderr, "floor: NAME is one of:");
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (shapes[i].rmws == 0) fprintf(stderr, " %s", shapes[i].name);
        }
        fprintf(stderr, "\n");
    }
    return found > 0 ? 0 : 2;
}
