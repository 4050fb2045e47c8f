/* pingpong.c - two processes exchange one message, there and back, a million times. An operation is one message. */
#include "bench.h"

static bench    b;
static uint64_t answered;

struct ping {
    filch_pid pong;
};

static filch_err ping_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct ping *)self)->pong = filch_as_pid(args);
    return FILCH_OK;
}

/* Sends the number of round trips that are left; the other process sends the number back. */
static filch_err ping_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct ping *ping = self;
    int64_t      left = (int64_t)b.size;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        left = filch_as_int(&events[0].data) - 1;
    }
    if (left == 0) {
        bench_over(&b);
        return filch_done(out, filch_none());
    }
    filch_err err = filch_send(filch_out_sched(out), ping->pong, filch_int(left));
    return err != FILCH_OK ? err : filch_idle(out);
}

static filch_err pong_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        answered++;
        filch_err err = filch_send(filch_out_sched(out), events[i].from, events[i].data);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type ping = { .name = "ping", .size = sizeof(struct ping), .init = ping_init, .step = ping_step };
static const filch_type pong = { .name = "pong", .step = pong_step };

int main(int argc, char **argv)
{
    bench_open(&b, "pingpong", 1000000, argc, argv);
    bench_start(&b, NULL);
    filch_pid partner = bench_spawn(&b, &pong, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &ping, filch_of_pid(partner));
    bench_wait(&b);
    bench_end(&b, 2 * b.size);
    return bench_close(&b, answered == b.size);
}
