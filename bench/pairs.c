/* pairs.c - 1,024 pairs of processes that do not know each other exchange a message, there and back. Each message costs
 * its receiver WORK ns of computing (environment; 0). An operation is one message. Independent work: with n workers on
 * n free CPUs an operation takes one n-th of the time. */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

#define PAIRS 1024

static bench    b; /* b.size (option --size) is the number of round trips of each pair */
static uint64_t work_ns;
/* Number of pairs that have ended. The counter has cache lines of its own: every step reads `b` and `work_ns`, and a
 * write of the counter to the cache line of these variables would slow the steps down. */
static struct {
    _Alignas(128) _Atomic uint64_t count;
} ended;

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
        bench_work_ns(work_ns);
    }
    if (left == 0) {
        if (atomic_fetch_add_explicit(&ended.count, 1, memory_order_relaxed) + 1 == PAIRS) bench_over(&b);
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
        bench_work_ns(work_ns);
        filch_err err = filch_send(filch_out_sched(out), events[i].from, events[i].data);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type ping = { .name = "ping", .size = sizeof(struct ping), .init = ping_init, .step = ping_step };
static const filch_type pong = { .name = "pong", .step = pong_step };

int main(int argc, char **argv)
{
    static filch_pid pongs[PAIRS];
    bench_open(&b, "pairs", 1000, argc, argv);
    work_ns = bench_setting("WORK", 0);
    bench_start(&b, NULL);
    for (int i = 0; i < PAIRS; i++) pongs[i] = bench_spawn(&b, &pong, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    for (int i = 0; i < PAIRS; i++) bench_spawn(&b, &ping, filch_of_pid(pongs[i]));
    bench_wait(&b);
    bench_end(&b, 2 * PAIRS * b.size);
    return bench_close(&b, atomic_load(&ended.count) == PAIRS);
}
