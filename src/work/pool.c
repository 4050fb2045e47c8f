/* pool.c - threads for functions that block, in lanes. One lock, one queue per lane, any thread serves any lane.
 *
 * A lane runs `wide` jobs at once. A job that has run for FLI_STUCK_NS counts as stuck and no longer takes a place, so
 * that calls that do not return (a FIFO that is opened, a dead name server) delay the next job of their lane by
 * FLI_STUCK_NS and other lanes not at all. `most` bounds the running jobs of a lane with the stuck ones; for the lane
 * of the program's functions `most` is `wide`.
 *
 * A thread is *free* when it is started and not in a job: it waits for work, or is on its way to look for some.
 * free = thread_count - busy_count; no variable holds it, so it cannot be wrong. A job *can begin* when its lane has
 * room.
 *
 * INVARIANT  while the pool is open, there is a free thread for each job that can begin, and one more if some queued
 *            job cannot begin now but could when a running one counts as stuck; or the system refused a thread. submit
 *            restores this after it adds a job, and a thread after it takes one.
 * INVARIANT  whenever a job is queued, at least one thread is started and has not left.
 * INVARIANT  once closed, the queues are empty.
 *
 * No wake-up is lost:
 *   - A thread waits only when, holding the lock, it saw no job that can begin, and waiting releases the lock in one
 *     step with falling asleep. So a job is queued either before that look, which sees it, or when the thread can be
 *     woken. If a queued job could begin when another one counts as stuck, the thread waits no longer than until then.
 *   - Every queued job signals once, under the lock. If that finds a sleeper, one more free thread is awake; if not,
 *     all free threads were awake already. Each of them looks at all lanes before it sleeps. So when a job can begin,
 *     some free thread is awake and will look, or no thread is free, and the next to finish will look.
 *   - A job that ends makes room for one job of its lane, and its thread looks at all lanes before it sleeps.
 *   - One signal may find the job already taken by a thread that just finished its own. The woken one sleeps again.
 *   - `closed` is set under the lock and tested in the same look as the queues; close then wakes all threads.
 *
 * Rejected: see docs/design/blocking-work.md.
 */
#include "work/pool.h"

#include "base/assert.h"
#include "port/clock.h"

enum { UNUSED, STARTED, LEFT };

static void lane_init(fli_job_lane *lane, uint32_t wide, uint32_t most, uint64_t queue_max)
{
    *lane = (fli_job_lane){ .wide = wide, .most = most, .queue_max = queue_max };
    lane->running.next = lane->running.prev = &lane->running;
}

static filch_err make_locks(fli_workpool *pool)
{
    filch_err err = fli_mutex_init(&pool->lock);
    if (err != FILCH_OK) goto no_lock;
    err = fli_cond_init(&pool->work);
    if (err != FILCH_OK) goto no_work;
    err = fli_cond_init(&pool->quiet);
    if (err == FILCH_OK) return FILCH_OK;
    fli_cond_fini(&pool->work);
no_work:
    fli_mutex_fini(&pool->lock);
no_lock:
    return err;
}

filch_err fli_workpool_init(fli_workpool *pool, const fli_mem *mem, uint32_t thread_max, uint32_t queue_max)
{
    const uint32_t others = (FLI_LANE_COUNT - 1) * FLI_LANE_MOST;
    if (thread_max == 0) return FILCH_EINVAL;
    if (thread_max > UINT32_MAX - others) return FILCH_ENOMEM;
    *pool = (fli_workpool){ .mem = *mem, .thread_max = thread_max + others };
    pool->keep_count = thread_max > FLI_LANE_WIDE ? thread_max : FLI_LANE_WIDE;
    lane_init(&pool->lanes[FLI_LANE_WORK], thread_max, thread_max, queue_max);
    for (int i = FLI_LANE_WORK + 1; i < FLI_LANE_COUNT; i++) {
        lane_init(&pool->lanes[i], FLI_LANE_WIDE, FLI_LANE_MOST, FLI_NEVER);
    }
    size_t bytes = pool->thread_max * sizeof *pool->threads; /* 64 bits: CMakeLists.txt */
    pool->threads = fli_zalloc(mem, bytes);
    if (pool->threads == NULL) return FILCH_ENOMEM;
    filch_err err = make_locks(pool);
    if (err != FILCH_OK) fli_free(mem, pool->threads, bytes);
    return err;
}

void fli_workpool_fini(fli_workpool *pool)
{
    FLI_ASSERT(pool->thread_count == 0 && pool->queue_count == 0);
    fli_cond_fini(&pool->quiet);
    fli_cond_fini(&pool->work);
    fli_mutex_fini(&pool->lock);
    fli_free(&pool->mem, pool->threads, pool->thread_max * sizeof *pool->threads);
}

/* ---- lanes ---- */

static void push_locked(fli_workpool *pool, fli_job_lane *lane, fli_job *job)
{
    job->next = NULL;
    job->ticket = pool->tickets++;
    if (lane->newest != NULL) lane->newest->next = job;
    else lane->oldest = job;
    lane->newest = job;
    lane->queue_count++;
    pool->queue_count++;
}

/* Takes the nth job out of the lane's queue. */
static fli_job *pop_locked(fli_workpool *pool, fli_job_lane *lane, uint64_t nth)
{
    fli_job *before = NULL, *job = lane->oldest;
    for (; nth > 0; nth--) {
        before = job;
        job = job->next;
    }
    if (before == NULL) lane->oldest = job->next;
    else before->next = job->next;
    if (lane->newest == job) lane->newest = before;
    lane->queue_count--;
    pool->queue_count--;
    job->next = NULL;
    return job;
}

/* How many more jobs may begin. If there is no room, *again_ns is when a running job counts as stuck and makes room;
 * FLI_NEVER if that makes none. */
static uint32_t room_locked(const fli_job_lane *lane, uint64_t *again_ns)
{
    *again_ns = FLI_NEVER;
    if (lane->busy_count < lane->wide) return lane->wide - lane->busy_count; /* at least; exact where most is wide */
    if (lane->busy_count >= lane->most) return 0;
    uint64_t           now_ns = fli_clock_ns();
    uint32_t           fresh = 0;
    const fli_job_run *run = lane->running.prev; /* began last */
    for (; run != &lane->running && fli_clock_after(run->since_ns, FLI_STUCK_NS) > now_ns; run = run->prev) {
        *again_ns = fli_clock_after(run->since_ns, FLI_STUCK_NS);
        if (++fresh == lane->wide) return 0;
    }
    *again_ns = FLI_NEVER;
    uint32_t room = lane->wide - fresh, left = lane->most - lane->busy_count;
    return room < left ? room : left;
}

/* The lane with the oldest job that can begin. NULL: none can; *until_ns is when to look again. */
static fli_job_lane *pick_locked(fli_workpool *pool, uint64_t *until_ns)
{
    fli_job_lane *best = NULL;
    *until_ns = FLI_NEVER;
    if (pool->queue_count == 0) return NULL;
    for (int i = 0; i < FLI_LANE_COUNT; i++) {
        fli_job_lane *lane = &pool->lanes[i];
        uint64_t      again_ns;
        if (lane->queue_count == 0) continue;
        if (room_locked(lane, &again_ns) == 0) {
            if (again_ns < *until_ns) *until_ns = again_ns;
        } else if (best == NULL || lane->oldest->ticket < best->oldest->ticket) {
            best = lane;
        }
    }
    return best;
}

/* How many free threads there should be: see the first INVARIANT. */
static uint32_t wanted_locked(const fli_workpool *pool)
{
    uint64_t count = 0;
    bool     watch = false;
    for (int i = 0; i < FLI_LANE_COUNT && pool->queue_count > 0; i++) {
        const fli_job_lane *lane = &pool->lanes[i];
        uint64_t            again_ns;
        uint32_t            room = lane->queue_count > 0 ? room_locked(lane, &again_ns) : 0;
        count += lane->queue_count < room ? lane->queue_count : room;
        watch = watch || (lane->queue_count > room && lane->busy_count + room < lane->most);
    }
    return (uint32_t)count + (watch ? 1 : 0);
}

/* ---- threads ---- */

static void serve(void *arg);

/* Starts one more thread. The new thread waits for our lock before it looks at the queues. */
static filch_err start_locked(fli_workpool *pool)
{
    fli_pool_thread *t = pool->threads;
    while (t->phase == STARTED) {
        if (++t == pool->threads + pool->thread_max) return FILCH_ELIMIT;
    }
    if (t->phase == LEFT) fli_thread_join(&t->thread); /* has released the lock and never takes it again: this ends */
    t->pool = pool;
    t->phase = UNUSED;
    filch_err err = fli_thread_start(&t->thread, "filch-work", serve, t);
    if (err != FILCH_OK) return err;
    t->phase = STARTED;
    pool->thread_count++;
    return FILCH_OK;
}

/* Restores the first INVARIANT. Starting under the lock holds others up for some 40 us a thread. */
static filch_err provide_threads_locked(fli_workpool *pool)
{
    if (pool->by_hand) return FILCH_OK;
    filch_err err = FILCH_OK;
    uint32_t  wanted = wanted_locked(pool);
    while (err == FILCH_OK && pool->thread_count - pool->busy_count < wanted) err = start_locked(pool);
    /* If there is a thread, it looks at this job too when it is free. The next job tries again to start another. */
    return pool->thread_count > 0 ? FILCH_OK : err;
}

static void begin_locked(fli_workpool *pool, fli_job_lane *lane, fli_job_run *run)
{
    run->next = &lane->running;
    run->prev = lane->running.prev;
    run->prev->next = run->next->prev = run;
    lane->busy_count++;
    pool->busy_count++;
}

static void end_locked(fli_workpool *pool, fli_job_lane *lane, fli_job_run *run)
{
    run->prev->next = run->next;
    run->next->prev = run->prev;
    lane->busy_count--;
    pool->busy_count--;
}

static void run_locked(fli_workpool *pool, fli_job_lane *lane, uint64_t nth)
{
    fli_job    *job = pop_locked(pool, lane, nth);
    fli_job_run run = { .owner = job->owner, .since_ns = fli_clock_ns() };
    begin_locked(pool, lane, &run);
    if (pool->queue_count > 0) (void)provide_threads_locked(pool);
    /* This thread may be the one that watched another lane: a free one takes its place, whichever was woken first. */
    if (pool->queue_count > 0) fli_cond_signal(&pool->work);
    fli_mutex_unlock(&pool->lock);
    job->run(job); /* may free it */
    fli_mutex_lock(&pool->lock);
    end_locked(pool, lane, &run);
}

bool fli_workpool_run(fli_workpool *pool, uint64_t nth)
{
    fli_mutex_lock(&pool->lock);
    bool          there = nth < pool->queue_count;
    fli_job_lane *lane = pool->lanes;
    for (; there && nth >= lane->queue_count; lane++) nth -= lane->queue_count;
    if (there) run_locked(pool, lane, nth);
    fli_mutex_unlock(&pool->lock);
    return there;
}

/* The life of a pool thread. */
static void serve(void *arg)
{
    fli_pool_thread *self = arg;
    fli_workpool    *pool = self->pool;
    fli_mutex_lock(&pool->lock);
    for (;;) {
        uint64_t      until_ns;
        fli_job_lane *lane = pick_locked(pool, &until_ns);
        bool          spare = pool->thread_count - pool->busy_count > pool->keep_count;
        if (lane != NULL) run_locked(pool, lane, 0);
        else if (pool->closed || (spare && until_ns == FLI_NEVER)) break;
        else if (until_ns == FLI_NEVER) fli_cond_wait(&pool->work, &pool->lock);
        else (void)fli_cond_wait_until(&pool->work, &pool->lock, until_ns);
    }
    self->phase = LEFT;
    pool->thread_count--;
    fli_cond_broadcast(&pool->quiet);
    fli_mutex_unlock(&pool->lock);
}

/* ---- from outside ---- */

static filch_err submit_locked(fli_workpool *pool, fli_job_lane *lane, fli_job *job)
{
    if (pool->closed) return FILCH_ECLOSED;
    /* Jobs that a free thread is about to take do not count as waiting; so the answer does not depend on how quickly
     * the threads wake up. */
    if (lane->busy_count + lane->queue_count >= fli_clock_after(lane->most, lane->queue_max)) return FILCH_EFULL;
    push_locked(pool, lane, job);
    filch_err err = provide_threads_locked(pool);
    if (err == FILCH_OK) fli_cond_signal(&pool->work);
    else (void)pop_locked(pool, lane, lane->queue_count - 1);
    return err;
}

filch_err fli_workpool_submit(fli_workpool *pool, fli_job *job)
{
    FLI_ASSERT(job->lane < FLI_LANE_COUNT);
    fli_mutex_lock(&pool->lock);
    filch_err err = submit_locked(pool, &pool->lanes[job->lane], job);
    fli_mutex_unlock(&pool->lock);
    return err;
}

/* Takes all jobs out of the queues, as one list. */
static fli_job *empty_locked(fli_workpool *pool)
{
    fli_job *list = NULL;
    for (int i = FLI_LANE_COUNT - 1; i >= 0; i--) {
        fli_job_lane *lane = &pool->lanes[i];
        if (lane->newest == NULL) continue;
        lane->newest->next = list;
        list = lane->oldest;
        lane->oldest = lane->newest = NULL;
        lane->queue_count = 0;
    }
    pool->queue_count = 0;
    return list;
}

void fli_workpool_close(fli_workpool *pool)
{
    fli_mutex_lock(&pool->lock);
    fli_job *job = empty_locked(pool);
    pool->closed = true;
    fli_cond_broadcast(&pool->work);
    fli_mutex_unlock(&pool->lock);
    /* The jobs are ours alone now. Cancelled without the lock, so that they may call the pool. */
    while (job != NULL) {
        fli_job *next = job->next;
        job->next = NULL;
        job->cancel(job);
        job = next;
    }
}

bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns)
{
    fli_mutex_lock(&pool->lock);
    FLI_ASSERT(pool->closed);
    bool in_time = true;
    while (pool->thread_count > 0 && in_time) {
        in_time = fli_cond_wait_until(&pool->quiet, &pool->lock, until_ns);
    }
    bool all_left = pool->thread_count == 0;
    /* Joined under the lock, so that two callers do not join the same thread. A thread that has counted itself as left
     * has released the lock, or we would not hold it, and never takes it again: this ends. */
    for (uint32_t i = 0; all_left && i < pool->thread_max; i++) {
        if (pool->threads[i].phase == LEFT) fli_thread_join(&pool->threads[i].thread);
        pool->threads[i].phase = UNUSED;
    }
    fli_mutex_unlock(&pool->lock);
    return all_left;
}

uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room)
{
    uint32_t count = 0;
    fli_mutex_lock(&pool->lock);
    for (int i = 0; i < FLI_LANE_COUNT; i++) {
        const fli_job_run *end = &pool->lanes[i].running;
        for (const fli_job_run *run = end->next; run != end; run = run->next, count++) {
            if (count < room) owners[count] = run->owner;
        }
    }
    fli_mutex_unlock(&pool->lock);
    return count;
}

uint32_t fli_workpool_busy(fli_workpool *pool)
{
    fli_mutex_lock(&pool->lock);
    uint32_t busy_count = pool->busy_count;
    fli_mutex_unlock(&pool->lock);
    return busy_count;
}
