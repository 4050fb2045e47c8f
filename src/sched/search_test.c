/* search_test.c - whether a worker that has found work unparks another one. The scheduler has no threads: the test
 * searches as its worker, and keeps a second worker in the list of parked workers. */
#include "port/clock.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/worker.h"
#include "sync/deque.h"
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

/* Makes `parked` the only worker in the list of parked workers. `sentinel`: it is also the armed sentinel. */
static void park(filch_sched *sched, fli_worker *parked, bool sentinel)
{
    fli_idle *idle = &sched->idle;
    ok(fli_parker_init(&parked->idle.parker));
    parked->idle.is_parked = true;
    idle->parked = parked;
    idle->sentinel = sentinel ? parked : NULL;
    idle->sentinel_armed = sentinel;
    fli_store_rlx(&idle->word, FLI_PARKED_ONE + (sentinel ? FLI_SENTINEL : 0));
    fli_idle_update_hint_locked(idle);
}

typedef enum found { AT_ONCE, BY_SEARCH } found;

/* caller_worker finds a process: in its first attempt (AT_ONCE) or in a search (BY_SEARCH). `more` other processes stay
 * queued, with long steps: at caller_worker if AT_ONCE, at the parked worker if BY_SEARCH. Returns true if
 * caller_worker has unparked the parked worker. */
static bool unparks(found how, bool sentinel, bool reports_long_steps, int more)
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
    fli_worker **workers = sched->workers, *two[] = { &parked, sched->caller_worker }, *w = sched->caller_worker;
    fli_victim_progress *progress = w->victim_progress, two_progress[2] = { { 0 } };
    fli_proc            *left[2] = { NULL, NULL }; /* the processes of the parked worker */
    w->step_ns = FILCH_MILLISECONDS(1);
    if (how == BY_SEARCH) {
        /* The first process is a direct handoff to the parked worker: only a searching worker finds it, after it has
         * found nothing else. The second process is alone in the deque of the parked worker: it is left there, because
         * that worker is not known to be stuck. */
        assert_true(more <= 1);
        ok(fli_deque_init(&parked.deque, &sched->rt.mem));
        for (int i = 0; i < 1 + more; i++) left[i] = fli_find_global(w, 0);
        fli_store_rel(&parked.idle.handoff, left[0]);
        if (more == 1) assert_true(fli_deque_push(&parked.deque, left[1]));
        sched->workers = two;
        sched->worker_count = 1;
        sched->worker_total = 2;
        w->victim_progress = two_progress;
        /* The search is too short to find that the parked worker is stuck. */
        fli_store_rlx(&sched->idle.search_ns, 0);
    }

    fli_current_set(&w->local);
    fli_proc *p = fli_idle_find(w);
    fli_current_set(NULL);
    assert_non_null(p);
    same(fli_worker_queued(how == AT_ONCE ? w : &parked), more);
    same(fli_inject_count(&sched->global), 0);
    bool unparked = !parked.idle.is_parked;
    same(fli_load_rlx(&sched->idle.word),
         unparked ? FLI_SEARCHING_ONE : FLI_PARKED_ONE + (sentinel ? FLI_SENTINEL : 0));
    /* fli_park() returns true, because the unpark has been signalled. */
    if (unparked) assert_true(fli_park(&parked.idle.parker, FLI_NEVER));

    if (how == BY_SEARCH) {
        if (more == 1) same((uintptr_t)fli_deque_pop(&parked.deque), (uintptr_t)left[1]);
        fli_deque_fini(&parked.deque);
        sched->workers = workers;
        sched->worker_count = 0;
        sched->worker_total = 1;
        w->victim_progress = progress;
        if (more == 1) fli_inject_put(&sched->global, left[1]);
    }
    sched->idle.parked = sched->idle.sentinel = NULL;
    sched->idle.sentinel_armed = false;
    fli_store_rlx(&sched->idle.word, 0);
    fli_store_rlx(&sched->idle.hint, 0);
    fli_parker_fini(&parked.idle.parker);
    fli_inject_put(&sched->global, p);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
    return unparked;
}

TEST(a_searcher_that_takes_the_only_process_unparks_no_worker)
{
    for (found how = AT_ONCE; how <= BY_SEARCH; how++) {
        assert_false(unparks(how, false, false, 0));
        assert_false(unparks(how, true, false, 0));
    }
}

TEST(a_worker_is_unparked_to_report_long_steps_only_if_there_is_no_sentinel)
{
    for (found how = AT_ONCE; how <= BY_SEARCH; how++) {
        assert_true(unparks(how, false, true, 0));
        assert_false(unparks(how, true, true, 0));
    }
}

TEST(a_single_process_that_stays_queued_is_left_to_its_worker_only_if_there_is_a_sentinel)
{
    for (found how = AT_ONCE; how <= BY_SEARCH; how++) {
        assert_true(unparks(how, false, false, 1));
        assert_false(unparks(how, true, false, 1));
    }
    assert_true(unparks(AT_ONCE, true, false, 2));
}

/* A worker that has nothing queued and finds a process in its first attempt writes no word that other workers read. An
 * RMW of the idle word by each of 64 workers made every push of the other workers a cache miss. */
TEST(a_worker_that_finds_a_process_at_once_leaves_the_idle_word_as_it_was)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &type, NULL, NULL));
    /* Sets the count of searching workers to its largest value: if caller_worker counted itself too, the count would
     * overflow. */
    fli_store_rlx(&sched->idle.word, 0xffffu * FLI_SEARCHING_ONE);
    fli_current_set(&sched->caller_worker->local);
    fli_proc *p = fli_idle_find(sched->caller_worker);
    fli_current_set(NULL);
    assert_non_null(p);
    same(fli_load_rlx(&sched->idle.word), 0xffffu * FLI_SEARCHING_ONE);
    fli_store_rlx(&sched->idle.word, 0);
    fli_inject_put(&sched->global, p);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

/* Makes caller_worker park: as if its scheduler were ending, so the park returns at once. */
static void park_and_leave(filch_sched *sched)
{
    fli_store_rlx(&sched->idle.leaving, true);
    fli_current_set(&sched->caller_worker->local);
    assert_null(fli_idle_find(sched->caller_worker));
    fli_current_set(NULL);
    fli_store_rlx(&sched->idle.leaving, false);
}

/* The worker was woken for the earliest of all timers, which any worker may have armed. */
TEST(a_worker_that_was_parked_looks_at_the_timers_of_all_workers)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    sched->caller_worker->surveys_timers = false;
    park_and_leave(sched);
    assert_true(sched->caller_worker->surveys_timers);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

static bool owner_is_away;

static filch_err look_away_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    owner_is_away = fli_load_rlx(&filch_out_sched(out)->timers.shards[0].away);
    return filch_done(out, filch_none());
}

static const filch_type looks_away = { .name = "looks_away", .step = look_away_step };

/* If a worker counts as away from its timers, each timer that it arms is published, and other workers fire its timers.
 * So a worker that steps processes must not count as away. */
TEST(a_worker_thread_is_not_away_from_its_timers_while_it_steps_processes)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &looks_away, NULL, NULL));
    owner_is_away = true;
    fli_store_rlx(&sched->timers.shards[0].away, true);
    fli_store_rlx(&sched->idle.leaving, true);
    fli_worker_run(sched->caller_worker);
    assert_false(owner_is_away);
    assert_true(fli_load_rlx(&sched->timers.shards[0].away));
    fli_store_rlx(&sched->idle.leaving, false);
    sched->caller_worker->may_rerun = false;
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

/* If FLI_SENTINEL is in the hint, a worker that pushes a single process unparks no other worker: the sentinel will find
 * the process if a long step follows. So the hint must not contain FLI_SENTINEL when there is no sentinel. */
TEST(the_hint_names_no_sentinel_after_the_last_worker_has_parked)
{
    static fli_worker parked;
    filch_options     options = FILCH_OPTIONS_INIT;
    filch_sched      *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    parked = (fli_worker){ .sched = sched };
    park(sched, &parked, true);
    sched->worker_count = 1;
    same(fli_idle_look(&sched->idle), FLI_PARKED_ONE + FLI_SENTINEL);
    fli_mutex_lock(&sched->idle.lock);
    same(fli_sentinel_deadline_locked(&parked), FLI_NEVER);
    fli_mutex_unlock(&sched->idle.lock);
    same(fli_idle_look(&sched->idle), FLI_PARKED_ONE);
    sched->worker_count = 0;
    sched->idle.parked = NULL;
    fli_store_rlx(&sched->idle.word, 0);
    fli_store_rlx(&sched->idle.hint, 0);
    fli_parker_fini(&parked.idle.parker);
    ok(filch_sched_stop(sched, FILCH_SECONDS(100), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_searcher_that_takes_the_only_process_unparks_no_worker),
        cmocka_unit_test(a_worker_that_finds_a_process_at_once_leaves_the_idle_word_as_it_was),
        cmocka_unit_test(a_worker_is_unparked_to_report_long_steps_only_if_there_is_no_sentinel),
        cmocka_unit_test(a_single_process_that_stays_queued_is_left_to_its_worker_only_if_there_is_a_sentinel),
        cmocka_unit_test(a_worker_that_was_parked_looks_at_the_timers_of_all_workers),
        cmocka_unit_test(a_worker_thread_is_not_away_from_its_timers_while_it_steps_processes),
        cmocka_unit_test(the_hint_names_no_sentinel_after_the_last_worker_has_parked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
