/* proc.c - a Lua process as the scheduler sees it: init, step, close. See proc.h.
 *
 * A step does, in this order:
 *   1. completions and notices wake the tasks that wait for them; messages stay in the events until a task asks for
 *      them
 *   2. ready tasks are resumed, one after the other, until none is ready or one has been interrupted
 *   3. messages that no task took are kept, because the events are valid during the step only
 *   4. if a deadline is nearer than the outstanding sleeps, another sleep is yielded
 *   5. the status is chosen: continue if a task is ready, idle if a task waits for a message, wait if all tasks wait
 *      for completions
 */
#include "lua/process/proc.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/state.h"
#include "lua/message/blob.h"
#include "lua/preempt/preempt.h"
#include "lua/process/work.h"

/* ---- beginning ---------------------------------------------------------------------------------------------- */

static int return_all(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    return lua_gettop(L);
}

/* Continuation of run_method(), after the chunk has returned: calls a function of the table that the chunk returned.
 * Upvalue 1 is the name of this function. */
static int call_method(lua_State *L, int status, lua_KContext nargs)
{
    (void)status;
    const char *name = lua_tostring(L, lua_upvalueindex(1));
    bool        optional = lua_toboolean(L, lua_upvalueindex(2));
    if (!lua_istable(L, -1)) {
        return optional ? 1 : luaL_error(L, "the chunk returned no table with a function '%s'", name);
    }
    if (lua_getfield(L, -1, name) != LUA_TFUNCTION) {
        if (optional) return lua_pop(L, 1), 1;
        return luaL_error(L, "the chunk has no function '%s'", name);
    }
    lua_replace(L, 1);
    lua_settop(L, 1 + (int)nargs);
    lua_callk(L, (int)nargs, LUA_MULTRET, 0, return_all);
    return lua_gettop(L);
}

/* First function of a process that is started with a method: calls the chunk, and then the function with the method's
 * name in the table that the chunk returned. Upvalues: the name of the method, and whether it may be missing.
 * Arguments: the chunk, then the arguments that both the chunk and the method get. */
static int run_method(lua_State *L)
{
    int nargs = lua_gettop(L) - 1;
    luaL_checkstack(L, nargs + 4, "too many arguments");
    for (int i = 1; i <= nargs + 1; i++) lua_pushvalue(L, i);
    lua_callk(L, nargs, 1, nargs, call_method);
    return call_method(L, LUA_OK, nargs);
}

/* Sets the upvalues of the function on top of the stack, and pushes the arguments above it. Both come from `start`.
 * Returns false if start->bytes are not valid. */
bool fli_lua_push_start(lua_State *L, const fli_lua_start *start)
{
    const uint8_t *at = start->bytes, *end = start->size > 0 ? at + start->size : at;
    int            function = lua_gettop(L), list = 0;
    fli_lua_attach(start->refs);
    if (start->functions) {
        luaL_checkstack(L, 4, NULL);
        lua_newtable(L);
        lua_pushvalue(L, function);
        lua_rawseti(L, -2, 1);
        lua_insert(L, function);
        list = function++;
        fli_lua_attach_functions(list);
    }
    for (int i = 1; start->bytes != NULL && i <= start->code->upvalues; i++) {
        if (i != start->code->env && !fli_lua_decode_variable(L, function, i, &at, end)) return false;
    }
    luaL_checkstack(L, (int)start->arg_count + 4, "too many arguments");
    for (size_t i = 0; i < start->arg_count; i++) {
        if (start->bytes == NULL) fli_lua_unpack(L, &start->args[i]);
        else if (!fli_lua_decode(L, &at, end)) return false;
    }
    fli_lua_attach(NULL);
    if (list != 0) lua_remove(L, list);
    return true;
}

/* Lua function: its arguments are the function of the code, and `start`. Returns the stack for the main task: the
 * function to run, then its arguments. If start->method is set, the function to run is run_method(), with
 * the function of the code as its first argument; otherwise it is the function of the code. */
static int push_main_task(lua_State *L)
{
    const fli_lua_start *start = lua_touserdata(L, 2);
    lua_settop(L, 1);
    if (start->method != NULL) {
        lua_pushstring(L, start->method);
        lua_pushboolean(L, start->method_optional);
        lua_pushcclosure(L, run_method, 2);
        lua_insert(L, 1);
    }
    if (!fli_lua_push_start(L, start))
        return luaL_error(L, "the arguments of the process are damaged and cannot be read");
    return lua_gettop(L);
}

/* Called with the function of the code on the stack of a new state. Replaces it by the function that the main task runs
 * first, and the arguments of that function. Returns a status of lua_pcall. */
static int push_beginning(lua_State *L, const fli_lua_start *start)
{
    bool by_name = start->old != NULL && start->method != NULL;
    if (start->method == NULL && start->size == 0 && start->arg_count == 0) return LUA_OK;
    lua_pushcfunction(L, by_name ? fli_lua_upgrade_begin : push_main_task);
    lua_insert(L, 1);
    lua_pushlightuserdata(L, (void *)(uintptr_t)start);
    return lua_pcall(L, 2, LUA_MULTRET, 0);
}

/* Returns the seed of the process's random numbers. A process that its supervisor restarts must not draw the same
 * random numbers as the failed process, so its seed also depends on its pid. */
static uint64_t seed_of(const fli_lua_start *start, filch_pid self)
{
    return start->again ? fli_prng_mix(start->seed ^ self.serial) : start->seed;
}

static void set_fields(fli_lua_proc *p, const fli_lua_start *start, filch_sched *sched, filch_pid self)
{
    p->lua = start->lua;
    p->code = start->code;
    p->sched = sched;
    p->self = self;
    p->ready_end = &p->ready;
    p->saved_end = &p->saved;
    for (int i = 0; i < FLI_LUA_SLEEPS; i++) p->sleeps[i] = FLI_LUA_NEVER;
    p->next_tag = FLI_LUA_FIRST_TAG;
    p->seed = seed_of(start, self);
    p->simulated = filch_sim_active(p->sched);
    p->file = start->origin.file;
}

/* Starts upgraded code inside the step of the old process: reads the values that were handed over, and runs the
 * file. */
static int begin_inside(fli_lua_proc *p, const fli_lua_start *start)
{
    fli_lua_preempt_count(p);
    p->handing_over = true;
    fli_lua_preempt_lend(p, start->old);
    int status = push_beginning(p->L, start);
    fli_lua_preempt_return(p, start->old);
    p->handing_over = false;
    return status;
}

fli_lua_proc *fli_lua_open(const fli_lua_start *start, filch_sched *sched, filch_pid self, int *status)
{
    uint32_t      seed = (uint32_t)(filch_sim_active(sched) ? seed_of(start, self) : start->lua->seed);
    fli_lua_proc *p = fli_lua_state_for(start->lua, start->code, start->memory_max, seed, status);
    if (p == NULL) return NULL;
    set_fields(p, start, sched, self);
    if (*status == LUA_OK && !fli_lua_file_used(p, &start->origin)) *status = LUA_ERRMEM;
    if (*status == LUA_OK) *status = start->old != NULL ? begin_inside(p, start) : push_beginning(p->L, start);
    if (*status == LUA_OK) fli_lua_preempt_count(p);
    return p;
}

void fli_lua_start_refusal(const fli_lua_start *start, const fli_lua_proc *p, int status, char *text, size_t size)
{
    /* The text must differ from Lua's own "not enough memory": Filch treats an error with exactly that text as a memory
     * error, which a program cannot catch. */
    if (status == LUA_ERRMEM || status == FLI_LUA_ERRCHUNK) {
        size_t most = (size_t)start->lua->total.max;
        bool   total = most < SIZE_MAX && (p != NULL ? p->heap.over_total : status == FLI_LUA_ERRCHUNK);
        snprintf(text, size, "not enough memory to begin: %s may hold %zu bytes",
                 total ? "all processes together" : "the process", total ? most : start->memory_max);
        return;
    }
    const char *words = lua_tostring(p->L, -1);
    snprintf(text, size, "%s", words != NULL ? words : "an error object without a text");
}

/* Called for a process that could not be started: writes the reason to start->text and frees everything of the process.
 * Returns the error code. */
static filch_err refuse(fli_lua_proc *p, const fli_lua_start *start, int status)
{
    if (start->text != NULL) fli_lua_start_refusal(start, p, status, start->text, start->text_size);
    if (p != NULL) fli_lua_state_free(start->lua, p);
    return status == LUA_ERRMEM || status == FLI_LUA_ERRCHUNK ? FILCH_LUA_EMEMORY : FILCH_LUA_EERROR;
}

filch_err fli_lua_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    fli_lua_start *given = filch_as_ptr(args);
    if (method != NULL) return FILCH_EMETHOD;
    if (given == NULL) return FILCH_EINVAL;
    fli_lua_start start = *given;
    if (start.again && start.origin.file != NULL) {
        start.code = fli_lua_file_newest(start.lua, start.origin.file, &start.origin);
    } else {
        fli_lua_code_hold(start.code);
    }
    int           status;
    fli_lua_proc *p = fli_lua_open(&start, filch_ctx_sched(ctx), filch_ctx_self(ctx), &status);
    if (p == NULL || status != LUA_OK) {
        fli_lua_code_drop(start.code);
        return refuse(p, &start, status);
    }
    p->main.L = p->L;
    p->main.nargs = lua_gettop(p->L) - 1;
    fli_lua_wake(p, &p->main);
    fli_add_rlx(&p->lua->alive, 1);
    if (start.old != NULL) given->made = p;
    *(fli_lua_proc **)self = p;
    return FILCH_OK;
}

void fli_lua_close(void *self)
{
    fli_lua_proc     *p = *(fli_lua_proc **)self;
    struct filch_lua *lua = p->lua;
    fli_lua_report_end(p);
    (void)!filch_close_unread(p->sched, fli_lua_inbox_unread(p));
    fli_lua_file_subscribe(p, false);
    for (fli_lua_saved *saved = p->saved; saved != NULL; saved = saved->next) filch_drop(&saved->data);
    for (fli_lua_task *task = p->tasks; task != NULL; task = task->next) filch_drop(&task->answer);
    filch_drop(&p->main.answer);
    if (p->rare != NULL) {
        filch_drop(&p->rare->result);
        free(p->rare->failure);
    }
    fli_lua_jobs_forget(p);
    fli_lua_code_drop(p->code);
    fli_lua_code_forget(p);
    fli_lua_state_free(lua, p);
    /* PAIR lua.alive, release half: when filch_lua_destroy reads zero, nothing of this process is left. */
    (void)fli_add_rel(&lua->alive, (uint64_t)-1);
}

/* ---- stepping ----------------------------------------------------------------------------------------------- */

/* Handles an event that is not a message. If the event is a notice, adds it to the kept messages and sets *notice. */
static filch_err take_event(fli_lua_proc *p, const filch_event *event, bool *notice)
{
    switch (event->type) {
    case FILCH_EVENT_CANCEL:
        if (fli_lua_deferred_cancel_begin(p)) return FILCH_OK;
        p->main.cancelled = true;
        fli_lua_wake(p, &p->main);
        return FILCH_OK;
    case FILCH_EVENT_YIELD:
        p->yields--;
        fli_lua_pending_end(p, event->tag);
        if (event->tag == FLI_LUA_DEFERRED_CANCEL_TAG) return fli_lua_deferred_cancel_end(p), FILCH_OK;
        if (event->tag != FLI_LUA_ALARM_TAG) {
            if (event->error == FILCH_OK && fli_lua_asks(p, event->tag))
                return FILCH_OK; /* this yield has only sent the request: the task still waits for the reply */
            (void)fli_lua_answer(p, event->tag, &event->data, event->error, false);
            return FILCH_OK;
        }
        fli_lua_alarms_ring(p);
        /* The process ends if the sleep failed for lack of memory, because no other event would wake the process. */
        return event->error;
    case FILCH_EVENT_EXIT:
        /* A tag means that the monitor belongs to one call: the exit event goes to that call only. */
        if (event->tag != 0) return (void)fli_lua_exited(p, event->tag, event), FILCH_OK;
        break;
    default: break;
    }
    *notice = true;
    return fli_lua_inbox_notice(p, event);
}

static filch_err take_events(fli_lua_proc *p)
{
    bool      messages = false;
    filch_err err = FILCH_OK;
    for (size_t i = 0; i < p->event_count && err == FILCH_OK; i++) {
        if (p->events[i].type == FILCH_EVENT_MESSAGE) messages = true;
        else err = take_event(p, &p->events[i], &messages);
    }
    if (!messages || err != FILCH_OK) return err;
    if (p->main.inbox) fli_lua_wake(p, &p->main);
    for (fli_lua_task *task = p->tasks; task != NULL; task = task->next) {
        if (task->inbox) fli_lua_wake(p, task);
    }
    return p->reply_tasks > 0 ? fli_lua_inbox_answers(p) : FILCH_OK;
}

static fli_lua_task *next_ready(fli_lua_proc *p)
{
    fli_lua_task *task = p->ready;
    if (task == NULL) return NULL;
    p->ready = task->next_ready;
    if (p->ready == NULL) p->ready_end = &p->ready;
    return task;
}

/* Resumes one task. If the process has ended, sets *over and returns the error code of its end. */
static filch_err resume(fli_lua_proc *p, fli_lua_task *task, bool *over)
{
    int results = 0, nargs = task->nargs;
    task->state = FLI_LUA_RUNNING;
    task->nargs = 0;
    p->current = task;
    p->stack_moved = false;
    fli_store_rlx(&p->running, task->L);
    int status = lua_resume(task->L, NULL, nargs, &results);
    fli_store_rlx(&p->running, NULL);
    if (p->next != NULL && (status == LUA_OK || status == LUA_YIELD)) {
        /* The code of the process has been replaced, but the error of process.upgrade() that should end the old code
         * was dropped: a __close handler has yielded from its coroutine. */
        *over = true;
        return fli_lua_upgrade_end(p);
    }
    if (status == LUA_YIELD) {
        if (p->why == FLI_LUA_BY_PAUSE) {
            task->state = FLI_LUA_PARKED;
            fli_lua_wake(p, task);
        }
        return FILCH_OK;
    }
    if (status == LUA_OK && task != &p->main) {
        fli_lua_task_end(p, task);
        return FILCH_OK;
    }
    if (status != LUA_OK && task == &p->main && fli_lua_end_later(p, status)) return FILCH_OK;
    *over = true;
    return status == LUA_OK ? fli_lua_end_done(p, results) : fli_lua_end_failed(p, task, status);
}

/* Ends the process when memory runs out while no task runs. The error names no place in the program, because no Lua
 * code was running. */
static filch_err end_without_memory(fli_lua_proc *p)
{
    static const char text[] = "not enough memory to keep messages, or to wait";
    return fli_lua_fail(p, FILCH_LUA_EMEMORY, text, sizeof text - 1);
}

static filch_err choose_status(fli_lua_proc *p)
{
    filch_err err = fli_lua_inbox_end(p);
    if (err == FILCH_OK) err = fli_lua_alarms_set(p);
    if (err != FILCH_OK) return end_without_memory(p);
    if (p->ready != NULL) return filch_continue(p->out);
    bool messages_matter = p->inbox_tasks > 0 || p->reply_tasks > 0;
    return p->yields > 0 && !messages_matter ? filch_wait(p->out) : filch_idle(p->out);
}

filch_err fli_lua_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    fli_lua_proc *p = *(fli_lua_proc **)self;
    bool          over = false, paused = false;
    p->out = out;
    p->events = events;
    p->event_count = count;
    p->event_at = 0;
    fli_lua_proc *before;
    fli_lua_preempt_begin(p, &before);
    filch_err err = take_events(p);
    for (fli_lua_task *task; err == FILCH_OK && !over && !paused && (task = next_ready(p)) != NULL;) {
        err = resume(p, task, &over);
        /* Lateness is also checked here, because a task that runs a C function executes no Lua instruction, at which
         * the hook would pause it. */
        paused = p->why == FLI_LUA_BY_PAUSE || fli_lua_is_late(p->runner);
    }
    fli_lua_preempt_end(p, before);
    /* reads the clock: if the step has taken long, the worker then checks its timers before the next step */
    if (paused) (void)fli_lua_now(p);
    if (p->rare != NULL) fli_lua_long_forget(p);
    if (!over) err = err == FILCH_OK ? choose_status(p) : end_without_memory(p);
    fli_lua_inbox_left(p);
    p->out = NULL;
    return err;
}
