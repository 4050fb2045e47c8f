/* crowd.c - `variant` senders and one receiver with a mailbox of 64 messages, so that nearly all senders wait. --size
 * is the number of messages of all senders together; each sender sends its next message when its last message was
 * accepted. */
#include "programs.h"

enum { ROOM = 64 };

static filch_pid *senders;
static uint64_t   sender_count;

struct receiver {
    uint64_t left;
    int64_t  sum;
};

static filch_err receiver_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct receiver *receiver = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        receiver->sum += filch_as_int(&events[i].data);
        if (--receiver->left > 0) continue;
        report(receiver->sum);
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

struct sender {
    filch_pid receiver;
    int64_t   left;
};

static filch_err sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sender *sender = self;
    /* the first step has no events: the sender waits for the message that starts it */
    if (count == 0) return filch_idle(out);
    if (events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    if (events[0].error != FILCH_OK) return events[0].error;
    if (sender->left == 0) return filch_done(out, filch_none());
    filch_err err = filch_yield_send(out, 0, sender->receiver, filch_int(sender->left--));
    return err != FILCH_OK ? err : filch_wait(out);
}

struct starter {
    uint64_t started;
};

static filch_err starter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct starter *starter = self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    while (starter->started < sender_count) {
        filch_err err = send_to(out, senders[starter->started++], filch_none());
        if (err != FILCH_OK) return err;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

static const filch_type receiver_type = {
    .name = "receiver", .size = sizeof(struct receiver), .init = copy_state, .step = receiver_step
};
static const filch_type sender_type = {
    .name = "sender", .size = sizeof(struct sender), .init = copy_state, .step = sender_step
};
static const filch_type starter_type = {
    .name = "starter", .size = sizeof(struct starter), .init = copy_state, .step = starter_step
};

bool crowd(uint64_t variant)
{
    uint64_t each = run.size > variant ? run.size / variant : 1;
    sender_count = variant;
    senders = bench_alloc(sender_count, sizeof *senders);
    bench_start(&run, NULL);
    filch_pid receiver = start_limited(&receiver_type, &(struct receiver){ .left = each * sender_count }, ROOM);
    for (uint64_t i = 0; i < sender_count; i++) {
        senders[i] = start(&sender_type, &(struct sender){ receiver, (int64_t)each });
    }
    bench_quiet(&run);
    expect_results(1);
    bench_begin(&run);
    start(&starter_type, &(struct starter){ 0 });
    int64_t sum = wait_for_results();
    bench_end(&run, each * sender_count);
    return sum == (int64_t)(sender_count * each * (each + 1) / 2);
}
