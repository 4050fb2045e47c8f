/* pool.h - threads for functions that block. Starts no thread until the first job. Each job belongs to a lane: a kind
 * of work with a queue and a bound of its own, so that calls of one kind that do not return hold up no other kind.
 * Knows nothing of processes. The design: docs/design/blocking-work.md. */
#ifndef FLI_WORK_POOL_H
#define FLI_WORK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"
#include "port/thread.h"

/* Jobs of a lane of the runtime that run at once while none of them is stuck, and with the stuck ones. A job is stuck
 * when it has run for FLI_STUCK_NS. */
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
    FLI_LANE_WORK,    /* functions of the program: bounded by the options work_threads and work_queue alone */
    FLI_LANE_OPEN,    /* opening files, and what is done with paths: a FIFO blocks until its other side comes */
    FLI_LANE_FILE,    /* what is done with open files */
    FLI_LANE_NAME,    /* looking up hosts */
    FLI_LANE_PROGRAM, /* starting programs, and waiting for killed ones */
    FLI_LANE_COUNT
} fli_lane;

/* The yield that a job works for, as numbers: the pool knows no processes. */
typedef struct fli_job_owner {
    uint64_t serial;  /* of the process; 0: none waits for it */
    uint64_t tag;     /* of its yield */
    uint32_t command; /* FILCH_CMD_* */
} fli_job_owner;

/* Embedded in each object that is run. The pool never frees it, and does not touch it once run or cancel has begun. */
typedef struct fli_job {
    struct fli_job *next;
    void (*run)(struct fli_job *job);    /* on a pool thread; may block, may submit; the job may be freed inside */
    void (*cancel)(struct fli_job *job); /* instead of run, on the thread that closes the pool; not under its lock */
    fli_job_owner owner;
    uint32_t      lane;   /* fli_lane */
    uint64_t      ticket; /* set by the pool: numbers the jobs of all lanes in order of arrival */
} fli_job;

/* A job that runs now: on the stack of its thread, because the job may be freed while it runs. */
typedef struct fli_job_run {
    struct fli_job_run *next, *prev;
    fli_job_owner       owner;
    uint64_t            since_ns;
} fli_job_run;

typedef struct fli_job_lane {
    fli_job    *oldest, *newest;
    uint64_t    queue_count;
    uint64_t    queue_max; /* jobs that may wait while `most` run; FLI_NEVER: no limit */
    uint32_t    busy_count;
    uint32_t    wide, most; /* jobs that run at once, without and with stuck ones */
    fli_job_run running;    /* the ring of the running jobs, the one that began first in front, begins and ends here */
} fli_job_lane;

typedef struct fli_pool_thread {
    struct fli_workpool *pool;
    fli_thread           thread;
    uint32_t             phase; /* pool.c */
} fli_pool_thread;

/* Everything below the conditions belongs to `lock`, and is plain because of it. */
typedef struct fli_workpool {
    fli_mutex        lock;
    fli_cond         work;  /* a job was queued, or the pool closes */
    fli_cond         quiet; /* a thread has left */
    fli_mem          mem;
    fli_pool_thread *threads;      /* thread_max of them */
    uint32_t         thread_max;   /* of all lanes together */
    uint32_t         thread_count; /* started, and not left */
    uint32_t         busy_count;   /* of them, in a job */
    uint32_t         keep_count;   /* free threads that stay; others leave when nothing is queued */
    uint64_t         queue_count;  /* jobs in all lanes */
    uint64_t         tickets;
    fli_job_lane     lanes[FLI_LANE_COUNT];
    bool             closed;
    bool by_hand; /* set right after init: there are no threads, the caller runs jobs by fli_workpool_run() */
} fli_workpool;

/* `thread_max`, `queue_max`: of FLI_LANE_WORK: how many jobs run at once, and how many more may wait. Errors:
 * FILCH_EINVAL if thread_max is 0, FILCH_ENOMEM, FILCH_ESYS; after an error there is nothing to undo. */
filch_err fli_workpool_init(fli_workpool *pool, const fli_mem *mem, uint32_t thread_max, uint32_t queue_max);

/* Takes `job` when it returns FILCH_OK: one of run and cancel will be called once.
 * FILCH_EFULL (FLI_LANE_WORK only), FILCH_ECLOSED, FILCH_ESYS (no thread could be started and none is running).
 * Any thread, also inside run and cancel. */
filch_err fli_workpool_submit(fli_workpool *pool, fli_job *job);

/* Refuses new jobs and cancels those that have not begun, the oldest of each lane first. Idle threads leave. May be
 * called twice. */
void fli_workpool_close(fli_workpool *pool);

/* After close: waits until all threads have left, at most until `until_ns`, and joins them. Returns false if a job
 * still runs: call again later. */
bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns);

/* Of a pool with `by_hand`: runs the nth queued job (0: the oldest of the first lane that has one) on this thread.
 * Returns false if fewer are queued. */
bool fli_workpool_run(fli_workpool *pool, uint64_t nth);

/* Copies the owners of up to `room` running jobs, lane by lane, the one that began first in front. Returns how many
 * jobs run. */
uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room);

/* Returns the number of running jobs. */
uint32_t fli_workpool_busy(fli_workpool *pool);

/* Frees the pool, after a join that returned true, or if there never was a job. */
void fli_workpool_fini(fli_workpool *pool);

#endif
