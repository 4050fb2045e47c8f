/* talk_test.c - who naps, for how long, and what becomes of the queue. The workers have threads, but nothing to do; the
 * naps are those of the guest, whom this thread plays. */
#include "sched/talk.h"

#include <string.h>

#include "port/clock.h"
#include "sched/sched.h"
#include "support/until.h"

static FLI_ATOMIC(uint32_t) steps, held;
static FLI_ATOMIC(bool) released;

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    fli_add_rlx(&steps, 1);
    return filch_done(out, filch_none());
}

static const filch_type type = { .name = "one", .step = on_step };

/* Keeps its worker until it is released. */
static filch_err hold(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    fli_add_rlx(&held, 1);
    for (unsigned looks = 0; !fli_load_rlx(&released); looks++) until_pause(looks);
    return filch_done(out, filch_none());
}

static const filch_type holder = { .name = "holder", .step = hold };

static filch_sched *begin(int32_t workers)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = workers;
    ok(filch_sched_create(&sched, &options));
    fli_store_rlx(&steps, 0);
    return sched;
}

static void end(filch_sched *sched)
{
    ok(filch_sched_stop(sched, FILCH_SECONDS(30), NULL));
}

static uint32_t napping(filch_sched *sched)
{
    return fli_load_rlx(&sched->talk.napping);
}

/* So many readings in a row at which the guest had heard of `heard` things within 10 us. */
static bool read_often(fli_worker *w, uint32_t readings, uint32_t heard)
{
    bool too_much = false;
    for (uint32_t i = 0; i < readings; i++) {
        w->clock_ns = fli_clock_ns();
        w->local.heard = heard;
        too_much = fli_talk_is_too_much(w, 10000);
    }
    return too_much;
}

TEST(who_hears_much_from_others_for_long_is_to_nap_and_who_hears_little_is_not)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    assert_false(read_often(w, 100, 0));
    assert_false(read_often(w, 100, 20));
    assert_true(read_often(w, 20, 40));
    /* One quiet reading, and the count begins again. */
    assert_false(read_often(w, 1, 0));
#ifndef FLI_SMALL
    assert_false(read_often(w, 8, 40));
#endif
    same(w->local.heard, 0);
    end(sched);
}

/* Steals that brought no more than what was stolen. */
static bool steal_often(fli_worker *w, uint32_t times, uint32_t count, uint32_t ran)
{
    bool poor = false;
    for (uint32_t i = 0; i < times; i++) {
        fli_talk_stole(w, count);
        fli_count(&w->local.counters.steps, ran);
        poor = fli_talk_is_poor(w);
    }
    return poor;
}

TEST(a_thief_that_gets_little_out_of_it_is_to_nap)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    assert_true(steal_often(w, 200, 10, 10));
    assert_false(steal_often(w, 1, 10, 100)); /* they led to more */
    w->step_ns = 10000;
    assert_false(steal_often(w, 200, 10, 10)); /* they were long */
    assert_false(fli_talk_is_poor(w));         /* nothing stolen since */
    end(sched);
}

TEST(a_napping_workers_queue_goes_to_the_others)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    fli_store_rlx(&held, 0);
    fli_store_rlx(&released, false);
    for (int i = 0; i < 2; i++) ok(filch_spawn(sched, &holder, NULL, NULL));
    until(fli_load_rlx(&held) == 2); /* nobody can steal now */
    fli_here_set(&w->local);                              /* what we spawn is queued with the guest */
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &type, NULL, NULL));
    same(fli_deque_count(&w->deque), 10);
    w->clock_ns = fli_clock_ns();
    fli_talk_nap(w); /* short: the others are stuck */
    same(fli_deque_count(&w->deque), 0);
    same(fli_inject_count(&sched->global), 10);
    same(napping(sched), 0);
    fli_store_rlx(&released, true);
    fli_here_set(NULL);
    until(fli_load_rlx(&steps) == 10);
    end(sched);
}

TEST(one_always_stays_up)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    fli_store_rlx(&sched->talk.napping, 1); /* somebody else naps */
    uint64_t began_ns = w->clock_ns = fli_clock_ns();
    fli_store_rlx(&sched->talk.nap_ns, FILCH_SECONDS(1000));
    fli_talk_nap(w);
    assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(100));
    same(napping(sched), 1);
    fli_store_rlx(&sched->talk.napping, 0);
    end(sched);
}

TEST(a_nap_after_which_nothing_went_better_is_not_repeated_soon)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    assert_true(read_often(w, 20, 40));
    /* Much was done before the nap; during it, nothing. */
    fli_count(&sched->workers[0]->local.counters.steps, 1000000000);
    w->clock_ns = fli_clock_ns();
    fli_talk_nap(w);
    assert_true(fli_load_rlx(&sched->talk.patient_until_ns) > w->clock_ns);
    assert_false(read_often(w, 20, 40));
    end(sched);
}

TEST(a_nap_during_which_as_much_was_done_makes_the_next_one_longer)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->guest;
    uint64_t     nap_ns = fli_load_rlx(&sched->talk.nap_ns);
    assert_true(read_often(w, 20, 40)); /* nothing was done before, nor is during it */
    fli_talk_nap(w);
    assert_true(fli_load_rlx(&sched->talk.nap_ns) > nap_ns);
    assert_true(fli_load_rlx(&sched->talk.patient_until_ns) <= w->clock_ns);
    end(sched);
}

typedef struct napper {
    filch_sched *sched;
    fli_thread   thread;
} napper;

static void nap_long(void *arg)
{
    napper *n = arg;
    n->sched->guest->clock_ns = fli_clock_ns();
    fli_talk_nap(n->sched->guest);
}

TEST(stop_ends_naps)
{
    filch_sched *sched = begin(2);
    napper       n = { .sched = sched };
    fli_store_rlx(&sched->talk.nap_ns, FILCH_SECONDS(1000));
    ok(fli_thread_start(&n.thread, "napper", nap_long, &n));
    until(napping(sched) == 1);
    fli_stop_begin(sched);
    fli_thread_join(&n.thread);
    same(napping(sched), 0);
    end(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_hears_much_from_others_for_long_is_to_nap_and_who_hears_little_is_not),
        cmocka_unit_test(a_thief_that_gets_little_out_of_it_is_to_nap),
        cmocka_unit_test(a_napping_workers_queue_goes_to_the_others),
        cmocka_unit_test(one_always_stays_up),
        cmocka_unit_test(a_nap_after_which_nothing_went_better_is_not_repeated_soon),
        cmocka_unit_test(a_nap_during_which_as_much_was_done_makes_the_next_one_longer),
        cmocka_unit_test(stop_ends_naps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
