/* counting.c - one process sends five million numbers to another, which adds them up. An operation is one message. */
#include "bench.h"

static bench   b;
static int64_t sum;

struct producer {
    filch_pid counter;
    int64_t   sent;
};

static filch_err producer_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct producer *)self)->counter = filch_as_pid(args);
    return FILCH_OK;
}

static filch_err producer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct producer *producer = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    filch_sched *sched = filch_out_sched(out);
    while (producer->sent < (int64_t)b.size) {
        filch_err err = filch_send(sched, producer->counter, filch_int(producer->sent));
        if (err != FILCH_OK) return err;
        producer->sent++;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

struct counter {
    int64_t seen, sum;
};

static filch_err counter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct counter *counter = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        counter->sum += filch_as_int(&events[i].data);
    }
    counter->seen += (int64_t)count;
    if (counter->seen < (int64_t)b.size) return filch_idle(out);
    sum = counter->sum;
    bench_over(&b);
    return filch_done(out, filch_none());
}

static const filch_type producer = {
    .name = "producer", .size = sizeof(struct producer), .init = producer_init, .step = producer_step
};
static const filch_type counter = { .name = "counter", .size = sizeof(struct counter), .step = counter_step };

int main(int argc, char **argv)
{
    bench_open(&b, "counting", 5000000, argc, argv);
    bench_start(&b, NULL);
    filch_pid to = bench_spawn(&b, &counter, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &producer, filch_of_pid(to));
    bench_wait(&b);
    bench_end(&b, b.size);
    return bench_close(&b, sum == (int64_t)(b.size * (b.size - 1) / 2));
}
