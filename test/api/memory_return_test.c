/* memory_return_test.c - after a peak the memory of processes and messages goes back to the system, and stale pids and
 * receivers stay harmless. Without the allocator of the fixture: with option `alloc` nothing is returned. */
#include "api/fixture.h"
#include "support/until.h"

enum { PEAK = 40000 };

/* ALL: bytes that PEAK processes use at least: 128 for each process, and 64 for the node of its yield. KEPT: bytes that
 * the scheduler may keep: spare objects of the depots, some free pages, and the objects in magazines. */
#define ALL (PEAK * UINT64_C(192))
#define KEPT (UINT64_C(3) << 20)

static FLI_ATOMIC(uint64_t) ended;
static filch_receiver       held[PEAK], stale[PEAK];
static filch_pid            pids[PEAK], others[PEAK];

#define HOLD (FILCH_CMD_USER + 7)

static filch_err on_hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    held[filch_as_int(&command->data)] = receiver;
    return FILCH_OK;
}

/* The process makes one yield in its first step, and ends at its first message. */
static filch_err member_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *index = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD) continue;
        if (events[i].type != FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
        fli_add_rlx(&ended, 1);
        return filch_done(out, filch_none());
    }
    if (count > 0) return filch_idle(out);
    filch_err err = filch_yield(out, HOLD, 1, filch_int(*index));
    return err != FILCH_OK ? err : filch_idle(out);
}

static filch_err member_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

static const filch_type member = { .name = "member", .size = 8, .init = member_init, .step = member_step };

static filch_stats stats_of(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

/* Runs the scheduler if it has no workers. Returns its statistics. */
static filch_stats stats_after_turn(filch_sched *sched, int32_t workers)
{
    if (workers == FILCH_NO_WORKERS) ok(filch_tick(sched, 0, NULL));
    return stats_of(sched);
}

/* Spawns PEAK processes, each with an outstanding yield; then sends a message to each, at which it ends. */
static void make_peak(filch_sched *sched, int32_t workers, filch_pid *list)
{
    uint64_t yields = stats_of(sched).yields;
    fli_store_rlx(&ended, 0);
    for (int64_t i = 0; i < PEAK; i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_int(i);
        ok(filch_spawn(sched, &member, &opt, &list[i]));
    }
    until(stats_after_turn(sched, workers).yields >= yields + PEAK);
    /* All yields are outstanding. A pid or receiver of an earlier peak must reach none of these processes. */
    for (int64_t i = 0; i < PEAK && stale[i].sched == sched; i++) {
        same(filch_cancel(sched, pids[i]), FILCH_EDEAD);
        assert_int_not_equal(filch_complete(stale[i], 1, filch_none(), FILCH_OK), FILCH_OK);
    }
    for (int64_t i = 0; i < PEAK; i++) ok(filch_send(sched, list[i], filch_int(i)));
    until(stats_after_turn(sched, workers).alive == 0);
    same(fli_load_rlx(&ended), PEAK);
}

static filch_registry *make_registry(void)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, HOLD, on_hold, NULL));
    return registry;
}

static filch_sched *start(int32_t workers, filch_registry *registry)
{
    filch_sched  *sched;
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = workers;
    opt.registry = registry;
    ok(filch_sched_create(&sched, &opt));
    return sched;
}

static void peak_is_returned(int32_t workers)
{
    filch_registry *registry = make_registry();
    filch_sched    *sched = start(workers, registry);
    make_peak(sched, workers, pids);
    memcpy(stale, held, sizeof stale);
    until(stats_after_turn(sched, workers).memory_returned >= ALL - KEPT);
    assert_true(stats_of(sched).memory_returned <= stats_of(sched).memory);
    for (int64_t i = 0; i < PEAK; i++) {
        same(filch_send(sched, pids[i], filch_int(i)), FILCH_EDEAD);
        same(filch_cancel(sched, pids[i]), FILCH_EDEAD);
        assert_int_not_equal(filch_complete(stale[i], 1, filch_none(), FILCH_OK), FILCH_OK);
    }
    /* The second peak reuses the slots. The pids and receivers of the first peak must stay invalid. */
    make_peak(sched, workers, others);
    for (int64_t i = 0; i < PEAK; i++) {
        same(filch_send(sched, pids[i], filch_int(i)), FILCH_EDEAD);
        assert_int_not_equal(filch_complete(stale[i], 1, filch_none(), FILCH_OK), FILCH_OK);
    }
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    filch_registry_destroy(registry);
    memset(stale, 0, sizeof stale);
}

TEST(after_a_peak_memory_is_returned_while_workers_are_parked)
{
    peak_is_returned(2);
}

TEST(after_a_peak_memory_is_returned_by_ticks)
{
    peak_is_returned(FILCH_NO_WORKERS);
}

/* BACKLOG messages with a value from a foreign thread use 32 bytes each. BACKLOG_KEPT: bytes of these messages that the
 * scheduler may keep, in the depot, in free pages and in magazines. */
enum { BACKLOG = 200000 };
#define BACKLOG_BYTES (BACKLOG * UINT64_C(32))
#define BACKLOG_KEPT (UINT64_C(1) << 20)

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
    }
    fli_add_rlx(&ended, count);
    return filch_idle(out);
}

static const filch_type reader = { .name = "reader", .step = reader_step };

TEST(memory_of_a_backlog_of_foreign_values_counts_as_returned)
{
    filch_sched *sched = start(FILCH_NO_WORKERS, NULL);
    filch_pid    pid;
    fli_store_rlx(&ended, 0);
    ok(filch_spawn(sched, &reader, NULL, &pid));
    uint64_t before = stats_of(sched).memory;
    for (int64_t i = 0; i < BACKLOG; i++) ok(filch_send(sched, pid, filch_int(i)));
    uint64_t peak = stats_of(sched).memory;
    assert_true(peak - before >= BACKLOG_BYTES);
    until(stats_after_turn(sched, FILCH_NO_WORKERS).memory_returned >= BACKLOG_BYTES - BACKLOG_KEPT);
    same(fli_load_rlx(&ended), BACKLOG);
    assert_true(stats_of(sched).memory_returned <= peak - before);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_peak_memory_is_returned_while_workers_are_parked),
        cmocka_unit_test(after_a_peak_memory_is_returned_by_ticks),
        cmocka_unit_test(memory_of_a_backlog_of_foreign_values_counts_as_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
