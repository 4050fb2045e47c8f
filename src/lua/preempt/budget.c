/* budget.c - see budget.h. */
#include "lua/preempt/budget.h"

#include <lauxlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/process/work.h"
#include "port/clock.h"

/* Both numbers are for simulations. UNYIELDING_MAX: when the hook has run this many times where Lua cannot yield, the
 * budget is spent. COUNT: average number of instructions between two runs of the hook. */
enum { UNYIELDING_MAX = 10000, COUNT = 2048 };

/* Limit for the bytes of C stack between the beginning of a step and the innermost coroutine that is being closed. On
 * top of these bytes Lua may nest 200 C calls of up to 1.8 KiB each (string.format inside __tostring), and the new code
 * of an upgrade may nest 200 more; test/lua/lua_stack_test.c measures all functions. A worker's stack has at least 2
 * MiB (port/thread.c). */
enum { CLOSE_STACK_MAX = 128 << 10 };

/* A walk (see fli_lua_budget_over) may take WALK_TIMES times `runaway_ns` for each WALK_MEMORY bytes of the memory
 * limit, so that a walk over all memory of a process succeeds on a slow processor too. */
enum { WALK_TIMES = 4 };
/* Factor of `runaway_ns` in is_unchecked(). More than 1, because the watchdog also counts the time in which the thread
 * of a step waits for a processor. */
enum { UNCHECKED_TIMES = 2 };
#define WALK_MEMORY (UINT64_C(16) << 20)

/* GROWTHS_MAX: in a simulation a stack that has doubled this many times, from 2,560 slots on, is not doubled again;
 * six times is more than string.unpack with its largest format needs. SLOT: bytes of a slot of a Lua stack. EXTRA:
 * bytes that are added to each stack. */
enum { GROWTHS_MAX = 6, SLOT = 16, EXTRA = LUA_VERSION_RELEASE_NUM < 50403 ? 0 : 5 * SLOT };

#define TOO_LONG "ran for too long where it cannot be interrupted"

int fli_lua_raise_final(lua_State *L, fli_lua_proc *p)
{
    if (p->runaway) fli_lua_preempt_arm(L); /* the hook ends each __close handler before its first instruction */
    return lua_error(L);
}

static void note_spent(lua_State *L, fli_lua_proc *p, const char *words)
{
    if (p->spent == NULL) p->spent = words;
    p->runaway = true; /* set before the error is raised: the error is final even if making its text fails */
    fli_lua_preempt_arm(L);
}

bool fli_lua_budget_ran_out_of_time(const fli_lua_proc *p)
{
    return p->spent != NULL && strcmp(p->spent, TOO_LONG) == 0;
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

/* Returns true if the process has used `times` * `runaway_ns` of its thread's processor time since this function was
 * first called in this step, which happens when the step is late and Lua cannot yield. In a simulation, counts the
 * calls of this function instead of measuring time. */
static bool is_spent(fli_lua_proc *p, uint64_t times)
{
    if (p->simulated) {
        uint32_t count = p->lua->opt.count;
        return ++p->counted.unyielding >= UNYIELDING_MAX * (uint64_t)(count > 0 && count < COUNT ? COUNT / count : 1);
    }
    uint64_t now = fli_clock_cpu_ns();
    if (p->stuck_ns == 0) p->stuck_ns = now;
    p->stack_growth.checked_ns = now;
    return (now - p->stuck_ns) / times >= p->lua->opt.runaway_ns;
}

void fli_lua_budget_spend(lua_State *L, fli_lua_proc *p)
{
    if (p->runaway || is_spent(p, 1)) (void)fli_lua_budget_stop(L, p, TOO_LONG);
}

bool fli_lua_budget_due_late(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (p->runaway) fli_lua_budget_spend(L, p);
    if (p->simulated || !fli_lua_preempt_late(p)) return false;
    if (fli_lua_job_of(p) != NULL) {
        fli_lua_preempt_now(L, p);
        return false;
    }
    if (p->current == NULL || !fli_lua_can_wait(L, p)) {
        fli_lua_budget_spend(L, p);
        return false;
    }
    fli_add_rlx(&p->lua->interrupted, 1);
    return true;
}

/* Returns true if `p` has run for longer than a slice. While a spawn reads values into the state of a new process, the
 * new process has no step that the watchdog could check. Then every walk in its state counts as late (unless the option
 * FILCH_LUA_WATCH_NONE is set). */
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

/* Returns true if a block of `size` bytes may be a Lua stack. A stack of n slots takes n + 5 slots of 16 bytes (before
 * Lua 5.4.3: n slots), and n is even if the stack has doubled. The array of a table has a power of two as its size, and
 * other vectors grow to twice their size, so from Lua 5.4.3 on none of them looks like a stack. */
static bool is_stack(size_t size)
{
    return size % SLOT == 0 && (EXTRA == 0 || size / SLOT % 2 == 1);
}

/* Returns true if a new Lua stack of `size` bytes is twice as large as the stack that it replaces. Lua 5.4.3 to 5.4.6
 * allocate the new stack before they free the old one, and then `old_size` is 0. So p->stack_size keeps the size of the
 * last new stack, which is taken as the size of the old stack in this case. */
static bool has_doubled(fli_lua_proc *p, size_t old_size, size_t size)
{
    size_t before = old_size != 0 ? old_size : p->stack_size;
    p->stack_size = size;
    return size + EXTRA == 2 * before;
}

/* In a simulation: returns true if a large stack has doubled GROWTHS_MAX times within one active call while the hook
 * did not run. The address `ar.i_ci` identifies the active call; it is compared, never dereferenced. */
static bool grows_in_circles(lua_State *L, fli_lua_proc *p)
{
    lua_Debug   ar;
    const void *in = lua_getstack(L, 0, &ar) != 0 ? (const void *)ar.i_ci : NULL;
    if (in != p->grown_in) p->stack_growth.growths = 0;
    p->grown_in = in;
    return ++p->stack_growth.growths >= GROWTHS_MAX;
}

/* Returns true if the step is late and has used `runaway_ns` of processor time since it last checked its budget. Such a
 * step is inside stock Lua or in a function of the embedder, because Lua code and Filch's functions check the budget of
 * a late step every few microseconds. If the step has not checked its budget since it became late (checked_ns is 0),
 * returns true if the watchdog, which checks twice per slice, has found the step for UNCHECKED_TIMES times
 * `runaway_ns`. */
static bool is_unchecked(fli_lua_proc *p)
{
    if (!fli_lua_preempt_late(p)) return false;
    uint64_t now = fli_clock_cpu_ns();
    uint32_t found = p->runner != NULL ? fli_load_rlx(&p->runner->late) : 0;
    if (p->stack_growth.checked_ns == 0 &&
        found * (p->lua->opt.slice_ns / 2) / UNCHECKED_TIMES >= p->lua->opt.runaway_ns)
        return true;
    if (p->stack_growth.checked_ns == 0) p->stack_growth.checked_ns = now;
    return now - p->stack_growth.checked_ns >= p->lua->opt.runaway_ns;
}

bool fli_lua_budget_may_grow(fli_lua_heap *heap, size_t old_size, size_t size)
{
    fli_lua_proc *p = (fli_lua_proc *)heap; /* `heap` is the first member of fli_lua_proc */
    lua_State    *L = fli_load_rlx(&p->running);
    if (L == NULL || !is_stack(size)) return true;
    if (p->runaway) return false; /* the budget is spent: refuses also the second request, after a collection */
    /* `again`: the heap has refused the last request, so Lua has run a full collection and now asks a second time.
     * The time since the last check of the budget went into that collection, so the stack may grow without a check. */
    bool again = heap->refused;
    if (!has_doubled(p, old_size, size) || again) return true;
    const struct fli_lua_job *job = fli_lua_job_of(p);
    bool                      stopped = job != NULL && fli_lua_job_stops(job);
    bool                      too_long = p->simulated ? grows_in_circles(L, p) : job == NULL && is_unchecked(p);
    if (stopped || too_long) note_spent(L, p, stopped ? "stopped" : TOO_LONG);
    return !p->runaway;
}

bool fli_lua_close_too_deep(const fli_lua_proc *p)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0), base = (uintptr_t)p->stack;
    return p->stack != NULL && (frame < base ? base - frame : frame - base) > CLOSE_STACK_MAX;
}

int fli_lua_close_thread(fli_lua_proc *p, lua_State *co)
{
    lua_State *running = fli_load_rlx(&p->running), *closing = p->closing;
    /* The handlers of `co` run while the coroutine `running` waits for this function, as if `running` had resumed `co`.
     * The stack of `running` may move in that time. */
    bool          continues = running != NULL && running != co;
    fli_lua_outer outer = { running, p->outer, p->stack_moved };
    if (continues) {
        p->outer = &outer;
        p->stack_moved = false;
    }
    p->no_yield++;
    p->closing = co;
    fli_store_rlx(&p->running, co);
    int status = lua_resetthread(co);
    fli_store_rlx(&p->running, running);
    p->closing = closing;
    p->no_yield--;
    if (continues) {
        p->outer = outer.next;
        p->stack_moved = p->stack_moved || outer.stack_moved;
        if (p->stack_moved) fli_lua_preempt_arm_returns(running);
    }
    (void)fli_lua_ends_with(p, status);
    return status;
}
