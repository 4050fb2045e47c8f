/* pool.c - a bounded pool of threads for functions that block. One lock, one queue, first come first served.
 *
 * A thread is *free* when it is started and neither in a job nor gone: it waits for work, or is on its way to look for
 * some. free = thread_count - busy_count - left_count; nobody keeps that number, so it cannot be wrong.
 *
 * INVARIANT  while the pool is open, there is a free thread for each queued job, or all thread_max are started, or the
 *            system refused one. Taking a job lowers both sides by one; submit restores it before it adds a job.
 * INVARIANT  whenever a job is queued, at least one thread is started and has not left.
 * INVARIANT  once closed, the queue is empty.
 *
 * No wake-up is lost:
 *   - A thread waits only when, holding the lock, it saw the queue empty, and waiting lets go of the lock in one step
 *     with falling asleep. So a job is queued either before that look, which sees it, or when the thread can be woken.
 *   - Every queued job signals once, under the lock. If that finds a sleeper, one more free thread is awake; if not,
 *     all free threads were awake already. Each of them looks at the queue until it is empty before it sleeps. So when
 *     a job waits, some free thread is awake and will look, or no thread is free, and the next to finish will look.
 *   - One signal may find the job already taken by a thread that just finished its own. The woken one sleeps again.
 *   - `closed` is set under the lock and tested in the same look as the queue; close then wakes everybody.
 *
 * And no job waits behind another that may be waiting for it, as long as there may be more threads: a job gets a new
 * thread unless there is a free one for each job in the queue. Counting sleepers instead would go wrong: a sleeper that
 * was signalled for one job still looks asleep to the submitter of the next.
 *
 * Rejected: threads that leave when idle, one queue per thread; see docs/notes/0007.
 */
#include "work/pool.h"

#include "base/assert.h"
#include "port/clock.h"

filch_err fli_workpool_init(fli_workpool *pool, const fli_mem *mem, uint32_t thread_max, uint32_t queue_max)
{
    if (thread_max == 0) return FILCH_EINVAL;
    filch_err err = FILCH_ENOMEM;
    *pool = (fli_workpool){ .mem = *mem, .thread_max = thread_max, .queue_max = queue_max };
    pool->running.next = pool->running.prev = &pool->running;
    size_t bytes;
    if (__builtin_mul_overflow(thread_max, sizeof *pool->threads, &bytes)) goto no_threads; /* 32-bit machines */
    pool->threads = fli_zalloc(mem, bytes);
    if (pool->threads == NULL) goto no_threads;
    err = fli_mutex_init(&pool->lock);
    if (err != FILCH_OK) goto no_lock;
    err = fli_cond_init(&pool->work);
    if (err != FILCH_OK) goto no_work;
    err = fli_cond_init(&pool->quiet);
    if (err != FILCH_OK) goto no_quiet;
    return FILCH_OK;
no_quiet:
    fli_cond_fini(&pool->work);
no_work:
    fli_mutex_fini(&pool->lock);
no_lock:
    fli_free(mem, pool->threads, bytes);
no_threads:
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

/* Takes the nth job out of the queue. */
static fli_job *pop_locked(fli_workpool *pool, uint64_t nth)
{
    fli_job *before = NULL, *job = pool->oldest;
    for (; nth > 0; nth--) {
        before = job;
        job = job->next;
    }
    if (before == NULL) pool->oldest = job->next;
    else before->next = job->next;
    if (pool->newest == job) pool->newest = before;
    pool->queue_count--;
    job->next = NULL;
    return job;
}

static void begin_locked(fli_workpool *pool, fli_job_run *run)
{
    run->next = &pool->running;
    run->prev = pool->running.prev;
    run->prev->next = run->next->prev = run;
    pool->busy_count++;
}

static void end_locked(fli_workpool *pool, fli_job_run *run)
{
    run->prev->next = run->next;
    run->next->prev = run->prev;
    pool->busy_count--;
}

static void run_locked(fli_workpool *pool, uint64_t nth)
{
    fli_job    *job = pop_locked(pool, nth);
    fli_job_run run = { .owner = job->owner, .since_ns = fli_clock_ns() };
    begin_locked(pool, &run);
    fli_mutex_unlock(&pool->lock);
    job->run(job); /* may free it */
    fli_mutex_lock(&pool->lock);
    end_locked(pool, &run);
}

bool fli_workpool_run(fli_workpool *pool, uint64_t nth)
{
    fli_mutex_lock(&pool->lock);
    bool there = nth < pool->queue_count;
    if (there) run_locked(pool, nth);
    fli_mutex_unlock(&pool->lock);
    return there;
}

/* The life of a pool thread. */
static void serve(void *arg)
{
    fli_workpool *pool = arg;
    fli_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->queue_count == 0 && !pool->closed) fli_cond_wait(&pool->work, &pool->lock);
        if (pool->queue_count == 0) break;
        run_locked(pool, 0);
    }
    pool->left_count++;
    fli_cond_broadcast(&pool->quiet);
    fli_mutex_unlock(&pool->lock);
}

/* Sees to it that there is a thread for one more job, if there may be one. The new thread waits for our lock before it
 * looks at the queue. Starting under the lock holds others up for some 40 us, but only thread_max times in all. */
static filch_err provide_thread_locked(fli_workpool *pool)
{
    if (pool->by_hand) return FILCH_OK;
    uint32_t free_count = pool->thread_count - pool->busy_count - pool->left_count;
    if (pool->queue_count < free_count || pool->thread_count == pool->thread_max) return FILCH_OK;
    filch_err err = fli_thread_start(&pool->threads[pool->thread_count], "filch-work", serve, pool);
    if (err == FILCH_OK) pool->thread_count++;
    /* Threads stay until close: if there is one, it comes round to this job too. The next job tries again. */
    return pool->thread_count > 0 ? FILCH_OK : err;
}

filch_err fli_workpool_submit(fli_workpool *pool, fli_job *job)
{
    filch_err err = FILCH_OK;
    fli_mutex_lock(&pool->lock);
    if (pool->closed) {
        err = FILCH_ECLOSED;
        goto out;
    }
    /* Jobs that a free thread is about to take do not count as waiting; so the answer does not depend on how quickly
     * the threads wake up. */
    if (pool->busy_count + pool->queue_count >= (uint64_t)pool->thread_max + pool->queue_max) {
        err = FILCH_EFULL;
        goto out;
    }
    err = provide_thread_locked(pool);
    if (err != FILCH_OK) goto out;
    job->next = NULL;
    if (pool->newest != NULL) {
        pool->newest->next = job;
    } else {
        pool->oldest = job;
    }
    pool->newest = job;
    pool->queue_count++;
    fli_cond_signal(&pool->work);
out:
    fli_mutex_unlock(&pool->lock);
    return err;
}

void fli_workpool_close(fli_workpool *pool)
{
    fli_mutex_lock(&pool->lock);
    fli_job *job = pool->oldest;
    pool->oldest = pool->newest = NULL;
    pool->queue_count = 0;
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
    while (pool->left_count < pool->thread_count && in_time) {
        in_time = fli_cond_wait_until(&pool->quiet, &pool->lock, until_ns);
    }
    bool all_left = pool->left_count == pool->thread_count;
    /* Joined under the lock, so that two callers do not join the same thread. A thread that has counted itself as left
     * has let go of the lock, or we would not hold it, and never takes it again: this ends. */
    while (all_left && pool->thread_count > 0) {
        fli_thread_join(&pool->threads[--pool->thread_count]);
        pool->left_count--;
    }
    fli_mutex_unlock(&pool->lock);
    return all_left;
}

uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room)
{
    uint32_t count = 0;
    fli_mutex_lock(&pool->lock);
    for (const fli_job_run *run = pool->running.next; run != &pool->running; run = run->next, count++) {
        if (count < room) owners[count] = run->owner;
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
