/* cross.c - the time of one message between two workers that are both awake. The value is the median time from the send
 * to the step.
 *
 * A woken process runs on the worker that woke it, so two processes that send to each other would soon run on one
 * worker. To prevent this, both processes always return CONTINUE, so each is always runnable and neither is ever woken.
 * If both are on one worker nevertheless, one of them stays in its step until the other worker has stolen the other
 * process. Only messages from one thread to another are measured; `crossed` is their share. Reading the clock is part
 * of the time. The result is meaningless on a machine without two free CPUs.
 */
#include "bench.h"

/* The program ends with an error when the two processes have run on the same worker MET_MAX times: the machine is too
 * busy, or there is only one worker. */
#define MET_MAX 1000

static bench     b;
static filch_pid players[2];
static uint64_t *late_ns;
static uint64_t  crossed, met;
/* address of the variable `worker` in the thread that sent the last message; the receiver reads `sender` before it
 * sends the next message */
static void *sender;

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

static _Thread_local char worker; /* its address is different in each thread, and identifies the thread */

static filch_err pass_on(filch_sched *sched, filch_pid to)
{
    sender = &worker;
    return filch_send(sched, to, filch_int((int64_t)bench_now_ns()));
}

/* Busy-waits long enough for a sentinel to wake up and steal the other process. */
static void stay_in_step(void)
{
    uint64_t until = bench_now_ns() + 3000000;
    while (bench_now_ns() < until) {}
}

static filch_err player_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct player *player = self;
    if (count == 0) return filch_continue(out);
    if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
    if (sender != &worker) {
        late_ns[crossed++] = bench_now_ns() - (uint64_t)filch_as_int(&events[0].data);
    } else {
        met++;
        stay_in_step();
    }
    if (crossed == b.size || met == MET_MAX) {
        bench_over(&b);
        return filch_continue(out);
    }
    filch_err err = pass_on(filch_out_sched(out), players[1 - player->index]);
    return err != FILCH_OK ? err : filch_continue(out);
}

static const filch_type player = {
    .name = "player", .size = sizeof(struct player), .init = player_init, .step = player_step
};

int main(int argc, char **argv)
{
    bench_open(&b, "cross", 100000, argc, argv);
    late_ns = bench_alloc(b.size, sizeof *late_ns);
    bench_start(&b, NULL);
    for (int i = 0; i < 2; i++) players[i] = bench_spawn(&b, &player, filch_int(i));
    bench_begin(&b);
    bench_must(pass_on(b.sched, players[0]), "send");
    bench_wait(&b);
    bench_end(&b, crossed + met);
    bench_value(&b, 1000 * bench_percentiles(&b, "", late_ns, crossed), "ns p50");
    bench_extra(&b, "crossed", (double)crossed / (double)(crossed + met));
    return bench_close(&b, crossed > 0);
}
