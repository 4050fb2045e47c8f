/* bytes.c - ping-pong with 24 bytes instead of a number: two processes exchange a struct of three words, there and
 * back, and each side makes its own payload. An operation is one message. tools/bench_gate compares it with pingpong.
 */
#include "bench.h"

#include <string.h>

static bench    b;
static uint64_t answered;

struct ping {
    filch_pid pong;
};

struct order {
    uint64_t serial;
    int64_t  left, answer;
};

static filch_err ping_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct ping *)self)->pong = filch_as_pid(args);
    return FILCH_OK;
}

/* Copies the payload into *order. Returns false if the payload does not have the size of a struct order. */
static bool read_order(const filch_data *data, struct order *order)
{
    if (filch_size(data) != sizeof *order) return false;
    memcpy(order, filch_raw(data), sizeof *order);
    return true;
}

/* Sends the number of round trips that are left. The reply must contain this number multiplied by 2. */
static filch_err ping_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct ping *ping = self;
    struct order order = { 1, (int64_t)b.size, 0 };
    if (count > 0) {
        if (!read_order(&events[0].data, &order) || order.answer != 2 * order.left) return FILCH_ECANCELLED;
        order.serial++;
        order.left--;
    }
    if (order.left == 0) {
        bench_over(&b);
        return filch_done(out, filch_none());
    }
    filch_err err = filch_send(filch_out_sched(out), ping->pong, filch_bytes(&order, sizeof order));
    return err != FILCH_OK ? err : filch_idle(out);
}

static filch_err pong_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        struct order order;
        if (!read_order(&events[i].data, &order)) return FILCH_ECANCELLED;
        answered++;
        order.answer = 2 * order.left;
        filch_err err = filch_send(filch_out_sched(out), events[i].from, filch_bytes(&order, sizeof order));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type ping = { .name = "ping", .size = sizeof(struct ping), .init = ping_init, .step = ping_step };
static const filch_type pong = { .name = "pong", .step = pong_step };

int main(int argc, char **argv)
{
    bench_open(&b, "bytes", 1000000, argc, argv);
    bench_start(&b, NULL);
    filch_pid partner = bench_spawn(&b, &pong, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &ping, filch_of_pid(partner));
    bench_wait(&b);
    bench_end(&b, 2 * b.size);
    return bench_close(&b, answered == b.size);
}
