/* moves.c - see moves.h. */
#include "lua/preempt/moves.h"

#include <string.h>

#include "lua/preempt/budget.h"
#include "lua/preempt/preempt.h"

#define IN_CONCAT "a __concat metamethod that cannot be interrupted has made Lua move its stack (a defect of Lua 5.4.4)"

/* Number of active calls that are searched for a metamethod. Lua finds a call in a time that grows with its depth, so
 * the search takes up to about CALLS_MAX^2 / 2 steps, some microseconds. */
enum { CALLS_MAX = 100 };

void fli_lua_moves_note(fli_lua_heap *heap)
{
    fli_lua_proc *p = (fli_lua_proc *)heap; /* its first member */
    lua_State    *L = fli_load_rlx(&p->running);
    if (L == NULL) return;
    p->stack_moved = true;
    fli_lua_preempt_arm_returns(L);
}

static bool is_concat(const lua_Debug *call)
{
    return call->name != NULL && strcmp(call->namewhat, "metamethod") == 0 && strcmp(call->name, "concat") == 0;
}

/* Returns true if a __concat metamethod may be active in L: also if a function was called by a tail call, because Lua
 * does not know what has called it, and if there are more than CALLS_MAX active calls. */
static bool may_concat(lua_State *L)
{
    lua_Debug call;
    for (int level = 0; level < CALLS_MAX; level++) {
        if (lua_getstack(L, level, &call) == 0) return false;
        if (lua_getinfo(L, "nt", &call) == 0 || call.istailcall || is_concat(&call)) return true;
    }
    return true;
}

bool fli_lua_moves_matter(lua_State *L, fli_lua_proc *p)
{
    if (may_concat(L)) return true;
    for (fli_lua_outer *outer = p->outer; outer != NULL; outer = outer->next)
        outer->stack_moved = outer->stack_moved || may_concat(outer->L);
    p->stack_moved = false;
    return false;
}

void fli_lua_moves_check(lua_State *L, fli_lua_proc *p, lua_Debug *call)
{
    if (p->stack_moved && lua_getinfo(L, "n", call) != 0 && is_concat(call)) (void)fli_lua_budget_stop(L, p, IN_CONCAT);
}

static int return_results(lua_State *L, int status, lua_KContext count)
{
    (void)L, (void)status;
    return (int)count;
}

int fli_lua_moves_pause(lua_State *L, fli_lua_proc *p, int count)
{
    if (!fli_lua_moves_matter(L, p)) return count;
    if (!fli_lua_can_pause(L, p)) {
        fli_lua_preempt_arm_returns(L); /* L may be another coroutine than the one that ran when the stack moved */
        return count;
    }
    fli_lua_preempt_disarm(L, p); /* a hook that runs when a function returns may itself move the stack */
    p->why = FLI_LUA_BY_PAUSE;
    return lua_yieldk(L, 0, count, return_results);
}
