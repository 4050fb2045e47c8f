/* backlog.c - a thread sends --size numbers to 64 processes that do not read yet; then the processes read the numbers.
 * The value is the time for sending and reading; backlog_mb is the memory that the backlog took. */
#include "programs.h"

enum { READERS = 64 };

struct reader {
    uint64_t left;
    int64_t  sum;
};

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct reader *reader = self;
    if (count == 0) {
        filch_err err = filch_yield(out, HOLD, 0, filch_none());
        return err != FILCH_OK ? err : filch_wait(out);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        reader->sum += filch_as_int(&events[i].data);
        if (--reader->left > 0) continue;
        report(reader->sum);
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type reader_type = {
    .name = "reader", .size = sizeof(struct reader), .init = copy_state, .step = reader_step
};

bool backlog(uint64_t variant)
{
    (void)variant;
    filch_pid readers[READERS];
    uint64_t  each = run.size / READERS + 1, total = each * READERS;
    start_with_hold(READERS);
    for (int i = 0; i < READERS; i++) readers[i] = start(&reader_type, &(struct reader){ each, 0 });
    wait_until_held(READERS);
    uint64_t before = bench_rss_bytes();
    expect_results(READERS);
    bench_begin(&run);
    for (uint64_t i = 0; i < total; i++) bench_send(&run, readers[i % READERS], filch_int((int64_t)i));
    uint64_t queued = bench_rss_bytes();
    release_all();
    int64_t sum = wait_for_results();
    bench_end(&run, total);
    bench_extra(&run, "backlog_mb", (double)(queued - before) / (1024 * 1024));
    return sum == (int64_t)(total * (total - 1) / 2);
}
