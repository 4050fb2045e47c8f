/* pipeline.c - a source, three stages and a sink with mailboxes of 16 messages. A sender waits when the next mailbox
 * is full. --size is the number of items. Variant 0 tries filch_send() first and yields only when the mailbox is
 * full; variant 1 yields each send, as examples/pipeline.c does. */
#include "programs.h"

enum { STAGES = 3, ROOM = 16 };

static bool yield_each;

struct stage {
    filch_pid next;
    /* left: number of items that the source has not sent yet. sum: sum of the items that the sink has received */
    int64_t left, sum;
    int     under_way; /* number of sends that wait for space in the mailbox of `next` */
    bool    last;
};

/* Sends an item to the next stage. While an earlier send waits for space, this send must wait too, so that items stay
 * in order. */
static filch_err pass_on(struct stage *stage, filch_out *out, int64_t item)
{
    if (!yield_each && stage->under_way == 0) {
        filch_err err = send_to(out, stage->next, filch_int(item));
        if (err != FILCH_EFULL) return err;
    }
    stage->under_way++;
    return filch_yield_send(out, 0, stage->next, filch_int(item));
}

static filch_err completed(struct stage *stage, const filch_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        if (events[i].error != FILCH_OK) return events[i].error;
        stage->under_way--;
    }
    return FILCH_OK;
}

static filch_err source_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct stage *source = self;
    filch_err     err = completed(source, events, count);
    while (err == FILCH_OK && source->left >= 0 && source->under_way == 0 && !filch_should_yield(out)) {
        err = pass_on(source, out, source->left--); /* the items count down; the item 0 is the last one */
    }
    if (err != FILCH_OK) return err;
    if (source->under_way > 0) return filch_wait(out);
    return source->left < 0 ? filch_done(out, filch_none()) : filch_continue(out);
}

static filch_err stage_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct stage *stage = self;
    filch_err     err = completed(stage, events, count);
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        stage->last = filch_as_int(&events[i].data) == 0;
        err = pass_on(stage, out, filch_as_int(&events[i].data));
    }
    if (err != FILCH_OK) return err;
    if (stage->under_way > 0) return filch_wait(out);
    return stage->last ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err sink_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct stage *sink = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        sink->sum += filch_as_int(&events[i].data);
        if (filch_as_int(&events[i].data) > 0) continue;
        report(sink->sum);
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type source_type = {
    .name = "source", .size = sizeof(struct stage), .init = copy_state, .step = source_step
};
static const filch_type stage_type = {
    .name = "stage", .size = sizeof(struct stage), .init = copy_state, .step = stage_step
};
static const filch_type sink_type = {
    .name = "sink", .size = sizeof(struct stage), .init = copy_state, .step = sink_step
};

bool pipeline(uint64_t variant)
{
    int64_t items = (int64_t)run.size;
    yield_each = variant == 1;
    bench_start(&run, NULL);
    filch_pid next = start_limited(&sink_type, &(struct stage){ .left = 0 }, ROOM);
    for (int i = 0; i < STAGES; i++) next = start_limited(&stage_type, &(struct stage){ .next = next }, ROOM);
    bench_quiet(&run);
    expect_results(1);
    bench_begin(&run);
    start(&source_type, &(struct stage){ .next = next, .left = items });
    int64_t sum = wait_for_results();
    bench_end(&run, (STAGES + 1) * run.size);
    return sum == items * (items + 1) / 2;
}
