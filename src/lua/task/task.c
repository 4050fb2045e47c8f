/* task.c - the library `task`: tasks, which are functions that run alternately in one process; another task runs
 * whenever one waits.
 *
 * A task is a userdata with an fli_lua_task in it (proc.h). The user values of a task are its coroutine (while the task
 * runs), its results (afterwards), and the traceback of its error. The registry refers to a task while the task runs.
 *
 * The program's function runs in the coroutine under xpcall, where it can be interrupted like any other code. Starting
 * a task, ending it, and waiting for its end are done in C: see waits.h.
 */
#include "lua/task/task.h"

#include <lauxlib.h>

#include "lua/host/libs.h"
#include "lua/preempt/moves.h"
#include "lua/task/waits.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

enum { COROUTINE = 1, RESULTS = 2, TRACE = 3, TASK_USERS = 3 }; /* indexes of the user values of a task */
enum { SUBJECT = 1, WAIT = 2 }; /* stack of a call that waits; SUBJECT is a task, or a list of tasks */

static const char anchors_key, task_key; /* addresses used as registry keys */

/* Pushes the registry table under `key`, which is created if needed. Returns true if it was created. */
static bool push_table(lua_State *L, const char *key)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE) return false;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
    return true;
}

static void push_task(lua_State *L, const fli_lua_task *task)
{
    (void)push_table(L, &anchors_key);
    lua_rawgetp(L, -1, task);
    lua_remove(L, -2);
}

/* ---- the life of a task ----------------------------------------------------------------------------------------- */

/* Message handler of a task: stores the traceback of the error. */
static int note_trace(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TSTRING) return 1;
    fli_lua_task *task = fli_lua_self(L)->current;
    push_task(L, task);
    fli_lua_push_trace(L, task);
    lua_setiuservalue(L, -2, TRACE);
    lua_pop(L, 1);
    return 1;
}

/* Moves the results of the task's function from the stack, where they are above `true` or `false`, into the user value
 * RESULTS. */
static void keep_results(lua_State *L, fli_lua_task *task)
{
    int count = lua_gettop(L) - 1;
    task->failed = !lua_toboolean(L, 1);
    task->result_count = count;
    lua_createtable(L, count, 0);
    lua_replace(L, 1);
    for (int i = count; i > 0; i--) lua_rawseti(L, 1, i);
    push_task(L, task);
    lua_insert(L, 1);
    lua_setiuservalue(L, 1, RESULTS);
}

/* Called when the function of the task has returned or failed. An error of the function ends the process, unless this
 * task was cancelled, or another task is waiting for this task now and gets the error. A task that has given up its
 * wait for this task, because of a timeout or a cancel, does not get the error. */
static int end_body(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    fli_lua_proc *p = fli_lua_self(L);
    fli_lua_task *task = p->current;
    bool          awaited = task->waiters.first != NULL;
    keep_results(L, task);
    task->ended = true;
    while (task->waiters.first != NULL) {
        fli_lua_entry *entry = task->waiters.first;
        fli_lua_entry_leave(entry);
        /* `open` counts the unfinished tasks of a task.all. Each wake-up of the task that called task.all walks over
         * all of its tasks, so it is woken only when the last of these tasks ends, or when one of them fails. */
        if (entry->wait->open > 0) entry->wait->open--;
        if (task->failed || entry->wait->open == 0) fli_lua_wake(p, entry->wait->task);
    }
    if (!task->failed || awaited || task->cancel_asked) return 0;
    if (lua_getiuservalue(L, 1, TRACE) == LUA_TNIL) {
        (void)lua_getiuservalue(L, 1, RESULTS);
        lua_rawgeti(L, -1, 1);
    }
    return lua_error(L);
}

/* The first function of a task's coroutine. Arguments: the program's function, and the arguments of that function. */
static int body(lua_State *L)
{
    lua_pushcfunction(L, fli_lua_xpcall);
    lua_insert(L, 1);
    lua_pushcfunction(L, note_trace);
    lua_insert(L, 3);
    lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, end_body);
    return end_body(L, LUA_OK, 0);
}

static int task_await(lua_State *L);
static int task_cancel(lua_State *L);
static int task_status(lua_State *L);

FLI_LUA_RETURNING(task_await)
FLI_LUA_RETURNING(task_cancel)
FLI_LUA_RETURNING(task_status)

static void set_metatable(lua_State *L)
{
    static const luaL_Reg methods[] = { { "await", returning_task_await },
                                        { "cancel", returning_task_cancel },
                                        { "status", returning_task_status },
                                        { NULL, NULL } };
    if (push_table(L, &task_key)) {
        lua_pushliteral(L, "task");
        lua_setfield(L, -2, "__name");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        lua_createtable(L, 0, 3);
        luaL_setfuncs(L, methods, 0);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
}

fli_lua_task *fli_lua_task_start(lua_State *L, fli_lua_proc *p, int function)
{
    int           nargs = lua_gettop(L) - function;
    fli_lua_task *task = lua_newuserdatauv(L, sizeof *task, TASK_USERS);
    *task = (fli_lua_task){ .answer = filch_none() };
    set_metatable(L);
    lua_State *co = lua_newthread(L);
    lua_setiuservalue(L, -2, COROUTINE);
    if (!lua_checkstack(co, nargs + 4)) luaL_error(L, "too many arguments");
    lua_insert(L, function);
    lua_pushcfunction(co, body);
    lua_xmove(L, co, nargs + 1);
    (void)push_table(L, &anchors_key);
    lua_pushvalue(L, function);
    lua_rawsetp(L, -2, task);
    lua_settop(L, function);
    task->L = co;
    fli_lua_set_away(co, true);
    task->nargs = nargs + 1;
    task->next = p->tasks;
    if (p->tasks != NULL) p->tasks->prev = task;
    p->tasks = task;
    fli_lua_wake(p, task);
    return task;
}

void fli_lua_task_end(fli_lua_proc *p, fli_lua_task *task)
{
    lua_State *L = task->L; /* the coroutine has ended, so its stack is empty and this function can use it */
    if (task->prev != NULL) task->prev->next = task->next;
    else p->tasks = task->next;
    if (task->next != NULL) task->next->prev = task->prev;
    filch_drop(&task->answer);
    fli_lua_set_away(L, false);
    (void)push_table(L, &anchors_key); /* the table of anchors exists: it was created when the first task was started */
    lua_pushnil(L);
    lua_rawsetp(L, -2, task);
    lua_pop(L, 1);
}

fli_lua_task *fli_lua_to_task(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &task_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is ? lua_touserdata(L, index) : NULL;
}

bool fli_lua_task_cancel(fli_lua_proc *p, fli_lua_task *task)
{
    if (task->ended) return false;
    task->cancel_asked = task->cancelled = true;
    fli_lua_wake(p, task);
    return true;
}

/* ---- one task ------------------------------------------------------------------------------------------------- */

static fli_lua_task *check_task(lua_State *L)
{
    fli_lua_task *task = fli_lua_to_task(L, 1);
    fli_lua_expect(L, task != NULL, 1, "task");
    return task;
}

/* task.spawn(function, arguments...) -> task */
static int task_spawn(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    (void)fli_lua_task_start(L, fli_lua_need_process(L), 1);
    return 1;
}

/* Pushes the results of the task at `index`, and returns their number. */
static int push_results(lua_State *L, int index, const fli_lua_task *task)
{
    luaL_checkstack(L, task->result_count + 2, "too many results");
    (void)lua_getiuservalue(L, index, RESULTS);
    int list = lua_gettop(L);
    for (int i = 1; i <= task->result_count; i++) lua_rawgeti(L, list, i);
    return task->result_count;
}

/* Raises the error of the task at `index`. */
static int raise_error(lua_State *L, int index)
{
    (void)lua_getiuservalue(L, index, RESULTS);
    lua_rawgeti(L, -1, 1);
    return lua_error(L);
}

static int push_timeout(lua_State *L)
{
    lua_pushnil(L);
    lua_pushliteral(L, "timeout");
    return 2;
}

static int go_on_await(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc       *p = fli_lua_need_process(L);
    const fli_lua_task *task = lua_touserdata(L, SUBJECT);
    if (task->ended) return task->failed ? raise_error(L, SUBJECT) : push_results(L, SUBJECT, task);
    fli_lua_wait *wait = lua_touserdata(L, WAIT);
    if (!p->current->cancelled && !p->current->late) return fli_lua_wait_park(L, wait, (uint64_t)until_ns, go_on_await);
    fli_lua_wait_leave(wait);
    fli_lua_check_cancel(L, p);
    return push_timeout(L);
}

/* task:await([timeout]) -> the results of the task | nil, "timeout". Raises the error of the task if it failed. */
static int task_await(lua_State *L)
{
    fli_lua_task *task = check_task(L);
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_deadline(L, p, 2);
    lua_settop(L, 1);
    if (task->ended) return go_on_await(L, LUA_OK, 0);
    if (task == p->current) return luaL_error(L, "a task cannot await itself");
    fli_lua_wait_begin(L, p);
    fli_lua_wait_enter(fli_lua_wait_push(L, p, 1), 0, &task->waiters);
    return go_on_await(L, LUA_OK, (lua_KContext)until);
}

/* task:cancel(): raises "cancelled" where the task waits, or at its next wait. */
static int task_cancel(lua_State *L)
{
    fli_lua_task *task = check_task(L);
    lua_pushboolean(L, fli_lua_task_cancel(fli_lua_self(L), task));
    return 1;
}

static int task_status(lua_State *L)
{
    const fli_lua_task *task = check_task(L);
    lua_pushstring(L, !task->ended ? "running" : task->failed ? "failed" : "done");
    return 1;
}

/* ---- several tasks -------------------------------------------------------------------------------------------- */

/* Pushes the i-th task of the list at SUBJECT. */
static fli_lua_task *push_nth(lua_State *L, uint32_t i)
{
    lua_rawgeti(L, SUBJECT, (lua_Integer)i);
    return lua_touserdata(L, -1);
}

/* Ends the wait of task.all or task.any, whatever its outcome: cancels all tasks of the list. */
static void cancel_all(lua_State *L, fli_lua_proc *p)
{
    fli_lua_wait *wait = lua_touserdata(L, WAIT);
    fli_lua_wait_leave(wait);
    for (uint32_t i = 1; i <= wait->count; i++) {
        (void)fli_lua_task_cancel(p, push_nth(L, i));
        lua_pop(L, 1);
    }
}

/* Parks the task that called task.all or task.any until the next wake-up. If that task was cancelled or the timeout has
 * passed, cancels all tasks of the list, and then raises the cancel or returns nil and "timeout". */
static int wait_on(lua_State *L, fli_lua_proc *p, lua_KContext until_ns, lua_KFunction k)
{
    fli_lua_wait *wait = lua_touserdata(L, WAIT);
    if (!p->current->cancelled && !p->current->late) return fli_lua_wait_park(L, wait, (uint64_t)until_ns, k);
    cancel_all(L, p);
    fli_lua_check_cancel(L, p);
    return push_timeout(L);
}

/* Turns the list of functions and tasks at stack index 1 (SUBJECT) into a list of tasks: starts a task for each
 * function. Pushes a new wait with one entry for each task. Raises an error, and starts no task, if an element is
 * neither a function nor a task. */
static fli_lua_wait *spawn_all(lua_State *L, fli_lua_proc *p, const char *name)
{
    lua_Integer count = lua_istable(L, 1) ? (lua_Integer)lua_rawlen(L, 1) : 0;
    if (count == 0) luaL_error(L, "task.%s: the first argument must be a list of functions", name);
    if (count > FLI_LUA_CASES_MAX) luaL_error(L, "task.%s takes at most %d functions", name, FLI_LUA_CASES_MAX);
    for (lua_Integer i = 1; i <= count; i++, lua_pop(L, 1)) {
        if (lua_rawgeti(L, 1, i) == LUA_TFUNCTION || fli_lua_to_task(L, -1) != NULL) continue;
        luaL_error(L, "task.%s: the list must hold functions or tasks, but number %d is a %s", name, (int)i,
                   luaL_typename(L, -1));
    }
    fli_lua_wait_begin(L, p);
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 1; i <= count; i++) {
        if (lua_rawgeti(L, 1, i) == LUA_TFUNCTION) (void)fli_lua_task_start(L, p, lua_gettop(L));
        lua_rawseti(L, 2, i);
    }
    lua_replace(L, SUBJECT);
    fli_lua_wait *wait = fli_lua_wait_push(L, p, (size_t)count);
    for (uint32_t i = 1; i <= wait->count; i++) {
        fli_lua_task *task = push_nth(L, i);
        if (!task->ended) fli_lua_wait_enter(wait, i - 1, &task->waiters);
        lua_pop(L, 1);
    }
    return wait;
}

/* Pushes a list with the first result of each task. */
static int push_firsts(lua_State *L, uint32_t count)
{
    lua_createtable(L, (int)count, 0);
    int values = lua_gettop(L);
    for (uint32_t i = 1; i <= count; i++) {
        (void)push_nth(L, i);
        (void)lua_getiuservalue(L, -1, RESULTS);
        lua_rawgeti(L, -1, 1);
        lua_rawseti(L, values, (lua_Integer)i);
        lua_settop(L, values);
    }
    return 1;
}

static int go_on_all(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    uint32_t      count = ((fli_lua_wait *)lua_touserdata(L, WAIT))->count, open = 0;
    for (uint32_t i = 1; i <= count; i++) {
        const fli_lua_task *task = push_nth(L, i);
        if (!task->ended) open++;
        else if (task->failed) return cancel_all(L, p), raise_error(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return open == 0 ? push_firsts(L, count) : wait_on(L, p, until_ns, go_on_all);
}

/* task.all(functions [, timeout]) -> a list with the first result of each function, in order | nil, "timeout". If one
 * function fails, the others are cancelled, and the error is raised. */
static int task_all(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_deadline(L, p, 2);
    lua_settop(L, 1);
    fli_lua_wait *wait = spawn_all(L, p, "all");
    for (uint32_t i = 0; i < wait->count; i++) wait->open += wait->entries[i].queue != NULL;
    return go_on_all(L, LUA_OK, (lua_KContext)until);
}

static int go_on_any(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    uint32_t      count = ((fli_lua_wait *)lua_touserdata(L, WAIT))->count, open = 0;
    for (uint32_t i = 1; i <= count; i++) {
        const fli_lua_task *task = push_nth(L, i);
        if (!task->ended) open++;
        if (task->ended && !task->failed) {
            cancel_all(L, p);
            int at = lua_gettop(L);
            lua_pushinteger(L, (lua_Integer)i);
            lua_insert(L, at);
            int results = push_results(L, at + 1, task);
            lua_remove(L, at + 2); /* removes the list of results; the next line removes the task */
            lua_remove(L, at + 1);
            return results + 1;
        }
        lua_pop(L, 1);
    }
    if (open > 0) return wait_on(L, p, until_ns, go_on_any);
    (void)push_nth(L, count);
    return raise_error(L, lua_gettop(L));
}

/* task.any(functions [, timeout]) -> the number of the first function that returned, and its results | nil, "timeout".
 * The other functions are cancelled. If all fail, the error of the last function in the list is raised. */
static int task_any(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_deadline(L, p, 2);
    lua_settop(L, 1);
    (void)spawn_all(L, p, "any");
    return go_on_any(L, LUA_OK, (lua_KContext)until);
}

const fli_lua_member fli_lua_task_members[] = {
    { .library = "task", .name = "spawn", .fn = task_spawn },
    { .library = "task", .name = "all", .fn = task_all },
    { .library = "task", .name = "any", .fn = task_any },
    { .name = NULL },
};
