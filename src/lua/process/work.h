/* work.h - a job of the library `work`: a function in a state of its own, on a thread of the work pool.
 *
 * A job belongs to the task that waits for it and to the pool; the last of the two to drop its reference frees the job.
 * If the task stops waiting (timeout, cancel, end of its process), the job is asked to stop, and the watchdog
 * interrupts it. If the pool has not begun the job by then, the job will not run, and its arguments are freed at once.
 * If the pool never began a job (its queue was full, or the scheduler stopped) and no task waits for the job, it is
 * freed with the host, which has a list of all jobs.
 */
#ifndef FLI_LUA_WORK_H
#define FLI_LUA_WORK_H

#include <stdbool.h>

struct filch_lua;
struct fli_lua_job;
struct fli_lua_proc;

/* Returns true if the job was asked to stop. Thread: the thread that runs the job. */
bool fli_lua_job_stops(const struct fli_lua_job *job);

/* Drops the references to all jobs of the process, which has ended. */
void fli_lua_jobs_forget(struct fli_lua_proc *p);

/* Frees the jobs that never began. Precondition: all schedulers are destroyed. */
void fli_lua_jobs_fini(struct filch_lua *lua);

#endif
