/* coroutines.c - coroutine.resume, wrap, yield and status, for states in which a task can wait or be preempted inside a
 * coroutine.
 *
 * When a task waits inside a coroutine, the yield has to pass through the code that resumed the coroutine out to the
 * step. When the task continues, each coroutine on this way is resumed again. resume and wrap distinguish such a yield
 * from a yield of the program (fli_lua_proc.why), and pass it on.
 */
#include <lauxlib.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

#define TOO_DEEP "C stack overflow: too many coroutines that close each other"

/* Resumes `co` with `nargs` values on the stack of `co`. Returns the number of results, or -1 if an error was raised;
 * results and error are on the stack of `co`. If a task waits inside `co` or is preempted there, this function yields
 * too and does not return; `k` is called later. */
static int resume(lua_State *L, lua_State *co, int nargs, lua_KContext ctx, lua_KFunction k)
{
    fli_lua_proc *p = fli_lua_self(L);
    bool          passes = lua_isyieldable(L);
    int           results = 0;
    if (!passes) p->no_yield++;
    p->why = FLI_LUA_BY_USER;
    fli_lua_outer outer = { L, p->outer, p->stack_moved };
    p->outer = &outer;
    p->stack_moved = false;
    fli_store_rlx(&p->running, co);
    int status = lua_resume(co, L, nargs, &results);
    fli_store_rlx(&p->running, L);
    p->outer = outer.next;
    p->stack_moved = p->stack_moved || outer.stack_moved;
    if (p->stack_moved) fli_lua_preempt_arm_returns(L);
    if (!passes) p->no_yield--;
    if (status == LUA_YIELD && p->why != FLI_LUA_BY_USER) {
        fli_lua_set_away(co, true);
        return lua_yieldk(L, 0, ctx, k);
    }
    if (status == LUA_OK || status == LUA_YIELD) return results;
    if (fli_lua_ends_with(p, status)) {
        lua_xmove(co, L, 1);
        (void)fli_lua_raise_final(L, p);
    }
    return -1;
}

static bool can_resume(lua_State *L, lua_State *co, int nargs, const char **why)
{
    lua_Debug frame;
    *why = NULL;
    if (fli_lua_is_away(co) || co == L) *why = "cannot resume non-suspended coroutine";
    else if (lua_status(co) == LUA_OK && lua_getstack(co, 0, &frame)) *why = "cannot resume non-suspended coroutine";
    else if (lua_status(co) == LUA_OK && lua_gettop(co) == 0) *why = "cannot resume dead coroutine";
    else if (lua_status(co) != LUA_OK && lua_status(co) != LUA_YIELD) *why = "cannot resume dead coroutine";
    else if (!lua_checkstack(co, nargs)) *why = "too many arguments to resume";
    return *why == NULL;
}

/* Makes space on L's stack for the `results` values on the stack of `co` and one more value. Returns false if that is
 * impossible: then the values are popped from the stack of `co`, and *why is set to the reason. */
static bool has_room(lua_State *L, lua_State *co, int results, const char **why)
{
    if (lua_checkstack(L, results + 1)) return true;
    lua_pop(co, results);
    *why = "too many results to resume";
    return false;
}

/* ---- resume ------------------------------------------------------------------------------------------------- */

static int go_on_resume(lua_State *L, int status, lua_KContext ctx);

static int refuse(lua_State *L, const char *why)
{
    lua_pushboolean(L, 0);
    lua_pushstring(L, why);
    return 2;
}

static int run_resume(lua_State *L, lua_State *co, int nargs)
{
    const char *why;
    int         results = resume(L, co, nargs, 0, go_on_resume);
    bool        fine = results >= 0;
    if (!fine) results = 1; /* failed: the only result is the error, on top of the stack of `co` */
    if (!has_room(L, co, results, &why)) return refuse(L, why);
    lua_pushboolean(L, fine);
    lua_xmove(co, L, results);
    return 1 + results;
}

static int go_on_resume(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    lua_State *co = lua_tothread(L, 1);
    fli_lua_set_away(co, false);
    return run_resume(L, co, 0);
}

static lua_State *check_thread(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    fli_lua_expect(L, co != NULL, 1, "coroutine");
    return co;
}

static int coroutine_resume(lua_State *L)
{
    lua_State  *co = check_thread(L);
    const char *why;
    int         nargs = lua_gettop(L) - 1;
    if (!can_resume(L, co, nargs, &why)) return refuse(L, why);
    lua_xmove(L, co, nargs);
    return run_resume(L, co, nargs);
}

/* ---- wrap --------------------------------------------------------------------------------------------------- */

static int go_on_wrap(lua_State *L, int status, lua_KContext ctx);

/* Moves the error of `co` to L. If the stack of `co` is empty, because closing `co` has dropped the error (before Lua
 * 5.4.3), pushes nil. */
static void take_error(lua_State *L, lua_State *co)
{
    if (lua_gettop(co) > 0) lua_xmove(co, L, 1);
    else lua_pushnil(L);
}

static int run_wrap(lua_State *L, lua_State *co, int nargs)
{
    const char *why;
    int         results = resume(L, co, nargs, 0, go_on_wrap);
    if (results >= 0) {
        if (!has_room(L, co, results, &why)) return luaL_error(L, "%s", why);
        lua_xmove(co, L, results);
        return results;
    }
    fli_lua_proc *p = fli_lua_self(L);
    /* If lua_resume could not resume `co` at all ("C stack overflow"), `co` has not failed and stays suspended. */
    bool has_failed = lua_status(co) != LUA_OK && lua_status(co) != LUA_YIELD;
    if (has_failed && fli_lua_close_too_deep(p)) return luaL_error(L, TOO_DEEP);
    if (has_failed && fli_lua_can_wait(L, p)) {
        lua_settop(L, 0);
        if (fli_lua_closing_begin(L, p, co)) {
            luaL_where(L, 1);
            return fli_lua_closing_go_on(L, LUA_OK, 0);
        }
        if (lua_gettop(L) > 0) return fli_lua_raise_final(L, p);
    } else if (has_failed) {
        (void)fli_lua_close_thread(p, co); /* leaves on the stack of `co` the error of `co`, or of a __close handler */
    }
    take_error(L, co);
    if (fli_lua_is_final(p)) return fli_lua_raise_final(L, p);
    if (lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

static int go_on_wrap(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    fli_lua_set_away(co, false);
    return fli_lua_moves_return(L, run_wrap(L, co, 0));
}

static int call_wrapped(lua_State *L)
{
    lua_State  *co = lua_tothread(L, lua_upvalueindex(1));
    const char *why;
    int         nargs = lua_gettop(L);
    if (!can_resume(L, co, nargs, &why)) return luaL_error(L, "%s", why);
    lua_xmove(L, co, nargs);
    return fli_lua_moves_return(L, run_wrap(L, co, nargs));
}

static int coroutine_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    lua_pushcclosure(L, call_wrapped, 1);
    return 1;
}

/* ---- yield, status and close -------------------------------------------------------------------------------- */

static int coroutine_yield(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (p->current != NULL && L == p->current->L) return luaL_error(L, "attempt to yield from outside a coroutine");
    if (L == p->closing) return luaL_error(L, "attempt to yield in a coroutine that is being closed");
    p->why = FLI_LUA_BY_USER;
    return lua_yield(L, lua_gettop(L));
}

static int coroutine_status(lua_State *L)
{
    lua_State  *co = check_thread(L);
    lua_Debug   frame;
    const char *text = "dead";
    if (co == L) text = "running";
    else if (fli_lua_is_away(co)) text = "normal";
    else if (lua_status(co) == LUA_YIELD) text = "suspended";
    else if (lua_status(co) == LUA_OK && lua_getstack(co, 0, &frame)) text = "normal";
    else if (lua_status(co) == LUA_OK && lua_gettop(co) > 0) text = "suspended";
    lua_pushstring(L, text);
    return 1;
}

/* Works like stock Lua's coroutine.close. A coroutine inside which a task waits is refused, although Lua considers it
 * suspended. */
static int coroutine_close(lua_State *L)
{
    lua_State *co = check_thread(L);
    lua_Debug  frame;
    bool       active = co == L || fli_lua_is_away(co) || (lua_status(co) == LUA_OK && lua_getstack(co, 0, &frame));
    if (active) return luaL_error(L, "cannot close a %s coroutine", co == L ? "running" : "normal");
    fli_lua_proc *p = fli_lua_self(L);
    if (fli_lua_close_too_deep(p)) return luaL_error(L, TOO_DEEP);
    bool fine = fli_lua_close_thread(p, co) == LUA_OK;
    lua_pushboolean(L, fine);
    if (fine) return 1;
    lua_xmove(co, L, 1);
    return fli_lua_is_final(p) ? fli_lua_raise_final(L, p) : 2;
}

const fli_lua_member fli_lua_coroutine_members[] = {
    { .library = "coroutine", .name = "resume", .fn = coroutine_resume },
    { .library = "coroutine", .name = "wrap", .fn = coroutine_wrap },
    { .library = "coroutine", .name = "yield", .fn = coroutine_yield },
    { .library = "coroutine", .name = "close", .fn = coroutine_close },
    { .library = "coroutine", .name = "status", .fn = coroutine_status },
    { .name = NULL },
};
