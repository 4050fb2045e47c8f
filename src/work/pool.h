/* pool.h - a bounded pool of threads for functions that block. Starts no thread until the first job; never more than
 * its limit; jobs beyond the queue's limit are refused. Knows nothing of processes. */
#ifndef FLI_WORK_POOL_H
#define FLI_WORK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"
#include "port/thread.h"

/* The yield that a job works for, as numbers: the pool knows no processes. */
typedef struct fli_job_owner {
    uint64_t serial;  /* of the process; 0: none waits for it */
    uint64_t tag;     /* of its yield */
    uint32_t command; /* FILCH_CMD_* */
} fli_job_owner;

/* Part of whatever is to be run. The pool never frees it, and does not touch it once run or cancel has begun. */
typedef struct fli_job {
    struct fli_job *next;
    void (*run)(struct fli_job *job);    /* on a pool thread; may block, may submit; the job may be freed inside */
    void (*cancel)(struct fli_job *job); /* instead of run, on the thread that closes the pool; not under its lock */
    fli_job_owner owner;
} fli_job;

/* A job that runs now: on the stack of its thread, because the job may be freed while it runs. */
typedef struct fli_job_run {
    struct fli_job_run *next, *prev;
    fli_job_owner       owner;
    uint64_t            since_ns;
} fli_job_run;

/* Everything below the conditions belongs to `lock`, and is plain because of it. */
typedef struct fli_workpool {
    fli_mutex   lock;
    fli_cond    work;  /* a job was queued, or the pool closes */
    fli_cond    quiet; /* a thread has left */
    fli_mem     mem;
    fli_thread *threads; /* room for thread_max; the first thread_count are started and not yet joined */
    uint32_t    thread_max;
    uint32_t    thread_count;
    uint32_t    busy_count; /* of them, in a job */
    uint32_t    left_count; /* of them, gone; only after close */
    uint32_t    queue_max;
    uint64_t    queue_count; /* jobs from oldest to newest */
    fli_job    *oldest, *newest;
    fli_job_run running; /* the ring of the running jobs begins and ends here */
    bool        closed;
    bool        by_hand; /* set right after init: no threads, somebody calls fli_workpool_run */
} fli_workpool;

/* `queue_max`: how many jobs may wait while every thread has one. FILCH_EINVAL without threads, FILCH_ENOMEM,
 * FILCH_ESYS; then there is nothing to undo. */
filch_err fli_workpool_init(fli_workpool *pool, const fli_mem *mem, uint32_t thread_max, uint32_t queue_max);

/* Takes `job` when it returns FILCH_OK: one of run and cancel will be called once.
 * FILCH_EFULL, FILCH_ECLOSED, FILCH_ENOMEM, FILCH_ESYS (no thread could be started and none is running).
 * Any thread, also inside run and cancel. */
filch_err fli_workpool_submit(fli_workpool *pool, fli_job *job);

/* No more jobs; those that have not begun are cancelled, oldest first. Idle threads leave. May be called twice. */
void fli_workpool_close(fli_workpool *pool);

/* After close: waits until all threads have left, at most until `until_ns`, and joins them. False: some job still runs;
 * call again later. */
bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns);

/* Of a pool by hand: runs the nth queued job (0: the oldest) on this thread. False: there are not so many. */
bool fli_workpool_run(fli_workpool *pool, uint64_t nth);

/* Copies the owners of up to `room` running jobs, the one that began first in front. Returns how many jobs run. */
uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room);

/* Jobs that are running now. */
uint32_t fli_workpool_busy(fli_workpool *pool);

/* After a join that returned true, or when there never was a job. */
void fli_workpool_fini(fli_workpool *pool);

#endif
