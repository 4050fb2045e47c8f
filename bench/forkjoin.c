/* forkjoin.c - one process sends 100 messages to each of 10,000 idle processes, round-robin. A process ends after the
 * last of its messages. An operation is one message. */
#include "bench.h"

#define PROCESSES 10000

static bench     b; /* b.size (option --size) is the number of messages for each process */
static filch_pid joiners[PROCESSES];

struct joiner {
    uint64_t seen;
};

static filch_err joiner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct joiner *joiner = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
    }
    joiner->seen += count;
    return joiner->seen < b.size ? filch_idle(out) : filch_done(out, filch_none());
}

struct forker {
    uint64_t sent;
};

static filch_err forker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct forker *forker = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    while (forker->sent < PROCESSES * b.size) {
        filch_err err = filch_send(filch_out_sched(out), joiners[forker->sent % PROCESSES], filch_int(1));
        if (err != FILCH_OK) return err;
        forker->sent++;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

static const filch_type joiner = { .name = "joiner", .size = sizeof(struct joiner), .step = joiner_step };
static const filch_type forker = { .name = "forker", .size = sizeof(struct forker), .step = forker_step };

int main(int argc, char **argv)
{
    bench_open(&b, "forkjoin", 100, argc, argv);
    bench_start(&b, NULL);
    for (int i = 0; i < PROCESSES; i++) joiners[i] = bench_spawn(&b, &joiner, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &forker, filch_none());
    bench_wait_ended(&b, PROCESSES + 1);
    bench_end(&b, PROCESSES * b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.sent == PROCESSES * b.size && stats.failed == 0 && stats.undelivered == 0);
}
