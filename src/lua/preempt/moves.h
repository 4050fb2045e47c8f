/* moves.h - keeps scripts safe from a defect of Lua 5.4.4 as Debian 12 ships it: the operator `..` may use a stack that
 * has been freed.
 *
 * The defect. Lua reallocates the stack of a coroutine when the stack must grow, and when a collection finds that it is
 * much too large. The function luaV_concat keeps a pointer into the stack while it calls a __concat metamethod,
 * and uses the pointer after the metamethod has returned. If the stack has *moved* in the meantime, the result of `..`
 * is wrong, and the next collection reads or clears memory that is not the stack. (Debian's patch for CVE-2022-33099
 * has introduced this; Lua 5.4.4 without the patch reads the pointer again.)
 *
 * The cure. If a metamethod yields, Lua leaves luaV_concat and completes the operator in luaV_finishOp when the
 * coroutine is resumed; luaV_finishOp does not have the defect. So a process is paused soon after one of its stacks
 * has moved: at the next instruction of Lua code, or when the C function that runs returns to Lua code. Stacks double,
 * so a process seldom moves one. If the process cannot yield before the metamethod returns, the process is ended with
 * an error.
 *
 * Design: docs/design/lua/preemption.md.
 */
#ifndef FLI_LUA_MOVES_H
#define FLI_LUA_MOVES_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

#include "lua/process/proc.h"

/* For the allocator (fli_lua_heap.on_move). Sets fli_lua_proc.stack_moved and the hook, if code of the process runs. */
void fli_lua_moves_note(fli_lua_heap *heap);

/* Called after a stack has moved. L is the coroutine that runs. Returns true if a __concat metamethod may be active in
 * L. Otherwise clears p->stack_moved, and sets `stack_moved` of each outer coroutine in which a __concat metamethod may
 * be active. */
bool fli_lua_moves_matter(lua_State *L, fli_lua_proc *p);

/* Returns true if the process can be paused in L now. */
static inline bool fli_lua_can_pause(lua_State *L, const fli_lua_proc *p)
{
    return p->no_yield == 0 && lua_isyieldable(L);
}

/* Called by the hook when a function returns, with the record of that function. Ends the process with an error if a
 * stack has moved and the function is a __concat metamethod. */
void fli_lua_moves_check(lua_State *L, fli_lua_proc *p, lua_Debug *call);

/* Slow path of fli_lua_moves_return(): a stack has moved. */
int fli_lua_moves_pause(lua_State *L, fli_lua_proc *p, int count);

/* Called when a C function returns `count` results to Lua code. Pauses the process if one of its stacks has moved.
 * Does nothing in a state that belongs to no process. Returns `count`. */
static inline int fli_lua_moves_return(lua_State *L, int count)
{
    fli_lua_proc *p = fli_lua_self(L);
    return p != NULL && p->stack_moved ? fli_lua_moves_pause(L, p, count) : count;
}

/* Defines returning_NAME, which programs get for the C function NAME if it has no entry (entries.h), such as a method
 * of an object: calls NAME, and then fli_lua_moves_return(). */
#define FLI_LUA_RETURNING(name)                  \
    static int returning_##name(lua_State *L)    \
    {                                            \
        return fli_lua_moves_return(L, name(L)); \
    }

#endif
