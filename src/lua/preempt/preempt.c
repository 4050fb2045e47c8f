/* preempt.c - see preempt.h.
 *
 * Why the watchdog may call lua_sethook while the owner runs the state. It does three things (Lua 5.4, ldebug.c):
 *   1. writes the hook, two counts and the mask: each one word that is read whole. At worst the hook is called once
 * more or once less; the next look repairs it.
 *   2. walks from the newest active call to the oldest. These records are allocated and freed by our allocator only;
 * whoever frees passes the gate (heap.c). So no record goes away during the walk, nor does a coroutine, or the state:
 * the end of a step passes the gate too.
 *   3. writes a flag, `trap`, into those that are calls of Lua functions. Between the look and the write such a call
 * may have returned, and its record may serve a call of a C function. There the same bytes belong to lua_pcallk, which
 * keeps the former error handler in them as long as the call is active, and nobody else. All our calls of it with a
 * continuation pass the gate first (fli_lua_preempt_settle), and a function of the embedder is told to
 * (filch_lua_settle). An owner that passed before the gate was held has made its record one of a C call before that,
 * and the barrier of holding lets the watchdog see it. Without lua_pcallk the flag is harmless: Lua clears a trap for
 * which there is no hook.
 */
#include "lua/preempt/preempt.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "base/prng.h"
#include "lua/host/host.h"
#include "lua/lib/work.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "port/barrier.h"
#include "port/clock.h"
#include "port/interrupt.h"
#include "port/random.h"
#include "port/thread.h"

/* In a simulation: up to 2^LONGEST instructions until a step is interrupted (2,048 on average), and how often a job may
 * be looked at. Otherwise instructions between two looks at the clock: about a tenth of a millisecond. AGAIN_COUNT:
 * instructions after which a step that could not yield is looked at again: some microseconds. */
enum { LONGEST = 15, JOB_MAX = 50000, TIMED = 10000, AGAIN = 16, AGAIN_COUNT = 500 };

/* What this thread runs, for the handler; and its runner, as long as the host is the same. */
static __thread struct {
    fli_lua_proc *volatile running;
    fli_lua_runner *runner;
    uint64_t        serial;
} this_thread FLI_TLS_DIRECT;

/* ---- in the step that is interrupted --------------------------------------------------------------------------- */

/* A job does not yield: nobody else wants its thread. It goes on, unless its result has become useless; in a simulation
 * it runs where everything does, and must come to an end. */
void fli_lua_preempt_now(lua_State *L, fli_lua_proc *p)
{
    bool too_long = p->simulated && ++p->counted.unyielding >= JOB_MAX;
    if (!too_long && !fli_lua_job_stops(fli_lua_job_of(p))) return;
    (void)fli_lua_budget_stop(L, p, too_long ? "ran for too long in a simulation" : "stopped");
}

/* How long the step has taken, for those that count. The first look is the beginning. */
static uint64_t counted_ns(fli_lua_proc *p)
{
    uint64_t now = fli_clock_ns();
    if (p->counted.began_ns == 0) p->counted.began_ns = now;
    return now - p->counted.began_ns;
}

bool fli_lua_preempt_late(fli_lua_proc *p)
{
    if (p->runner != NULL) return fli_lua_is_late(p->runner);
    return p->lua->opt.watch == FILCH_LUA_WATCH_COUNT && counted_ns(p) >= p->lua->opt.slice_ns;
}

/* In a simulation: instructions until the next interruption. Each power of two is as likely to be the longest it may
 * be: so every point of a program is interrupted under some seed, several that lie close together too, and long
 * computations come to their end. */
static int draw_count(fli_lua_proc *p)
{
    if (p->lua->opt.count != 0) return (int)p->lua->opt.count;
    p->drawn = fli_prng_mix(p->drawn + 1);
    return 1 + (int)((p->drawn >> 8) & ((UINT64_C(1) << p->drawn % (LONGEST + 1)) - 1));
}

static void hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    fli_lua_proc *p = fli_lua_self(L);
    if (p->runaway) (void)fli_lua_budget_stop(L, p, "stopped");
    if (p->runner != NULL) lua_sethook(L, NULL, 0, 0);
    else if (p->simulated) lua_sethook(L, hook, LUA_MASKCOUNT, draw_count(p));
    if (fli_lua_job_of(p) != NULL) {
        fli_lua_preempt_now(L, p);
        return;
    }
    if (!p->simulated && !fli_lua_preempt_late(p)) return; /* it was meant for a step that has ended by itself */
    if (p->no_yield == 0 && lua_isyieldable(L)) {
        p->why = FLI_LUA_BY_PAUSE;
        fli_add_rlx(&p->lua->interrupted, 1);
        lua_yield(L, 0);
        return;
    }
    fli_lua_budget_spend(L, p);
    /* Soon again, and not at the same place of a loop each time: as soon as a yield can pass, it yields. The next look
     * of the watchdog may find it where it cannot once more, and so on until its budget is spent. */
    if (p->runner != NULL) {
        p->drawn = fli_prng_mix(p->drawn + 1);
        lua_sethook(L, hook, LUA_MASKCOUNT, AGAIN_COUNT + (int)(p->drawn % AGAIN_COUNT));
    }
}

void fli_lua_preempt_arm(lua_State *L)
{
    lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

/* Setting it walks over all active calls, of which there may be a million, so not each time; now and then, in case one
 * that was just being removed has left half of it. */
static void set_hook(const fli_lua_proc *p)
{
    lua_State *L = p != NULL ? fli_load_rlx(&p->running) : NULL;
    if (L == NULL) return;
    if (lua_gethookmask(L) == 0 || fli_load_rlx(&p->runner->late) % AGAIN == 0) lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

/* The signal's handler: on the thread that runs the state, between two of its machine instructions. */
static void interrupt(void)
{
    set_hook(this_thread.running);
}

void fli_lua_preempt_count(fli_lua_proc *p)
{
    int count = p->lua->opt.count != 0 ? (int)p->lua->opt.count : TIMED;
    p->drawn = p->seed;
    if (p->simulated) lua_sethook(p->L, hook, LUA_MASKCOUNT, draw_count(p));
    else if (p->lua->opt.watch == FILCH_LUA_WATCH_COUNT) lua_sethook(p->L, hook, LUA_MASKCOUNT, count);
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
    set_hook(fli_load_acq(&runner->proc)); /* PAIR lua.runs, acquire half: what is in it */
    fli_lua_safepoint_release(&runner->safepoint);
}

/* Looks at all runners. True: one of them has done something since the last time, or is in a step. */
static bool look(struct filch_lua *lua)
{
    bool busy = false;
    for (fli_lua_runner *runner = lua->watchdog.runners; runner != NULL; runner = runner->next) {
        uint64_t turn = fli_load_rlx(&runner->turn);
        if (turn != runner->seen || turn % 2 == 1) busy = true;
        if (turn == runner->seen && turn % 2 == 1) {
            if (fli_add_rlx(&runner->late, 1) + 1 >= FLI_LUA_LATE) interrupt_runner(lua, runner);
        }
        runner->seen = turn;
    }
    return busy;
}

static void pause_ns(fli_lua_watchdog *watchdog, uint64_t ns)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), ns);
    while (!watchdog->stop && fli_cond_wait_until(&watchdog->wake, &watchdog->lock, until)) {}
}

/* No thread was in a step for a while. Says so, and looks once more: a step that has begun without reading that is seen
 * here, because holding the gate is a barrier for both sides (safepoint.h). Every step that begins later reads it, and
 * wakes the watchdog. */
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

/* This thread's runner of the host: known already, or a new one. NULL without memory: then nobody watches. */
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

/* From now on the thread runs `p`. */
static void run_now(fli_lua_runner *runner, fli_lua_proc *p)
{
    p->runner = runner;
    p->heap.safepoint = &runner->safepoint;
    this_thread.running = p;
    fli_store_rel(&runner->proc, p); /* PAIR lua.runs, release half */
}

/* It runs `next` instead, or nothing: `p` may be freed. Whoever has read p holds the gate, and is waited for; whoever
 * comes later does not read it. */
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
    if (!watchdog->running || p->simulated) return;
    fli_lua_runner *runner = this_thread.serial == watchdog->serial ? this_thread.runner : find_runner(p->lua);
    if (runner == NULL) return;
    run_now(runner, p);
    if (fli_load_rlx(&runner->late) != 0) fli_store_rlx(&runner->late, 0);
    fli_count(&runner->turn, 1);
    if (fli_lua_safepoint_is_held(&watchdog->asleep) != 0) wake(watchdog);
}

void fli_lua_preempt_end(fli_lua_proc *p, fli_lua_proc *before)
{
    this_thread.running = before;
    if (p->runner == NULL) return;
    fli_count(&p->runner->turn, 1);
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
        /* The watchdog saw the other one only: whoever lends again and again would never be interrupted. */
        lua_State *L = fli_load_rlx(&of->running);
        if (L != NULL && fli_lua_is_late(of->runner)) fli_lua_preempt_arm(L);
    }
    fli_store_rlx(&p->running, NULL);
    p->runner = NULL;
}
