/* relations.c - the cost of making and ending monitors and links, in time and memory. Half of --size are monitors of
 * one hub by all others and of all others by the hub; half are links in a ring. Then all processes end. An operation is
 * one relation, made and ended. `bytes` is the memory of one relation. */
#include <stdatomic.h>
#include <stdlib.h>

#include "bench.h"

static bench             b;
static _Atomic(uint64_t) bytes;

static void *counting_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    void *at = NULL;
    if (size == 0) free(old);
    else at = realloc(old, size);
    if (size == 0 || at != NULL) atomic_fetch_add_explicit(&bytes, size - old_size, memory_order_relaxed);
    return at;
}

/* Step of a process that ends without an error when it is cancelled. */
static filch_err resident_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type resident = { .name = "resident", .step = resident_step };

int main(int argc, char **argv)
{
    bench_open(&b, "relations", 1000000, argc, argv);
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.alloc = counting_alloc;
    bench_start(&b, &opt);
    uint64_t   others = b.size / 4 > 1 ? b.size / 4 : 2, links = others * 2;
    filch_pid *pids = malloc((others + 1) * sizeof *pids);
    for (uint64_t i = 0; i <= others; i++) pids[i] = bench_spawn(&b, &resident, filch_none());
    bench_quiet(&b);
    uint64_t before = atomic_load(&bytes);
    bench_begin(&b);
    for (uint64_t i = 0; i < others; i++) {
        bench_must(filch_monitor(b.sched, pids[i], pids[others], i, NULL), "monitor");
        bench_must(filch_monitor(b.sched, pids[others], pids[i], i, NULL), "monitor");
    }
    for (uint64_t i = 0; i < links; i++) {
        uint64_t step = i < others ? 1 : 2;
        /* A link with step 2 connects a process with the next but one. With at most four processes, at least half of
         * these links would repeat other links. */
        if (others <= 4 && step == 2) continue;
        bench_must(filch_link(b.sched, pids[i % others], pids[(i + step) % others]), "link");
    }
    uint64_t held = atomic_load(&bytes) - before;
    for (uint64_t i = 0; i <= others; i++) bench_must(filch_cancel(b.sched, pids[i]), "cancel");
    bench_wait_ended(&b, others + 1);
    bench_end(&b, others * 4);
    bench_extra(&b, "bytes", (double)held / (double)(others * 4));
    free(pids);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.alive == 0 && stats.failed == 0);
}
