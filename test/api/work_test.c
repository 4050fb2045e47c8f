/* work_test.c - blocking functions on the work pool: their results, their limits, and jobs of processes that have
 * ended. */
#include "api/fixture.h"

static fixture w;

/* ---- jobs ---- */

static FLI_ATOMIC(uint32_t) gate, entered, running, running_max, freed;

static filch_err job_result(void *arg, filch_data *result)
{
    /* error: the result must be empty when the job starts */
    if (filch_kind_of(result) != FILCH_KIND_NONE) return FILCH_EUSER;
    *result = *(filch_data *)arg;
    return FILCH_OK;
}

static filch_err job_fail(void *arg, filch_data *result)
{
    *result = filch_int(5);
    return (filch_err)(intptr_t)arg;
}

/* A job that blocks until the gate is open. */
static filch_err job_block(void *arg, filch_data *result)
{
    uint32_t now = fli_add_acqrel(&running, 1) + 1, max = fli_load_rlx(&running_max);
    while (now > max && !fli_cas_weak_acqrel(&running_max, &max, now)) {}
    fli_add_acqrel(&entered, 1);
    while (fli_load_acq(&gate) == 0) yield_slice();
    (void)fli_sub_acqrel(&running, 1);
    if (arg != NULL) *result = filch_int((intptr_t)arg);
    return FILCH_OK;
}

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    fli_add_acqrel(&freed, 1);
}

static filch_err job_moves(void *arg, filch_data *result)
{
    filch_data nothing;
    (void)job_block(arg, &nothing);
    *result = filch_move(malloc(100), 100, count_free);
    return FILCH_OK;
}

static filch_err job_shares(void *arg, filch_data *result)
{
    filch_data nothing;
    (void)job_block(arg, &nothing);
    return filch_share(malloc(100), 100, count_free, NULL, result);
}

static void close_gate(void)
{
    fli_store_rel(&gate, 0);
    fli_store_rel(&entered, 0);
    fli_store_rel(&running_max, 0);
    fli_store_rel(&freed, 0);
}

/* ---- plays ---- */

typedef struct task {
    filch_work_fn fn;
    void         *arg;
} task;

/* The process yields one job and ends with the result of its completion. */
static filch_err play_work(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const task *t = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        return events[i].error != FILCH_OK ? events[i].error : filch_done(out, events[i].data);
    }
    /* an event before the completion is a cancel; the process continues to wait */
    if (me->stage++ > 0) return filch_wait(out);
    filch_err err = filch_yield_work(out, 6, t->fn, t->arg);
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(every_kind_of_job_result_is_delivered)
{
    static const char text[] = "lent by the function, copied before it is told";
    close_gate();
    filch_data all[] = { filch_none(),
                         filch_int(-9),
                         filch_num(2.5),
                         filch_ptr(&gate),
                         filch_str(text),
                         filch_bytes(text, 10),
                         filch_move(malloc(30), 30, count_free),
                         filch_none() };
    ok(filch_share(malloc(40), 40, count_free, NULL, &all[7]));
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 1; workers += 2) {
        if (workers > 0) {
            all[6] = filch_move(malloc(30), 30, count_free);
            ok(filch_share(malloc(40), 40, count_free, NULL, &all[7]));
        }
        fixture_begin(&w, workers);
        for (size_t i = 0; i < COUNT_OF(all); i++) {
            task  t = { job_result, &all[i] };
            actor a = { .user = &t };
            actor_start(&w, &a, play_work);
            UNTIL(&w, is_over(&a));
            same(filch_kind_of(&a.result), filch_kind_of(&all[i]));
            same(filch_as_int(&a.result), filch_as_int(&all[i]));
            assert_true(filch_as_num(&a.result) == filch_as_num(&all[i]));
            assert_ptr_equal(filch_as_ptr(&a.result), filch_as_ptr(&all[i]));
            if (i == 4) assert_string_equal(filch_text(&a.result), text);
            if (i == 6 || i == 7) /* the bytes of the result were not copied */
                assert_ptr_equal(filch_raw(&a.result), filch_raw(&all[i]));
            actor_ends(&w, &a, FILCH_OK);
        }
        fixture_end(&w);
    }
    same(fli_load_acq(&freed), 4);
}

TEST(the_error_of_a_job_is_in_its_completion)
{
    fixture_begin(&w, 1);
    task  t = { job_fail, (void *)(intptr_t)(FILCH_EUSER + 8) };
    actor a = { .user = &t };
    actor_start(&w, &a, play_work);
    actor_ends(&w, &a, FILCH_EUSER + 8);
    same(a.seen[0].tag, 6);
    same(a.seen[0].number, 5); /* the completion has not only the job's error, but also its data */
    fixture_end(&w);
}

TEST(a_result_that_cannot_be_sent_becomes_an_error)
{
    close_gate();
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.payload_max = 64;
    fixture_begin_with(&w, 1, opt);
    static char big[65];
    filch_data  bad[] = {
         filch_bytes(big, sizeof big), filch_bytes(NULL, 1), { .kind = 99 }, filch_move(malloc(65), 65, count_free)
    };
    filch_err errors[] = { FILCH_ETOOBIG, FILCH_EINVAL, FILCH_EINVAL, FILCH_ETOOBIG };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        task  t = { job_result, &bad[i] };
        actor a = { .user = &t };
        actor_start(&w, &a, play_work);
        actor_ends(&w, &a, errors[i]);
    }
    fixture_end(&w);
    same(fli_load_acq(&freed), 1); /* the job's moved bytes are freed, because no process can use them */
}

static filch_err play_bad_work(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0) return events[0].error;
    if (filch_yield_work(out, 1, NULL, me) != FILCH_EINVAL) me->note = 1;
    filch_err err = filch_yield(out, FILCH_CMD_WORK, 2, filch_ptr((void *)(intptr_t)job_result));
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(the_pool_runs_no_pointer_that_was_not_packed_for_it)
{
    fixture_begin(&w, 1);
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_bad_work);
    actor_ends(&w, &a, FILCH_EINVAL);
    same(a.note, 0);
    fixture_end(&w);
}

/* ---- limits ---- */

TEST(a_function_that_blocks_holds_no_worker)
{
    close_gate();
    task  t = { job_block, (void *)3 };
    actor blocked = { .user = &t }, other = { .stage = 0 };
    fixture_begin(&w, 1);
    actor_start(&w, &blocked, play_work);
    UNTIL(&w, fli_load_acq(&entered) == 1);
    /* waits for the end of the step, because the job may begin before the step returns */
    UNTIL(&w, fixture_inspect(&w, blocked.pid).state == FILCH_STATE_BLOCKED);
    actor_start(&w, &other, play_idle);
    for (int i = 0; i < 100; i++) ok(filch_send(w.sched, other.pid, filch_int(i)));
    ok(filch_cancel(w.sched, other.pid));
    /* `other` has ended, so the only worker is free although `blocked` waits for its job */
    actor_ends(&w, &other, FILCH_OK);
    assert_false(is_over(&blocked));
    fli_store_rel(&gate, 1);
    UNTIL(&w, is_over(&blocked));
    same(filch_as_int(&blocked.result), 3);
    actor_ends(&w, &blocked, FILCH_OK);
    fixture_end(&w);
}

TEST(the_pool_takes_as_many_jobs_as_its_threads_and_queue_hold)
{
    enum { THREADS = 2, QUEUE = 3, JOBS = 9 };
    static actor  a[JOBS];
    task          t = { job_block, NULL };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.work_threads = THREADS;
    opt.work_queue = QUEUE;
    memset(a, 0, sizeof a);
    close_gate();
    fixture_begin_with(&w, 1, opt);
    for (int i = 0; i < JOBS; i++) {
        a[i].user = &t;
        actor_start(&w, &a[i], play_work);
    }
    uint32_t full = 0, done = 0;
    UNTIL(&w, fixture_stats(&w).ended == JOBS - THREADS - QUEUE);
    for (int i = 0; i < JOBS; i++) {
        if (!is_over(&a[i])) continue;
        same(a[i].exit_error, FILCH_EFULL);
        full++;
    }
    same(full, JOBS - THREADS - QUEUE);
    UNTIL(&w, fli_load_acq(&entered) == THREADS);
    fli_store_rel(&gate, 1);
    for (int i = 0; i < JOBS; i++) {
        UNTIL(&w, is_over(&a[i]));
        done += a[i].exit_error == FILCH_OK;
    }
    same(done, THREADS + QUEUE);
    same(fli_load_acq(&running_max), THREADS);
    fixture_end(&w);
}

TEST(jobs_of_many_processes_all_complete)
{
    uint32_t      n = fixture_scale(20000, 100);
    actor        *a = calloc(n, sizeof *a);
    filch_data    twelve = filch_int(12);
    task          t = { job_result, &twelve };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.work_queue = UINT32_MAX;
    fixture_begin_with(&w, 2, opt);
    for (uint32_t i = 0; i < n; i++) {
        a[i].user = &t;
        actor_start(&w, &a[i], play_work);
    }
    for (uint32_t i = 0; i < n; i++) {
        UNTIL(&w, is_over(&a[i]));
        same(filch_as_int(&a[i].result), 12);
        actor_ends(&w, &a[i], FILCH_OK);
    }
    fixture_end(&w);
    free(a);
}

/* ---- jobs that return after their process or scheduler has ended ---- */

TEST(a_result_for_an_ended_process_is_freed_once)
{
    task  t[] = { { job_moves, NULL }, { job_shares, NULL } };
    actor a[2] = { { .user = &t[0] }, { .user = &t[1] } };
    close_gate();
    fixture_begin(&w, 1);
    for (int i = 0; i < 2; i++) actor_start(&w, &a[i], play_work);
    UNTIL(&w, fli_load_acq(&entered) == 2);
    for (int i = 0; i < 2; i++) {
        ok(filch_terminate(w.sched, a[i].pid));
        actor_ends(&w, &a[i], FILCH_EKILLED);
    }
    fli_store_rel(&gate, 1);
    UNTIL(&w, fli_load_acq(&freed) == 2);
    same(fixture_stats(&w).late_completions, 2);
    fixture_end(&w);
    same(fli_load_acq(&freed), 2);
}

/* The process opens the gate when it is cancelled. The gate blocks an earlier job of another process. */
static filch_err play_opens(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_err err = play_work(me, events, count, out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) fli_store_rel(&gate, 1);
    }
    return err;
}

TEST(stop_waits_for_jobs_that_have_begun_and_for_those_behind_them)
{
    task          t = { job_block, (void *)4 };
    actor         first = { .user = &t }, second = { .user = &t };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.work_threads = 1;
    close_gate();
    fixture_begin_with(&w, 1, opt);
    actor_start(&w, &first, play_work);
    UNTIL(&w, fli_load_acq(&entered) == 1);
    actor_start(&w, &second, play_opens);
    UNTIL(&w, fixture_inspect(&w, second.pid).state == FILCH_STATE_BLOCKED);
    fixture_end(&w); /* the stop waits until all processes have ended by themselves */
    same(first.exit_error, FILCH_OK);
    same(filch_as_int(&first.result), 4);
    same(second.exit_error, FILCH_OK);
    same(fli_load_acq(&entered), 2);
}

TEST(a_function_that_never_returns_keeps_the_scheduler_alive_until_it_does)
{
    task         t = { job_block, NULL };
    actor        a = { .user = &t };
    filch_report report = FILCH_REPORT_INIT;
    close_gate();
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_work);
    UNTIL(&w, fli_load_acq(&entered) == 1);
    same(filch_sched_stop(w.sched, 0, &report), FILCH_EBUSY);
    same(report.stuck, 1);
    filch_report_free(&report);
    fli_store_rel(&gate, 1);
    filch_err err = FILCH_EBUSY;
    UNTIL(&w, (err = filch_sched_stop(w.sched, FILCH_SECONDS(10), NULL)) != FILCH_EBUSY);
    assert_true(err == FILCH_OK || err == FILCH_EDEADLINE);
    same(fli_load_rlx(&w.blocks), 0);
    same(a.exit_error, FILCH_ECANCELLED);
    same(a.closes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_job_result_is_delivered),
        cmocka_unit_test(the_error_of_a_job_is_in_its_completion),
        cmocka_unit_test(a_result_that_cannot_be_sent_becomes_an_error),
        cmocka_unit_test(the_pool_runs_no_pointer_that_was_not_packed_for_it),
        cmocka_unit_test(a_function_that_blocks_holds_no_worker),
        cmocka_unit_test(the_pool_takes_as_many_jobs_as_its_threads_and_queue_hold),
        cmocka_unit_test(jobs_of_many_processes_all_complete),
        cmocka_unit_test(a_result_for_an_ended_process_is_freed_once),
        cmocka_unit_test(stop_waits_for_jobs_that_have_begun_and_for_those_behind_them),
        cmocka_unit_test(a_function_that_never_returns_keeps_the_scheduler_alive_until_it_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
