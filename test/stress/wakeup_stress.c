/* wakeup_stress.c - tests that no wake-up is lost: sends messages to a process that is going idle at that moment.
 *
 *     wakeup_stress SENDS
 *
 * A receiver handles one message, increments a counter, and goes idle. A sender waits for that counter and sends the
 * next message at once, so that the message arrives while the receiver settles, or while its worker parks. Both pause
 * for a random time now and then: over many rounds the message arrives before, at and after every point of settling and
 * parking. A lost wake-up shows as missing progress: after STRESS_LIMIT without a handled message the program prints
 * its state and ends.
 *
 * The sends are divided among all combinations of
 *     sender    a foreign thread, or a process that runs on another worker if there is one
 *     workers   1, 2, 4
 *     extras    none; or now and then a cancel, which must arrive as well, and a timer, which must fire
 *     spinning  as usual; or none, so that workers park at every opportunity. That is slow (a park and an unpark
 *               each time), so it gets a tenth of the sends
 *
 * Exit: 0 no error found; 1 something was lost, duplicated or invented; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/stress.h"
#include "support/yield_slice.h"

#define PATIENCE FILCH_MICROSECONDS(100)
/* On average the sender makes one cancel per ONE_IN sends, and the receiver one timer per ONE_IN steps. */
#define ONE_IN 64

enum { TIMER_TAG = 7 };

typedef struct variant {
    int32_t workers;
    bool    process; /* true: the sender is a process; false: a foreign thread */
    bool    busy;    /* true: the sender also makes cancels, and the receiver also makes timers */
    bool hasty; /* true: workers spin and search as little as the options allow, and the sender waits less between two
                   messages */
} variant;

typedef struct game {
    variant      v;
    uint64_t     sends;
    filch_sched *sched;
    filch_pid    receiver;
    uint32_t     seed;
    stress_watch watch;
    /* All accesses to the fields below are relaxed: the checks must not add an order that the runtime lacks. Each field
     * has one writer. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) sent; /* written by the sender only, like the next field */
    FLI_ATOMIC(uint64_t) cancels;
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) handled; /* written by the receiver only, like the next three fields */
    FLI_ATOMIC(uint64_t) cancelled;
    FLI_ATOMIC(uint64_t) armed;
    FLI_ATOMIC(uint64_t) fired;
} game;

static uint64_t sleeps_seen; /* not atomic: used by the main thread only */

/* ---- reports ---- */

static void describe(FILE *to, const game *g)
{
    fprintf(to, "%" PRId32 " workers, sent by a %s%s%s", g->v.workers, g->v.process ? "process" : "thread",
            g->v.busy ? ", with cancels and timers" : "", g->v.hasty ? ", hasty sleepers" : "");
}

static void complain(game *g, const char *what)
{
    filch_stats stats = FILCH_STATS_INIT;
    filch_info  info = { .size = sizeof info };
    filch_err   err = filch_inspect(g->sched, g->receiver, &info);
    (void)!filch_sched_stats(g->sched, &stats);
    fprintf(stderr, "\nwakeup: %s (", what);
    describe(stderr, g);
    fprintf(stderr,
            ")\n  sent %" PRIu64 ", handled %" PRIu64 "; cancels %" PRIu64 ", seen %" PRIu64 "; timers %" PRIu64
            ", fired %" PRIu64 "\n",
            fli_load_rlx(&g->sent), fli_load_rlx(&g->handled), fli_load_rlx(&g->cancels), fli_load_rlx(&g->cancelled),
            fli_load_rlx(&g->armed), fli_load_rlx(&g->fired));
    fprintf(stderr, "  receiver: %s, %s\n", filch_err_name(err), stress_state_name(info.state));
    fprintf(stderr,
            "  workers %" PRIu32 ", asleep %" PRIu32 ", sleeps %" PRIu64 ", wakes %" PRIu64 ", steps %" PRIu64
            ", timers %" PRIu64 ", alive %" PRIu64 "\n",
            stats.workers, stats.asleep, stats.sleeps, stats.wakes, stats.steps, stats.timers, stats.alive);
    _exit(1);
}

/* ---- the receiver ---- */

typedef struct player {
    game    *game;
    fli_prng prng;
    bool     tired; /* of a sender: it has given up waiting, because no worker has taken the receiver */
} player;

static filch_err player_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    player *p = self;
    p->game = filch_as_ptr(args);
    fli_prng_init(&p->prng, p->game->seed++);
    return FILCH_OK;
}

/* Pauses for a random time: usually no longer than a process takes to settle; in one of `rarely` calls up to about the
 * time that a worker takes to park. Short pauses are more likely, so that every length occurs. */
static void dawdle(fli_prng *prng, uint32_t rarely)
{
    uint32_t bits = fli_prng_below(prng, rarely) == 0 ? 5 + fli_prng_below(prng, 6) : fli_prng_below(prng, 5);
    for (uint32_t n = fli_prng_below(prng, UINT32_C(1) << bits); n > 0; n--) fli_thread_pause();
}

static void take(game *g, const filch_event *event)
{
    switch (event->type) {
    case FILCH_EVENT_CANCEL: fli_count(&g->cancelled, 1); break;
    case FILCH_EVENT_YIELD:
        if (event->tag != TIMER_TAG) complain(g, "a completion without a yield");
        stress_must("timer", event->error);
        break;
    case FILCH_EVENT_MESSAGE:
        if (event->tag == TIMER_TAG) {
            fli_count(&g->fired, 1);
            break;
        }
        if (filch_as_int(&event->data) != (int64_t)fli_load_rlx(&g->handled)) complain(g, "a message out of order");
        fli_count(&g->handled, 1);
        break;
    default: complain(g, "an event without a cause");
    }
}

static bool has_all(game *g)
{
    return fli_load_rlx(&g->handled) == g->sends && fli_load_rlx(&g->fired) == fli_load_rlx(&g->armed) &&
           fli_load_rlx(&g->cancelled) == fli_load_rlx(&g->cancels);
}

static filch_err receiver_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    player *p = self;
    game   *g = p->game;
    for (size_t i = 0; i < count; i++) take(g, &events[i]);
    if (has_all(g)) {
        stress_watch_leave(&g->watch);
        return filch_idle(out);
    }
    if (g->v.busy && fli_prng_below(&p->prng, ONE_IN) == 0) {
        stress_must("timer", filch_yield_timer(out, TIMER_TAG, fli_prng_below(&p->prng, 100000)));
        fli_count(&g->armed, 1);
    }
    dawdle(&p->prng, 256);
    return filch_idle(out);
}

static const filch_type receiver_type = {
    .name = "receiver", .size = sizeof(player), .init = player_init, .step = receiver_step
};

/* ---- the senders ---- */

/* Sends the next message if the receiver has handled the last one; otherwise returns false. */
static bool try_send(game *g, fli_prng *prng)
{
    uint64_t sent = fli_load_rlx(&g->sent);
    if (fli_load_rlx(&g->handled) != sent || fli_load_rlx(&g->cancelled) != fli_load_rlx(&g->cancels)) return false;
    /* Gives up the CPU, because on a loaded machine the worker needs this CPU to park. */
    for (uint32_t n = g->v.hasty ? fli_prng_below(prng, 4) : 0; n > 0; n--) yield_slice();
    dawdle(prng, g->v.hasty ? 2 : 256);
    bool cancel = g->v.busy && fli_prng_below(prng, ONE_IN) == 0, cancel_first = fli_prng_below(prng, 2) == 0;
    if (cancel) fli_count(&g->cancels, 1);
    if (cancel && cancel_first) stress_must("cancel", filch_cancel(g->sched, g->receiver));
    fli_count(&g->sent, 1);
    stress_must("send", filch_send(g->sched, g->receiver, filch_int((int64_t)sent)));
    if (cancel && !cancel_first) stress_must("cancel", filch_cancel(g->sched, g->receiver));
    return true;
}

static bool has_sent_all(game *g)
{
    return fli_load_rlx(&g->sent) == g->sends;
}

static void thread_sender(void *arg)
{
    game    *g = arg;
    fli_prng prng;
    fli_prng_init(&prng, g->seed + 1000);
    for (uint32_t misses = 0; !has_sent_all(g);) {
        if (try_send(g, &prng)) misses = 0;
        else if (++misses % 256 == 0) yield_slice();
        else fli_thread_pause();
    }
}

/* The sender stays in its step until another worker has taken the receiver. Then it sends the next message each time
 * the receiver has handled the last one, so that the message arrives while the receiver settles. If no worker takes the
 * receiver for PATIENCE, the sender ends its step, so that the receiver can run. */
static filch_err sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    player  *p = self;
    game    *g = p->game;
    uint64_t until = 0;
    if (try_send(g, &p->prng)) p->tired = g->v.workers == 1;
    for (uint32_t misses = 1; !p->tired && !has_sent_all(g); misses++) {
        if (try_send(g, &p->prng)) {
            misses = 0;
            until = 0;
        } else if (misses % 64 == 0) {
            uint64_t now = fli_clock_ns();
            if (until == 0) until = now + PATIENCE;
            p->tired = now >= until;
        }
        fli_thread_pause();
    }
    return has_sent_all(g) ? filch_done(out, filch_none()) : filch_continue(out);
}

static const filch_type sender_type = {
    .name = "sender", .size = sizeof(player), .init = player_init, .step = sender_step
};

/* ---- one variant ---- */

/* Waits until the receiver has handled all messages. */
static void watch(game *g)
{
    stress_news news;
    while ((news = stress_watch_wait(&g->watch, fli_load_rlx(&g->handled) + fli_load_rlx(&g->fired))) != STRESS_OVER) {
        if (news == STRESS_STANDS_STILL) complain(g, "standing still: a wake-up was lost");
    }
}

static filch_pid spawn(game *g, const filch_type *type)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    opt.args = filch_ptr(g);
    stress_must("spawn", filch_spawn(g->sched, type, &opt, &pid));
    return pid;
}

static void play(const variant *v, uint64_t sends, uint32_t seed)
{
    game          g = { .v = *v, .sends = sends, .seed = seed };
    filch_options opt = FILCH_OPTIONS_INIT;
    fli_thread    thread;
    uint64_t      begun_ns = fli_clock_ns();
    opt.workers = v->workers;
    opt.seed = seed + 1;
    if (v->hasty) {
        opt.spin_tight = opt.spin_yield = 1;
        opt.search_ns = 1;
    }
    stress_watch_init(&g.watch, 1);
    stress_must("create", filch_sched_create(&g.sched, &opt));
    g.receiver = spawn(&g, &receiver_type);
    if (v->process) (void)spawn(&g, &sender_type);
    else stress_must("thread", fli_thread_start(&thread, "sender", thread_sender, &g));
    watch(&g);
    if (!v->process) fli_thread_join(&thread);

    filch_stats stats = FILCH_STATS_INIT;
    stress_must("stats", filch_sched_stats(g.sched, &stats));
    sleeps_seen += stats.sleeps;
    describe(stdout, &g);
    printf(": %" PRIu64 " sends, %" PRIu64 " sleeps, %" PRIu64 " wakes, %.1f s\n", sends, stats.sleeps, stats.wakes,
           (double)(fli_clock_ns() - begun_ns) / 1e9);
    fflush(stdout);
    stress_must("terminate", filch_terminate(g.sched, g.receiver));
    stress_must("stop", filch_sched_stop(g.sched, STRESS_LIMIT, NULL));
    stress_watch_fini(&g.watch);
}

int main(int argc, char **argv)
{
    enum { VARIANTS = 24 };
    uint64_t sends, begun_ns = fli_clock_ns(), played = 0;
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_C(1) << 40, &sends)) {
        fprintf(stderr, "usage: wakeup_stress SENDS\n");
        return 2;
    }
    for (uint32_t i = 0; i < VARIANTS; i++) {
        variant v = { .workers = 1 << (i / 8), .process = i % 2 != 0, .busy = i / 2 % 2 != 0, .hasty = i / 4 % 2 != 0 };
        uint64_t share = sends / (VARIANTS / 2) * (v.hasty ? 1 : 9) / 10;
        /* The last variant also gets the remainder of the division of `sends` by VARIANTS. */
        if (i == VARIANTS - 1 || share == 0) share = i == VARIANTS - 1 && sends > played ? sends - played : 1;
        play(&v, share, i);
        played += share;
    }
    printf("wakeup: %" PRIu64 " sends, none overlooked; workers slept %" PRIu64 " times (%.1f s)\n", played,
           sleeps_seen, (double)(fli_clock_ns() - begun_ns) / 1e9);
    return 0;
}
