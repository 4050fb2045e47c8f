/* parking_test.c - which parked worker is unparked, and the timeouts of the sentinel. The scheduler has no threads: the
 * workers of the test are only in the list of parked workers. */
#include "port/clock.h"
#include "sched/idle.h"
#include "sched/parking.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/worker.h"

#include "support/check.h"
#include "support/until.h"

enum { PLAIN, POLLER, SENTINEL, PARKED };

/* Makes the list of parked workers: workers[order[0]] is the one that parked last, and the last one in `order` parked
 * first. */
static void list(fli_idle *idle, fli_worker *workers, const int *order)
{
    for (int i = 0; i < PARKED; i++) {
        fli_idle_worker *one = &workers[order[i]].idle;
        one->is_parked = true;
        one->prev = i > 0 ? &workers[order[i - 1]] : NULL;
        one->next = i + 1 < PARKED ? &workers[order[i + 1]] : NULL;
    }
    idle->parked = &workers[order[0]];
    idle->poller = &workers[POLLER];
    idle->sentinel = &workers[SENTINEL];
    fli_store_rlx(&idle->word, PARKED * FLI_PARKED_ONE);
    fli_idle_update_hint_locked(idle);
}

TEST(the_poller_is_unparked_after_other_workers_and_the_sentinel_last)
{
    static const int  orders[][PARKED] = { { PLAIN, POLLER, SENTINEL }, { PLAIN, SENTINEL, POLLER },
                                           { POLLER, PLAIN, SENTINEL }, { POLLER, SENTINEL, PLAIN },
                                           { SENTINEL, PLAIN, POLLER }, { SENTINEL, POLLER, PLAIN } };
    static fli_worker workers[PARKED];
    filch_options     options = FILCH_OPTIONS_INIT;
    filch_sched      *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    fli_idle *idle = &sched->idle;
    for (int i = 0; i < PARKED; i++) ok(fli_parker_init(&workers[i].idle.parker));
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        list(idle, workers, orders[k]);
        for (int i = 0; i < PARKED; i++) {
            fli_parking_wake_one(sched);
            for (int j = 0; j < PARKED; j++) same(workers[j].idle.is_parked, j > i);
            same(fli_load_rlx(&idle->word), (uint64_t)(PARKED - 1 - i) * FLI_PARKED_ONE + FLI_SEARCHING_ONE);
            /* The hint says whether a worker is parked, not how many are. */
            same(fli_idle_look(idle), i < PARKED - 1 ? FLI_PARKED_ONE : 0);
            /* fli_park() returns true, because the unpark has been signalled. */
            if (i != POLLER) assert_true(fli_park(&workers[i].idle.parker, FLI_NEVER));
            fli_parking_wake_one(sched); /* unparks no worker, because the unparked one counts as searching */
            (void)fli_add_acqrel(&idle->word, (uint64_t)0 - FLI_SEARCHING_ONE);
        }
        assert_null(idle->parked);
        assert_null(idle->sentinel);
    }
    fli_parking_wake_one(sched); /* none is parked */
    same(fli_load_rlx(&idle->word), 0);
    idle->poller = NULL;
    for (int i = 0; i < PARKED; i++) fli_parker_fini(&workers[i].idle.parker);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

TEST(the_timeout_of_a_sentinel_doubles_from_1_to_8_ms_until_it_is_unparked_or_finds_work)
{
    static fli_worker w;
    fli_sentinel_worked(&w);
    for (int round = 0; round < 3; round++) {
        same(w.idle.sentinel_ns, FILCH_MILLISECONDS(1));
        for (uint64_t ms = 2; ms <= 8; ms *= 2) {
            fli_sentinel_woke(&w, true);
            same(w.idle.sentinel_ns, FILCH_MILLISECONDS(ms));
        }
        for (int i = 0; i < 3; i++) fli_sentinel_woke(&w, true);
        same(w.idle.sentinel_ns, FILCH_MILLISECONDS(8));
        if (round % 2 == 0) fli_sentinel_woke(&w, false);
        else fli_sentinel_worked(&w);
    }
}

/* Pushes read the hint; searches write the idle word by RMWs. If both were on one cache line, each search would cost
 * each push a cache miss. */
TEST(the_hint_shares_no_cache_line_with_words_that_searchers_or_parkers_write)
{
    size_t hint = offsetof(fli_idle, hint) / FLI_LINE;
    assert_true(hint != offsetof(fli_idle, word) / FLI_LINE);
    assert_true(hint != offsetof(fli_idle, timers_from_ns) / FLI_LINE);
    assert_true(hint != offsetof(fli_idle, lock) / FLI_LINE);
    assert_true(hint != offsetof(fli_idle, parked) / FLI_LINE);
}

static FLI_ATOMIC(bool) held, released;

static filch_err hold(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    fli_store_rlx(&held, true);
    until(fli_load_rlx(&released));
    return filch_done(out, filch_none());
}

TEST(the_hint_says_that_a_worker_is_parked_and_the_sentinel_armed)
{
    static const filch_type holder = { .name = "holder", .step = hold };
    filch_options           options = FILCH_OPTIONS_INIT;
    filch_sched            *sched;
    options.workers = 2;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &holder, NULL, NULL));
    until(fli_load_rlx(&held));
    /* One worker stays in the step of the holder; the other worker parks and becomes the sentinel. The first round is
     * no proof: the holder's worker may have been parked before, and its unpark has updated the hint, too. So the test
     * unparks the other worker, which parks again, in each round. */
    for (int i = 0; i < 3; i++) {
        until(fli_parked_in(fli_load_rlx(&sched->idle.word)) == 1);
        fli_parking_wake_one(sched);
        until(fli_idle_look(&sched->idle) == (FLI_PARKED_ONE | FLI_SENTINEL));
    }
    fli_store_rlx(&released, true);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_timeout_of_a_sentinel_doubles_from_1_to_8_ms_until_it_is_unparked_or_finds_work),
        cmocka_unit_test(the_poller_is_unparked_after_other_workers_and_the_sentinel_last),
        cmocka_unit_test(the_hint_says_that_a_worker_is_parked_and_the_sentinel_armed),
        cmocka_unit_test(the_hint_shares_no_cache_line_with_words_that_searchers_or_parkers_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
