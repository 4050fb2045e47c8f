/* complete_test.c - a process ends between the claim of its yield and the delivery of the completion. The test
 * forces this moment by a hook inside filch_complete(). Every yield is still counted once. The completion may come from
 * another thread. */
#include "port/thread.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "support/check.h"
#include "support/until.h"

enum { COMMAND = FILCH_CMD_USER };

static filch_sched   *sched;
static filch_receiver kept[3]; /* by tag of the yield */
static filch_pid      victim;
static bool           armed;
/* Set by __wrap_fli_yield_claim() in the thread complete_late(), and by the test. Relaxed, so that only the library
 * orders the two threads. */
static FLI_ATOMIC(uint64_t) late_key; /* key of the yield with the completion that waits; 0: none */
static FLI_ATOMIC(bool)     is_claimed, has_ended;

bool __real_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node);
bool __wrap_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node);

/* Claims the yield. If `armed`, then ends the process `victim`, before the completion is delivered. If the yield is
 * that of `late_key`, waits until the test has ended the process. */
bool __wrap_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node)
{
    bool claimed = __real_fli_yield_claim(rt, key, node);
    if (key == fli_load_rlx(&late_key)) {
        fli_store_rlx(&is_claimed, true);
        while (!fli_load_rlx(&has_ended)) yield_slice();
    }
    if (armed) {
        armed = false;
        ok(filch_terminate(sched, victim));
        ok(filch_tick(sched, 0, NULL));
    }
    return claimed;
}

static filch_err keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    kept[tag] = receiver;
    return FILCH_OK;
}

static filch_err yield_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count > 0) return filch_done(out, filch_none());
    ok(filch_yield(out, COMMAND, 1, filch_none()));
    return filch_wait(out);
}

static const filch_type yielder = { .name = "yielder", .step = yield_step };

static filch_err yield_twice(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count > 0) return filch_done(out, filch_none());
    ok(filch_yield(out, COMMAND, 1, filch_none()));
    ok(filch_yield(out, COMMAND, 2, filch_none()));
    return filch_wait(out);
}

static const filch_type twice = { .name = "twice", .step = yield_twice };

static filch_err read_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type reader = { .name = "reader", .step = read_step };

static filch_stats stats_of(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

static void begin_with(const filch_type *type)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, COMMAND, keep, NULL));
    opt.registry = registry;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &opt));
    filch_registry_destroy(registry);
    ok(filch_spawn(sched, type, NULL, &victim));
    ok(filch_tick(sched, 0, NULL));
}

static void begin(void)
{
    begin_with(&yielder);
}

TEST(a_completion_that_arrives_after_the_end_leaves_an_abandoned_yield)
{
    begin();
    armed = true;
    assert_true(filch_complete(kept[1], 1, filch_int(5), FILCH_OK) != FILCH_OK);
    assert_false(armed);
    filch_stats stats = stats_of();
    same(stats.alive, 0);
    same(stats.yields, 1);
    same(stats.completions, 0);
    same(stats.abandoned, 1);
    same(stats.late_completions, 1);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

TEST(a_completion_that_arrives_is_counted_and_a_second_one_is_late)
{
    begin();
    ok(filch_complete(kept[1], 1, filch_int(5), FILCH_OK));
    same(filch_complete(kept[1], 1, filch_int(6), FILCH_OK), FILCH_ESTALE);
    ok(filch_tick(sched, 0, NULL));
    same(filch_complete(kept[1], 1, filch_int(7), FILCH_OK), FILCH_ESTALE);
    filch_stats stats = stats_of();
    same(stats.alive, 0);
    same(stats.yields, 1);
    same(stats.completions, 1);
    same(stats.abandoned, 0);
    same(stats.late_completions, 2);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

typedef struct late_call {
    filch_receiver receiver;
    filch_pid      to;
    filch_err      completed, sent;
} late_call;

/* Thread: completes the yield too late. Then sends bytes, which reuses the node of the yield. */
static void complete_late(void *arg)
{
    late_call *call = arg;
    call->completed = filch_complete(call->receiver, call->receiver.tag, filch_int(5), FILCH_OK);
    call->sent = filch_send(sched, call->to, filch_str("bytes"));
}

/* When the first of two yields is closed, the owner of the process writes to the node of the second, which the thread
 * has claimed already. The thread then frees this node, because the process has ended. TSan reports a data race if the
 * end of the process does not order the two writes. */
TEST(a_late_completion_on_another_thread_is_no_data_race)
{
    fli_thread thread;
    late_call  call = { .completed = FILCH_OK };
    begin_with(&twice);
    filch_receiver first = kept[1];
    call.receiver = kept[2];
    ok(filch_spawn(sched, &reader, NULL, &call.to));
    fli_store_rlx(&late_key, call.receiver.key);
    ok(fli_thread_start(&thread, "late", complete_late, &call));
    until(fli_load_rlx(&is_claimed));
    ok(filch_complete(first, 1, filch_int(6), FILCH_OK));
    ok(filch_tick(sched, 0, NULL));
    fli_store_rlx(&has_ended, true);
    fli_thread_join(&thread);
    assert_true(call.completed != FILCH_OK);
    ok(call.sent);
    ok(filch_tick(sched, 0, NULL));
    filch_stats stats = stats_of();
    same(stats.alive, 0);
    same(stats.yields, 2);
    same(stats.completions, 1);
    same(stats.abandoned, 1);
    same(stats.late_completions, 1);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_that_arrives_after_the_end_leaves_an_abandoned_yield),
        cmocka_unit_test(a_completion_that_arrives_is_counted_and_a_second_one_is_late),
        cmocka_unit_test(a_late_completion_on_another_thread_is_no_data_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
