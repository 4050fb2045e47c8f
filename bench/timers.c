/* timers.c - 100,000 processes, each of which sleeps once for a random time up to a second. The value is the CPU time
 * of the whole run; p50, p99 and max are how late the steps were. */
#include "bench.h"

#include <stdatomic.h>

static bench b;
/* One element per sleep, in the order in which the sleeps end. If the elements were in the order of the processes, each
 * write to an element would be a cache miss. */
static uint64_t        *late_ns;
static _Atomic uint64_t woken;

struct sleeper {
    uint64_t index;
    uint64_t due_ns;
};

static filch_err sleeper_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct sleeper *)self)->index = (uint64_t)filch_as_int(args);
    return FILCH_OK;
}

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sleeper *sleeper = self;
    uint64_t        now_ns = bench_now_ns();
    if (count == 0) {
        uint64_t random = sleeper->index * 7919 + 1, span_ns;
        (void)bench_random(&random);
        span_ns = bench_random(&random) % FILCH_SECONDS(1);
        sleeper->due_ns = now_ns + span_ns;
        filch_err err = filch_yield_sleep(out, 1, span_ns);
        return err != FILCH_OK ? err : filch_wait(out);
    }
    if (events[0].type != FILCH_EVENT_YIELD || events[0].error != FILCH_OK) return FILCH_ECANCELLED;
    if (now_ns < sleeper->due_ns) return FILCH_EUSER; /* a sleep must never end early */
    late_ns[atomic_fetch_add_explicit(&woken, 1, memory_order_relaxed)] = now_ns - sleeper->due_ns;
    return filch_done(out, filch_none());
}

static const filch_type sleeper = {
    .name = "sleeper", .size = sizeof(struct sleeper), .init = sleeper_init, .step = sleeper_step
};

int main(int argc, char **argv)
{
    bench_open(&b, "timers", 100000, argc, argv);
    late_ns = bench_alloc(b.size, sizeof *late_ns);
    bench_start(&b, NULL);
    bench_quiet(&b);
    bench_begin(&b);
    for (uint64_t i = 0; i < b.size; i++) bench_spawn(&b, &sleeper, filch_int((int64_t)i));
    /* Sleeps until just before the longest possible sleep ends. Earlier checks by bench_wait_ended() would cost the CPU
     * time of many wake-ups. */
    if (b.workers > 0) bench_sleep_ns(FILCH_SECONDS(1) - 1);
    bench_wait_ended(&b, b.size);
    bench_end(&b, b.size);
    bench_value(&b, (double)b.cpu_ns / 1e6, "ms cpu");
    (void)bench_percentiles(&b, "", late_ns, b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.failed == 0);
}
