/* work.c - the library `work`: runs Lua functions on the work pool, if they compute for long or call blocking C
 * functions.
 *
 *     work.run(fn, ...) -> its result | nil, why         work.run{ fn, ...; timeout = "2s", memory = "256MB" }
 *
 * work.run is an ordinary call for the program; the process waits without occupying a worker. The function gets copies
 * of its upvalues and arguments, as a spawned process does. But it does not run in a process, so it cannot send,
 * receive or wait. See work.h for the ownership of a job.
 *
 * INVARIANT  the arguments of a job count in the memory of all processes together (`counted`) until they are freed, and
 * in the memory of the process (`charged`) while a task waits for the job. A job that no task waits for has arguments
 *            only while it runs.
 */
#include "lua/process/work.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/host/state.h"
#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"
#include "lua/process/spawn.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

typedef struct fli_lua_job {
    struct fli_lua_job *next, *prev;    /* list of all jobs of the host, under the host's lock */
    struct fli_lua_job *sister, **link; /* list of all jobs that the process `self` waits for */
    fli_lua_start       start;
    fli_lua_bytes       bytes;   /* bytes that `start` refers to */
    size_t              charged; /* bytes charged to the heap of the process that waits */
    size_t              counted; /* bytes that count in the total of all processes */
    filch_sched        *sched;
    filch_pid           self; /* the process that waits for the job */
    uint64_t            until_ns;
    /* Number of references: one held by the waiting task, one by the pool.  writes: the worker that runs the task, and
     * the thread of the pool; the thread that drops the last reference frees the job.  PAIR lua.job */
    FLI_ATOMIC(uint32_t) holders;
    /* 1 if the result is no longer wanted.  writes: the process.  reads: the thread that runs the job. The flag is only
     * a request to end soon, so it orders no other memory access. */
    FLI_ATOMIC(uint32_t) stop;
    /* 1 if the pool has begun the job, or if the process has stopped waiting before that. The thread that sets
     * `claimed` first may use and free the arguments.  writes: the thread of the pool, and the process, by a swap. The
     * swap orders no other memory access: the queue of the pool orders what the process wrote before what the thread of
     * the pool reads, and the thread that swaps second does not access the arguments until the job is freed (PAIR
     * lua.job). */
    FLI_ATOMIC(uint32_t) claimed;
} fli_lua_job;

/* ---- ownership of a job ---------------------------------------------------------------------------------------- */

/* Frees the upvalues and arguments of a job, if they have not been freed yet. */
static void free_arguments(fli_lua_job *job)
{
    fli_lua_code_drop(job->start.code);
    job->start.code = NULL;
    fli_lua_bytes_fini(&job->bytes);
    fli_lua_bytes_init(&job->bytes, 0);
    fli_lua_total_give(&job->start.lua->total, job->counted);
    job->counted = 0;
}

static void free_job(fli_lua_job *job)
{
    struct filch_lua *lua = job->start.lua;
    fli_mutex_lock(&lua->lock);
    if (job->prev != NULL) job->prev->next = job->next;
    else lua->jobs = job->next;
    if (job->next != NULL) job->next->prev = job->prev;
    fli_mutex_unlock(&lua->lock);
    free_arguments(job);
    free(job);
}

static void drop(fli_lua_job *job, uint32_t count)
{
    /* PAIR lua.job, both halves: all accesses of both holders to the job come before it is freed. */
    if (fli_sub_acqrel(&job->holders, count) == count) free_job(job);
}

bool fli_lua_job_stops(const fli_lua_job *job)
{
    return fli_load_rlx(&job->stop) != 0;
}

/* Called when the task no longer waits for the job. If the pool has not begun the job, frees its arguments at once,
 * because the job may stay in the queue of the pool for long. `answered`: the yield is completed or was refused. In
 * this case, a job that the pool has not begun will never begin, so the reference of the pool is dropped too. */
static void let_go(fli_lua_proc *p, fli_lua_job *job, bool answered)
{
    *job->link = job->sister;
    if (job->sister != NULL) job->sister->link = job->link;
    fli_lua_heap_discharge(&p->heap, job->charged);
    fli_store_rlx(&job->stop, 1);
    bool begun = fli_swap_rlx(&job->claimed, 1) != 0;
    if (!begun) free_arguments(job);
    drop(job, answered && !begun ? 2 : 1);
}

void fli_lua_jobs_forget(fli_lua_proc *p)
{
    while (p->rare != NULL && p->rare->jobs != NULL) let_go(p, p->rare->jobs, false);
}

void fli_lua_jobs_fini(struct filch_lua *lua)
{
    while (lua->jobs != NULL) free_job(lua->jobs);
}

static void adopt(fli_lua_proc *p, fli_lua_job *job)
{
    struct filch_lua *lua = p->lua;
    fli_mutex_lock(&lua->lock);
    job->next = lua->jobs;
    if (lua->jobs != NULL) lua->jobs->prev = job;
    lua->jobs = job;
    fli_mutex_unlock(&lua->lock);
    fli_lua_job **all = &p->rare->jobs;
    job->sister = *all;
    job->link = all;
    if (*all != NULL) (*all)->link = &job->sister;
    *all = job;
}

/* ---- on the pool ------------------------------------------------------------------------------------------------ */

/* Makes the data and the error code with which the pool completes the yield, from the result or error of the job. */
static filch_err conclude(fli_lua_proc *p, int status, int count, filch_data *result)
{
    fli_lua_bytes   bytes;
    fli_lua_refusal why = { "" };
    filch_data      data = filch_none();
    filch_err       err = FILCH_OK;
    size_t          said;
    fli_lua_bytes_init(&bytes, p->heap.max);
    if (status == LUA_YIELD) {
        err = FILCH_LUA_EERROR;
        data = filch_str("attempt to yield from outside a coroutine");
    } else if (status != LUA_OK) {
        err = fli_lua_error_words(p, p->L, status, &bytes, &said);
        data = filch_bytes(bytes.at, bytes.size);
    } else if (count > 0 && !fli_lua_pack(p->L, -count, "result", &bytes, &data, &why)) {
        err = FILCH_LUA_EERROR;
        data = filch_str(why.text);
    }
    if (err != FILCH_OK) bytes.lent = true, bytes.total = &p->lua->total;
    filch_err kept = fli_lua_bytes_keep(&bytes, &data, result);
    fli_lua_bytes_fini(&bytes);
    return kept != FILCH_OK ? kept : err;
}

/* Called for a job that could not begin, because there was no memory for its Lua state. Makes the text with which the
 * pool completes the yield of the job. Returns the error code of the job. */
static filch_err refuse(const fli_lua_job *job, int status, filch_data *result)
{
    char text[128];
    fli_lua_start_refusal(&job->start, NULL, status, text, sizeof text);
    filch_data data = filch_str(text);
    filch_err  err = filch_keep(&data, result);
    return err != FILCH_OK ? err : FILCH_LUA_EMEMORY;
}

/* Runs the function of a job. The function pauses after a stack has moved (moves.h); it is then resumed at once. */
static int resume_job(fli_lua_proc *p, int *count)
{
    int status, nargs = lua_gettop(p->L) - 1;
    do {
        p->stack_moved = false;
        p->why = FLI_LUA_BY_USER;
        status = lua_resume(p->L, NULL, nargs, count);
        nargs = 0;
    } while (status == LUA_YIELD && p->why == FLI_LUA_BY_PAUSE);
    return status;
}

static filch_err run_state(fli_lua_job *job, filch_data *result)
{
    int           status;
    fli_lua_proc *before, *p = fli_lua_open(&job->start, job->sched, job->self, &status);
    if (p == NULL) return refuse(job, status, result);
    int count = 0;
    if (status == LUA_OK && fli_lua_rarely(p) == NULL) status = LUA_ERRMEM;
    bool ran = status == LUA_OK;
    if (ran) {
        p->rare->job = job;
        fli_lua_preempt_begin(p, &before);
        fli_store_rlx(&p->running, p->L);
        status = resume_job(p, &count);
        fli_store_rlx(&p->running, NULL);
    }
    filch_err err = fli_lua_job_stops(job) ? FILCH_ECANCELLED : conclude(p, status, count, result);
    /* ends the step only after conclude(), which may run Lua code (__tostring) */
    if (ran) fli_lua_preempt_end(p, before);
    fli_lua_state_free(job->start.lua, p);
    return err;
}

static filch_err run(void *arg, filch_data *result)
{
    fli_lua_job      *job = arg;
    struct filch_lua *lua = job->start.lua;
    fli_add_rlx(&lua->alive, 1);
    bool      wanted = fli_swap_rlx(&job->claimed, 1) == 0;
    filch_err err = wanted && !fli_lua_job_stops(job) ? run_state(job, result) : FILCH_ECANCELLED;
    if (wanted) free_arguments(job);
    drop(job, 1);
    /* PAIR lua.alive, release half: when filch_lua_destroy reads zero, nothing of this job is left. */
    (void)fli_add_rel(&lua->alive, (uint64_t)-1);
    return err;
}

/* ---- waiting for a job ------------------------------------------------------------------------------------------- */

static int push_result(lua_State *L, fli_lua_task *task)
{
    int results = 1;
    task->answered = false;
    if (task->error == FILCH_OK) {
        fli_lua_unpack(L, &task->answer);
    } else if (filch_size(&task->answer) > 0) {
        lua_pushnil(L);
        lua_pushlstring(L, filch_raw(&task->answer), filch_size(&task->answer));
        results = 2;
    } else {
        results = fli_lua_return_error(L, task->error);
    }
    filch_drop(&task->answer);
    return results;
}

static int resume_run(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_task *task = p->current;
    fli_lua_job  *job = (fli_lua_job *)ctx;
    if (!task->cancelled && !task->answered && !task->late) return fli_lua_park(L, job->until_ns, ctx, resume_run);
    let_go(p, job, task->answered);
    task->awaits = 0;
    /* A result that has arrived is returned even if the task was cancelled; the next wait then raises the cancel. */
    if (task->answered) return push_result(L, task);
    fli_lua_check_cancel(L, p);
    lua_pushnil(L);
    lua_pushliteral(L, "timeout");
    return 2;
}

/* Reads the table of work.run{ fn, ...; timeout = , memory = }. Returns the deadline. */
static uint64_t read_table(lua_State *L, fli_lua_proc *p, fli_lua_plan *plan)
{
    uint64_t until = FLI_LUA_NEVER;
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? fli_lua_whole_text(L, -2) : NULL;
        if (name != NULL && strcmp(name, "timeout") == 0) until = fli_lua_until(p, fli_lua_check_span(L, -1));
        else if (name != NULL && strcmp(name, "memory") == 0) (void)fli_lua_plan_option(L, plan, name);
        else if (name != NULL) luaL_error(L, "work.run has no option '%s'; it has timeout and memory", name);
        lua_pop(L, 1);
    }
    fli_lua_plan_elements(L, plan, 1);
    return until;
}

/* Counts the job and its arguments. Returns false, with the reason in *why, if a limit would be exceeded. */
static bool charge(fli_lua_proc *p, fli_lua_job *job, fli_lua_refusal *why)
{
    size_t own = sizeof *job + fli_lua_bytes_allocated(&job->bytes), all = own + job->bytes.refs.bytes;
    bool   fits = fli_lua_charge(p, all);
    if (fits && fli_lua_total_take(&p->lua->total, own)) {
        job->charged = all;
        job->counted = own;
        return true;
    }
    if (fits) fli_lua_heap_discharge(&p->heap, all);
    snprintf(why->text, sizeof why->text, "not enough memory for the job: %s may hold %llu bytes",
             fits ? "all processes together" : "the process",
             (unsigned long long)(fits ? p->lua->total.max : p->heap.max));
    return false;
}

/* Makes a job for the plan, with two references: one for this process and one for the pool. Raises an error on
 * failure. */
static fli_lua_job *make_job(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan, uint64_t until)
{
    fli_lua_refusal why;
    fli_lua_job    *job = fli_lua_rarely(p) != NULL ? malloc(sizeof *job) : NULL;
    if (job == NULL) luaL_error(L, "not enough memory");
    *job = (fli_lua_job){ .sched = p->sched, .self = p->self, .until_ns = until };
    fli_atomic_init(&job->holders, 2);
    fli_atomic_init(&job->stop, 0);
    fli_atomic_init(&job->claimed, 0);
    fli_lua_bytes_init(&job->bytes, p->heap.max);
    filch_err err = fli_lua_plan_start(L, p, plan, &job->bytes, &job->start, &why);
    if (err == FILCH_OK && !charge(p, job, &why)) err = FILCH_ENOMEM;
    if (err == FILCH_OK) {
        adopt(p, job);
        return job;
    }
    free_arguments(job);
    free(job);
    luaL_error(L, "%s", why.text[0] != '\0' ? why.text : filch_err_text(err));
    return NULL;
}

static int work_run(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_plan  plan = {
         .target = 1, .last = lua_gettop(L), .memory_max = p->heap.max, .spawn = FILCH_SPAWN_OPTIONS_INIT
    };
    uint64_t until = FLI_LUA_NEVER;
    if (lua_istable(L, 1)) until = read_table(L, p, &plan);
    else fli_lua_plan_check(L, 1);
    luaL_checkstack(L, 8, NULL);
    fli_lua_wait_begin(L, p);
    uint64_t     tag = p->next_tag++;
    fli_lua_job *job = make_job(L, p, &plan, until);
    filch_err    err = filch_yield_work(p->out, tag, run, job);
    if (err != FILCH_OK) {
        let_go(p, job, true);
        return fli_lua_return_error(L, err);
    }
    p->yields++;
    p->current->awaits = tag;
    p->current->asks = false;
    p->current->answered = false;
    return resume_run(L, LUA_OK, (lua_KContext)job);
}

const fli_lua_member fli_lua_work_members[] = {
    { .library = "work", .name = "run", .fn = work_run },
    { .name = NULL },
};
