/* bounded.c - one process sends numbers to another, whose mailbox never gets full: what a limit costs where there is
 * room. --size is the number of messages. Bit LIMITED of the variant: the receiver has a limit; bit YIELDED: each send
 * is a yield, of which one is outstanding at a time. */
#include "programs.h"

enum { LIMITED = 1, YIELDED = 2, ROOM = 100000 };

struct adder {
    uint64_t left;
    int64_t  sum;
};

static filch_err adder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct adder *adder = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        adder->sum += filch_as_int(&events[i].data);
        if (--adder->left > 0) continue;
        report(adder->sum);
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

struct source {
    filch_pid to;
    int64_t   left;
};

static filch_err send_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct source *source = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    while (source->left > 0) {
        filch_err err = send_to(out, source->to, filch_int(source->left--));
        if (err != FILCH_OK) return err;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    return filch_done(out, filch_none());
}

static filch_err yield_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct source *source = self;
    if (count > 0 && events[0].type != FILCH_EVENT_YIELD) return FILCH_ECANCELLED;
    if (count > 0 && events[0].error != FILCH_OK) return events[0].error;
    if (source->left == 0) return filch_done(out, filch_none());
    filch_err err = filch_yield_send(out, 0, source->to, filch_int(source->left--));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type adder_type = {
    .name = "adder", .size = sizeof(struct adder), .init = copy_state, .step = adder_step
};
static const filch_type send_type = {
    .name = "source", .size = sizeof(struct source), .init = copy_state, .step = send_step
};
static const filch_type yield_type = {
    .name = "source", .size = sizeof(struct source), .init = copy_state, .step = yield_step
};

bool bounded(uint64_t variant)
{
    int64_t      count = (int64_t)run.size;
    struct adder adder = { .left = run.size };
    bench_start(&run, NULL);
    filch_pid to = (variant & LIMITED) != 0 ? start_limited(&adder_type, &adder, ROOM) : start(&adder_type, &adder);
    bench_quiet(&run);
    expect_results(1);
    bench_begin(&run);
    start((variant & YIELDED) != 0 ? &yield_type : &send_type, &(struct source){ to, count });
    int64_t sum = wait_for_results();
    bench_end(&run, run.size);
    return sum == count * (count + 1) / 2;
}
