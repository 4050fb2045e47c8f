/* memory.c - --size processes with one message in the mailbox each.
 *
 * memory_queued: the value is the resident memory per process. memory_kept: all processes then read their message and
 * end; the value is the share of the memory of memory_queued that is still resident a second later.
 */
#include "programs.h"

static filch_pid *processes;

static filch_err process_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) {
        filch_err err = filch_yield(out, HOLD, 0, filch_none());
        return err != FILCH_OK ? err : filch_wait(out);
    }
    if (events[0].type == FILCH_EVENT_YIELD) return filch_idle(out);
    if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
    report(filch_as_int(&events[0].data));
    return filch_done(out, filch_none());
}

static const filch_type process_type = { .name = "process", .step = process_step };

/* Spawns the processes and sends each a message. Returns the bytes of memory that processes and messages take, and
 * stores the resident size before the spawns in *before. */
static uint64_t grow(uint64_t *before)
{
    start_with_hold(run.size);
    processes = bench_alloc(run.size, sizeof *processes);
    /* touches the pages of the array now, so that they are counted in *before */
    for (uint64_t i = 0; i < run.size; i++) processes[i].serial = 1;
    bench_quiet(&run);
    *before = bench_rss_bytes();
    bench_begin(&run);
    for (uint64_t i = 0; i < run.size; i++) processes[i] = bench_spawn(&run, &process_type, filch_none());
    wait_until_held(run.size);
    for (uint64_t i = 0; i < run.size; i++) bench_send(&run, processes[i], filch_int((int64_t)i));
    bench_end(&run, run.size);
    return bench_rss_bytes() - *before;
}

static bool shrink(void)
{
    expect_results(run.size);
    release_all();
    int64_t sum = wait_for_results();
    bench_wait_ended(&run, run.size);
    return sum == (int64_t)(run.size * (run.size - 1) / 2);
}

bool memory_queued(uint64_t variant)
{
    (void)variant;
    uint64_t before, grown = grow(&before);
    bench_value(&run, (double)grown / (double)run.size, "bytes");
    return shrink();
}

bool memory_kept(uint64_t variant)
{
    (void)variant;
    uint64_t before, grown = grow(&before);
    bool     right = shrink();
    bench_sleep_ns(run.size < 10000 ? 1 : FILCH_SECONDS(1));
    uint64_t after = bench_rss_bytes();
    bench_value(&run, after < before || grown == 0 ? 0 : 100.0 * (double)(after - before) / (double)grown, "% kept");
    bench_extra(&run, "grown_mb", (double)grown / (1024 * 1024));
    return right;
}
