/* sim_cases_test.c - completions that a simulation delays until after the end of their process: the payload of such a
 * completion is freed. */
#include <filch.h>
#include <string.h>

#include "support/alloc.h"
#include "support/check.h"

enum { ASK = FILCH_CMD_USER };

static int handler_calls;

static filch_err complete_yield(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    char payload[500];
    (void)user, (void)command;
    memset(payload, 'x', sizeof payload);
    handler_calls++;
    return filch_complete(receiver, tag, filch_bytes(payload, sizeof payload), FILCH_OK);
}

/* The process makes a yield and ends without waiting for the completion. */
static filch_err yield_and_end(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int *steps = self;
    (void)events, (void)count;
    if (++*steps > 1) return filch_done(out, filch_none());
    ok(filch_yield(out, ASK, 1, filch_none()));
    return filch_continue(out);
}

static const filch_type hasty = { .name = "hasty", .size = sizeof(int), .step = yield_and_end };

static filch_err scenario(filch_sched *sched, void *user)
{
    (void)user;
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &hasty, NULL, NULL));
    return FILCH_OK;
}

TEST(late_completions_for_ended_processes_leak_nothing)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        test_alloc        alloc = { 0 };
        filch_registry   *registry;
        filch_options     sched = FILCH_OPTIONS_INIT;
        filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
        filch_sim_report  report = FILCH_SIM_REPORT_INIT;
        ok(filch_registry_create(&registry));
        ok(filch_registry_add(registry, ASK, complete_yield, NULL));
        sched.registry = registry;
        sched.alloc = test_alloc_fn;
        sched.alloc_user = &alloc;
        sim.sched = &sched;
        sim.seed = seed;
        sim.late_answer = 1000; /* probability in thousandths: every completion is late */
        sim.double_answer = seed % 2 == 0 ? 1000 : 0;
        handler_calls = 0;
        ok(filch_sim_run(&sim, scenario, NULL, &report));
        same(report.verdict, FILCH_SIM_OK);
        same(handler_calls, 10);
        assert_true(report.late_answers > 0);
        filch_sim_report_free(&report);
        filch_registry_destroy(registry);
        test_alloc_balanced(&alloc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(late_completions_for_ended_processes_leak_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
