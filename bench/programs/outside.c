/* outside.c - four threads that are not workers spawn processes, or send to processes.
 *
 * outside_spawn: --size processes, each of which runs one step.
 * outside_send: --size numbers to 64 processes; one process gets half of them.
 */
#include "programs.h"

#include <pthread.h>

enum { THREADS = 4, RECEIVERS = 64 };

static void run_threads(void *(*function)(void *))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, function, NULL) != 0) bench_must(FILCH_ESYS, "thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* ---- spawn ---- */

static filch_err once_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    return count > 0 ? FILCH_ECANCELLED : filch_done(out, filch_none());
}

static const filch_type once_type = { .name = "once", .step = once_step };

static void *spawn_some(void *unused)
{
    for (uint64_t i = 0; i < run.size / THREADS; i++) (void)bench_spawn(&run, &once_type, filch_none());
    return unused;
}

bool outside_spawn(uint64_t variant)
{
    (void)variant;
    uint64_t total = run.size / THREADS * THREADS;
    bench_start(&run, NULL);
    bench_quiet(&run);
    bench_begin(&run);
    run_threads(spawn_some);
    bench_wait_ended(&run, total);
    bench_end(&run, total);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(run.sched, &stats), "stats");
    return stats.ended == total && stats.failed == 0;
}

/* ---- send ---- */

static filch_pid receivers[RECEIVERS];
/* number of messages that each thread sends; large enough that every receiver gets a message */
static uint64_t send_each;

static uint64_t receiver_of(uint64_t message)
{
    return message % 2 == 0 ? 0 : message / 2 % RECEIVERS;
}

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

static const filch_type receiver_type = {
    .name = "receiver", .size = sizeof(struct receiver), .init = copy_state, .step = receiver_step
};

static void *send_some(void *unused)
{
    for (uint64_t i = 0; i < send_each; i++) {
        bench_send(&run, receivers[receiver_of(i)], filch_int((int64_t)i));
    }
    return unused;
}

bool outside_send(uint64_t variant)
{
    (void)variant;
    uint64_t        each = send_each = run.size / THREADS > 2 * RECEIVERS ? run.size / THREADS : 2 * RECEIVERS;
    struct receiver states[RECEIVERS] = { { 0, 0 } };
    for (uint64_t i = 0; i < each; i++) states[receiver_of(i)].left += THREADS;
    bench_start(&run, NULL);
    for (int i = 0; i < RECEIVERS; i++) receivers[i] = start(&receiver_type, &states[i]);
    bench_quiet(&run);
    expect_results(RECEIVERS);
    bench_begin(&run);
    run_threads(send_some);
    int64_t sum = wait_for_results();
    bench_end(&run, THREADS * each);
    return sum == (int64_t)(THREADS * (each * (each - 1) / 2));
}
