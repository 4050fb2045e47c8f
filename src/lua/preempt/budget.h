/* budget.h - limits the time for which a Lua process may occupy its worker: a step that is late yields, and a process
 * that cannot yield for too long is ended.
 *
 * A step has a *slice*. When the slice is over, the process yields where Lua can yield: in its Lua code, and in those
 * loops of Filch's C functions that keep their state in the Lua state. Where Lua cannot yield (in a metamethod or
 * callback that C calls, in a __close handler that coroutine.close runs, while the text of an error is made), the
 * process may go on for `runaway_ns` of its thread's processor time, counted from the moment when it was first late at
 * such a place. Then its *budget* is spent, and the process ends.
 *
 * INVARIANT  a spent budget is final: fli_lua_proc.runaway is never cleared, no protected call catches the error, no
 *            error handler and no __close runs Lua code after it. A hook stays set that raises the error again at the
 *            first instruction of any Lua code.
 * INVARIANT  every call from the host into Lua happens with fli_lua_proc.running set, so that the watchdog finds the
 *            state.
 *
 * Design: docs/design/lua/budgets.md.
 */
#ifndef FLI_LUA_BUDGET_H
#define FLI_LUA_BUDGET_H

#include <lua.h>
#include <stdbool.h>

#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"

/* Returns true if the current error is final, so that no protected call may catch it: memory has run out, the budget is
 * spent, or the running task has called process.exit or process.upgrade. After process.exit the errors of other tasks
 * are not final: these tasks run while a __close handler of the task that called process.exit waits. */
static inline bool fli_lua_is_final(const fli_lua_proc *p)
{
    return p->out_of_memory || p->runaway || (p->current != NULL && p->current->exiting);
}

/* Called after a protected call that returned `status`. If `status` is LUA_ERRMEM, records that memory has run out,
 * unless the budget is spent: then the allocator may have refused a request for that reason. Returns true if the error
 * must not be caught: see fli_lua_is_final(). */
static inline bool fli_lua_ends_with(fli_lua_proc *p, int status)
{
    if (status == LUA_ERRMEM && !p->runaway) p->out_of_memory = true;
    return fli_lua_is_final(p);
}

/* Raises the value on top of the stack again, as an error that no protected call catches. */
int fli_lua_raise_final(lua_State *L, fli_lua_proc *p);

/* Called when the step is late at a place where Lua cannot yield. Raises the final error if the budget is spent.
 * Otherwise returns; the first call in a step records the time from which the budget is counted. */
void fli_lua_budget_spend(lua_State *L, fli_lua_proc *p);

/* Ends the process: raises the final error with the text `words`. */
int fli_lua_budget_stop(lua_State *L, fli_lua_proc *p, const char *words);

/* Returns true if the budget is spent because code that could not be interrupted took too long. */
bool fli_lua_budget_ran_out_of_time(const fli_lua_proc *p);

/* Slow path of fli_lua_budget_due(): the step may be late. */
bool fli_lua_budget_due_late(lua_State *L);

/* For loops in C whose length a program determines; to be called every few microseconds, and after each call of a
 * function of the program. Returns true if the step is late and Lua can yield here: the caller then saves its state and
 * calls fli_lua_pause(). Raises the final error if the budget is spent. */
static inline bool fli_lua_budget_due(lua_State *L)
{
    const fli_lua_proc *p = fli_lua_self(L);
    bool                early = p == NULL || (p->runner != NULL && !fli_lua_is_late(p->runner));
    return !early && fli_lua_budget_due_late(L);
}

/* Called at the beginning of a C function that programs can call and whose time may grow with its arguments. If the
 * step is late and Lua can yield here, yields, and then `k` runs instead of the rest of the function. Raises the final
 * error if the budget is spent, so that a loop in C that calls many such functions ends at its next call. */
static inline void fli_lua_budget_enter(lua_State *L, lua_KContext ctx, lua_KFunction k)
{
    if (fli_lua_budget_due(L)) fli_lua_pause(L, ctx, k);
}

/* For walks in C that cannot be suspended (writing or reading a message, comparing a pattern, writing a log line); to
 * be called every few microseconds. Returns true if the walk has taken too long: WALK_TIMES times `runaway_ns` of
 * processor time since the step was late, for each 16 MiB of memory that the process may hold. Then the budget is
 * spent, and the caller must raise an error, which is final. Raises no error itself. */
bool fli_lua_budget_over(lua_State *L);
/* Calls fli_lua_budget_over() and raises the final error if it returns true. */
void fli_lua_budget_walk(lua_State *L);

/* For the allocator (fli_lua_heap.may_grow), called when a Lua stack grows. Returns false, so that Lua raises an error,
 * if the stack doubles and the budget is spent: the step is late and has used `runaway_ns` of processor time since it
 * last checked the budget, or, in a simulation, the stack has doubled several times in a row within one call. Also
 * returns false if the stack doubles in a job that was asked to stop. This check is needed for a chain of __call
 * metamethods. While stock Lua looks for the function at the end of the chain, it calls the allocator, but neither a
 * hook nor a function of Filch. The chain may be a circle, and each element moves the values on the stack by one slot,
 * so the time grows with the square of the stack's size. */
bool fli_lua_budget_may_grow(fli_lua_heap *heap, size_t old_size, size_t size);

/* Raises an error unless the value at `index` is a table or has metamethods by which it can be read like a table.
 * Defined in tables.c. */
void fli_lua_check_table(lua_State *L, int index);

/* Returns true if closing a coroutine here might overflow the C stack. Stock Lua counts nested C calls separately for
 * each coroutine that it closes, so __close handlers that close further coroutines could nest without end. */
bool fli_lua_close_too_deep(const fli_lua_proc *p);

/* Runs the pending __close handlers of `co`, like lua_resetthread. The handlers cannot yield, and run under the
 * budget. */
int fli_lua_close_thread(fli_lua_proc *p, lua_State *co);

#endif
