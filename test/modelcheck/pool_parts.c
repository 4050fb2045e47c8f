/* pool_parts.c - the wake-ups of the work pool (real work/pool.c): jobs submitted while threads begin to wait, several
 * jobs in a row on a thread that was just woken, and the close. Every job must be run exactly once.
 *
 * The explorer cannot start a thread inside a program, so the program has one thread for each thread that the pool may
 * start, which waits until the pool starts it. The pool is compiled here under other names, because sched_parts.c has a
 * replacement of the pool that does nothing.
 */
#include "port/thread.h"

static filch_err part_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg);
static void      part_thread_join(fli_thread *thread);

#define fli_thread_start part_thread_start
#define fli_thread_join part_thread_join
#define fli_workpool_init part_workpool_init
#define fli_workpool_submit part_workpool_submit
#define fli_workpool_close part_workpool_close
#define fli_workpool_join part_workpool_join
#define fli_workpool_run part_workpool_run
#define fli_workpool_running part_workpool_running
#define fli_workpool_busy part_workpool_busy
#define fli_workpool_fini part_workpool_fini
#include "work/pool.c"

#include "parts.h"

enum { JOBS = 3, THREADS = 2 };

static struct scene {
    fli_workpool pool;
    struct {
        fli_job  job;
        int      payload; /* not atomic: written before the job is submitted, read when the job runs */
        uint32_t ran, cancelled;
    } jobs[JOBS];
    uint32_t submitted;
    /* The fields from here on are protected by `lock`. `started` lists the threads that the pool has started; `over`:
     * the pool starts no more threads. */
    fli_mutex lock;
    fli_cond  changed;
    struct {
        void (*run)(void *arg);
        void *arg;
    } started[THREADS];
    uint32_t started_count, done_count;
    bool     over;
} * s;

/* ---- threads ---- */

static filch_err part_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    (void)thread, (void)name;
    fli_mutex_lock(&s->lock);
    must(s->started_count < THREADS, "the pool starts at most THREADS threads");
    s->started[s->started_count].run = run;
    s->started[s->started_count++].arg = arg;
    fli_mutex_unlock(&s->lock);
    fli_cond_broadcast(&s->changed);
    return FILCH_OK;
}

static void part_thread_join(fli_thread *thread)
{
    (void)thread;
}

static void pool_thread(uint32_t which)
{
    fli_mutex_lock(&s->lock);
    while (s->started_count <= which && !s->over) fli_cond_wait(&s->changed, &s->lock);
    bool mine = s->started_count > which;
    fli_mutex_unlock(&s->lock);
    if (mine) s->started[which].run(s->started[which].arg);
}

static void pool_thread_0(void)
{
    pool_thread(0);
}

static void pool_thread_1(void)
{
    pool_thread(1);
}

/* ---- jobs ---- */

static uint32_t number_of(const fli_job *job)
{
    uint32_t i = 0;
    while (&s->jobs[i].job != job) i++;
    return i;
}

static void count_done(void)
{
    fli_mutex_lock(&s->lock);
    s->done_count++;
    fli_mutex_unlock(&s->lock);
    fli_cond_broadcast(&s->changed);
}

static void run(fli_job *job)
{
    uint32_t i = number_of(job);
    must(s->jobs[i].payload == 7, "a write before the submit is seen by the job");
    s->jobs[i].ran++;
    count_done();
}

static void cancel(fli_job *job)
{
    s->jobs[number_of(job)].cancelled++;
    count_done();
}

static void submit(uint32_t i)
{
    s->jobs[i].payload = 7;
    filch_err err = part_workpool_submit(&s->pool, &s->jobs[i].job);
    must(err == FILCH_OK || err == FILCH_ECLOSED, "an open pool accepts the job");
    if (err != FILCH_OK) count_done();
}

static void end_pool(void)
{
    part_workpool_close(&s->pool);
    must(part_workpool_join(&s->pool, FLI_NEVER), "all threads of the pool end");
    fli_mutex_lock(&s->lock);
    s->over = true;
    fli_mutex_unlock(&s->lock);
    fli_cond_broadcast(&s->changed);
}

/* Waits until `count` jobs have run, then closes the pool. If the pool loses a wake-up, this function never returns,
 * and the explorer reports a deadlock. */
static void wait_and_end(uint32_t count)
{
    fli_mutex_lock(&s->lock);
    while (s->done_count < count) fli_cond_wait(&s->changed, &s->lock);
    fli_mutex_unlock(&s->lock);
    end_pool();
}

static void submit_two_and_wait(void)
{
    submit(0);
    submit(1);
    wait_and_end(s->submitted);
}

static void submit_third(void)
{
    submit(2);
}

static void submit_and_close(void)
{
    submit(0);
    submit(1);
    end_pool();
}

/* ---- programs ---- */

static void setup_with(uint32_t submitted, uint32_t threads)
{
    s = fli_weak_new(sizeof *s);
    s->submitted = submitted;
    (void)!fli_mutex_init(&s->lock);
    (void)!fli_cond_init(&s->changed);
    fli_mem mem;
    fli_mem_init(&mem, fli_weak_alloc, NULL);
    must(part_workpool_init(&s->pool, &mem, threads, 10) == FILCH_OK, "the pool is initialised");
    for (uint32_t i = 0; i < JOBS; i++)
        s->jobs[i].job = (fli_job){ .run = run, .cancel = cancel, .lane = FLI_LANE_WORK };
}

static void setup_one(void)
{
    setup_with(2, 1);
}

static void setup_two(void)
{
    setup_with(2, 2);
}

static void setup_three(void)
{
    setup_with(3, 1);
}

static void check(void)
{
    uint32_t ran = 0;
    for (uint32_t i = 0; i < s->submitted; i++) {
        must(s->jobs[i].ran + s->jobs[i].cancelled == 1, "each job is run or cancelled, once");
        ran += s->jobs[i].ran;
    }
    must(s->pool.thread_count == 0 && s->pool.busy_count == 0 && s->pool.queue_count == 0,
         "the pool has no thread and no job");
    part_workpool_fini(&s->pool);
    fli_weak_outcome(ran * 4 + s->started_count);
}

static void check_all_ran(void)
{
    for (uint32_t i = 0; i < s->submitted; i++) must(s->jobs[i].ran == 1, "each job is run, once");
    check();
}

const fli_weak_program parts_pool[] = {
    { .name = "pool_one",
      .promise = "two jobs for one thread: both run",
      .setup = setup_one,
      .threads = { submit_two_and_wait, pool_thread_0 },
      .check = check_all_ran },
    { .name = "pool_two",
      .promise = "two jobs for two threads",
      .setup = setup_two,
      .threads = { submit_two_and_wait, pool_thread_0, pool_thread_1 },
      .check = check_all_ran },
    { .name = "pool_two_submit",
      .promise = "two threads submit three jobs for one thread",
      .setup = setup_three,
      .threads = { submit_two_and_wait, submit_third, pool_thread_0 },
      .check = check_all_ran },
    { .name = "pool_close",
      .promise = "closed while a job runs and another waits",
      .setup = setup_one,
      .threads = { submit_and_close, pool_thread_0 },
      .check = check },
    { 0 },
};
