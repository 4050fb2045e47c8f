/* lanes.c - simulates the work pool alone: threads submit jobs of every lane, some jobs are slow, and some (STUCK)
 * return only when all other jobs have run. A lost wake-up is a deadlock, which the engine detects. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "port/clock.h"
#include "sim/engine.h"
#include "sim/workload.h"
#include "work/pool.h"

#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

enum { SUBMITTERS = 3, STUCK_EACH = FLI_LANE_MOST > 4 ? 6 : FLI_LANE_MOST - 1, JOBS_MAX = 512, WORK_THREADS = 2 };

typedef enum behaviour { QUICK, SLOW, STUCK } behaviour;

typedef struct test_job {
    fli_job   job;
    behaviour behaviour;
    uint32_t  ran;
} test_job;

static struct {
    fli_workpool pool;
    fli_mutex    lock;
    fli_cond     changed;
    test_job     test_jobs[SUBMITTERS][JOBS_MAX];
    uint32_t     each;
    uint32_t     inside[FLI_LANE_COUNT], stuck[FLI_LANE_COUNT];
    /* over: number of finished jobs that are not STUCK; expected: number of submitted jobs that are not STUCK */
    uint32_t over, expected;
    bool     released;
} s;

/* Returns how many jobs of a lane may run at the same time. */
static uint32_t limit_of(uint32_t lane)
{
    return lane == FLI_LANE_WORK ? WORK_THREADS : FLI_LANE_MOST;
}

static void run_test_job(fli_job *job)
{
    test_job *e = FLI_OUTER(test_job, job, job);
    fli_mutex_lock(&s.lock);
    MUST(++s.inside[job->lane] <= limit_of(job->lane), "more jobs of a lane run than its limit");
    MUST(++e->ran == 1, "a job ran twice");
    uint64_t until_ns = e->behaviour == SLOW ? fli_clock_ns() + fli_sim_choose(3 * (uint32_t)FLI_STUCK_NS) : 0;
    while (e->behaviour == SLOW && fli_cond_wait_until(&s.changed, &s.lock, until_ns)) {}
    while (e->behaviour == STUCK && !s.released) fli_cond_wait(&s.changed, &s.lock);
    s.inside[job->lane]--;
    if (e->behaviour != STUCK) s.over++;
    fli_cond_broadcast(&s.changed);
    fli_mutex_unlock(&s.lock);
}

static void cancel_test_job(fli_job *job)
{
    (void)job;
    fli_sim_fail("a job was cancelled although all have started");
}

/* Chooses how a job behaves. A STUCK job does not return until the end of the test. FLI_LANE_WORK gets no STUCK jobs,
 * because it has no spare threads for them. */
static behaviour draw_behaviour(uint32_t lane)
{
    if (lane != FLI_LANE_WORK && s.stuck[lane] < STUCK_EACH && fli_sim_choose(3) == 0) {
        s.stuck[lane]++;
        return STUCK;
    }
    return fli_sim_choose(3) == 0 ? SLOW : QUICK;
}

static void submitter(void *arg)
{
    test_job *mine = arg;
    for (uint32_t i = 0; i < s.each; i++) {
        test_job *e = &mine[i];
        uint32_t  lane = fli_sim_choose(FLI_LANE_COUNT);
        *e = (test_job){ .job = { .run = run_test_job, .cancel = cancel_test_job, .lane = lane } };
        fli_mutex_lock(&s.lock);
        e->behaviour = draw_behaviour(lane);
        if (e->behaviour != STUCK) s.expected++;
        fli_mutex_unlock(&s.lock);
        filch_err err = fli_workpool_submit(&s.pool, &e->job);
        MUST(err == FILCH_OK || (err == FILCH_EFULL && lane == FLI_LANE_WORK), "a job was refused");
        if (err == FILCH_OK) continue;
        fli_mutex_lock(&s.lock);
        s.expected--;
        fli_cond_broadcast(&s.changed);
        fli_mutex_unlock(&s.lock);
    }
}

static void begin(uint32_t size)
{
    fli_mem mem;
    memset(&s, 0, sizeof s);
    fli_mem_init(&mem, workload_alloc, NULL);
    workload_alloc_reset(0);
    s.each = size / 8 < JOBS_MAX ? size / 8 + 1 : JOBS_MAX;
    MUST(fli_mutex_init(&s.lock) == FILCH_OK && fli_cond_init(&s.changed) == FILCH_OK, "no lock");
    MUST(fli_workpool_init(&s.pool, &mem, WORK_THREADS, 3) == FILCH_OK, "no pool");
}

/* Waits until each lane has run all jobs that are not STUCK, although the STUCK jobs have not returned. Then lets the
 * STUCK jobs return. */
static void wait_and_release(void)
{
    fli_mutex_lock(&s.lock);
    while (s.over < s.expected) fli_cond_wait(&s.changed, &s.lock);
    uint32_t stuck = 0;
    for (int i = 0; i < FLI_LANE_COUNT; i++) stuck += s.stuck[i];
    fli_mutex_unlock(&s.lock);
    while (fli_workpool_running(&s.pool, NULL, 0) != stuck) fli_thread_yield();
    fli_mutex_lock(&s.lock);
    s.released = true;
    fli_cond_broadcast(&s.changed);
    fli_mutex_unlock(&s.lock);
    while (fli_workpool_busy(&s.pool) > 0) fli_thread_yield();
}

void run_lanes(uint32_t workers, uint32_t size)
{
    fli_thread threads[SUBMITTERS];
    (void)workers;
    begin(size);
    for (int i = 0; i < SUBMITTERS; i++) {
        MUST(fli_thread_start(&threads[i], "submit", submitter, s.test_jobs[i]) == FILCH_OK, "no thread");
    }
    for (int i = 0; i < SUBMITTERS; i++) fli_thread_join(&threads[i]);
    wait_and_release();
    fli_workpool_close(&s.pool);
    MUST(fli_workpool_join(&s.pool, FLI_NEVER), "the threads of the pool did not end");
    fli_workpool_fini(&s.pool);
    fli_cond_fini(&s.changed);
    fli_mutex_fini(&s.lock);
    MUST(workload_alloc_live() == 0, "memory was left behind");
}
