/* cross.c - one message between two workers, both awake. An operation is one message, one way.
 *
 * A process that is woken runs on the worker of whoever woke it, so two processes that talk come together on one
 * worker: here that must not happen. Both always continue, so each is always ready, neither is ever woken, and with two
 * workers that have nothing else to do each keeps one. `crossed` is the share of messages that really went from one
 * thread to another; the number means nothing unless it is near 1. With one worker it is 0. */
#include "bench.h"

static bench     b;
static filch_pid players[2];
static uint64_t  hops, crossed;

struct player {
    int index;
};

static filch_err player_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct player *)self)->index = (int)filch_as_int(args);
    return FILCH_OK;
}

/* The message is the sending thread, as the address of something it has to itself. */
static _Thread_local char here;

static filch_err player_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct player *player = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (hops >= b.size) break;
        crossed += filch_as_ptr(&events[i].data) != &here;
        if (++hops == b.size) {
            bench_over(&b);
            break;
        }
        filch_err err = filch_send(bench_here(out), players[1 - player->index], filch_ptr(&here));
        if (err != FILCH_OK) return err;
    }
    return filch_continue(out);
}

static const filch_type player = {
    .name = "player", .size = sizeof(struct player), .init = player_init, .step = player_step
};

int main(int argc, char **argv)
{
    bench_open(&b, "cross", 500000, argc, argv);
    bench_start(&b, NULL);
    for (int i = 0; i < 2; i++) players[i] = bench_spawn(&b, &player, filch_int(i));
    bench_begin(&b);
    bench_send(&b, players[0], filch_ptr(&here));
    bench_wait(&b);
    bench_end(&b, b.size);
    bench_extra(&b, "crossed", (double)crossed / (double)b.size);
    return bench_close(&b, hops == b.size);
}
