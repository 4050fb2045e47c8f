/* mailbox_stress.c - many senders, one mailbox: every message arrives exactly once, the messages of each sender in the
 * order sent.
 *
 *     mailbox_stress MESSAGES SENDERS
 *
 * SENDERS foreign threads and as many processes send to one receiver. Each sender numbers its messages; the receiver
 * expects exactly the next number from each, so a message that is lost, duplicated or overtaken is noticed at once.
 * Most messages are values, some are bytes inside the event, some bytes in a block of their own.
 *
 * There are two rounds. *Open*, nine tenths of the messages: the mailbox has no limit. To limit its memory, no sender
 * gets more than WINDOW messages ahead of the receiver. A process that has reached this limit goes idle and is woken by
 * a message from the receiver. *Limited*, the other messages: the mailbox has space for LIMITED messages. If it is
 * full, threads retry, and processes wait for space (filch_yield_send), with several messages at a time.
 *
 * After STRESS_LIMIT without a message the program prints its state and ends.
 * Exit: 0 no error found; 1 a message was lost, duplicated, overtaken or damaged; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/stress.h"
#include "support/yield_slice.h"

enum { SENDERS_MAX = 64, WINDOW = 2048, LIMITED = 64, AT_ONCE = 16 };

#define SECOND_NS UINT64_C(1000000000)
#define NUMBER_BITS 48
#define NO_SENDER UINT64_MAX

typedef struct sender {
    /* A lower bound of the number of this sender's messages that the receiver has read; updated every WINDOW / 2
     * messages.  writes: the receiver.  reads: the sending thread; relaxed. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) read;
    struct game *game;
    uint64_t     sender_index;
    uint64_t     sent; /* number of messages sent; not atomic: used by the sender only */
    /* number of this sender's messages that were read or accepted: see sender_step(); not atomic: used only by a sender
     * that is a process */
    uint64_t acked;
    /* pid of a sender that is a process. Not atomic: set before the process gets its start message */
    filch_pid pid;
    /* number in the message that the receiver expects next from this sender. Not atomic: used by the receiver only */
    uint64_t next;
} sender;

typedef struct game {
    bool         limited;
    uint32_t     threads; /* elements [0, threads) of `all` are foreign threads, the others are processes */
    uint32_t     senders;
    uint64_t     each, total; /* each: number of messages of one sender; total: of all senders */
    filch_sched *sched;
    filch_pid    receiver;
    uint64_t     begun_ns;
    bool         terminal;
    stress_watch watch;
    /* number of messages received.  writes: the receiver.  reads: the main thread; relaxed */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) seen;
    sender all[2 * SENDERS_MAX];
} game;

/* ---- reports ---- */

static void complain(game *g, uint64_t sender_index, uint64_t number, const char *what)
{
    filch_stats stats = FILCH_STATS_INIT;
    filch_info  info = { .size = sizeof info };
    filch_err   err = filch_inspect(g->sched, g->receiver, &info);
    (void)!filch_sched_stats(g->sched, &stats);
    fprintf(stderr, "\nmailbox (%s): %s\n", g->limited ? "limited" : "open", what);
    if (sender_index < g->senders) {
        fprintf(stderr, "  sender %" PRIu64 " (a %s), number %" PRIu64 ", expected %" PRIu64 "\n", sender_index,
                sender_index < g->threads ? "thread" : "process", number, g->all[sender_index].next);
    }
    fprintf(stderr,
            "  %" PRIu64 " of %" PRIu64 " read; receiver %s, %s; workers %" PRIu32 ", asleep %" PRIu32 ", sent %" PRIu64
            ", refused %" PRIu64 ", undelivered %" PRIu64 "\n",
            fli_load_rlx(&g->seen), g->total, filch_err_name(err), stress_state_name(info.state), stats.workers,
            stats.asleep, stats.sent, stats.refused, stats.undelivered);
    _exit(1);
}

/* ---- messages ---- */

/* A payload with redundant contents, by which the receiver can check that the bytes are undamaged. */
typedef struct note {
    uint64_t value, inverse;
    uint64_t more[3]; /* only in a large message: value + 1, value + 2, value + 3 */
} note;

enum { NOTE_SMALL = offsetof(note, more) };

/* Returns the payload of the next message of `s`. A payload of bytes is stored in *room. */
static filch_data make(const sender *s, note *room)
{
    uint64_t value = s->sender_index << NUMBER_BITS | s->sent;
    if (s->sent % 8 != 0) return filch_int((int64_t)value);
    *room = (note){ value, ~value, { value + 1, value + 2, value + 3 } };
    return filch_bytes(room, s->sent % 16 == 0 ? sizeof *room : NOTE_SMALL);
}

/* Returns the number in the message. Fails the test if the message is damaged. */
static uint64_t value_of(game *g, const filch_data *data)
{
    if (filch_kind_of(data) == FILCH_KIND_INT) return (uint64_t)filch_as_int(data);
    note   got = { 0 };
    size_t size = filch_size(data);
    if (size != sizeof got && size != NOTE_SMALL) complain(g, NO_SENDER, 0, "a message of a wrong size");
    memcpy(&got, filch_raw(data), size);
    bool whole = got.inverse == ~got.value;
    for (uint64_t i = 0; size == sizeof got && i < 3; i++) whole = whole && got.more[i] == got.value + 1 + i;
    if (!whole) complain(g, got.value >> NUMBER_BITS, got.value, "a damaged message");
    return got.value;
}

/* ---- the receiver ---- */

static filch_err init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(void **)self = filch_as_ptr(args);
    return FILCH_OK;
}

static void check_from(game *g, const sender *s, const filch_event *event)
{
    filch_pid from = event->from;
    bool      right =
        s->sender_index < g->threads ? from.serial == 0 : from.serial == s->pid.serial && from.node == s->pid.node;
    if (!right) complain(g, s->sender_index, s->next, "a message under a wrong name");
}

/* Reports to the sender how many of its messages were read: to a thread by a counter, to a process by a message. */
static void acknowledge(game *g, sender *s)
{
    fli_store_rlx(&s->read, s->next);
    if (g->limited || s->sender_index < g->threads) return;
    stress_must("ack", filch_send(g->sched, s->pid, filch_int((int64_t)s->next)));
}

static void take(game *g, const filch_event *event)
{
    if (event->type != FILCH_EVENT_MESSAGE) complain(g, NO_SENDER, 0, "an event without a cause");
    uint64_t value = value_of(g, &event->data);
    uint64_t sender_index = value >> NUMBER_BITS, number = value & ((UINT64_C(1) << NUMBER_BITS) - 1);
    if (sender_index >= g->senders || number >= g->each)
        complain(g, sender_index, number, "a message that was not sent");
    sender *s = &g->all[sender_index];
    check_from(g, s, event);
    if (number != s->next)
        complain(g, sender_index, number, number < s->next ? "came twice, or late" : "others are missing");
    s->next++;
    if (s->next % (WINDOW / 2) == 0) acknowledge(g, s);
}

static filch_err receiver_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    game *g = *(game **)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) take(g, &events[i]);
    fli_count(&g->seen, count);
    if (count > 0 && fli_load_rlx(&g->seen) == g->total) stress_watch_leave(&g->watch);
    return filch_idle(out);
}

static const filch_type receiver_type = {
    .name = "receiver", .size = sizeof(void *), .init = init, .step = receiver_step
};

/* ---- the senders ---- */

static void thread_run(void *arg)
{
    sender *s = arg;
    game   *g = s->game;
    note    room;
    while (s->sent < g->each) {
        while (!g->limited && s->sent - fli_load_rlx(&s->read) >= WINDOW) yield_slice();
        filch_err err = filch_send(g->sched, g->receiver, make(s, &room));
        if (err == FILCH_OK) {
            s->sent++;
        } else if (g->limited && err == FILCH_EFULL) {
            yield_slice();
        } else {
            stress_must("send", err);
        }
    }
}

static filch_err send_open(sender *s, filch_out *out)
{
    game *g = s->game;
    note  room;
    while (s->sent < g->each && s->sent - s->acked < WINDOW) {
        if (filch_should_yield(out)) return filch_continue(out);
        stress_must("send", filch_send(g->sched, g->receiver, make(s, &room)));
        s->sent++;
    }
    return filch_idle(out);
}

static filch_err send_limited(sender *s, filch_out *out)
{
    game *g = s->game;
    note  room;
    if (s->acked < s->sent) return filch_wait(out);
    if (s->sent == g->each) return filch_idle(out);
    for (uint32_t i = 0; i < AT_ONCE && s->sent < g->each; i++) {
        stress_must("send", filch_yield_send(out, s->sent, g->receiver, make(s, &room)));
        s->sent++;
    }
    return filch_wait(out);
}

/* s->acked is the number of this sender's messages that the receiver has read (in a round without a mailbox limit), or
 * that the mailbox has accepted (in a round with a limit). */
static filch_err sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    sender *s = *(sender **)self;
    /* the first step has no events: the sender waits for its start message */
    if (count == 0 && s->sent == 0) return filch_idle(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) s->acked = (uint64_t)filch_as_int(&events[i].data);
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        stress_must("waiting for room", events[i].error);
        s->acked++;
    }
    return s->game->limited ? send_limited(s, out) : send_open(s, out);
}

static const filch_type sender_type = { .name = "sender", .size = sizeof(void *), .init = init, .step = sender_step };

/* ---- one round ---- */

static void print_progress(const game *g, uint64_t seen)
{
    if (!g->terminal) return;
    printf("\rmailbox: %" PRIu64 " of %" PRIu64 " read, %" PRIu64 " s", seen, g->total,
           (fli_clock_ns() - g->begun_ns) / SECOND_NS);
    fflush(stdout);
}

static void watch(game *g)
{
    stress_news news;
    while ((news = stress_watch_wait(&g->watch, fli_load_rlx(&g->seen))) != STRESS_OVER) {
        if (news == STRESS_STANDS_STILL) complain(g, NO_SENDER, 0, "standing still");
        print_progress(g, fli_load_rlx(&g->seen));
    }
}

static filch_pid spawn(game *g, const filch_type *type, void *arg, uint32_t mailbox_max)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    opt.args = filch_ptr(arg);
    opt.mailbox_max = mailbox_max;
    opt.overflow = FILCH_OVERFLOW_WAIT;
    stress_must("spawn", filch_spawn(g->sched, type, &opt, &pid));
    return pid;
}

static void check(game *g)
{
    filch_stats stats = FILCH_STATS_INIT;
    stress_must("stats", filch_sched_stats(g->sched, &stats));
    for (uint32_t i = 0; i < g->senders; i++) {
        if (g->all[i].next != g->each) complain(g, i, g->all[i].next, "not all were read");
    }
    if (stats.undelivered != 0 || stats.dropped != 0) complain(g, NO_SENDER, 0, "the runtime dropped something");
}

static void play(game *g)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    fli_thread    threads[SENDERS_MAX];
    opt.workers = 2;
    g->total = g->each * g->senders;
    g->begun_ns = fli_clock_ns();
    stress_watch_init(&g->watch, 1);
    stress_must("create", filch_sched_create(&g->sched, &opt));
    g->receiver = spawn(g, &receiver_type, g, g->limited ? LIMITED : 0);
    for (uint32_t i = 0; i < g->senders; i++) {
        sender *s = &g->all[i];
        s->game = g;
        s->sender_index = i;
        if (i < g->threads) stress_must("thread", fli_thread_start(&threads[i], "sender", thread_run, s));
        else s->pid = spawn(g, &sender_type, s, 0);
    }
    for (uint32_t i = g->threads; i < g->senders; i++) {
        stress_must("begin", filch_send(g->sched, g->all[i].pid, filch_int(0)));
    }
    watch(g);
    for (uint32_t i = 0; i < g->threads; i++) fli_thread_join(&threads[i]);
    stress_must("stop", filch_sched_close(g->sched, STRESS_LIMIT, NULL));
    check(g);
    stress_must("stop", filch_sched_stop(g->sched, 0, NULL));
    stress_watch_fini(&g->watch);
    double seconds = (double)(fli_clock_ns() - g->begun_ns) / (double)SECOND_NS;
    printf("%s%s mailbox: %" PRIu64 " messages, %.1f s, %.0f ns each\n", g->terminal ? "\r" : "",
           g->limited ? "limited" : "open", g->total, seconds, seconds * 1e9 / (double)g->total);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static game games[2];
    uint64_t    messages, senders, total = 0, begun_ns = fli_clock_ns();
    if (argc != 3 || !stress_parse(argv[1], 1, UINT64_C(1) << 40, &messages) ||
        !stress_parse(argv[2], 1, SENDERS_MAX, &senders)) {
        fprintf(stderr, "usage: mailbox_stress MESSAGES SENDERS   (at most 2^40, and %d of each kind)\n", SENDERS_MAX);
        return 2;
    }
    for (uint32_t i = 0; i < 2; i++) {
        game *g = &games[i];
        g->limited = i == 1;
        g->terminal = isatty(STDOUT_FILENO) != 0;
        g->threads = (uint32_t)senders;
        g->senders = 2 * g->threads;
        g->each = messages / 10 * (g->limited ? 1 : 9) / g->senders + 1;
        play(g);
        total += g->total;
    }
    printf("mailbox: %" PRIu64 " messages, each read exactly once and in order (%" PRIu64 " threads, %" PRIu64
           " processes, %.1f s)\n",
           total, senders, senders, (double)(fli_clock_ns() - begun_ns) / (double)SECOND_NS);
    return 0;
}
