/* closing.c - runs the pending __close handlers of a failed coroutine at a place where they can wait.
 *
 * Stock Lua runs the handlers of a failed coroutine inside lua_resetthread, where Lua cannot yield: a handler that
 * waits would fail, and its error would replace the error of the coroutine. So a hook stops each handler before its
 * first instruction and notes its object. Afterwards fli_lua_closing_go_on() calls the handlers one after the other, by
 * lua_pcallk.
 *
 * INVARIANT  a handler that the hook has not noted runs inside lua_resetthread, as in stock Lua: a value with __call,
 * or any handler if the watchdog has replaced the hook.
 */
#include <lauxlib.h>

#include "lua/preempt/budget.h"
#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"

struct fli_lua_closing {
    lua_State              *L; /* the coroutine that is being closed; its registry has the list of objects */
    struct fli_lua_closing *outer;
    int                     found, noted; /* `noted` is less than `found` if memory was too short to note an object */
};

enum { LIST = 1, ERROR = FLI_LUA_CLOSING_ERROR, WHERE = 3 }; /* stack of the function that runs the handlers */

static const char stopped_key; /* its address is the error that stops a handler, and the key of the error in the list */

static bool is_stopped(lua_State *L, int index)
{
    return lua_islightuserdata(L, index) && lua_touserdata(L, index) == &stopped_key;
}

/* Pushes argument `n` of the function that the hook has found, or nil. lua_getlocal finds arguments beyond the
 * parameters of a function in Lua as its varargs, or as the temporary values after its parameters. */
static void push_argument(lua_State *L, lua_Debug *ar, int n)
{
    bool dots = ar->isvararg != 0 && *ar->what != 'C' && n > ar->nparams;
    if (lua_getlocal(L, ar, dots ? ar->nparams - n : n) == NULL) lua_pushnil(L);
}

/* Returns true if the value at index `handler` is the __close handler of the value at index `object`. */
static bool closes(lua_State *L, int handler, int object)
{
    return luaL_getmetafield(L, object, "__close") != LUA_TNIL && lua_rawequal(L, -1, handler);
}

/* Adds the object at index `object` to the list. Stores also the error at index `object` + 1, unless it is the error
 * that stopped the previous handler. */
static void note(lua_State *L, struct fli_lua_closing *closing, int object)
{
    closing->found++;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, closing) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, closing);
    }
    if (!is_stopped(L, object + 1)) {
        lua_pushvalue(L, object + 1);
        lua_rawsetp(L, -2, &stopped_key);
    }
    lua_pushvalue(L, object);
    lua_rawseti(L, -2, closing->noted + 1);
    closing->noted++;
}

/* Hook at the beginning of a call in the coroutine that is being closed. If the call is a pending __close handler,
 * notes its object and stops the handler by an error. */
static void stop_handler(lua_State *L, lua_Debug *ar)
{
    fli_lua_proc           *p = fli_lua_self(L);
    struct fli_lua_closing *closing = p->closing_list;
    lua_Debug               caller;
    int                     function = lua_gettop(L) + 1; /* index of the handler, below its first three arguments */
    if (closing == NULL || closing->L != L || lua_getstack(L, 1, &caller) != 0) return;
    (void)fli_lua_budget_due(L);
    lua_getinfo(L, "Suf", ar);
    for (int n = 1; n <= 3; n++) push_argument(L, ar, n);
    /* A handler that is a value with __call has this value as its first argument, and the object as the second one. */
    int object = closes(L, function, function + 1) ? function + 1 : 0;
    if (object == 0 && closes(L, function + 1, function + 2)) object = function + 2;
    if (object != 0) {
        note(L, closing, object);
        lua_pushlightuserdata(L, (void *)(uintptr_t)&stopped_key);
        (void)lua_error(L);
    }
    lua_settop(L, function - 1);
    /* The handler runs now, and the hook of the process may have to interrupt it. */
    if (p->stack_moved) fli_lua_preempt_arm_returns(L);
    else fli_lua_preempt_disarm(L, p);
}

bool fli_lua_closing_notes(lua_State *L)
{
    return lua_gethook(L) == stop_handler;
}

bool fli_lua_closing_begin(lua_State *L, fli_lua_proc *p, lua_State *co)
{
    struct fli_lua_closing closing = { .L = co, .outer = p->closing_list };
    p->closing_list = &closing;
    lua_sethook(co, stop_handler, LUA_MASKCALL, 0);
    (void)fli_lua_close_thread(p, co);
    p->closing_list = closing.outer;
    if (p->runaway) fli_lua_preempt_arm(co);
    else fli_lua_preempt_disarm(co, p);
    if (closing.found > closing.noted) p->out_of_memory = true;
    if (closing.found == 0 || lua_gettop(co) == 0) return false;
    if (co != L) lua_xmove(co, L, 1);
    /* The stack holds the error. The rest of this function allocates no memory. */
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &closing) == LUA_TTABLE) {
        lua_pushnil(L);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &closing);
    }
    lua_insert(L, -2);
    if (is_stopped(L, -1) && lua_istable(L, -2)) {
        lua_pop(L, 1);
        lua_rawgetp(L, -1, &stopped_key);
    }
    return !p->out_of_memory && !p->runaway;
}

/* Takes the error of a handler, on top of the stack, as the error of the coroutine. */
static void take_error(lua_State *L, fli_lua_proc *p, int status)
{
    (void)fli_lua_ends_with(p, status);
    if (p->out_of_memory || p->runaway) (void)fli_lua_raise_final(L, p);
    lua_replace(L, ERROR);
}

int fli_lua_closing_go_on(lua_State *L, int status, lua_KContext called)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (called > 0 && status != LUA_OK && status != LUA_YIELD) take_error(L, p, status);
    for (;;) {
        lua_settop(L, WHERE);
        if (lua_rawgeti(L, LIST, (lua_Integer)++called) == LUA_TNIL) break;
        if (luaL_getmetafield(L, -1, "__close") == LUA_TNIL) continue;
        lua_insert(L, -2);
        lua_pushvalue(L, ERROR);
        fli_lua_preempt_settle(p);
        status = lua_pcallk(L, 2, 0, 0, called, fli_lua_closing_go_on);
        if (status != LUA_OK) take_error(L, p, status);
    }
    lua_pushvalue(L, WHERE);
    lua_pushvalue(L, ERROR);
    if (lua_type(L, ERROR) == LUA_TSTRING) lua_concat(L, 2);
    return lua_error(L);
}

/* First function of the main task after it has failed. Its arguments are the list of objects and the error. */
static int run_handlers(lua_State *L)
{
    lua_settop(L, ERROR);
    lua_pushliteral(L, "");
    return fli_lua_closing_go_on(L, LUA_OK, 0);
}

bool fli_lua_closing_main(fli_lua_proc *p)
{
    lua_State *L = p->main.L;
    if (!fli_lua_closing_begin(L, p, L)) return false;
    lua_pushcfunction(L, run_handlers);
    lua_insert(L, -3);
    p->main.nargs = 2;
    p->main.state = FLI_LUA_PARKED;
    fli_lua_wake(p, &p->main);
    return true;
}
