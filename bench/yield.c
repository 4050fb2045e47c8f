/* yield.c - 10,000 processes, each of which yields 100 times a command that its handler completes synchronously. An
 * operation is one yield: the yield, the handler, the completion, and the step that receives it. */
#include "bench.h"

#define PROCESSES 10000
enum { CMD_NOTHING = FILCH_CMD_USER };

static bench b; /* b.size (option --size) is the number of yields per process */

static filch_err on_nothing(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

struct yielder {
    uint64_t completed;
};

/* The process waits for a message before its first yield. */
static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct yielder *yielder = self;
    if (count == 0) return filch_idle(out);
    if (events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    if (events[0].error != FILCH_OK) return events[0].error;
    if (events[0].type == FILCH_EVENT_YIELD && ++yielder->completed == b.size) return filch_done(out, filch_none());
    filch_err err = filch_yield(out, CMD_NOTHING, yielder->completed, filch_none());
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type yielder = { .name = "yielder", .size = sizeof(struct yielder), .step = yielder_step };

int main(int argc, char **argv)
{
    static filch_pid yielders[PROCESSES];
    filch_options    options = FILCH_OPTIONS_INIT;
    bench_open(&b, "yield", 100, argc, argv);
    bench_must(filch_registry_create(&options.registry), "registry");
    bench_must(filch_registry_add(options.registry, CMD_NOTHING, on_nothing, NULL), "registry");
    bench_start(&b, &options);
    filch_registry_destroy(options.registry);
    for (int i = 0; i < PROCESSES; i++) yielders[i] = bench_spawn(&b, &yielder, filch_none());
    bench_quiet(&b);
    bench_begin(&b);
    for (int i = 0; i < PROCESSES; i++) bench_send(&b, yielders[i], filch_none());
    bench_wait_ended(&b, PROCESSES);
    bench_end(&b, PROCESSES * b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.completions == PROCESSES * b.size && stats.failed == 0);
}
