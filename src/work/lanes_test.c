/* lanes_test.c - tests the lanes of the work pool. Includes pool.c itself, so that a test can set the time after which
 * a job counts as stuck. */
#include "base/assert.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

/* Replaces FLI_STUCK_NS. With FLI_NEVER no job counts as stuck, with 0 every running job counts as stuck. */
static FLI_ATOMIC(uint64_t) stuck_ns;
static FLI_ATOMIC(unsigned) start_fails; /* how many of the next attempts to start a thread fail */

static filch_err start_or_fail(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    if (fli_load_rlx(&start_fails) == 0) return fli_thread_start(thread, name, run, arg);
    fli_sub_acqrel(&start_fails, 1);
    return FILCH_ESYS;
}

#define FLI_STUCK_NS fli_load_rlx(&stuck_ns)
#define fli_thread_start start_or_fail
#include "work/pool.c"
#undef fli_thread_start

/* ---- helpers ---- */

/* A gate: jobs block in it until it is opened. */
typedef struct gate {
    fli_mutex lock;
    fli_cond  changed;
    unsigned  inside, inside_max, ran;
    bool      open;
} gate;

typedef struct task {
    fli_job  job;
    gate    *gate;
    unsigned turn;
} task;

static void gate_init(gate *g, bool open)
{
    *g = (gate){ .open = open };
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

static void gate_wait(gate *g, const unsigned *number, unsigned count)
{
    fli_mutex_lock(&g->lock);
    while (*number < count) fli_cond_wait(&g->changed, &g->lock);
    fli_mutex_unlock(&g->lock);
}

static void task_run(fli_job *job)
{
    task *t = FLI_OUTER(task, job, job);
    gate *g = t->gate;
    fli_mutex_lock(&g->lock);
    g->inside++;
    if (g->inside > g->inside_max) g->inside_max = g->inside;
    fli_cond_broadcast(&g->changed);
    while (!g->open) fli_cond_wait(&g->changed, &g->lock);
    g->inside--;
    t->turn = g->ran++;
    fli_cond_broadcast(&g->changed);
    fli_mutex_unlock(&g->lock);
}

static void submit(fli_workpool *pool, task *t, gate *g, fli_lane lane)
{
    *t = (task){ .job = { .run = task_run, .cancel = task_run, .lane = lane }, .gate = g };
    ok(fli_workpool_submit(pool, &t->job));
}

static void pool_init(fli_workpool *pool, uint64_t stuck_after_ns)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    fli_store_rlx(&stuck_ns, stuck_after_ns);
    fli_store_rlx(&start_fails, 0);
    ok(fli_workpool_init(pool, &mem, 2, 4));
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

static uint32_t count_threads(fli_workpool *pool)
{
    fli_mutex_lock(&pool->lock);
    uint32_t count = pool->thread_count;
    fli_mutex_unlock(&pool->lock);
    return count;
}

/* ---- the tests ---- */

TEST(stuck_jobs_of_one_lane_hold_up_no_other_lane)
{
    fli_workpool pool;
    gate         stuck, free_gate;
    task         held[FLI_LANE_MOST + 3], others[FLI_LANE_COUNT];
    pool_init(&pool, FLI_NEVER);
    gate_init(&stuck, false);
    gate_init(&free_gate, true);
    for (unsigned i = 0; i < FLI_LANE_MOST + 3; i++) submit(&pool, &held[i], &stuck, FLI_LANE_OPEN);
    gate_wait(&stuck, &stuck.inside, FLI_LANE_WIDE);
    unsigned count = 0;
    for (int lane = 0; lane < FLI_LANE_COUNT; lane++) {
        if (lane != FLI_LANE_OPEN) submit(&pool, &others[count++], &free_gate, (fli_lane)lane);
    }
    gate_wait(&free_gate, &free_gate.ran, count);
    /* no further job of FLI_LANE_OPEN starts, because no job counts as stuck */
    assert_int_equal(stuck.inside_max, FLI_LANE_WIDE);
    gate_open(&stuck);
    gate_wait(&stuck, &stuck.ran, FLI_LANE_MOST + 3);
    pool_end(&pool);
    gate_fini(&stuck);
    gate_fini(&free_gate);
}

TEST(a_job_behind_stuck_jobs_of_its_lane_starts_by_itself)
{
    fli_workpool pool;
    gate         stuck, free_gate;
    task         held[FLI_LANE_WIDE], late;
    /* a job counts as stuck after 100 ms: longer than the submits below take on a loaded machine */
    pool_init(&pool, FILCH_MILLISECONDS(100));
    gate_init(&stuck, false);
    gate_init(&free_gate, true);
    for (unsigned i = 0; i < FLI_LANE_WIDE; i++) submit(&pool, &held[i], &stuck, FLI_LANE_NAME);
    submit(&pool, &late, &free_gate, FLI_LANE_NAME); /* the last submit, so no later submit can start this job */
    gate_wait(&free_gate, &free_gate.ran, 1);
    assert_int_equal(stuck.ran, 0);
    gate_open(&stuck);
    gate_wait(&stuck, &stuck.ran, FLI_LANE_WIDE);
    pool_end(&pool);
    gate_fini(&stuck);
    gate_fini(&free_gate);
}

TEST(stuck_jobs_take_threads_up_to_a_limit_and_the_others_wait)
{
    enum { JOBS = FLI_LANE_MOST + 2 };
    fli_workpool pool;
    gate         g;
    task         tasks[JOBS];
    pool_init(&pool, 0);
    gate_init(&g, false);
    for (unsigned i = 0; i < JOBS; i++) submit(&pool, &tasks[i], &g, FLI_LANE_FILE);
    gate_wait(&g, &g.inside, FLI_LANE_MOST);
    assert_int_equal(fli_workpool_running(&pool, NULL, 0), FLI_LANE_MOST);
    gate_open(&g);
    gate_wait(&g, &g.ran, JOBS);
    assert_int_equal(g.inside_max, FLI_LANE_MOST);
    pool_end(&pool);
    gate_fini(&g);
}

TEST(extra_threads_for_stuck_jobs_end_when_the_jobs_return)
{
    fli_workpool pool;
    gate         g;
    task         tasks[FLI_LANE_MOST];
    pool_init(&pool, 0);
    for (int round = 0; round < 3; round++) {
        gate_init(&g, false);
        for (unsigned i = 0; i < FLI_LANE_MOST; i++) submit(&pool, &tasks[i], &g, FLI_LANE_OPEN);
        gate_wait(&g, &g.inside, FLI_LANE_MOST);
        assert_true(count_threads(&pool) >= FLI_LANE_MOST);
        gate_open(&g);
        until(count_threads(&pool) <= FLI_LANE_WIDE);
        wait_not_busy(&pool);
        assert_int_equal(g.ran, FLI_LANE_MOST);
        gate_fini(&g);
    }
    pool_end(&pool);
}

TEST(only_the_work_lane_has_a_queue_limit)
{
    enum { JOBS = 2000 };
    static task  tasks[JOBS];
    fli_workpool pool;
    gate         g;
    pool_init(&pool, FLI_NEVER);
    gate_init(&g, false);
    for (unsigned i = 0; i < JOBS; i++) submit(&pool, &tasks[i], &g, FLI_LANE_FILE);
    task own[7];
    for (unsigned i = 0; i < 6; i++) submit(&pool, &own[i], &g, FLI_LANE_WORK); /* 2 jobs run and 4 wait */
    own[6] = own[5];
    same(fli_workpool_submit(&pool, &own[6].job), FILCH_EFULL);
    gate_open(&g);
    gate_wait(&g, &g.ran, JOBS + 6);
    pool_end(&pool);
    gate_fini(&g);
}

TEST(one_thread_serves_all_lanes_in_the_order_of_submission)
{
    enum { JOBS = 40 };
    fli_workpool pool;
    gate         g;
    task         first, tasks[JOBS];
    pool_init(&pool, FLI_NEVER);
    gate_init(&g, false);
    submit(&pool, &first, &g, FLI_LANE_WORK);
    gate_wait(&g, &g.inside, 1);
    fli_store_rlx(&start_fails, 100000);
    for (unsigned i = 0; i < JOBS; i++) {
        submit(&pool, &tasks[i], &g, (fli_lane)(i * 3 % (FLI_LANE_COUNT - 1) + 1));
    }
    gate_open(&g);
    gate_wait(&g, &g.ran, JOBS + 1);
    for (unsigned i = 0; i < JOBS; i++) assert_int_equal(tasks[i].turn, i + 1);
    pool_end(&pool);
    gate_fini(&g);
}

TEST(close_cancels_the_waiting_jobs_of_every_lane)
{
    enum { JOBS = 40 };
    fli_workpool pool;
    gate         g;
    task         first[2], tasks[JOBS];
    pool_init(&pool, FLI_NEVER);
    gate_init(&g, true);
    fli_store_rlx(&start_fails, 100000);
    fli_mutex_lock(&pool.lock);
    pool.by_hand = true; /* no pool thread starts a job */
    fli_mutex_unlock(&pool.lock);
    for (unsigned i = 0; i < 2; i++) submit(&pool, &first[i], &g, FLI_LANE_WORK);
    for (unsigned i = 0; i < JOBS; i++) submit(&pool, &tasks[i], &g, (fli_lane)(i % (FLI_LANE_COUNT - 1) + 1));
    fli_workpool_close(&pool);
    assert_int_equal(g.ran, JOBS + 2);
    assert_true(fli_workpool_join(&pool, FLI_NEVER));
    fli_workpool_fini(&pool);
    gate_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stuck_jobs_of_one_lane_hold_up_no_other_lane),
        cmocka_unit_test(a_job_behind_stuck_jobs_of_its_lane_starts_by_itself),
        cmocka_unit_test(stuck_jobs_take_threads_up_to_a_limit_and_the_others_wait),
        cmocka_unit_test(extra_threads_for_stuck_jobs_end_when_the_jobs_return),
        cmocka_unit_test(only_the_work_lane_has_a_queue_limit),
        cmocka_unit_test(one_thread_serves_all_lanes_in_the_order_of_submission),
        cmocka_unit_test(close_cancels_the_waiting_jobs_of_every_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
