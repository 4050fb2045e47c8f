/* search_test.c - whether a worker that has found work unparks another one. The scheduler has no threads: the test
 * searches as its worker, and keeps a second worker in the list of parked workers. */
#include "port/clock.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "sync/inject.h"

#include "support/check.h"

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    (void)user, (void)pid, (void)name, (void)took_ns, (void)finished;
}

static const filch_type type = { .name = "one", .step = on_step };

/* Lists `parked` as the only parked worker of `sched`; `sentinel`: it is also the armed sentinel. */
static void park(filch_sched *sched, fli_worker *parked, bool sentinel)
{
    fli_idle *idle = &sched->idle;
    ok(fli_parker_init(&parked->idle.parker));
    parked->idle.is_parked = true;
    idle->parked = parked;
    idle->sentinel = sentinel ? parked : NULL;
    idle->sentinel_armed = sentinel;
    fli_store_rlx(&idle->word, FLI_PARKED_ONE + (sentinel ? FLI_SENTINEL : 0));
}

/* A worker searches and finds a process, `more` others stay queued at it. Returns true if it has unparked the other
 * worker. */
static bool unparks(bool sentinel, bool reports_long_steps, int more)
{
    static fli_worker parked;
    filch_options     options = FILCH_OPTIONS_INIT;
    filch_sched      *sched;
    options.workers = FILCH_NO_WORKERS;
    options.on_long_step = reports_long_steps ? on_long_step : NULL;
    options.long_step_ns = reports_long_steps ? FILCH_SECONDS(100) : 0;
    ok(filch_sched_create(&sched, &options));
    for (int i = 0; i < 1 + more; i++) ok(filch_spawn(sched, &type, NULL, NULL));
    parked = (fli_worker){ .sched = sched };
    park(sched, &parked, sentinel);

    fli_current_set(&sched->caller_worker->local);
    fli_proc *p = fli_idle_find(sched->caller_worker);
    fli_current_set(NULL);
    assert_non_null(p);
    same(fli_worker_queued(sched->caller_worker), more);
    same(fli_inject_count(&sched->global), 0);
    bool unparked = !parked.idle.is_parked;
    same(fli_idle_look(&sched->idle), unparked ? FLI_SEARCHING_ONE : FLI_PARKED_ONE + (sentinel ? FLI_SENTINEL : 0));
    if (unparked) assert_true(fli_park(&parked.idle.parker, FLI_NEVER)); /* the unpark has been signalled */

    sched->idle.parked = sched->idle.sentinel = NULL;
    sched->idle.sentinel_armed = false;
    fli_store_rlx(&sched->idle.word, 0);
    fli_parker_fini(&parked.idle.parker);
    fli_inject_put(&sched->global, p);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
    return unparked;
}

TEST(a_searcher_that_takes_the_only_process_unparks_no_worker)
{
    assert_false(unparks(false, false, 0));
    assert_false(unparks(true, false, 0));
}

TEST(a_worker_is_unparked_to_report_long_steps_only_if_there_is_no_sentinel)
{
    assert_true(unparks(false, true, 0));
    assert_false(unparks(true, true, 0));
}

TEST(a_single_process_that_stays_queued_is_left_to_its_worker_only_if_there_is_a_sentinel)
{
    assert_true(unparks(false, false, 1));
    assert_false(unparks(true, false, 1));
    assert_true(unparks(true, false, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_searcher_that_takes_the_only_process_unparks_no_worker),
        cmocka_unit_test(a_worker_is_unparked_to_report_long_steps_only_if_there_is_no_sentinel),
        cmocka_unit_test(a_single_process_that_stays_queued_is_left_to_its_worker_only_if_there_is_a_sentinel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
