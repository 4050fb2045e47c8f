/* stats_order_test.c - the counts of living processes are right if a process is spawned or ends between any two of the
 * counters that are added up. stats.c is included with a replaced load, so that an event happens after a chosen load.
 */
#include "clock/timers.h"
#include "proc/limit.h"
#include "proc/runtime.h"
#include "sched/cap.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/stats.h"
#include "sched/trim.h"
#include "sched/worker.h"

#include "support/check.h"

enum { LOADS_MAX = 12, NEVER = 0, AFTER_EACH_LOAD = -1 };

static void (*event)(fli_counters *c);
static fli_counters *tally;    /* the counters that `event` changes */
static int           event_at; /* the number of the load after which `event` happens */
static int           loads;

static uint64_t load_then_event(FLI_ATOMIC(uint64_t) *at)
{
    uint64_t value = fli_load_rlx(at);
    if (++loads == event_at || event_at == AFTER_EACH_LOAD) event(tally);
    return value;
}

#undef fli_load_acq
#define fli_load_acq(at) load_then_event(at)
#include "sched/stats.c"

/* A process ends and another is spawned: the number of living processes is the same before and after. */
static void exchange(fli_counters *c)
{
    fli_count(&c->spawned, 1);
    fli_count(&c->ended, 1);
}

/* An on_exit spawns a process and returns. */
static void on_exit_spawns(fli_counters *c)
{
    fli_count(&c->spawned, 1);
    fli_store_rlx(&c->leaving, fli_load_rlx(&c->leaving) - 1);
}

/* Creates a scheduler with counters that say: `spawned` processes were spawned, 100 have ended, of which `leaving`
 * still run their on_exit. */
static filch_sched *begin(uint64_t spawned, uint64_t leaving)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    tally = &sched->caller_worker->local.counters;
    fli_store_rlx(&tally->spawned, spawned);
    fli_store_rlx(&tally->ended, 100);
    fli_store_rlx(&tally->leaving, leaving);
    return sched;
}

/* Chooses the event, and the load after which it happens. */
static void let_happen(void (*what)(fli_counters *), int after)
{
    event = what;
    event_at = after;
    loads = 0;
}

static void end(filch_sched *sched)
{
    event_at = NEVER;
    fli_store_rlx(&tally->spawned, 0);
    fli_store_rlx(&tally->ended, 0);
    fli_store_rlx(&tally->leaving, 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

TEST(the_count_that_a_stop_waits_for_is_never_too_low)
{
    for (int at = 1; at <= LOADS_MAX; at++) {
        filch_sched *sched = begin(101, 0);
        let_happen(exchange, at);
        assert_in_range(fli_stats_alive(sched), 1, 2);
        end(sched);
        sched = begin(100, 1);
        let_happen(on_exit_spawns, at);
        assert_in_range(fli_stats_alive(sched), 1, 2);
        end(sched);
    }
}

TEST(the_limit_of_processes_is_seen_although_one_ends_and_one_is_spawned)
{
    for (int at = 1; at <= LOADS_MAX; at++) {
        for (uint64_t max = 4; max <= 5; max++) {
            filch_sched *sched = begin(104, 0); /* 4 processes are alive */
            sched->opt.max_processes = (uint32_t)max;
            let_happen(exchange, at);
            assert_int_equal(fli_stats_is_full(sched), max == 4);
            end(sched);
        }
    }
}

TEST(stats_alive_is_exact_after_one_exchange_and_never_too_high)
{
    for (int at = AFTER_EACH_LOAD; at <= LOADS_MAX; at++) {
        filch_sched *sched = begin(104, 0);
        filch_stats  stats = FILCH_STATS_INIT;
        let_happen(exchange, at);
        ok(filch_sched_stats(sched, &stats));
        assert_in_range(stats.alive, at == AFTER_EACH_LOAD ? 0 : 4, 4);
        end(sched);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_count_that_a_stop_waits_for_is_never_too_low),
        cmocka_unit_test(the_limit_of_processes_is_seen_although_one_ends_and_one_is_spawned),
        cmocka_unit_test(stats_alive_is_exact_after_one_exchange_and_never_too_high),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
