/* sleepers.c - `variant` processes sleep 100 ms again and again, for --size milliseconds from the last spawn on. The
 * value is the 99th percentile of how late they wake. With 50,000 processes there are 500,000 wake-ups a second, which
 * two CPUs can serve; with 400,000 there are 4,000,000, which they cannot. With --size below 100, as in a test, there
 * are a twentieth of the processes. */
#include "programs.h"

#include <stdatomic.h>

enum { SAMPLED = 16 }; /* one process in SAMPLED keeps its samples, so that writing them costs little */
#define PERIOD_NS FILCH_MILLISECONDS(100)

static uint64_t  samples_most;
static uint64_t *samples;
/* end_ns: time at which the run ends; set after all sleepers have been spawned */
static _Atomic uint64_t sample_count, end_ns = FILCH_FOREVER;

struct sleeper {
    uint64_t index, due_ns;
    int64_t  wakes;
};

static filch_err sleep_for(struct sleeper *sleeper, filch_out *out, uint64_t now_ns, uint64_t span_ns)
{
    sleeper->due_ns = now_ns + span_ns;
    filch_err err = filch_yield_sleep(out, 0, span_ns);
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sleeper *sleeper = self;
    uint64_t        now_ns = bench_now_ns();
    if (count == 0) { /* first step: sleeps for a random time, so that the sleepers do not wake all at once */
        uint64_t random = 7919 * sleeper->index + 1;
        return sleep_for(sleeper, out, now_ns, bench_random(&random) % PERIOD_NS);
    }
    if (events[0].type != FILCH_EVENT_YIELD || events[0].error != FILCH_OK) return FILCH_ECANCELLED;
    if (now_ns < sleeper->due_ns) return FILCH_EUSER; /* a sleep must never end early */
    sleeper->wakes++;
    if (sleeper->index % SAMPLED == 0) {
        uint64_t at = atomic_fetch_add_explicit(&sample_count, 1, memory_order_relaxed);
        if (at < samples_most) samples[at] = now_ns - sleeper->due_ns;
    }
    if (now_ns < atomic_load_explicit(&end_ns, memory_order_relaxed)) return sleep_for(sleeper, out, now_ns, PERIOD_NS);
    report(sleeper->wakes);
    return filch_done(out, filch_none());
}

static const filch_type sleeper_type = {
    .name = "sleeper", .size = sizeof(struct sleeper), .init = copy_state, .step = sleeper_step
};

bool timers_busy(uint64_t variant)
{
    uint64_t span_ns = FILCH_MILLISECONDS(run.size), count = run.size < 100 ? variant / 20 : variant;
    samples_most = (count / SAMPLED + 1) * (2 * span_ns / PERIOD_NS + 20);
    samples = bench_alloc(samples_most, sizeof *samples);
    bench_start(&run, NULL);
    bench_quiet(&run);
    expect_results(count);
    bench_begin(&run);
    for (uint64_t i = 0; i < count; i++) start(&sleeper_type, &(struct sleeper){ .index = i });
    atomic_store(&end_ns, bench_now_ns() + span_ns);
    int64_t wakes = wait_for_results();
    bench_end(&run, (uint64_t)wakes);
    uint64_t kept = atomic_load(&sample_count) < samples_most ? atomic_load(&sample_count) : samples_most;
    (void)bench_percentiles(&run, "", samples, kept);
    bench_value(&run, (double)samples[(kept - 1) * 99 / 100] / 1000, "us p99");
    bench_extra(&run, "wakes_per_s", (double)wakes * 1e9 / (double)run.took_ns);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(run.sched, &stats), "stats");
    return stats.failed == 0 && wakes >= (int64_t)count;
}
