/* pool_test.c - tests the work pool. Includes pool.c itself, so that a test can count started threads and wake-ups, and
 * can make starting a thread fail. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

static FLI_ATOMIC(unsigned) start_count; /* threads that the pool has started */
static FLI_ATOMIC(unsigned) start_fails; /* how many of the next attempts to start a thread fail */
static FLI_ATOMIC(unsigned) wake_count;  /* how often a pool thread returned from a wait without time limit */
static char                 start_name[16];

static filch_err start_or_fail(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    if (fli_load_rlx(&start_fails) > 0) {
        fli_store_rlx(&start_fails, fli_load_rlx(&start_fails) - 1);
        return FILCH_ESYS;
    }
    strncpy(start_name, name, sizeof start_name - 1);
    fli_add_rlx(&start_count, 1);
    return fli_thread_start(thread, name, run, arg);
}

static void wait_and_count(fli_cond *cond, fli_mutex *mutex)
{
    fli_cond_wait(cond, mutex);
    fli_add_rlx(&wake_count, 1);
}

#define fli_thread_start start_or_fail
#define fli_cond_wait wait_and_count
#include "work/pool.c"
#undef fli_thread_start
#undef fli_cond_wait

/* ---- helpers ------------------------------------------------------------------------------------------------ */

/* A gate blocks jobs in their run function: first until `meet` jobs are in the gate, then until the gate is opened.
 * Each job, a `task`, counts its calls of run and cancel. */
typedef struct gate {
    fli_mutex lock;
    fli_cond  changed;
    unsigned  inside, inside_max, meet, ran, cancelled;
    bool      open;
} gate;

typedef struct task {
    fli_job       job;
    gate         *gate;
    fli_workpool *pool;
    struct task  *then; /* a task that `run` submits; NULL: none */
    filch_err     then_err;
    unsigned      ran, cancelled;
    /* number of jobs of this gate that ran before this job; if this job was cancelled: number of jobs cancelled
     * before it */
    unsigned turn;
} task;

static void gate_init(gate *g, unsigned meet, bool open)
{
    *g = (gate){ .meet = meet, .open = open };
    ok(fli_mutex_init(&g->lock));
    ok(fli_cond_init(&g->changed));
}

static void gate_fini(gate *g)
{
    fli_cond_fini(&g->changed);
    fli_mutex_fini(&g->lock);
}

static void gate_open(gate *g)
{
    fli_mutex_lock(&g->lock);
    g->open = true;
    fli_cond_broadcast(&g->changed);
    fli_mutex_unlock(&g->lock);
}

static void gate_wait_inside(gate *g, unsigned count)
{
    fli_mutex_lock(&g->lock);
    while (g->inside < count) fli_cond_wait(&g->changed, &g->lock);
    fli_mutex_unlock(&g->lock);
}

static void gate_wait_ran(gate *g, unsigned count)
{
    fli_mutex_lock(&g->lock);
    while (g->ran < count) fli_cond_wait(&g->changed, &g->lock);
    fli_mutex_unlock(&g->lock);
}

static void task_run(fli_job *job)
{
    task *t = FLI_OUTER(task, job, job);
    gate *g = t->gate;
    if (t->then != NULL) t->then_err = fli_workpool_submit(t->pool, &t->then->job);
    fli_mutex_lock(&g->lock);
    g->inside++;
    if (g->inside > g->inside_max) g->inside_max = g->inside;
    fli_cond_broadcast(&g->changed);
    while (g->inside_max < g->meet || !g->open) fli_cond_wait(&g->changed, &g->lock);
    g->inside--;
    t->turn = g->ran++;
    t->ran++;
    fli_cond_broadcast(&g->changed);
    fli_mutex_unlock(&g->lock);
}

static void task_cancel(fli_job *job)
{
    task *t = FLI_OUTER(task, job, job);
    fli_mutex_lock(&t->gate->lock);
    t->turn = t->gate->cancelled++;
    t->cancelled++;
    fli_mutex_unlock(&t->gate->lock);
    /* Checks that the pool calls cancel without its lock: with the lock held, this submit would deadlock. */
    if (t->pool != NULL) same(fli_workpool_submit(t->pool, job), FILCH_ECLOSED);
}

static task task_for(gate *g)
{
    return (task){ .job = { .run = task_run, .cancel = task_cancel }, .gate = g };
}

static fli_mem plain_mem(void)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    return mem;
}

static void pool_init(fli_workpool *pool, uint32_t thread_max, uint32_t queue_max)
{
    fli_mem mem = plain_mem();
    fli_store_rlx(&start_count, 0);
    fli_store_rlx(&start_fails, 0);
    ok(fli_workpool_init(pool, &mem, thread_max, queue_max));
}

static void pool_end(fli_workpool *pool)
{
    fli_workpool_close(pool);
    assert_true(fli_workpool_join(pool, FLI_NEVER));
    fli_workpool_fini(pool);
}

static void wait_not_busy(fli_workpool *pool)
{
    until(fli_workpool_busy(pool) == 0);
}

/* ---- starting and waking threads ---------------------------------------------------------------------------- */

TEST(no_thread_is_started_before_the_first_job_and_one_for_it)
{
    fli_workpool pool;
    gate         g;
    pool_init(&pool, 4, 16);
    gate_init(&g, 0, true);
    assert_int_equal(fli_load_rlx(&start_count), 0);
    for (unsigned i = 0; i < 50; i++) {
        task t = task_for(&g);
        ok(fli_workpool_submit(&pool, &t.job));
        gate_wait_ran(&g, i + 1);
        wait_not_busy(&pool);
        assert_int_equal(t.ran, 1);
    }
    assert_int_equal(fli_load_rlx(&start_count), 1); /* jobs that run one after the other need only one thread */
    assert_string_equal(start_name, "filch-work");
    pool_end(&pool);
    gate_fini(&g);
}

TEST(a_pool_without_jobs_closes_at_once)
{
    fli_workpool pool;
    pool_init(&pool, 4, 16);
    fli_workpool_close(&pool);
    fli_workpool_close(&pool);
    assert_true(fli_workpool_join(&pool, 0));
    assert_true(fli_workpool_join(&pool, 0));
    fli_workpool_fini(&pool);
    pool_init(&pool, 4, 16);
    fli_workpool_fini(&pool);
    assert_int_equal(fli_load_rlx(&start_count), 0);
}

TEST(a_pool_needs_a_thread)
{
    fli_workpool pool;
    fli_mem      mem = plain_mem();
    same(fli_workpool_init(&pool, &mem, 0, 16), FILCH_EINVAL);
    /* the sum of thread_max and of the threads for the other lanes would overflow */
    same(fli_workpool_init(&pool, &mem, UINT32_MAX, 16), FILCH_ENOMEM);
}

/* Runs 200 rounds of jobs with `limit` threads. The pool keeps its threads from round to round, so each thread is
 * started only once. */
static void run_rounds(unsigned limit)
{
    enum { JOBS = 60 };
    fli_workpool pool;
    pool_init(&pool, limit, JOBS);
    /* Round 1 starts without threads; later rounds start with threads that sleep or are about to sleep. In each round
     * `limit` jobs must be in the gate at once before any of them can end. So a round hangs if a job waits although a
     * thread is free for it. */
    for (unsigned round = 0; round < 200; round++) {
        gate g;
        task tasks[JOBS];
        gate_init(&g, limit, true);
        for (unsigned i = 0; i < JOBS; i++) {
            tasks[i] = task_for(&g);
            ok(fli_workpool_submit(&pool, &tasks[i].job));
        }
        gate_wait_ran(&g, JOBS);
        wait_not_busy(&pool); /* waits until the last job has returned, because a job uses the gate until it returns */
        assert_int_equal(g.inside_max, limit);
        for (unsigned i = 0; i < JOBS; i++) assert_int_equal(tasks[i].ran, 1);
        gate_fini(&g);
    }
    assert_int_equal(fli_load_rlx(&start_count), limit);
    pool_end(&pool);
}

TEST(exactly_thread_max_jobs_run_at_once)
{
    run_rounds(3);
    run_rounds(FLI_LANE_WIDE + 2);
}

TEST(two_jobs_that_need_each_other_both_get_a_thread)
{
    fli_workpool pool;
    pool_init(&pool, 2, 0);
    for (unsigned round = 0; round < 2000; round++) {
        gate g;
        gate_init(&g, 2, true);
        task a = task_for(&g), b = task_for(&g);
        ok(fli_workpool_submit(&pool, &a.job));
        ok(fli_workpool_submit(&pool, &b.job));
        gate_wait_ran(&g, 2);
        wait_not_busy(&pool);
        gate_fini(&g);
    }
    pool_end(&pool);
}

TEST(one_job_wakes_one_thread)
{
    enum { THREADS = 4, JOBS = 1000 };
    fli_workpool pool;
    gate         g;
    task         tasks[THREADS];
    pool_init(&pool, THREADS, 16);
    gate_init(&g, THREADS, true);
    for (unsigned i = 0; i < THREADS; i++) {
        tasks[i] = task_for(&g);
        ok(fli_workpool_submit(&pool, &tasks[i].job));
    }
    gate_wait_ran(&g, THREADS);
    wait_not_busy(&pool);
    fli_store_rlx(&wake_count, 0);
    for (unsigned i = 0; i < JOBS; i++) {
        task t = task_for(&g);
        ok(fli_workpool_submit(&pool, &t.job));
        gate_wait_ran(&g, THREADS + i + 1);
        wait_not_busy(&pool);
    }
    /* If each job woke all threads, there would be THREADS times as many wake-ups. A few spurious wake-ups are allowed,
     * because POSIX allows them. */
    assert_true(fli_load_rlx(&wake_count) < JOBS + JOBS / 4);
    pool_end(&pool);
    gate_fini(&g);
}

TEST(a_submit_without_any_thread_fails_and_takes_no_job)
{
    fli_workpool pool;
    gate         g;
    pool_init(&pool, 2, 16);
    gate_init(&g, 0, true);
    task t = task_for(&g);
    fli_store_rlx(&start_fails, 2);
    same(fli_workpool_submit(&pool, &t.job), FILCH_ESYS);
    same(fli_workpool_submit(&pool, &t.job), FILCH_ESYS);
    ok(fli_workpool_submit(&pool, &t.job)); /* succeeds, because threads can be started again */
    gate_wait_ran(&g, 1);
    pool_end(&pool);
    assert_int_equal(t.ran, 1);
    assert_int_equal(t.cancelled, 0);
    gate_fini(&g);
}

TEST(a_submit_succeeds_without_a_new_thread_while_another_runs)
{
    fli_workpool pool;
    gate         g;
    pool_init(&pool, 2, 16);
    gate_init(&g, 0, false);
    task a = task_for(&g), b = task_for(&g), c = task_for(&g);
    ok(fli_workpool_submit(&pool, &a.job));
    gate_wait_inside(&g, 1);
    fli_store_rlx(&start_fails, 1);
    ok(fli_workpool_submit(&pool, &b.job)); /* no thread could be started for this job: it waits */
    assert_int_equal(fli_load_rlx(&start_fails), 0);
    assert_int_equal(fli_workpool_busy(&pool), 1);
    ok(fli_workpool_submit(&pool, &c.job)); /* this submit tries again to start a thread */
    gate_wait_inside(&g, 2);
    gate_open(&g);
    gate_wait_ran(&g, 3);
    pool_end(&pool);
    assert_int_equal(a.ran + b.ran + c.ran, 3);
    gate_fini(&g);
}

TEST(running_jobs_are_named_with_process_tag_and_command)
{
    fli_workpool  pool;
    gate          g;
    fli_job_owner owners[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    pool_init(&pool, 2, 16);
    gate_init(&g, 0, false);
    task a = task_for(&g), b = task_for(&g), c = task_for(&g);
    a.job.owner = (fli_job_owner){ 11, 12, 13 };
    b.job.owner = (fli_job_owner){ 21, 22, 23 };
    c.job.owner = (fli_job_owner){ 31, 32, 33 };
    assert_int_equal(fli_workpool_running(&pool, NULL, 0), 0);
    ok(fli_workpool_submit(&pool, &a.job));
    gate_wait_inside(&g, 1);
    ok(fli_workpool_submit(&pool, &b.job));
    gate_wait_inside(&g, 2);
    ok(fli_workpool_submit(&pool, &c.job)); /* the job `c` waits, so it is not in the list of running jobs */
    assert_int_equal(fli_workpool_running(&pool, owners, 1), 2);
    assert_int_equal(owners[1].serial, 0); /* the second entry is unchanged, because `room` was 1 */
    assert_int_equal(fli_workpool_running(&pool, owners, 2), 2);
    assert_true(owners[0].serial == 11 && owners[0].tag == 12 && owners[0].command == 13);
    assert_true(owners[1].serial == 21 && owners[1].tag == 22 && owners[1].command == 23);
    gate_open(&g);
    gate_wait_ran(&g, 3);
    wait_not_busy(&pool);
    assert_int_equal(fli_workpool_running(&pool, owners, 2), 0);
    pool_end(&pool);
    gate_fini(&g);
}

TEST(running_jobs_of_all_lanes_are_listed_in_the_order_in_which_they_began)
{
    static const fli_lane lanes[] = { FLI_LANE_NAME, FLI_LANE_WORK, FLI_LANE_FILE, FLI_LANE_WORK, FLI_LANE_NAME };
    enum { JOBS = sizeof lanes / sizeof lanes[0] };
    fli_workpool  pool;
    gate          g;
    task          tasks[JOBS];
    fli_job_owner owners[JOBS];
    pool_init(&pool, 2, 16);
    gate_init(&g, 0, false);
    for (unsigned i = 0; i < JOBS; i++) {
        tasks[i] = task_for(&g);
        tasks[i].job.lane = lanes[i];
        tasks[i].job.owner.serial = i + 1;
        ok(fli_workpool_submit(&pool, &tasks[i].job));
        gate_wait_inside(&g, i + 1);
    }
    uint32_t count = fli_workpool_running(&pool, owners, JOBS);
    gate_open(&g);
    gate_wait_ran(&g, JOBS);
    wait_not_busy(&pool);
    pool_end(&pool);
    gate_fini(&g);
    assert_int_equal(count, JOBS);
    for (unsigned i = 0; i < JOBS; i++) assert_int_equal(owners[i].serial, i + 1);
}

/* ---- the queue of waiting jobs ------------------------------------------------------------------------------ */

TEST(jobs_run_in_the_order_they_were_submitted)
{
    enum { JOBS = 100 };
    fli_workpool pool;
    gate         g;
    task         tasks[JOBS];
    pool_init(&pool, 1, JOBS);
    gate_init(&g, 0, true);
    for (unsigned i = 0; i < JOBS; i++) {
        tasks[i] = task_for(&g);
        ok(fli_workpool_submit(&pool, &tasks[i].job));
    }
    gate_wait_ran(&g, JOBS);
    for (unsigned i = 0; i < JOBS; i++) assert_int_equal(tasks[i].turn, i);
    pool_end(&pool);
    gate_fini(&g);
}

/* Cancels the queued jobs with an even key. Asserts that fli_workpool_withdraw() passes only jobs of the process 7 with
 * the tag 8. */
static bool claim_even(void *ctx, const fli_job_owner *owner, uint64_t key, bool queued)
{
    uint64_t *claimed = ctx;
    assert_true(owner->serial == 7 && owner->tag == 8);
    if (!queued) *claimed += 1000;
    else if (key % 2 == 0) *claimed += 1;
    return key % 2 == 0;
}

TEST(withdrawn_jobs_are_cancelled_and_the_others_run_in_their_order)
{
    enum { JOBS = 12 };
    fli_workpool pool;
    gate         g;
    task         tasks[JOBS];
    uint64_t     claimed = 0;
    pool_init(&pool, 1, JOBS);
    gate_init(&g, 0, false);
    for (unsigned i = 0; i < JOBS; i++) {
        tasks[i] = task_for(&g);
        tasks[i].job.owner = (fli_job_owner){ i == 4 ? 6 : 7, i == 6 ? 9 : 8, 0 };
        tasks[i].job.key = i == 8 ? 0 : i + 1; /* even keys: the jobs 1, 3, ... 11 */
        ok(fli_workpool_submit(&pool, &tasks[i].job));
        if (i == 0) gate_wait_inside(&g, 1);
    }
    /* job 5 belongs to another process from now on: it stays in the queue, although its key is even */
    tasks[5].job.owner.serial = 6;
    fli_jobs_cancel(fli_workpool_withdraw(&pool, 7, 8, claim_even, &claimed));
    assert_int_equal(claimed, 1005);
    assert_int_equal(g.cancelled, 5);
    task last = task_for(&g); /* this job is queued behind the last job that was not withdrawn */
    ok(fli_workpool_submit(&pool, &last.job));
    gate_open(&g);
    gate_wait_ran(&g, JOBS - 5 + 1);
    pool_end(&pool);
    for (unsigned i = 0, turn = 0; i < JOBS; i++) {
        bool cancelled = i % 2 == 1 && i != 5;
        assert_int_equal(tasks[i].cancelled, cancelled);
        assert_int_equal(tasks[i].ran, !cancelled);
        if (!cancelled) assert_int_equal(tasks[i].turn, turn++);
    }
    assert_int_equal(last.turn, JOBS - 5);
    gate_fini(&g);
}

TEST(a_full_queue_refuses_and_changes_nothing)
{
    enum { THREADS = 2, QUEUE = 5 };
    fli_workpool pool;
    gate         g;
    task         tasks[THREADS + QUEUE];
    pool_init(&pool, THREADS, QUEUE);
    gate_init(&g, 0, false);
    for (unsigned i = 0; i < THREADS + QUEUE; i++) {
        tasks[i] = task_for(&g);
        ok(fli_workpool_submit(&pool, &tasks[i].job)); /* accepted, even if the pool threads have not woken up yet */
    }
    fli_job marker;
    task    extra = task_for(&g);
    extra.job.next = &marker;
    same(fli_workpool_submit(&pool, &extra.job), FILCH_EFULL);
    gate_wait_inside(&g, THREADS);
    same(fli_workpool_submit(&pool, &extra.job), FILCH_EFULL);
    assert_ptr_equal(extra.job.next, &marker);
    assert_int_equal(fli_workpool_busy(&pool), THREADS);
    assert_int_equal(pool.queue_count, QUEUE);
    gate_open(&g);
    gate_wait_ran(&g, THREADS + QUEUE);
    wait_not_busy(&pool);
    ok(fli_workpool_submit(&pool, &extra.job)); /* accepted, because the queue is no longer full */
    gate_wait_ran(&g, THREADS + QUEUE + 1);
    pool_end(&pool);
    for (unsigned i = 0; i < THREADS + QUEUE; i++) assert_int_equal(tasks[i].ran, 1);
    assert_int_equal(extra.ran, 1);
    gate_fini(&g);
}

TEST(a_job_may_submit_another_from_inside)
{
    enum { JOBS = 500 };
    fli_workpool pool;
    gate         g;
    task         tasks[JOBS];
    pool_init(&pool, 1, 1); /* the only thread submits each following job from inside a job, and runs it afterwards */
    gate_init(&g, 0, true);
    for (unsigned i = 0; i < JOBS; i++) {
        tasks[i] = task_for(&g);
        tasks[i].pool = &pool;
        tasks[i].then = i + 1 < JOBS ? &tasks[i + 1] : NULL;
    }
    ok(fli_workpool_submit(&pool, &tasks[0].job));
    gate_wait_ran(&g, JOBS);
    pool_end(&pool);
    for (unsigned i = 0; i < JOBS; i++) {
        same(tasks[i].then_err, FILCH_OK);
        assert_int_equal(tasks[i].ran, 1);
    }
    gate_fini(&g);
}

typedef struct own_job {
    fli_job job;
} own_job;

static FLI_ATOMIC(unsigned) freed_count;

static void free_itself(fli_job *job)
{
    free(FLI_OUTER(own_job, job, job));
    fli_add_acqrel(&freed_count, 1);
}

TEST(a_job_may_free_itself_in_run_and_in_cancel)
{
    enum { JOBS = 2000 };
    fli_workpool pool;
    pool_init(&pool, 2, JOBS);
    fli_store_rlx(&freed_count, 0);
    for (unsigned i = 0; i < JOBS; i++) {
        own_job *own = malloc(sizeof *own);
        assert_non_null(own);
        own->job = (fli_job){ .run = free_itself, .cancel = free_itself };
        ok(fli_workpool_submit(&pool, &own->job));
    }
    pool_end(&pool);
    assert_int_equal(fli_load_acq(&freed_count), JOBS);
}

/* ---- closing and joining the pool --------------------------------------------------------------------------- */

TEST(close_cancels_waiting_jobs_in_order_and_outside_the_lock)
{
    enum { JOBS = 20 };
    fli_workpool pool;
    gate         g;
    task         tasks[JOBS];
    pool_init(&pool, 1, JOBS);
    gate_init(&g, 0, false);
    task first = task_for(&g);
    ok(fli_workpool_submit(&pool, &first.job));
    gate_wait_inside(&g, 1);
    for (unsigned i = 0; i < JOBS; i++) {
        tasks[i] = task_for(&g);
        tasks[i].pool = &pool; /* the cancel function of this task submits a job, and the pool refuses it */
        ok(fli_workpool_submit(&pool, &tasks[i].job));
    }
    fli_workpool_close(&pool);
    for (unsigned i = 0; i < JOBS; i++) {
        assert_int_equal(tasks[i].cancelled, 1);
        assert_int_equal(tasks[i].turn, i);
    }
    fli_workpool_close(&pool);
    gate_open(&g);
    pool_end(&pool);
    assert_int_equal(first.ran, 1);
    assert_int_equal(first.cancelled, 0);
    assert_int_equal(g.ran, 1);
    assert_int_equal(g.cancelled, JOBS);
    gate_fini(&g);
}

TEST(a_closed_pool_refuses_jobs)
{
    fli_workpool pool;
    gate         g;
    pool_init(&pool, 1, 1);
    gate_init(&g, 0, true);
    task t = task_for(&g);
    fli_workpool_close(&pool);
    same(fli_workpool_submit(&pool, &t.job), FILCH_ECLOSED);
    assert_true(fli_workpool_join(&pool, FLI_NEVER));
    same(fli_workpool_submit(&pool, &t.job), FILCH_ECLOSED);
    fli_workpool_fini(&pool);
    assert_int_equal(t.ran + t.cancelled, 0);
    assert_int_equal(fli_load_rlx(&start_count), 0);
    gate_fini(&g);
}

TEST(join_gives_up_on_a_job_that_does_not_return_and_succeeds_when_it_has)
{
    fli_workpool pool;
    gate         g;
    pool_init(&pool, 3, 8);
    gate_init(&g, 0, false);
    task stuck = task_for(&g), other = task_for(&g);
    ok(fli_workpool_submit(&pool, &stuck.job));
    ok(fli_workpool_submit(&pool, &other.job));
    gate_wait_inside(&g, 2);
    fli_workpool_close(&pool);
    assert_false(fli_workpool_join(&pool, 0));
    uint64_t until_ns = fli_clock_after(fli_clock_ns(), FILCH_MILLISECONDS(5));
    assert_false(fli_workpool_join(&pool, until_ns));
    assert_true(fli_clock_ns() >= until_ns);
    assert_int_equal(fli_workpool_busy(&pool), 2);
    gate_open(&g);
    assert_true(fli_workpool_join(&pool, FLI_NEVER));
    assert_int_equal(fli_workpool_busy(&pool), 0);
    fli_workpool_fini(&pool);
    assert_int_equal(stuck.ran + other.ran, 2);
    gate_fini(&g);
}

/* Runs `count` jobs at once, and returns when they have ended and their threads are free. */
static void make_free_threads(fli_workpool *pool, uint32_t count)
{
    gate g;
    task tasks[4];
    assert_true(count <= 4);
    gate_init(&g, count, true);
    for (uint32_t i = 0; i < count; i++) {
        tasks[i] = task_for(&g);
        ok(fli_workpool_submit(pool, &tasks[i].job));
    }
    gate_wait_ran(&g, count);
    wait_not_busy(pool);
    gate_fini(&g);
}

TEST(join_without_time_waits_for_threads_without_a_job)
{
    for (unsigned round = 0; round < 20; round++) {
        static fli_workpool pool; /* static: if an assertion fails, threads still use it */
        pool_init(&pool, 4, 8);
        make_free_threads(&pool, 4);
        fli_workpool_close(&pool);
        assert_true(fli_workpool_join(&pool, 0));
        fli_workpool_fini(&pool);
    }
}

TEST(threads_without_a_job_are_joined_although_a_job_does_not_return)
{
    static fli_workpool pool; /* static: if an assertion fails, a thread still uses it */
    static gate         g;
    pool_init(&pool, 4, 8);
    make_free_threads(&pool, 4);
    gate_init(&g, 0, false);
    static task stuck;
    stuck = task_for(&g);
    ok(fli_workpool_submit(&pool, &stuck.job));
    gate_wait_inside(&g, 1);
    fli_workpool_close(&pool);
    assert_false(fli_workpool_join(&pool, 0));
    unsigned started = 0;
    for (uint32_t i = 0; i < pool.thread_max; i++) {
        assert_int_not_equal(pool.threads[i].phase, LEFT); /* a thread with the phase LEFT would not have been joined */
        if (pool.threads[i].phase == STARTED) started++;
    }
    assert_int_equal(started, 1);
    gate_open(&g);
    pool_end(&pool);
    gate_fini(&g);
}

static void join_it(void *arg)
{
    FLI_ASSERT(fli_workpool_join(arg, FLI_NEVER));
}

TEST(two_threads_may_join_at_once)
{
    for (unsigned round = 0; round < 100; round++) {
        fli_workpool pool;
        gate         g;
        fli_thread   other;
        pool_init(&pool, 2, 2);
        gate_init(&g, 0, true);
        task a = task_for(&g), b = task_for(&g);
        ok(fli_workpool_submit(&pool, &a.job));
        ok(fli_workpool_submit(&pool, &b.job));
        fli_workpool_close(&pool);
        ok(fli_thread_start(&other, "joiner", join_it, &pool));
        assert_true(fli_workpool_join(&pool, FLI_NEVER));
        fli_thread_join(&other);
        fli_workpool_fini(&pool);
        assert_int_equal(a.ran + a.cancelled + b.ran + b.cancelled, 2);
        gate_fini(&g);
    }
}

/* Four threads submit jobs while a fifth thread closes the pool. */
typedef struct rush_job {
    fli_job              job;
    FLI_ATOMIC(unsigned) ran, cancelled;
    bool taken; /* the pool accepted the job. Not atomic: the submitting thread is joined before `taken` is read */
} rush_job;

enum { RUSH_THREADS = 4, RUSH_JOBS = 25000 };

typedef struct rush {
    fli_workpool *pool;
    rush_job     *jobs;
} rush;

static FLI_ATOMIC(unsigned) rush_submitted, rush_ran;

static void rush_run(fli_job *job)
{
    fli_add_rlx(&FLI_OUTER(rush_job, job, job)->ran, 1);
    fli_add_rlx(&rush_ran, 1);
}

static void rush_cancel(fli_job *job)
{
    fli_add_rlx(&FLI_OUTER(rush_job, job, job)->cancelled, 1);
}

static void rush_submit(void *arg)
{
    rush *r = arg;
    for (unsigned i = 0; i < RUSH_JOBS; i++) {
        rush_job *j = &r->jobs[i];
        j->job = (fli_job){ .run = rush_run, .cancel = rush_cancel };
        filch_err err;
        while ((err = fli_workpool_submit(r->pool, &j->job)) == FILCH_EFULL) yield_slice();
        j->taken = err == FILCH_OK;
        FLI_ASSERT(j->taken || err == FILCH_ECLOSED);
        fli_add_rlx(&rush_submitted, 1);
    }
}

/* Closes the pool when `submitted` jobs were submitted and `ran` of them have run. */
static void rush_once(uint32_t thread_max, uint32_t queue_max, unsigned submitted, unsigned ran)
{
    fli_workpool pool;
    rush         rushes[RUSH_THREADS];
    fli_thread   threads[RUSH_THREADS];
    rush_job    *jobs = calloc((size_t)RUSH_THREADS * RUSH_JOBS, sizeof *jobs);
    assert_non_null(jobs);
    pool_init(&pool, thread_max, queue_max);
    fli_store_rlx(&rush_submitted, 0);
    fli_store_rlx(&rush_ran, 0);
    for (unsigned i = 0; i < RUSH_THREADS; i++) {
        rushes[i] = (rush){ .pool = &pool, .jobs = jobs + (size_t)i * RUSH_JOBS };
        ok(fli_thread_start(&threads[i], "rush", rush_submit, &rushes[i]));
    }
    until(fli_load_rlx(&rush_submitted) >= submitted && fli_load_rlx(&rush_ran) >= ran);
    fli_workpool_close(&pool);
    assert_true(fli_workpool_join(&pool, FLI_NEVER));
    unsigned taken = 0, ended = 0;
    for (unsigned i = 0; i < RUSH_THREADS; i++) fli_thread_join(&threads[i]);
    for (unsigned i = 0; i < RUSH_THREADS * RUSH_JOBS; i++) {
        unsigned once = fli_load_rlx(&jobs[i].ran) + fli_load_rlx(&jobs[i].cancelled);
        assert_int_equal(once, jobs[i].taken ? 1 : 0);
        taken += jobs[i].taken;
        ended += once;
    }
    assert_int_equal(taken, ended);
    assert_true(taken >= submitted);
    fli_workpool_fini(&pool);
    free(jobs);
}

TEST(every_job_runs_or_is_cancelled_once_if_the_pool_closes_meanwhile)
{
    rush_once(4, 64, RUSH_THREADS * RUSH_JOBS / 2, 0);
    rush_once(2, 100000, RUSH_THREADS * RUSH_JOBS / 2, 0);
    rush_once(3, 0, 1000, 0);
    rush_once(1, 1, 5000, 0);
}

TEST(every_job_runs_if_the_pool_is_not_closed)
{
    rush_once(4, 1000, RUSH_THREADS * RUSH_JOBS, RUSH_THREADS * RUSH_JOBS);
}

/* ---- allocations that fail ---------------------------------------------------------------------------------- */

typedef struct stingy {
    unsigned calls, fail_at; /* `calls`: allocations so far. The allocation number fail_at fails; 0: none fails */
    size_t   held;
} stingy;

static void *stingy_alloc(void *user, void *old, size_t old_size, size_t size)
{
    stingy *s = user;
    if (size > 0 && ++s->calls == s->fail_at) return NULL;
    s->held += size - old_size; /* the difference may wrap below 0: both numbers are unsigned, so the sum is right */
    if (size > 0) return realloc(old, size);
    free(old);
    return NULL;
}

TEST(init_leaves_nothing_behind_when_any_allocation_fails)
{
    bool failed = true;
    for (unsigned fail_at = 1; failed; fail_at++) {
        fli_workpool pool;
        stingy       s = { .fail_at = fail_at };
        fli_mem      mem;
        fli_mem_init(&mem, stingy_alloc, &s);
        filch_err err = fli_workpool_init(&pool, &mem, 4, 16);
        failed = err != FILCH_OK;
        if (failed) {
            same(err, FILCH_ENOMEM);
        } else {
            /* After init the pool allocates no memory. */
            unsigned calls = s.calls;
            gate     g;
            gate_init(&g, 0, true);
            task t = task_for(&g);
            ok(fli_workpool_submit(&pool, &t.job));
            gate_wait_ran(&g, 1);
            pool_end(&pool);
            gate_fini(&g);
            assert_int_equal(s.calls, calls);
            assert_true(fail_at > 1); /* an earlier iteration has tested a failed allocation */
        }
        assert_int_equal(s.held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_is_started_before_the_first_job_and_one_for_it),
        cmocka_unit_test(a_pool_without_jobs_closes_at_once),
        cmocka_unit_test(a_pool_needs_a_thread),
        cmocka_unit_test(exactly_thread_max_jobs_run_at_once),
        cmocka_unit_test(two_jobs_that_need_each_other_both_get_a_thread),
        cmocka_unit_test(one_job_wakes_one_thread),
        cmocka_unit_test(a_submit_without_any_thread_fails_and_takes_no_job),
        cmocka_unit_test(a_submit_succeeds_without_a_new_thread_while_another_runs),
        cmocka_unit_test(running_jobs_are_named_with_process_tag_and_command),
        cmocka_unit_test(running_jobs_of_all_lanes_are_listed_in_the_order_in_which_they_began),
        cmocka_unit_test(jobs_run_in_the_order_they_were_submitted),
        cmocka_unit_test(withdrawn_jobs_are_cancelled_and_the_others_run_in_their_order),
        cmocka_unit_test(a_full_queue_refuses_and_changes_nothing),
        cmocka_unit_test(a_job_may_submit_another_from_inside),
        cmocka_unit_test(a_job_may_free_itself_in_run_and_in_cancel),
        cmocka_unit_test(close_cancels_waiting_jobs_in_order_and_outside_the_lock),
        cmocka_unit_test(a_closed_pool_refuses_jobs),
        cmocka_unit_test(join_gives_up_on_a_job_that_does_not_return_and_succeeds_when_it_has),
        cmocka_unit_test(join_without_time_waits_for_threads_without_a_job),
        cmocka_unit_test(threads_without_a_job_are_joined_although_a_job_does_not_return),
        cmocka_unit_test(two_threads_may_join_at_once),
        cmocka_unit_test(every_job_runs_or_is_cancelled_once_if_the_pool_closes_meanwhile),
        cmocka_unit_test(every_job_runs_if_the_pool_is_not_closed),
        cmocka_unit_test(init_leaves_nothing_behind_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
