/* wait_test.c - a measured queue wait is counted in the right bucket of the histogram, also at the edges of buckets;
 * the worker's status shows no process during a close. The clock stands still. */
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sched/worker.h"

#include <string.h>

#include "port/clock.h"
#include "support/check.h"

static uint64_t now_ns = UINT64_C(1) << 50;

uint64_t __wrap_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void)
{
    return now_ns;
}

static filch_err listen(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listen };

static filch_stats stats_of(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

/* Makes caller_worker measure a queue wait of `waited_ns` for the process `pid`. Returns the bucket of the histogram
 * that was incremented. */
static int bucket_of(filch_sched *sched, filch_pid pid, uint64_t waited_ns)
{
    fli_worker *w = sched->caller_worker;
    filch_stats before = stats_of(sched);
    int         bucket = -1;
    w->sample_in = 1000; /* no clock reading of this test requests a sample */
    fli_proc_find(&sched->rt, pid.serial)->last_worker = FLI_MARK_SAMPLED;
    ok(filch_send(sched, pid, filch_none()));
    w->sample_serial = pid.serial;
    w->sample_ns = now_ns - waited_ns;
    ok(filch_tick(sched, 0, NULL));
    filch_stats after = stats_of(sched);
    for (int b = 0; b < FILCH_WAIT_BUCKETS; b++) {
        if (after.queue_wait[b] == before.queue_wait[b]) continue;
        same(after.queue_wait[b], before.queue_wait[b] + 1);
        same(bucket, -1);
        bucket = b;
    }
    return bucket;
}

/* As filch.h says: bucket i counts waits from 2^i to below 2^(i+1) ns, bucket 0 also shorter waits, the last bucket
 * also longer waits. */
TEST(a_wait_is_counted_in_the_bucket_of_its_size)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &opt));
    ok(filch_spawn(sched, &listener, NULL, &pid));
    ok(filch_tick(sched, 0, NULL));
    same(bucket_of(sched, pid, 0), 0);
    for (int i = 0; i < 40; i++) {
        uint64_t edge = UINT64_C(2) << i; /* the shortest wait that is too long for bucket i */
        int      last = FILCH_WAIT_BUCKETS - 1;
        same(bucket_of(sched, pid, edge - 1), i < last ? i : last);
        same(bucket_of(sched, pid, edge), i + 1 < last ? i + 1 : last);
    }
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

/* ---- which process the worker's status names during a close ---- */

static struct {
    filch_sched *sched;
    uint64_t     stepped, closed, ended; /* the serial that the worker's status showed during step, close and on_exit */
} shown;

static uint64_t status_of(filch_sched *sched)
{
    return fli_load_rlx(&sched->caller_worker->status.serial);
}

static filch_err step_and_look(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    shown.stepped = status_of(shown.sched);
    return filch_done(out, filch_none());
}

static void close_and_look(void *self)
{
    (void)self;
    shown.closed = status_of(shown.sched);
}

static void end_and_look(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
    shown.ended = status_of(shown.sched);
}

/* During a close the status shows no process. If it did, a long close would be reported as a step that does not
 * return. */
TEST(during_a_close_the_worker_status_names_no_process)
{
    static const filch_type looker = { .name = "looker", .step = step_and_look, .close = close_and_look };
    filch_options           opt = FILCH_OPTIONS_INIT;
    filch_spawn_options     how = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid               pid;
    opt.workers = FILCH_NO_WORKERS;
    how.on_exit = end_and_look;
    ok(filch_sched_create(&shown.sched, &opt));
    shown.closed = shown.ended = 1;
    ok(filch_spawn(shown.sched, &looker, &how, &pid));
    ok(filch_tick(shown.sched, 0, NULL));
    assert_true(shown.stepped == pid.serial);
    same(shown.closed, 0);
    same(shown.ended, 0);
    ok(filch_sched_stop(shown.sched, FILCH_SECONDS(5), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_counted_in_the_bucket_of_its_size),
        cmocka_unit_test(during_a_close_the_worker_status_names_no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
