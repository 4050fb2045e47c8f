/* watch.c - see watch.h. */
#include "lua/watch.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "lua/host.h"
#include "lua/proc.h"
#include "lua/work.h"
#include "port/clock.h"
#include "port/interrupt.h"
#include "port/random.h"

/* In a simulation: instructions until a step is interrupted, and how often that may be impossible. */
enum { COUNTED = 2000, UNYIELDING_MAX = 10000, JOB_MAX = 50000 };

/* What this thread runs, for the handler; and its runner, as long as the host is the same. */
static __thread struct {
    fli_lua_proc *volatile running;
    fli_lua_runner *runner;
    uint64_t        serial;
} here __attribute__((tls_model("initial-exec")));

/* ---- in the step that is interrupted --------------------------------------------------------------------------------- */

/* A job does not yield: nobody else wants its thread. It goes on, unless its result has become useless; in a simulation
 * it runs where everything does, and must come to an end. */
static void hurry(lua_State *L, fli_lua_proc *p, bool counted)
{
    bool too_long = counted && ++p->unyielding >= JOB_MAX;
    if (!too_long && !fli_lua_job_stops(p->job)) return;
    p->runaway = true;
    p->exiting = !too_long; /* nobody may catch it */
    luaL_error(L, too_long ? "ran for too long in a simulation" : "stopped");
}

static void hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    fli_lua_proc *p = fli_lua_self(L);
    bool          counted = p->runner == NULL;
    if (!counted) lua_sethook(L, NULL, 0, 0);
    if (p->job != NULL) {
        hurry(L, p, counted);
        return;
    }
    if (p->no_yield == 0 && lua_isyieldable(L)) {
        p->why = FLI_LUA_BY_PAUSE;
        fli_add_rlx(&p->lua->interrupted, 1);
        lua_yield(L, 0);
        return;
    }
    bool may_go_on = counted ? ++p->unyielding < UNYIELDING_MAX
                             : fli_load_rlx(&p->runner->late) * p->lua->opt.slice_ns <= p->lua->opt.runaway_ns;
    if (may_go_on) return; /* the next signal looks again */
    p->runaway = true;
    luaL_error(L, "ran for too long where it cannot be interrupted");
}

/* The signal's handler: on the thread that runs the state, between two of its machine instructions. lua_sethook is made
 * for that; it writes fields of the state that nothing else reads half-way, and allocates nothing. */
static void interrupt(void)
{
    const fli_lua_proc *p = here.running;
    if (p == NULL) return;
    lua_State *L = p->running;
    /* Setting it walks over all active calls, of which there may be a million: once is enough. */
    if (L != NULL && lua_gethookmask(L) == 0) lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

void fli_lua_watch_count(lua_State *L)
{
    lua_sethook(L, hook, LUA_MASKCOUNT, COUNTED);
}

/* ---- the watchdog -------------------------------------------------------------------------------------------- */

/* Looks at all runners. True: one of them has done something since the last time, or is in a step. */
static bool look(fli_lua_watch *watch)
{
    bool busy = false;
    for (fli_lua_runner *runner = watch->runners; runner != NULL; runner = runner->next) {
        uint64_t turn = fli_load_rlx(&runner->turn);
        if (turn != runner->seen || turn % 2 == 1) busy = true;
        if (turn == runner->seen && turn % 2 == 1) {
            fli_add_rlx(&runner->late, 1);
            fli_interrupt_send(runner->thread);
        }
        runner->seen = turn;
    }
    return busy;
}

static void pause_ns(fli_lua_watch *watch, uint64_t ns)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), ns);
    while (!watch->stop && fli_cond_wait_until(&watch->wake, &watch->lock, until)) {}
}

/* Nobody was in a step for a whole slice. Says so, and looks once more after another slice: a step that began before it
 * could read that has by then let it be seen. From then on every step that begins reads it, and wakes us. */
static void fall_asleep(fli_lua_watch *watch, uint64_t slice_ns)
{
    fli_store_rlx(&watch->asleep, 1);
    pause_ns(watch, slice_ns);
    while (!watch->stop && fli_load_rlx(&watch->asleep) != 0 && !look(watch)) fli_cond_wait(&watch->wake, &watch->lock);
    fli_store_rlx(&watch->asleep, 0);
}

static void run(void *arg)
{
    struct filch_lua *lua = arg;
    fli_lua_watch    *watch = &lua->watch;
    fli_mutex_lock(&watch->lock);
    while (!watch->stop) {
        if (look(watch)) pause_ns(watch, lua->opt.slice_ns);
        else fall_asleep(watch, lua->opt.slice_ns);
    }
    fli_mutex_unlock(&watch->lock);
}

filch_err fli_lua_watch_init(struct filch_lua *lua)
{
    fli_lua_watch *watch = &lua->watch;
    watch->serial = fli_random_u64();
    filch_err err = fli_mutex_init(&watch->lock);
    if (err != FILCH_OK) goto no_lock;
    err = fli_cond_init(&watch->wake);
    if (err != FILCH_OK) goto no_cond;
    if (lua->opt.signal == FILCH_LUA_NO_SIGNAL) return FILCH_OK;
    err = fli_interrupt_install(lua->opt.signal, interrupt);
    if (err != FILCH_OK) goto no_handler;
    err = fli_thread_start(&watch->thread, "filch-lua", run, lua);
    if (err != FILCH_OK) goto no_thread;
    watch->running = true;
    return FILCH_OK;
no_thread: fli_interrupt_remove();
no_handler: fli_cond_fini(&watch->wake);
no_cond: fli_mutex_fini(&watch->lock);
no_lock: return err;
}

void fli_lua_watch_fini(struct filch_lua *lua)
{
    fli_lua_watch *watch = &lua->watch;
    if (watch->running) {
        fli_mutex_lock(&watch->lock);
        watch->stop = true;
        fli_cond_broadcast(&watch->wake);
        fli_mutex_unlock(&watch->lock);
        fli_thread_join(&watch->thread);
        fli_interrupt_remove();
    }
    while (watch->runners != NULL) {
        fli_lua_runner *runner = watch->runners;
        watch->runners = runner->next;
        free(runner);
    }
    fli_cond_fini(&watch->wake);
    fli_mutex_fini(&watch->lock);
}

/* ---- around a step ------------------------------------------------------------------------------------------- */

/* This thread's runner of the host: known already, or a new one. NULL without memory: then nobody watches. */
static fli_lua_runner *find_runner(struct filch_lua *lua)
{
    fli_lua_watch  *watch = &lua->watch;
    uint64_t        me = fli_interrupt_me();
    fli_lua_runner *runner;
    fli_interrupt_allow();
    fli_mutex_lock(&watch->lock);
    for (runner = watch->runners; runner != NULL && runner->thread != me; runner = runner->next) {}
    if (runner == NULL && (runner = calloc(1, sizeof *runner)) != NULL) {
        runner->thread = me;
        runner->next = watch->runners;
        watch->runners = runner;
    }
    fli_mutex_unlock(&watch->lock);
    here.runner = runner;
    here.serial = watch->serial;
    return runner;
}

static void wake(fli_lua_watch *watch)
{
    fli_mutex_lock(&watch->lock);
    fli_store_rlx(&watch->asleep, 0);
    fli_cond_signal(&watch->wake);
    fli_mutex_unlock(&watch->lock);
}

void fli_lua_watch_begin(fli_lua_proc *p, fli_lua_proc **before)
{
    fli_lua_watch *watch = &p->lua->watch;
    *before = here.running;
    p->runner = NULL;
    p->unyielding = 0;
    if (!watch->running || p->simulated) return;
    fli_lua_runner *runner = here.serial == watch->serial ? here.runner : find_runner(p->lua);
    if (runner == NULL) return;
    p->runner = runner;
    here.running = p;
    if (fli_load_rlx(&runner->late) != 0) fli_store_rlx(&runner->late, 0);
    fli_count(&runner->turn, 1);
    if (fli_load_rlx(&watch->asleep) != 0) wake(watch);
}

void fli_lua_watch_end(fli_lua_proc *p, fli_lua_proc *before)
{
    here.running = before;
    if (p->runner != NULL) fli_count(&p->runner->turn, 1);
}

void fli_lua_watch_lend(fli_lua_proc *p, const fli_lua_proc *of)
{
    p->running = p->L;
    p->runner = of->runner;
    if (of->runner != NULL) here.running = p;
}

void fli_lua_watch_return(fli_lua_proc *p, fli_lua_proc *of)
{
    if (of->runner != NULL) here.running = of;
    p->running = NULL;
    p->runner = NULL;
}
