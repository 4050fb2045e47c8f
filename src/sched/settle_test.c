/* settle_test.c - a process that goes idle first gets the events that arrived during its step. The scheduler has no
 * threads: the test runs each step. */

#include "sched/out.h"
#include "sched/sched.h"
#include "support/check.h"

typedef struct log {
    int64_t messages, dropped;
    int     steps;
    bool    flood; /* if true, the next step that has events sends a message to its own full mailbox, and clears
                      `flood` */
} log;

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    log *l = *(log **)self;
    l->steps++;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) l->messages++;
        if (events[i].type == FILCH_EVENT_DROPPED) l->dropped += filch_as_int(&events[i].data);
    }
    if (count > 0 && l->flood) {
        const filch_ctx *ctx = filch_out_ctx(out);
        l->flood = false;
        same(filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_int(2)), FILCH_EDROPPED);
    }
    return filch_idle(out);
}

static filch_err on_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(log **)self = filch_as_ptr(args);
    return FILCH_OK;
}

static const filch_type type = { .name = "log", .size = sizeof(log *), .init = on_init, .step = on_step };

static filch_sched *begin(uint32_t batch_max)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    options.batch_max = batch_max;
    ok(filch_sched_create(&sched, &options));
    return sched;
}

static filch_pid spawn(filch_sched *sched, log *l, uint32_t mailbox_max, filch_overflow overflow)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    options.args = filch_ptr(l);
    options.mailbox_max = mailbox_max;
    options.overflow = overflow;
    ok(filch_spawn(sched, &type, &options, &pid));
    return pid;
}

/* The events of a step count against the mailbox limit until the step ends, so messages sent during the step are
 * dropped. The drops must be reported even if no later message arrives. */
TEST(a_process_gets_a_dropped_notice_before_it_goes_idle)
{
    const uint32_t batches[] = { 1, 64 };
    for (int i = 0; i < 2; i++) {
        filch_sched *sched = begin(batches[i]);
        log          l = { .flood = true };
        filch_pid    pid = spawn(sched, &l, 1, FILCH_OVERFLOW_DROP_NEWEST);
        ok(filch_send(sched, pid, filch_int(1)));
        ok(filch_tick(sched, 0, NULL));
        same(l.messages, 1);
        same(l.dropped, 1);
        int steps = l.steps;
        ok(filch_tick(sched, 0, NULL));
        same(l.steps, steps); /* no event is pending, so the process is not stepped again */
        ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_gets_a_dropped_notice_before_it_goes_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
