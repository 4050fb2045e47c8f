/* pool.h - threads for functions that block. The pool starts no thread before the first job. Each job belongs to a
 * lane: a kind of work with its own queue and its own limit, so that calls of one kind that do not return do not delay
 * other kinds. The pool does not use processes. Design: docs/design/blocking-work.md. */
#ifndef FLI_WORK_POOL_H
#define FLI_WORK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"
#include "port/thread.h"

/* Limits of every lane except FLI_LANE_WORK. At most FLI_LANE_WIDE jobs that are not stuck run at once, and at most
 * FLI_LANE_MOST jobs including the stuck ones. A job is stuck if it has run for FLI_STUCK_NS. */
#ifdef FLI_SMALL
#define FLI_LANE_WIDE 2
#define FLI_LANE_MOST 4
#else
#define FLI_LANE_WIDE 4
#define FLI_LANE_MOST 64
#endif
#ifndef FLI_STUCK_NS
#define FLI_STUCK_NS FILCH_MILLISECONDS(50)
#endif

typedef enum fli_lane {
    FLI_LANE_WORK,    /* functions of the program: limited only by the options work_threads and work_queue */
    FLI_LANE_OPEN,    /* opening files, and commands on paths. Opening a FIFO blocks until its other side is opened */
    FLI_LANE_FILE,    /* operations on open files */
    FLI_LANE_NAME,    /* name resolution */
    FLI_LANE_PROGRAM, /* starting programs, and waiting for the end of killed programs */
    FLI_LANE_COUNT
} fli_lane;

/* The yield that a job works for. It is stored as plain numbers, because the pool does not use processes. */
typedef struct fli_job_owner {
    uint64_t serial;  /* serial of the process; 0: no process waits for the job */
    uint64_t tag;     /* tag of the yield */
    uint32_t command; /* a FILCH_CMD_* value */
} fli_job_owner;

/* A job. It is a member of the object that it works on. The pool never frees a job, and does not access it after run or
 * cancel has been called. */
typedef struct fli_job {
    struct fli_job *next;
    void (*run)(struct fli_job *job); /* called on a pool thread; may block, may submit jobs, may free the job */
    /* called instead of `run` if the job is removed from its queue before it begins. Called by fli_workpool_close(),
     * or by the caller of fli_workpool_withdraw(); in both cases without the pool's lock */
    void (*cancel)(struct fli_job *job);
    fli_job_owner owner;
    uint64_t      key;    /* key of the yield that the job completes; 0: the yield cannot be cancelled by its tag */
    uint32_t      lane;   /* a fli_lane */
    uint64_t      ticket; /* set by the pool: counts the submitted jobs of all lanes, so a job with a lower ticket is
                             older */
} fli_job;

/* Describes a job that runs now. It is on the stack of the pool thread, because the job itself may be freed while it
 * runs. */
typedef struct fli_job_run {
    struct fli_job_run *next, *prev;
    fli_job_owner       owner;
    uint64_t            key; /* key of the job: see fli_job.key */
    uint64_t            since_ns;
    uint64_t            number; /* counts the started jobs of all lanes, so a job with a lower number started earlier */
} fli_job_run;

typedef struct fli_job_lane {
    fli_job    *oldest, *newest;
    uint64_t    queue_count;
    uint64_t    queue_max; /* how many jobs may wait while `most` jobs run; FLI_NEVER: no limit */
    uint32_t    busy_count;
    uint32_t    wide, most; /* limits of running jobs: `wide` limits those that are not stuck, `most` limits all */
    fli_job_run running;    /* head of the circular list of running jobs, the job that started first in front */
} fli_job_lane;

typedef struct fli_pool_thread {
    struct fli_workpool *pool;
    fli_thread           thread;
    uint32_t             phase; /* UNUSED, STARTED or LEFT: the enum in pool.c */
} fli_pool_thread;

/* The work pool. All fields below `quiet` are protected by `lock`, so they need not be atomic. */
typedef struct fli_workpool {
    fli_mutex        lock;
    fli_cond         work;  /* signalled when a job was queued or the pool closes */
    fli_cond         quiet; /* signalled when a thread leaves the pool */
    fli_mem          mem;
    fli_pool_thread *threads;      /* array of thread_max elements */
    uint32_t         thread_max;   /* largest number of threads, for all lanes together */
    uint32_t         thread_count; /* threads that were started and have not left */
    uint32_t         busy_count;   /* threads that are in a job */
    /* Number of free threads that stay in the pool. Further free threads leave if no queued job can begin, unless a
     * queued job may begin when a running job counts as stuck. */
    uint32_t     keep_count;
    uint64_t     queue_count; /* queued jobs of all lanes */
    uint64_t     tickets;     /* jobs submitted so far */
    uint64_t     begun;       /* jobs started so far */
    fli_job_lane lanes[FLI_LANE_COUNT];
    bool         closed;
    bool by_hand; /* set right after init: the pool has no threads, and its user runs jobs by fli_workpool_run() */
} fli_workpool;

/* Initialises the pool. `thread_max` and `queue_max` are the limits of FLI_LANE_WORK: how many jobs may run at once,
 * and how many more may wait. Errors: FILCH_EINVAL if thread_max is 0, FILCH_ENOMEM, FILCH_ESYS; after an error the
 * pool must not be used or freed. */
filch_err fli_workpool_init(fli_workpool *pool, const fli_mem *mem, uint32_t thread_max, uint32_t queue_max);

/* Queues `job`. If it returns FILCH_OK, either job->run or job->cancel will be called, once. Errors: FILCH_EFULL
 * (FLI_LANE_WORK only), FILCH_ECLOSED, FILCH_ESYS (no thread runs and none could be started). Thread: any, also
 * inside run and cancel. */
filch_err fli_workpool_submit(fli_workpool *pool, fli_job *job);

/* Refuses new jobs from now on, and cancels the jobs that have not started, in each lane the oldest first. Threads
 * without a job leave. Calling it again has no effect. */
void fli_workpool_close(fli_workpool *pool);

/* Decides whether the yield `key` of a job is cancelled. Called with the pool's lock, so it must not call the pool or a
 * function of the program. `queued`: the job has not begun. */
typedef bool (*fli_job_claim_fn)(void *ctx, const fli_job_owner *owner, uint64_t key, bool queued);

/* Calls `claim` for each job that has a key and belongs to the process `serial` and its yields with `tag`: for the
 * queued jobs, then for the running ones. Removes a queued job from its queue if `claim` returns true; a running job
 * continues. Returns the removed jobs as a list, linked by `next`. The caller must call `cancel` of each of them. */
FILCH_MUST_USE fli_job *fli_workpool_withdraw(fli_workpool *pool, uint64_t serial, uint64_t tag, fli_job_claim_fn claim,
                                              void *ctx);

/* Calls `cancel` of each job of the list `first`. */
void fli_jobs_cancel(fli_job *first);

/* Called after fli_workpool_close(): waits until all threads have left, and joins them. Waits for the threads that run
 * a job at most until `until_ns`; a thread without a job is waited for and joined in any case. Returns false if a job
 * still runs; then the caller must call it again later. */
bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns);

/* For a pool with `by_hand`: runs one queued job on this thread. The queued jobs are numbered from 0, lane by
 * lane, in each lane from the oldest; `nth` is the number of the job to run. Returns false if there is no job with this
 * number. */
bool fli_workpool_run(fli_workpool *pool, uint64_t nth);

/* Copies the owners of up to `room` running jobs to `owners`, in the order in which the jobs started. Returns how many
 * jobs run, which may be more than `room`. */
uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room);

/* Returns the number of running jobs. */
uint32_t fli_workpool_busy(fli_workpool *pool);

/* Frees the pool. Call it after a join that returned true, or if no job was ever submitted. */
void fli_workpool_fini(fli_workpool *pool);

#endif
