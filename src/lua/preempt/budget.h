/* budget.h - what a Lua process may take of its worker: who is late, who has taken too much, and what that ends.
 *
 * A step has a *slice*. When it is over, the process yields where Lua can yield: in its own code, and in the loops of
 * our C functions that keep their state in the Lua state. Where Lua cannot yield (a metamethod or a callback that C
 * calls, what is closed after an error, the text of an error), the process may go on for `runaway_ns` of its thread's
 * processor time, counted from the first moment that it was late there. Then it has spent its *budget*, and ends.
 *
 * INVARIANT  a spent budget is final: fli_lua_proc.runaway is never cleared, no protected call catches the error, no
 * handler and no __close runs Lua code for it. A hook stays set that raises the error again at the first instruction.
 * INVARIANT  every call from the host into Lua happens with fli_lua_proc.running set, so that the watchdog finds the
 * state. Design: docs/design/lua/budgets.md.
 */
#ifndef FLI_LUA_BUDGET_H
#define FLI_LUA_BUDGET_H

#include <lua.h>
#include <stdbool.h>

#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"

/* An error that no protected call may catch: memory or the budget is spent, or the process is ending. */
static inline bool fli_lua_is_final(const fli_lua_proc *p)
{
    return p->out_of_memory || p->exiting || p->runaway;
}

/* After a protected call that returned `status`. Notes that memory has run out. */
static inline bool fli_lua_ends_with(fli_lua_proc *p, int status)
{
    if (status == LUA_ERRMEM) p->out_of_memory = true;
    return fli_lua_is_final(p);
}

/* Raises the value on top of the stack again, further out. */
int fli_lua_raise_final(lua_State *L, fli_lua_proc *p);

/* The budget is spent, or more of it: raises the final error in the first case. Called where no yield can pass. */
void fli_lua_budget_spend(lua_State *L, fli_lua_proc *p);

/* Ends the process: raises the final error with these words. */
int fli_lua_budget_stop(lua_State *L, fli_lua_proc *p, const char *words);

/* In a loop of C whose length a program decides, every few microseconds. Returns true if the step is late and a yield
 * can pass: the caller keeps its state and calls fli_lua_pause. Raises the final error if the budget is spent. */
bool fli_lua_budget_due(lua_State *L);

/* In a walk of C that cannot be left in between (a message that is written or read, a pattern that is compared, a line
 * of the log), every few microseconds. Returns true if it has taken too long: WALK_TIMES `runaway_ns` of processor time
 * since the step was late, for each 16 MiB that the process may hold. Then the budget is spent; the caller gives up
 * with an error, which is final. Raises nothing. */
bool fli_lua_budget_over(lua_State *L);
/* The same, and raises the error. */
void fli_lua_budget_walk(lua_State *L);

/* Raises unless the value at `index` is a table, or something that can be read like one. (tables.c) */
void fli_lua_check_table(lua_State *L, int index);

/* Returns true if closing a coroutine here might overflow the C stack: stock Lua counts the C calls of each coroutine
 * on its own when it closes one, so a __close that closes the next coroutine could nest without end. */
bool fli_lua_close_too_deep(const fli_lua_proc *p);

/* Closes what is to be closed in `co`, as lua_resetthread. Its handlers cannot yield, and run under the budget. */
int fli_lua_close_thread(fli_lua_proc *p, lua_State *co);

#endif
