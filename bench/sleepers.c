/* sleepers.c - a load of timers that never ends: 250 processes per worker, each of which sleeps 0.5 to 1.5 ms, computes
 * WORK ns (environment; 1000) and sleeps again, --size times. The value is the mean time from the beginning of a sleep
 * to the step after it: 1,000 us plus the delay of the timer and of the worker; p50, p99 and max are how late the steps
 * were. An operation is one sleep. */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

#define PER_WORKER 250

static bench    b;
static uint64_t work_ns;
/* Each process has --size successive elements, so that two workers rarely write to the same cache line. */
static uint64_t *late_ns;
/* Sums over all processes. The sums have cache lines of their own: every step reads `b`, `work_ns` and `late_ns`, and a
 * write of the sums to the cache line of these variables would slow the steps down. */
static struct {
    _Alignas(128) _Atomic uint64_t woken, slept_ns;
} sums;

struct sleeper {
    uint64_t index, random, woken, began_ns, due_ns, slept_ns;
};

static filch_err sleeper_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    uint64_t index = (uint64_t)filch_as_int(args);
    *(struct sleeper *)self = (struct sleeper){ .index = index, .random = index * 7919 + 1 };
    return FILCH_OK;
}

static filch_err sleep_again(struct sleeper *sleeper, filch_out *out)
{
    uint64_t span_ns = FILCH_MILLISECONDS(1) / 2 + bench_random(&sleeper->random) % FILCH_MILLISECONDS(1);
    sleeper->began_ns = bench_now_ns();
    sleeper->due_ns = sleeper->began_ns + span_ns;
    filch_err err = filch_yield_sleep(out, 1, span_ns);
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sleeper *sleeper = self;
    if (count == 0) return sleep_again(sleeper, out);
    if (events[0].type != FILCH_EVENT_YIELD || events[0].error != FILCH_OK) return FILCH_ECANCELLED;
    uint64_t now_ns = bench_now_ns();
    if (now_ns < sleeper->due_ns) return FILCH_EUSER; /* a sleep must never end early */
    late_ns[sleeper->index * b.size + sleeper->woken++] = now_ns - sleeper->due_ns;
    sleeper->slept_ns += now_ns - sleeper->began_ns;
    bench_work_ns(work_ns);
    if (sleeper->woken < b.size) return sleep_again(sleeper, out);
    atomic_fetch_add_explicit(&sums.woken, sleeper->woken, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums.slept_ns, sleeper->slept_ns, memory_order_relaxed);
    return filch_done(out, filch_none());
}

static const filch_type sleeper = {
    .name = "sleeper", .size = sizeof(struct sleeper), .init = sleeper_init, .step = sleeper_step
};

int main(int argc, char **argv)
{
    bench_open(&b, "sleepers", 20, argc, argv);
    work_ns = bench_setting("WORK", 1000);
    uint64_t processes = PER_WORKER * (b.workers > 0 ? b.workers : 1), sleeps = processes * b.size;
    late_ns = bench_alloc(sleeps, sizeof *late_ns);
    bench_start(&b, NULL);
    bench_quiet(&b);
    bench_begin(&b);
    for (uint64_t i = 0; i < processes; i++) bench_spawn(&b, &sleeper, filch_int((int64_t)i));
    bench_wait_ended(&b, processes);
    bench_end(&b, sleeps);
    bench_value(&b, (double)atomic_load(&sums.slept_ns) / (double)sleeps / 1000, "us/sleep");
    (void)bench_percentiles(&b, "", late_ns, sleeps);
    return bench_close(&b, atomic_load(&sums.woken) == sleeps);
}
