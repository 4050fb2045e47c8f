/* scaling.c - costs with 10,000 to 10,000,000 idle processes, or --size of them: bytes per process, time to create a
 * process, time to send a message to each. One line for each number; all three should be constant, except for cache
 * misses. The value is the nanoseconds per message. */
#include "bench.h"

#include <stdlib.h>

/* Number of processes spawned in one step. After them the step returns filch_continue(), so that the new processes run
 * while they are in the cache. */
#define PER_STEP 256

static bench      b;
static filch_pid *listeners;

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? FILCH_ECANCELLED : filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listener_step };

struct progress {
    uint64_t done;
};

static filch_err creator_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct progress *p = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    for (int i = 0; i < PER_STEP && p->done < b.size; i++, p->done++) {
        filch_err err = filch_spawn(filch_out_sched(out), &listener, NULL, &listeners[p->done]);
        if (err != FILCH_OK) return err;
    }
    return p->done < b.size ? filch_continue(out) : filch_done(out, filch_none());
}

static filch_err caller_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct progress *p = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    while (p->done < b.size) {
        filch_err err = filch_send(filch_out_sched(out), listeners[p->done], filch_int(1));
        if (err != FILCH_OK) return err;
        p->done++;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

static const filch_type creator = { .name = "creator", .size = sizeof(struct progress), .step = creator_step };
static const filch_type caller = { .name = "caller", .size = sizeof(struct progress), .step = caller_step };

static filch_stats stats_now(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return stats;
}

/* Spawns a process of `type`. Waits until that process has ended and every idle process has made a step. Checks both
 * conditions at intervals of 1 ns per idle process, but at most 0.5 ms: short in comparison with the time that all
 * these steps take. */
static void let(const filch_type *type)
{
    filch_stats before = stats_now(), now = before;
    bench_begin(&b);
    bench_spawn(&b, type, filch_none());
    while (now.ended == before.ended || now.steps < before.steps + b.size + b.size / PER_STEP) {
        if (b.workers == 0) bench_quiet(&b);
        else bench_sleep_ns(b.size < 500000 ? b.size : 500000);
        now = stats_now();
    }
    bench_end(&b, b.size);
}

static void measure(uint64_t count)
{
    b.size = count;
    listeners = bench_alloc(count, sizeof *listeners);
    /* touches the pages of the array, so that they are not counted as memory of the processes */
    for (uint64_t i = 0; i < count; i++) listeners[i].serial = 1;
    bench_start(&b, NULL);
    bench_quiet(&b);
    uint64_t rss = bench_rss_bytes();
    let(&creator);
    bench_quiet(&b);
    bench_extra(&b, "bytes", ((double)bench_rss_bytes() - (double)rss) / (double)count);
    bench_extra(&b, "create_ns", (double)b.took_ns / (double)count);
    let(&caller);
    filch_stats stats = stats_now();
    (void)filch_sched_stop(b.sched, FILCH_SECONDS(600), NULL);
    b.sched = NULL;
    free(listeners);
    bench_must(stats.sent == count && stats.undelivered == 0 ? FILCH_OK : FILCH_ESTATE, "not every message arrived");
    bench_print(&b);
}

int main(int argc, char **argv)
{
    bench_open(&b, "scaling", UINT64_MAX, argc, argv);
    if (b.size != UINT64_MAX) measure(b.size);
    else
        for (uint64_t count = 10000; count <= 10000000; count *= 10) measure(count);
    return 0;
}
