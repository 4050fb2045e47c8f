/* pool.c - threads for functions that block, in lanes. One lock, one queue per lane, any thread serves any lane.
 *
 * A lane runs `wide` jobs at once. A job that has run for FLI_STUCK_NS counts as stuck and no longer takes a place, so
 * that calls that do not return (opening a FIFO, a dead name server) delay the next job of their lane by FLI_STUCK_NS
 * and jobs of other lanes not at all. `most` limits the running jobs of a lane including the stuck ones: while `most`
 * jobs are stuck, the other jobs of the lane stay queued until one returns. For
 * FLI_LANE_WORK, the functions of the program, `most` equals `wide`.
 *
 * A thread is *free* if it is started and not in a job: it waits for a job, or is about to check the queues.
 * free = thread_count - busy_count; there is no separate counter that could get out of step. A job *can begin* if its
 * lane may run one more job.
 *
 * INVARIANT  while the pool is open, there is a free thread for each job that can begin, and one more if some queued
 *            job cannot begin now but could when a running job counts as stuck. Exception: the system refused to start
 *            a thread. submit restores this after it adds a job, and a pool thread after it takes a job.
 * INVARIANT  whenever a job is queued, at least one thread is started and has not left.
 * INVARIANT  once closed, the queues are empty.
 *
 * No wake-up is lost:
 *   - A thread waits only when, holding the lock, it saw no job that can begin, and waiting releases the lock
 *     atomically with falling asleep. So a job is queued either before that check, which sees it, or when the thread
 *     can be woken. If a queued job could begin when another job counts as stuck, the thread waits no longer than until
 *     then.
 *   - Every queued job signals once, under the lock. If a thread sleeps, the signal wakes it; if none sleeps, all free
 *     threads were awake already. Each of them checks all lanes before it sleeps. So when a job can begin, some free
 *     thread is awake and will check the lanes, or no thread is free and the next thread that finishes a job will check
 *     them.
 *   - When a job ends, one more job of its lane may start, and the thread checks all lanes before it sleeps.
 *   - A woken thread may find that its job was already taken by a thread that just finished another job. The woken
 *     thread then sleeps again.
 *   - `closed` is set under the lock and tested under the lock together with the queues; close then wakes all threads.
 *
 * Rejected: see docs/design/blocking-work.md.
 */
#include "work/pool.h"

#include "base/assert.h"
#include "port/clock.h"
#include "port/inside.h"

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
    /* The product cannot overflow: CMakeLists.txt requires a 64-bit machine. */
    size_t bytes = pool->thread_max * sizeof *pool->threads;
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

/* Removes the job number `nth` (0: the oldest) from the lane's queue and returns it. */
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

/* Returns how many more jobs of the lane may start now. If it returns 0, *again_ns is the time at which a running job
 * begins to count as stuck, so that another job may start; or FLI_NEVER if a running job must end before another may
 * start. */
static uint32_t room_locked(const fli_job_lane *lane, uint64_t *again_ns)
{
    *again_ns = FLI_NEVER;
    /* The result is a lower bound, because busy_count includes stuck jobs. It is exact if `most` equals `wide`. */
    if (lane->busy_count < lane->wide) return lane->wide - lane->busy_count;
    if (lane->busy_count >= lane->most) return 0;
    uint64_t           now_ns = fli_clock_ns();
    uint32_t           fresh = 0;
    const fli_job_run *run = lane->running.prev; /* begins with the job that started last */
    for (; run != &lane->running && fli_clock_after(run->since_ns, FLI_STUCK_NS) > now_ns; run = run->prev) {
        *again_ns = fli_clock_after(run->since_ns, FLI_STUCK_NS);
        if (++fresh == lane->wide) return 0;
    }
    *again_ns = FLI_NEVER;
    uint32_t room = lane->wide - fresh, left = lane->most - lane->busy_count;
    return room < left ? room : left;
}

/* Returns the lane with the oldest job that can begin. Returns NULL if no job can begin; then *until_ns is the time at
 * which the caller must check again. */
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

/* Returns how many free threads there should be, by the first INVARIANT in the head of this file. */
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

/* Starts one more thread. The new thread needs the lock, which the caller holds, before it checks the queues. */
static filch_err start_locked(fli_workpool *pool)
{
    fli_pool_thread *t = pool->threads;
    while (t->phase == STARTED) {
        if (++t == pool->threads + pool->thread_max) return FILCH_ELIMIT;
    }
    /* The join does not block: a thread with the phase LEFT has released the lock and never takes it again. */
    if (t->phase == LEFT) fli_thread_join(&t->thread);
    t->pool = pool;
    t->phase = UNUSED;
    filch_err err = fli_thread_start(&t->thread, "filch-work", serve, t);
    if (err != FILCH_OK) return err;
    t->phase = STARTED;
    pool->thread_count++;
    return FILCH_OK;
}

/* Starts threads until the first INVARIANT in the head of this file holds. The lock is held during all the starts, so
 * each start delays the threads that wait for the lock by about 40 us. */
static filch_err provide_threads_locked(fli_workpool *pool)
{
    if (pool->by_hand) return FILCH_OK;
    filch_err err = FILCH_OK;
    uint32_t  wanted = wanted_locked(pool);
    while (err == FILCH_OK && pool->thread_count - pool->busy_count < wanted) err = start_locked(pool);
    /* It is no error if no thread could be started but the pool has one: that thread will take the job when it is free.
     * The next submit tries again to start a thread. */
    return pool->thread_count > 0 ? FILCH_OK : err;
}

static void begin_locked(fli_workpool *pool, fli_job_lane *lane, fli_job_run *run)
{
    run->next = &lane->running;
    run->prev = lane->running.prev;
    run->prev->next = run->next->prev = run;
    run->number = pool->begun++;
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
    fli_job_run run = { .owner = job->owner, .key = job->key, .since_ns = fli_clock_ns() };
    begin_locked(pool, lane, &run);
    if (pool->queue_count > 0) (void)provide_threads_locked(pool);
    /* Before it took this job, this thread may have been the one that waited until a job of another lane counts as
     * stuck. The signal wakes another free thread. That thread checks all lanes, and then waits for that moment
     * instead. */
    if (pool->queue_count > 0) fli_cond_signal(&pool->work);
    fli_mutex_unlock(&pool->lock);
    fli_inside call;
    fli_inside_begin(&call, pool);
    job->run(job); /* `run` may free the job, so the job is not used after the call */
    fli_inside_end(&call);
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

/* Main function of a pool thread. */
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

/* ---- functions called by threads outside the pool ---- */

static filch_err submit_locked(fli_workpool *pool, fli_job_lane *lane, fli_job *job)
{
    if (pool->closed) return FILCH_ECLOSED;
    /* Jobs that a free thread is about to take do not count as waiting. Otherwise the refusal of this job
     * would depend on how quickly threads wake up. */
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

/* Removes all jobs from the queues of all lanes. Returns the jobs as one list. */
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
    /* Only this thread can access the removed jobs now. It cancels them without the lock, so that their cancel
     * functions may call the pool. */
    fli_jobs_cancel(job);
}

void fli_jobs_cancel(fli_job *first)
{
    while (first != NULL) {
        fli_job *next = first->next;
        first->next = NULL;
        first->cancel(first);
        first = next;
    }
}

static bool is_of(const fli_job_owner *owner, uint64_t key, uint64_t serial, uint64_t tag)
{
    return key != 0 && owner->serial == serial && owner->tag == tag;
}

fli_job *fli_workpool_withdraw(fli_workpool *pool, uint64_t serial, uint64_t tag, fli_job_claim_fn claim, void *ctx)
{
    fli_job *removed = NULL, **end = &removed;
    fli_mutex_lock(&pool->lock);
    for (int i = 0; i < FLI_LANE_COUNT; i++) {
        fli_job_lane *lane = &pool->lanes[i];
        fli_job     **link = &lane->oldest;
        lane->newest = NULL;
        while (*link != NULL) {
            fli_job *job = *link;
            if (!is_of(&job->owner, job->key, serial, tag) || !claim(ctx, &job->owner, job->key, true)) {
                lane->newest = job;
                link = &job->next;
                continue;
            }
            *link = job->next;
            job->next = NULL;
            *end = job;
            end = &job->next;
            lane->queue_count--;
            pool->queue_count--;
        }
    }
    for (int i = 0; i < FLI_LANE_COUNT; i++) {
        const fli_job_run *running = &pool->lanes[i].running;
        for (const fli_job_run *run = running->next; run != running; run = run->next) {
            if (is_of(&run->owner, run->key, serial, tag)) (void)claim(ctx, &run->owner, run->key, false);
        }
    }
    fli_mutex_unlock(&pool->lock);
    return removed;
}

bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns)
{
    fli_mutex_lock(&pool->lock);
    FLI_ASSERT(pool->closed);
    bool late = false;
    /* After `until_ns`, only the free threads are waited for. Each of them leaves as soon as the system runs it. */
    while (pool->thread_count > (late ? pool->busy_count : 0)) {
        if (!fli_cond_wait_until(&pool->quiet, &pool->lock, late ? FLI_NEVER : until_ns)) late = true;
    }
    bool all_left = pool->thread_count == 0;
    /* Joins under the lock, so that two callers do not join the same thread. Joining does not block long: a thread with
     * the phase LEFT has released the lock (otherwise this thread would not hold it) and never takes it again. */
    for (uint32_t i = 0; i < pool->thread_max; i++) {
        if (pool->threads[i].phase != LEFT) continue;
        fli_thread_join(&pool->threads[i].thread);
        pool->threads[i].phase = UNUSED;
    }
    fli_mutex_unlock(&pool->lock);
    return all_left;
}

uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room)
{
    const fli_job_run *next[FLI_LANE_COUNT]; /* in each lane, the first running job that is not copied yet */
    fli_mutex_lock(&pool->lock);
    for (int i = 0; i < FLI_LANE_COUNT; i++) next[i] = pool->lanes[i].running.next;
    uint32_t count = pool->busy_count;
    for (uint32_t n = 0; n < count && n < room; n++) {
        int first = -1; /* the lane whose next job started first */
        for (int i = 0; i < FLI_LANE_COUNT; i++) {
            if (next[i] == &pool->lanes[i].running) continue;
            if (first < 0 || next[i]->number < next[first]->number) first = i;
        }
        owners[n] = next[first]->owner;
        next[first] = next[first]->next;
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
