/* spawn.c - one process spawns a million others; each runs one step and ends. An operation is one process. */
#include "bench.h"

/* Number of processes spawned in one step. The new processes run before the next step of the process that spawns
 * them. */
#define PER_STEP 256

static bench b;

static filch_err mayfly_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    return filch_done(out, filch_none());
}

static const filch_type mayfly = { .name = "mayfly", .step = mayfly_step };

struct creator {
    uint64_t made;
};

static filch_err creator_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct creator *creator = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    for (int i = 0; i < PER_STEP && creator->made < b.size; i++, creator->made++) {
        filch_err err = filch_spawn(filch_out_sched(out), &mayfly, NULL, NULL);
        if (err != FILCH_OK) return err;
    }
    return creator->made < b.size ? filch_continue(out) : filch_done(out, filch_none());
}

static const filch_type creator = { .name = "creator", .size = sizeof(struct creator), .step = creator_step };

int main(int argc, char **argv)
{
    bench_open(&b, "spawn", 1000000, argc, argv);
    bench_start(&b, NULL);
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &creator, filch_none());
    bench_wait_ended(&b, b.size + 1);
    bench_end(&b, b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.spawned == b.size + 1 && stats.failed == 0 && stats.alive == 0);
}
