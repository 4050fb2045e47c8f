/* work.h - what the library `work` runs elsewhere: a function in a state of its own, on a thread of the work pool.
 *
 * A job belongs to the task that waits for it and to the pool, whoever lets go last frees it. If the task stops waiting
 * (time, cancel, the end of its process) the job is told to stop, and the watchdog interrupts it. A job that the pool
 * never began (its queue was full, the scheduler stopped) and that nobody waits for any more is freed with the host,
 * which lists all of them.
 */
#ifndef FLI_LUA_WORK_H
#define FLI_LUA_WORK_H

#include <stdbool.h>

struct filch_lua;
struct fli_lua_job;
struct fli_lua_proc;

/* Has it been told to stop? Thread: the one that runs it. */
bool fli_lua_job_stops(const struct fli_lua_job *job);

/* The process has ended: nobody waits for its jobs. */
void fli_lua_jobs_forget(struct fli_lua_proc *p);

/* Frees those that never began. No scheduler is left. */
void fli_lua_jobs_fini(struct filch_lua *lua);

#endif
