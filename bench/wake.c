/* wake.c - how fast an idle runtime reacts. A foreign thread sleeps 500 us and then sends to an idle process, 5,000
 * times; the value is the median time from the send to the step. For the results `searching_...` the thread sends 20 us
 * after the last message, while a worker is still searching. */
#include "bench.h"

#include <sched.h>
#include <stdatomic.h>

static bench             b;
static uint64_t         *late_ns;
static _Atomic(uint64_t) seen;

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t now_ns = bench_now_ns();
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        uint64_t index = atomic_load_explicit(&seen, memory_order_relaxed);
        late_ns[index] = now_ns - (uint64_t)filch_as_int(&events[i].data);
        atomic_store_explicit(&seen, index + 1, memory_order_release);
    }
    return filch_idle(out);
}

static const filch_type sleeper = { .name = "sleeper", .step = sleeper_step };

static void wait_a_moment(bool asleep)
{
    if (asleep) {
        bench_sleep_ns(500000);
        return;
    }
    uint64_t until = bench_now_ns() + 20000;
    while (bench_now_ns() < until) {}
}

static void run(filch_pid to, bool asleep)
{
    atomic_store(&seen, 0);
    for (uint64_t i = 0; i < b.size; i++) {
        wait_a_moment(asleep);
        bench_send(&b, to, filch_int((int64_t)bench_now_ns()));
        if (b.workers == 0) bench_quiet(&b);
        while (atomic_load_explicit(&seen, memory_order_acquire) == i) {
            if (asleep) bench_sleep_ns(50000);
            else sched_yield(); /* gives up this CPU, because the woken worker may be waiting for it */
        }
    }
}

int main(int argc, char **argv)
{
    bench_open(&b, "wake", 5000, argc, argv);
    bench_start(&b, NULL);
    late_ns = bench_alloc(b.size, sizeof *late_ns);
    filch_pid to = bench_spawn(&b, &sleeper, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    run(to, true);
    bench_end(&b, b.size);
    bench_value(&b, bench_percentiles(&b, "", late_ns, b.size), "us p50");
    run(to, false);
    (void)bench_percentiles(&b, "searching_", late_ns, b.size);
    return bench_close(&b, atomic_load(&seen) == b.size);
}
