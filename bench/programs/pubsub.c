/* pubsub.c - ten topics with 100 subscribers and one publisher each. A topic is a group; --size is the number of
 * messages of each publisher, of 64 bytes. An empty message ends the topic. */
#include "programs.h"

#include <stdio.h>

enum { TOPICS = 10, SUBSCRIBERS = 100, BYTES = 64 };

struct subscriber {
    int64_t got;
};

static filch_err subscriber_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct subscriber *subscriber = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (filch_size(&events[i].data) == 0) {
            report(subscriber->got);
            return filch_done(out, filch_none());
        }
        const unsigned char *bytes = filch_raw(&events[i].data);
        subscriber->got += bytes[BYTES - 1];
    }
    return filch_idle(out);
}

struct publisher {
    char     topic[16];
    uint64_t left;
};

static filch_err publish(const struct publisher *publisher, filch_out *out, filch_data data)
{
    uint64_t  sent;
    filch_err err = filch_broadcast(filch_out_sched(out), publisher->topic, data, &sent);
    return err != FILCH_OK ? err : sent == SUBSCRIBERS ? FILCH_OK : FILCH_EUSER;
}

static filch_err publisher_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct publisher *publisher = self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    while (publisher->left > 0) {
        char      bytes[BYTES] = { [BYTES - 1] = 1 };
        filch_err err = publish(publisher, out, filch_bytes(bytes, sizeof bytes));
        if (err != FILCH_OK) return err;
        publisher->left--;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    filch_err err = publish(publisher, out, filch_none());
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

static const filch_type subscriber_type = {
    .name = "subscriber", .size = sizeof(struct subscriber), .init = copy_state, .step = subscriber_step
};
static const filch_type publisher_type = {
    .name = "publisher", .size = sizeof(struct publisher), .init = copy_state, .step = publisher_step
};

bool pubsub(uint64_t variant)
{
    (void)variant;
    struct publisher publishers[TOPICS];
    bench_start(&run, NULL);
    for (int i = 0; i < TOPICS; i++) {
        publishers[i] = (struct publisher){ .left = run.size };
        snprintf(publishers[i].topic, sizeof publishers[i].topic, "topic %d", i);
        for (int j = 0; j < SUBSCRIBERS; j++) {
            filch_pid subscriber = start(&subscriber_type, &(struct subscriber){ 0 });
            bench_must(filch_join(run.sched, publishers[i].topic, subscriber), "join");
        }
    }
    bench_quiet(&run);
    expect_results(TOPICS * SUBSCRIBERS);
    bench_begin(&run);
    for (int i = 0; i < TOPICS; i++) start(&publisher_type, &publishers[i]);
    int64_t got = wait_for_results();
    bench_end(&run, TOPICS * SUBSCRIBERS * run.size);
    return got == TOPICS * SUBSCRIBERS * (int64_t)run.size;
}
