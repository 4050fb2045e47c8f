/* complete_test.c - a process ends between the claim of its yield and the delivery of the completion. The test
 * forces this moment by a hook inside filch_complete(). Every yield is still counted once. */
#include "proc/runtime.h"
#include "proc/yields.h"
#include "support/check.h"

enum { COMMAND = FILCH_CMD_USER };

static filch_sched   *sched;
static filch_receiver kept;
static filch_pid      victim;
static bool           armed;

bool __real_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node);
bool __wrap_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node);

/* Claims the yield. If `armed`, then ends the process `victim`, before the completion is delivered. */
bool __wrap_fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **node)
{
    bool claimed = __real_fli_yield_claim(rt, key, node);
    if (armed) {
        armed = false;
        ok(filch_terminate(sched, victim));
        ok(filch_tick(sched, 0, NULL));
    }
    return claimed;
}

static filch_err keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    kept = receiver;
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

static filch_stats stats_of(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

static void begin(void)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, COMMAND, keep, NULL));
    opt.registry = registry;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &opt));
    filch_registry_destroy(registry);
    ok(filch_spawn(sched, &yielder, NULL, &victim));
    ok(filch_tick(sched, 0, NULL));
}

TEST(a_completion_that_arrives_after_the_end_leaves_an_abandoned_yield)
{
    begin();
    armed = true;
    assert_true(filch_complete(kept, 1, filch_int(5), FILCH_OK) != FILCH_OK);
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
    ok(filch_complete(kept, 1, filch_int(5), FILCH_OK));
    same(filch_complete(kept, 1, filch_int(6), FILCH_OK), FILCH_ESTALE);
    ok(filch_tick(sched, 0, NULL));
    same(filch_complete(kept, 1, filch_int(7), FILCH_OK), FILCH_ESTALE);
    filch_stats stats = stats_of();
    same(stats.alive, 0);
    same(stats.yields, 1);
    same(stats.completions, 1);
    same(stats.abandoned, 0);
    same(stats.late_completions, 2);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_that_arrives_after_the_end_leaves_an_abandoned_yield),
        cmocka_unit_test(a_completion_that_arrives_is_counted_and_a_second_one_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
