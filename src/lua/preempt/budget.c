/* budget.c - see budget.h. */
#include "lua/preempt/budget.h"

#include <lauxlib.h>

#include "lua/host/host.h"
#include "port/clock.h"

/* UNYIELDING_MAX and COUNT are for simulations. UNYIELDING_MAX: number of hooks at places where Lua cannot yield, after
 * which the budget is spent. COUNT: average number of instructions between two hooks. */
enum { UNYIELDING_MAX = 10000, COUNT = 2048 };

/* Limit for the bytes of C stack between the beginning of a step and the innermost coroutine that is being closed. On
 * top of these bytes Lua may nest 200 C calls of up to 5 KiB each (log.info inside __tostring). A worker's stack has at
 * least 2 MiB (port/thread.c). */
enum { CLOSE_STACK_MAX = 128 << 10 };

/* A walk (see fli_lua_budget_over) may take WALK_TIMES times `runaway_ns` for each WALK_MEMORY bytes of the memory
 * limit, so that a walk over all memory of a process succeeds on a slow processor too. */
enum { WALK_TIMES = 4 };
#define WALK_MEMORY (UINT64_C(16) << 20)

#define TOO_LONG "ran for too long where it cannot be interrupted"

int fli_lua_raise_final(lua_State *L, fli_lua_proc *p)
{
    if (p->runaway) fli_lua_preempt_arm(L); /* the hook ends a __close handler at its first instruction */
    return lua_error(L);
}

static void note_spent(lua_State *L, fli_lua_proc *p, const char *words)
{
    if (p->spent == NULL) p->spent = words;
    p->runaway = true; /* set first, because the code below may fail for lack of memory */
    fli_lua_preempt_arm(L);
}

int fli_lua_budget_stop(lua_State *L, fli_lua_proc *p, const char *words)
{
    if (p->runaway) {
        lua_pushstring(L, words);
        return fli_lua_raise_final(L, p);
    }
    note_spent(L, p, words);
    return luaL_error(L, "%s", words);
}

/* Returns true if the process has used `times` * `runaway_ns` of its thread's processor time since the first call in
 * this step. That first call comes when the step is late and Lua cannot yield. In a simulation counts the calls instead
 * of time. */
static bool is_spent(fli_lua_proc *p, uint64_t times)
{
    if (p->simulated) {
        uint32_t count = p->lua->opt.count;
        return ++p->counted.unyielding >= UNYIELDING_MAX * (uint64_t)(count > 0 && count < COUNT ? COUNT / count : 1);
    }
    uint64_t now = fli_clock_cpu_ns();
    if (p->stuck_ns == 0) p->stuck_ns = now;
    return (now - p->stuck_ns) / times >= p->lua->opt.runaway_ns;
}

void fli_lua_budget_spend(lua_State *L, fli_lua_proc *p)
{
    if (p->runaway || is_spent(p, 1)) (void)fli_lua_budget_stop(L, p, TOO_LONG);
}

bool fli_lua_budget_due(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (p == NULL || p->simulated || !fli_lua_preempt_late(p)) return false;
    if (fli_lua_job_of(p) != NULL) {
        fli_lua_preempt_now(L, p);
        return false;
    }
    if (p->current != NULL && fli_lua_can_wait(L, p)) return true;
    fli_lua_budget_spend(L, p);
    return false;
}

/* Returns true if `p` has run for longer than a slice. Before the first step, while the values given to a spawn are
 * read, the watchdog does not see the process, so every walk counts as late then. */
static bool is_walk_late(fli_lua_proc *p)
{
    if (p->runner == NULL && p->out == NULL) return p->lua->opt.watch != FILCH_LUA_WATCH_NONE;
    return fli_lua_preempt_late(p);
}

bool fli_lua_budget_over(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (p == NULL || p->lua == NULL || p->simulated || fli_lua_job_of(p) != NULL || !is_walk_late(p)) return false;
    if (!p->runaway && !is_spent(p, WALK_TIMES * (1 + (p->heap.max - 1) / WALK_MEMORY))) return false;
    note_spent(L, p, TOO_LONG);
    return true;
}

void fli_lua_budget_walk(lua_State *L)
{
    if (fli_lua_budget_over(L)) (void)luaL_error(L, "%s", TOO_LONG);
}

bool fli_lua_close_too_deep(const fli_lua_proc *p)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0), base = (uintptr_t)p->stack;
    return p->stack != NULL && (frame < base ? base - frame : frame - base) > CLOSE_STACK_MAX;
}

int fli_lua_close_thread(fli_lua_proc *p, lua_State *co)
{
    lua_State *running = fli_load_rlx(&p->running), *closing = p->closing;
    p->no_yield++;
    p->closing = co;
    fli_store_rlx(&p->running, co);
    int status = lua_resetthread(co);
    fli_store_rlx(&p->running, running);
    p->closing = closing;
    p->no_yield--;
    if (status == LUA_ERRMEM) p->out_of_memory = true;
    return status;
}
