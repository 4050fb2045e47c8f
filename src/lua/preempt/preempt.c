/* preempt.c - see preempt.h.
 *
 * Why the watchdog may call lua_sethook while the owner runs the state. lua_sethook does three things (Lua 5.4,
 * ldebug.c):
 *   1. It writes the hook, two counts and the mask. Each is one word, so a reader never sees half of it. At worst the
 *      hook is called once more or once less; the next check of the watchdog sets it again.
 *   2. It walks over the records of active calls, from the newest to the oldest. Only Filch's allocator frees these
 *      records, and it passes the safepoint before it does (heap.c). So no record is freed during the walk; neither is
 *      a coroutine or the state, because the end of a step passes the safepoint too.
 *   3. It writes a flag, `trap`, into the records of Lua functions. Between the test and the write the function may
 *      have returned, and its record may have been reused for a C function. In such a record the bytes of `trap` are
 *      used by lua_pcallk only, which keeps the previous error handler there while its call is active. All of Filch's
 *      calls of lua_pcallk with a continuation pass the safepoint first (fli_lua_preempt_settle); functions of the
 *      embedder are required to do that too (filch_lua_settle).
 * If the owner passed before the watchdog held the safepoint, its record already was the record of a C function, and
 * the barrier of the holder makes this visible to the watchdog. Without lua_pcallk the flag is harmless: Lua clears a
 * trap for which there is no hook.
 */
#include "lua/preempt/preempt.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "base/prng.h"
#include "lua/host/host.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"
#include "lua/process/work.h"
#include "port/barrier.h"
#include "port/clock.h"
#include "port/interrupt.h"
#include "port/random.h"
#include "port/thread.h"

/* LONGEST: in a simulation a step is interrupted after at most 2^LONGEST instructions (short intervals are more likely:
 * 2,048 on average). JOB_MAX: in a simulation a job of work.run is ended when the hook has run JOB_MAX times in the
 * job. TIMED: number of instructions between two readings of the clock with the option FILCH_LUA_WATCH_COUNT, about 0.1
 * ms. AGAIN: at every AGAIN-th check of a late step the watchdog sets the hook again. AGAIN_COUNT: number of
 * instructions (some microseconds) after which the hook runs again in a step that could not yield. */
enum { LONGEST = 15, JOB_MAX = 50000, TIMED = 10000, AGAIN = 16, AGAIN_COUNT = 500 };

/* `running`: the process that this thread runs; read by the signal handler. `runner`: the runner of this thread for the
 * host with the number `serial`; not valid for other hosts. */
static __thread struct {
    fli_lua_proc *volatile running;
    fli_lua_runner *runner;
    uint64_t        serial;
} this_thread FLI_TLS_DIRECT;

/* ---- functions that run inside the interrupted step ------------------------------------------------------------ */

/* Called in a job, by the hook and by long loops in C. A job does not yield, because no other job needs its thread. The
 * job is ended if its result is no longer wanted. In a simulation a job runs on the only thread, so it is also ended
 * after JOB_MAX calls. */
void fli_lua_preempt_now(lua_State *L, fli_lua_proc *p)
{
    bool too_long = p->simulated && ++p->counted.unyielding >= JOB_MAX;
    if (!too_long && !fli_lua_job_stops(fli_lua_job_of(p))) return;
    (void)fli_lua_budget_stop(L, p, too_long ? "ran for too long in a simulation" : "stopped");
}

/* For states with a counting hook: returns the time since the first call of this function in the step. */
static uint64_t counted_ns(fli_lua_proc *p)
{
    uint64_t now = fli_clock_ns();
    if (p->counted.began_ns == 0) p->counted.began_ns = now;
    return now - p->counted.began_ns;
}

bool fli_lua_preempt_late(fli_lua_proc *p)
{
    if (p->runner != NULL) return fli_lua_is_late(p->runner);
    /* While the host furnishes a state (option `open`), no step runs, so nothing is late: the host may take as long as
     * it wants. */
    if (fli_load_rlx(&p->running) == NULL) return false;
    return p->lua->opt.watch == FILCH_LUA_WATCH_COUNT && counted_ns(p) >= p->lua->opt.slice_ns;
}

static void hook(lua_State *L, lua_Debug *ar);

/* In a simulation: draws the number of instructions until the next interruption. Its upper bound is one of the powers
 * of two up to 2^LONGEST, each equally likely. So each point of a program is interrupted under some seed, also several
 * points close together, and long computations still finish. */
static int draw_count(fli_lua_proc *p)
{
    if (p->lua->opt.count != 0) return (int)p->lua->opt.count;
    p->drawn = fli_prng_mix(p->drawn + 1);
    return 1 + (int)((p->drawn >> 8) & ((UINT64_C(1) << p->drawn % (LONGEST + 1)) - 1));
}

/* For states with a counting hook: returns the number of instructions between two readings of the clock. */
static int timed_count(const fli_lua_proc *p)
{
    return p->lua->opt.count != 0 ? (int)p->lua->opt.count : TIMED;
}

/* Called when a function returns. The hook for returns is set in two cases: the step is late and could not yield
 * before, or a stack has moved. A hook cannot yield during a return. If Lua can yield at the caller's next instruction,
 * sets the hook to run there. */
static void hook_return(lua_State *L, fli_lua_proc *p, lua_Debug *ar)
{
    fli_lua_moves_check(L, p, ar);
    if (fli_lua_can_pause(L, p)) lua_sethook(L, hook, p->stack_moved ? LUA_MASKCOUNT | LUA_MASKRET : LUA_MASKCOUNT, 1);
}

/* Pauses the process. Returns false if it cannot be paused here. */
static bool pause(lua_State *L, fli_lua_proc *p)
{
    if (!fli_lua_can_pause(L, p)) return false;
    p->why = FLI_LUA_BY_PAUSE;
    lua_yield(L, 0);
    return true;
}

/* Called by the hook. Returns false if no stack has moved, or if the moved stack does not matter here. Otherwise pauses
 * the process and returns true. If the process cannot be paused here, sets the hook to run also when a function
 * returns; if in addition the step is late and its budget is spent, raises the final error instead. */
static bool hook_moved(lua_State *L, fli_lua_proc *p, bool late)
{
    if (!p->stack_moved || !fli_lua_moves_matter(L, p)) return false;
    if (pause(L, p)) return true;
    if (late) fli_lua_budget_spend(L, p);
    lua_sethook(L, hook, LUA_MASKCOUNT | LUA_MASKRET, p->simulated ? lua_gethookcount(L) : AGAIN_COUNT);
    return true;
}

void fli_lua_preempt_disarm(lua_State *L, fli_lua_proc *p)
{
    if (p->simulated) lua_sethook(L, hook, LUA_MASKCOUNT, draw_count(p));
    else if (p->lua->opt.watch == FILCH_LUA_WATCH_COUNT) lua_sethook(L, hook, LUA_MASKCOUNT, timed_count(p));
    else lua_sethook(L, NULL, 0, 0);
}

static void hook(lua_State *L, lua_Debug *ar)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (ar->event == LUA_HOOKRET && !p->runaway) {
        hook_return(L, p, ar);
        return;
    }
    if (p->runaway) (void)fli_lua_budget_stop(L, p, "stopped");
    fli_lua_preempt_disarm(L, p);
    if (p->simulated) p->stack_growth.growths = 0;
    bool is_job = fli_lua_job_of(p) != NULL;
    bool late = !is_job && (p->simulated || fli_lua_preempt_late(p));
    if (is_job) fli_lua_preempt_now(L, p);
    /* If the step is not late, the hook does nothing more: it may have been set for a step that has ended in the
     * meantime. */
    if (hook_moved(L, p, late) || !late) return;
    if (fli_lua_can_pause(L, p)) fli_add_rlx(&p->lua->interrupted, 1);
    if (pause(L, p)) return;
    fli_lua_budget_spend(L, p);
    /* Lua cannot yield here, because a C function has called this code. Lua can yield again when that C function has
     * returned, perhaps only until the next such call. So from now on the hook also runs at each return of a function.
     * If the C function takes too long, the budget is spent. */
    if (!p->simulated) lua_sethook(L, hook, LUA_MASKCOUNT | LUA_MASKRET, AGAIN_COUNT);
}

void fli_lua_preempt_arm(lua_State *L)
{
    lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

void fli_lua_preempt_arm_returns(lua_State *L)
{
    lua_sethook(L, hook, LUA_MASKCOUNT | LUA_MASKRET, 1);
}

/* Sets the hook in the state of `p`, unless a hook is set there already: lua_sethook walks over all active calls, of
 * which there may be a million. Every AGAIN-th check of a late step sets the hook in any case: if the hook removed
 * itself while an earlier call of this function was setting it, the mask may be set without a hook function. */
static void set_hook(const fli_lua_proc *p)
{
    lua_State *L = p != NULL ? fli_load_rlx(&p->running) : NULL;
    if (L == NULL) return;
    if (lua_gethookmask(L) == 0 || fli_load_rlx(&p->runner->late) % AGAIN == 0) lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

/* Signal handler: interrupts the thread that runs the state, between two machine instructions. */
static void interrupt(void)
{
    set_hook(this_thread.running);
}

void fli_lua_preempt_count(fli_lua_proc *p)
{
    p->drawn = p->seed;
    if (p->simulated) lua_sethook(p->L, hook, LUA_MASKCOUNT, draw_count(p));
    else if (p->lua->opt.watch == FILCH_LUA_WATCH_COUNT) lua_sethook(p->L, hook, LUA_MASKCOUNT, timed_count(p));
}

void fli_lua_preempt_settle(fli_lua_proc *p)
{
    if (p->runner != NULL) fli_lua_safepoint_pass(&p->runner->safepoint);
}

/* ---- the watchdog -------------------------------------------------------------------------------------------- */

static void interrupt_runner(const struct filch_lua *lua, fli_lua_runner *runner)
{
    if (lua->opt.signal != 0) {
        fli_interrupt_send(runner->thread);
        return;
    }
    fli_lua_safepoint_hold(&runner->safepoint);
    set_hook(fli_load_acq(&runner->proc)); /* PAIR lua.runs, acquire half: the contents of the process */
    fli_lua_safepoint_release(&runner->safepoint);
}

/* Checks all runners for late steps. Returns true if at least one thread is in a step, or has run a step since the last
 * check. */
static bool look(struct filch_lua *lua)
{
    bool busy = false;
    for (fli_lua_runner *runner = lua->watchdog.runners; runner != NULL; runner = runner->next) {
        uint64_t mark = fli_load_rlx(&runner->step_mark);
        if (mark != runner->seen || mark % 2 == 1) busy = true;
        if (mark == runner->seen && mark % 2 == 1) {
            if (fli_add_rlx(&runner->late, 1) + 1 >= FLI_LUA_LATE) interrupt_runner(lua, runner);
        }
        runner->seen = mark;
    }
    return busy;
}

static void pause_ns(fli_lua_watchdog *watchdog, uint64_t ns)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), ns);
    while (!watchdog->stop && fli_cond_wait_until(&watchdog->wake, &watchdog->lock, until)) {}
}

/* Called when no thread has been in a step for a while. Holds the safepoint `asleep` and checks all runners once more.
 * This check finds every step that began without seeing `asleep` held, because holding is a barrier for both sides
 * (safepoint.h). A step that begins later sees `asleep` held and wakes the watchdog. */
static void fall_asleep(struct filch_lua *lua)
{
    fli_lua_watchdog *watchdog = &lua->watchdog;
    fli_lua_safepoint_hold(&watchdog->asleep);
    while (!watchdog->stop && fli_load_rlx(&watchdog->asleep.held) != 0 && !look(lua))
        fli_cond_wait(&watchdog->wake, &watchdog->lock);
    fli_lua_safepoint_release(&watchdog->asleep);
}

static void run(void *arg)
{
    struct filch_lua *lua = arg;
    fli_lua_watchdog *watchdog = &lua->watchdog;
    fli_mutex_lock(&watchdog->lock);
    while (!watchdog->stop) {
        if (look(lua)) pause_ns(watchdog, lua->opt.slice_ns / 2);
        else fall_asleep(lua);
    }
    fli_mutex_unlock(&watchdog->lock);
}

filch_err fli_lua_watchdog_init(struct filch_lua *lua)
{
    fli_lua_watchdog *watchdog = &lua->watchdog;
    watchdog->serial = fli_random_u64();
    filch_err err = fli_mutex_init(&watchdog->lock);
    if (err != FILCH_OK) goto no_lock;
    err = fli_cond_init(&watchdog->wake);
    if (err != FILCH_OK) goto no_cond;
    if (lua->opt.watch != FILCH_LUA_WATCH_THREAD) return FILCH_OK;
    watchdog->strict = !fli_barrier_ready();
    fli_lua_safepoint_init(&watchdog->asleep, watchdog->strict);
    if (lua->opt.signal != 0) err = fli_interrupt_install(lua->opt.signal, interrupt);
    if (err != FILCH_OK) goto no_handler;
    err = fli_thread_start(&watchdog->thread, "filch-lua", run, lua);
    if (err != FILCH_OK) goto no_thread;
    watchdog->running = true;
    return FILCH_OK;
no_thread:
    if (lua->opt.signal != 0) fli_interrupt_remove();
no_handler:
    fli_cond_fini(&watchdog->wake);
no_cond:
    fli_mutex_fini(&watchdog->lock);
no_lock:
    return err;
}

void fli_lua_watchdog_fini(struct filch_lua *lua)
{
    fli_lua_watchdog *watchdog = &lua->watchdog;
    if (watchdog->running) {
        fli_mutex_lock(&watchdog->lock);
        watchdog->stop = true;
        fli_cond_broadcast(&watchdog->wake);
        fli_mutex_unlock(&watchdog->lock);
        fli_thread_join(&watchdog->thread);
        if (lua->opt.signal != 0) fli_interrupt_remove();
    }
    while (watchdog->runners != NULL) {
        fli_lua_runner *runner = watchdog->runners;
        watchdog->runners = runner->next;
        free(runner);
    }
    fli_cond_fini(&watchdog->wake);
    fli_mutex_fini(&watchdog->lock);
}

/* ---- around a step ------------------------------------------------------------------------------------------- */

/* Returns the runner of this thread for the host; creates it if needed. Returns NULL if memory is short: then the
 * watchdog does not see the steps of this thread. */
static fli_lua_runner *find_runner(struct filch_lua *lua)
{
    fli_lua_watchdog *watchdog = &lua->watchdog;
    uint64_t          me = fli_interrupt_me();
    fli_lua_runner   *runner;
    if (lua->opt.signal != 0) fli_interrupt_allow();
    fli_mutex_lock(&watchdog->lock);
    for (runner = watchdog->runners; runner != NULL && runner->thread != me; runner = runner->next) {}
    if (runner == NULL && (runner = calloc(1, sizeof *runner)) != NULL) {
        runner->thread = me;
        fli_lua_safepoint_init(&runner->safepoint, watchdog->strict);
        runner->next = watchdog->runners;
        watchdog->runners = runner;
    }
    fli_mutex_unlock(&watchdog->lock);
    this_thread.runner = runner;
    this_thread.serial = watchdog->serial;
    return runner;
}

static void wake(fli_lua_watchdog *watchdog)
{
    fli_mutex_lock(&watchdog->lock);
    fli_lua_safepoint_release(&watchdog->asleep);
    fli_cond_signal(&watchdog->wake);
    fli_mutex_unlock(&watchdog->lock);
}

/* Records that the thread runs `p`. */
static void run_now(fli_lua_runner *runner, fli_lua_proc *p)
{
    p->runner = runner;
    p->heap.safepoint = &runner->safepoint;
    this_thread.running = p;
    fli_store_rel(&runner->proc, p); /* PAIR lua.runs, release half */
}

/* Records that the thread no longer runs `p`, but `next` (NULL: no process). After this call `p` may be freed: a
 * watchdog that has already read `p` holds the safepoint, and this function waits until the safepoint is released.
 * Later checks of the watchdog do not find `p`. */
static void run_no_more(fli_lua_runner *runner, fli_lua_proc *p, fli_lua_proc *next)
{
    fli_store_rel(&runner->proc, next); /* PAIR lua.runs, release half */
    fli_lua_safepoint_pass(&runner->safepoint);
    p->heap.safepoint = &fli_lua_safepoint_never_held;
}

void fli_lua_preempt_begin(fli_lua_proc *p, fli_lua_proc **before)
{
    fli_lua_watchdog *watchdog = &p->lua->watchdog;
    *before = this_thread.running;
    p->stack = *before != NULL ? (*before)->stack : __builtin_frame_address(0);
    p->runner = NULL;
    p->counted.began_ns = 0;
    p->stuck_ns = 0;
    p->stack_growth.checked_ns = 0;
    if (!watchdog->running || p->simulated) return;
    fli_lua_runner *runner = this_thread.serial == watchdog->serial ? this_thread.runner : find_runner(p->lua);
    if (runner == NULL) return;
    run_now(runner, p);
    if (fli_load_rlx(&runner->late) != 0) fli_store_rlx(&runner->late, 0);
    fli_count(&runner->step_mark, 1);
    if (fli_lua_safepoint_is_held(&watchdog->asleep) != 0) wake(watchdog);
}

void fli_lua_preempt_end(fli_lua_proc *p, fli_lua_proc *before)
{
    this_thread.running = before;
    if (p->runner == NULL) return;
    fli_count(&p->runner->step_mark, 1);
    run_no_more(p->runner, p, NULL);
}

void fli_lua_preempt_lend(fli_lua_proc *p, const fli_lua_proc *of)
{
    fli_store_rlx(&p->running, p->L);
    p->stack = of->stack;
    if (of->runner != NULL) run_now(of->runner, p);
}

void fli_lua_preempt_return(fli_lua_proc *p, fli_lua_proc *of)
{
    if (of->runner != NULL) {
        this_thread.running = of;
        run_no_more(of->runner, p, of);
        /* While `p` ran inside the step of `of`, the watchdog set the hook only in the state of `p`. If the step is
         * late, sets the hook in the state of `of` too. Otherwise a process that runs other states inside its step
         * again and again would never be interrupted. */
        lua_State *L = fli_load_rlx(&of->running);
        if (L != NULL && fli_lua_is_late(of->runner)) fli_lua_preempt_arm(L);
    }
    fli_store_rlx(&p->running, NULL);
    p->runner = NULL;
}
