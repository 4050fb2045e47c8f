/* big.c - 500 processes that all send to each other. Each process pings a random other process 5,000 times, and answers
 * pings while it waits for the pong. An operation is one message. */
#include "bench.h"

#define PROCESSES 500
enum { PING = 1, PONG, GO };

static bench     b; /* b.size (option --size) is the number of pings per process */
static filch_pid pingers[PROCESSES], judge_pid;
static uint64_t  reported, pongs;

struct pinger {
    uint64_t random;
    uint64_t ponged;
};

static filch_err pinger_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct pinger *)self)->random = (uint64_t)filch_as_int(args) * 7919 + 1;
    return FILCH_OK;
}

static filch_err ping_random(struct pinger *pinger, filch_out *out)
{
    filch_pid other;
    do {
        other = pingers[bench_random(&pinger->random) % PROCESSES];
    } while (other.serial == filch_ctx_self(filch_out_ctx(out)).serial);
    return filch_send(filch_out_sched(out), other, filch_int(PING));
}

static filch_err pinger_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct pinger *pinger = self;
    for (size_t i = 0; i < count; i++) {
        filch_err err;
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        switch (filch_as_int(&events[i].data)) {
        case PING: err = filch_send(filch_out_sched(out), events[i].from, filch_int(PONG)); break;
        case PONG:
            if (++pinger->ponged == b.size)
                err = filch_send(filch_out_sched(out), judge_pid, filch_int((int64_t)pinger->ponged));
            else err = ping_random(pinger, out);
            break;
        default: err = ping_random(pinger, out); break;
        }
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static filch_err judge_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        pongs += (uint64_t)filch_as_int(&events[i].data);
        if (++reported == PROCESSES) bench_over(&b);
    }
    return filch_idle(out);
}

static const filch_type pinger = {
    .name = "pinger", .size = sizeof(struct pinger), .init = pinger_init, .step = pinger_step
};
static const filch_type judge = { .name = "judge", .step = judge_step };

int main(int argc, char **argv)
{
    bench_open(&b, "big", 5000, argc, argv);
    bench_start(&b, NULL);
    judge_pid = bench_spawn(&b, &judge, filch_none());
    for (int i = 0; i < PROCESSES; i++) pingers[i] = bench_spawn(&b, &pinger, filch_int(i));
    bench_quiet(&b);
    bench_begin(&b);
    for (int i = 0; i < PROCESSES; i++) bench_send(&b, pingers[i], filch_int(GO));
    bench_wait(&b);
    bench_end(&b, 2 * PROCESSES * b.size);
    return bench_close(&b, pongs == PROCESSES * b.size);
}
