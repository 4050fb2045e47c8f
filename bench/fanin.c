/* fanin.c - a hundred processes send 50,000 messages each to one. An operation is one message. */
#include "bench.h"

#define PRODUCERS 100

static bench    b; /* b.size (option --size) is the number of messages per producer */
static uint64_t received;

struct producer {
    filch_pid consumer;
    uint64_t  sent;
};

static filch_err producer_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct producer *)self)->consumer = filch_as_pid(args);
    return FILCH_OK;
}

/* The producer waits for a first message, which starts it. From then on it sends messages and reads none. */
static filch_err producer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct producer *producer = self;
    if (count > 0 && events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
    if (count == 0 && producer->sent == 0) return filch_idle(out);
    filch_sched *sched = filch_out_sched(out);
    while (producer->sent < b.size) {
        filch_err err = filch_send(sched, producer->consumer, filch_int(1));
        if (err != FILCH_OK) return err;
        producer->sent++;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

static filch_err consumer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        received += (uint64_t)filch_as_int(&events[i].data);
    }
    if (received < PRODUCERS * b.size) return filch_idle(out);
    bench_over(&b);
    return filch_done(out, filch_none());
}

static const filch_type producer = {
    .name = "producer", .size = sizeof(struct producer), .init = producer_init, .step = producer_step
};
static const filch_type consumer = { .name = "consumer", .step = consumer_step };

int main(int argc, char **argv)
{
    filch_pid producers[PRODUCERS];
    bench_open(&b, "fanin", 50000, argc, argv);
    bench_start(&b, NULL);
    filch_pid to = bench_spawn(&b, &consumer, filch_none());
    for (int i = 0; i < PRODUCERS; i++) producers[i] = bench_spawn(&b, &producer, filch_of_pid(to));
    bench_quiet(&b);
    bench_begin(&b);
    for (int i = 0; i < PRODUCERS; i++) bench_send(&b, producers[i], filch_none());
    bench_wait(&b);
    bench_end(&b, PRODUCERS * b.size);
    return bench_close(&b, received == PRODUCERS * b.size);
}
