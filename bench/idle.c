/* idle.c - a million processes that have run once and wait for a message: how much memory each takes.
 *
 * The value is the growth of the program's resident memory as reported by the kernel. `asked_bytes` is how much the
 * scheduler allocated; it does not depend on pages, so tools/bench_gate uses it. The processes have no state of their
 * own.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Number of processes spawned in one step. The new processes run before the next step of the process that spawns
 * them. */
#define PER_STEP 256

static bench            b;
static _Atomic(int64_t) asked;

static void *count_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    void *at = NULL;
    if (size == 0) free(old);
    else if ((at = realloc(old, size)) == NULL) return NULL;
    atomic_fetch_add_explicit(&asked, (int64_t)size - (int64_t)(old == NULL ? 0 : old_size), memory_order_relaxed);
    return at;
}

static filch_err idler_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    return count > 0 ? FILCH_ECANCELLED : filch_idle(out);
}

static const filch_type idler = { .name = "idler", .step = idler_step };

struct creator {
    uint64_t made;
};

static filch_err creator_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct creator *creator = self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    for (int i = 0; i < PER_STEP && creator->made < b.size; i++, creator->made++) {
        filch_err err = filch_spawn(filch_out_sched(out), &idler, NULL, NULL);
        if (err != FILCH_OK) return err;
    }
    return creator->made < b.size ? filch_continue(out) : filch_done(out, filch_none());
}

static const filch_type creator = { .name = "creator", .size = sizeof(struct creator), .step = creator_step };

int main(int argc, char **argv)
{
    filch_options options = FILCH_OPTIONS_INIT;
    options.alloc = count_alloc;
    bench_open(&b, "idle", 1000000, argc, argv);
    bench_start(&b, &options);
    bench_quiet(&b);
    uint64_t rss = bench_rss_bytes();
    int64_t  asked_before = atomic_load(&asked);
    bench_begin(&b);
    bench_spawn(&b, &creator, filch_none());
    bench_wait_ended(&b, 1);
    bench_quiet(&b);
    bench_end(&b, b.size);
    bench_value(&b, ((double)bench_rss_bytes() - (double)rss) / (double)b.size, "bytes");
    bench_extra(&b, "asked_bytes", (double)(atomic_load(&asked) - asked_before) / (double)b.size);
    bench_extra(&b, "ns_each", (double)b.took_ns / (double)b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.alive == b.size && stats.steps >= b.size);
}
