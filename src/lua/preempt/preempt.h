/* preempt.h - interrupts a Lua step that runs too long, so that no Lua process keeps a worker for itself; the step
 * continues later.
 *
 * A hook that counts instructions could interrupt every step, but would make all code twice as slow. So no hook is set
 * while a process keeps within its slice. A thread of the host, the watchdog, checks twice per slice whether a worker
 * is still in the same step. When a step has taken a slice, the watchdog sets a hook in the state that the worker runs.
 * The hook removes itself and yields.
 *
 * The watchdog calls lua_sethook on a state that another thread runs. Lua allows this call at any point of the
 * execution, from a signal handler of the same thread; why it is also safe from another thread is shown in preempt.c.
 * With option `signal`, a signal handler on the thread itself makes the call.
 *
 * Where Lua cannot yield, the step goes on until its budget is spent, and then the process ends: budget.h.
 *
 * In a simulation there is no watchdog: each state has a counting hook, so that a run can be repeated. The counting
 * hook also serves hosts that want no extra thread (FILCH_LUA_WATCH_COUNT); it then reads the clock.
 *
 * Design: docs/design/lua/preemption.md.
 */
#ifndef FLI_LUA_PREEMPT_H
#define FLI_LUA_PREEMPT_H

#include <filch.h>
#include <lua.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "lua/memory/safepoint.h"
#include "port/atomic.h"
#include "port/thread.h"

struct filch_lua;
struct fli_lua_proc;

/* A step is late when, after the check that first found it, this many further checks have found it still running. The
 * watchdog checks twice per slice, and first finds a step up to half a slice after the beginning of the step. So a late
 * step has run for 1 to 1.5 slices. */
enum { FLI_LUA_LATE = 2 };

/* One runner for each thread that runs processes or jobs of this host. */
typedef struct fli_lua_runner {
    struct fli_lua_runner *next;
    uint64_t               thread;
    fli_lua_safepoint      safepoint; /* owner: the thread of this runner; holder: the watchdog */
    /* Odd while a step runs. Grows by one at the beginning and at the end of each step.  writes: the runner's thread.
     * reads: the watchdog. */
    FLI_ATOMIC(uint64_t) step_mark;
    /* The process that the thread runs; NULL: none.  writes: the runner's thread.  reads: the watchdog, while it holds
     * the safepoint.  PAIR lua.runs */
    FLI_ATOMIC(struct fli_lua_proc *) proc;
    /* Number of checks that have found the present step still running, not counting the check that first found the
     * step.  writes: the watchdog; the runner's thread, which sets it to 0 at the beginning of a step.  reads: the
     * watchdog and the runner's thread. */
    FLI_ATOMIC(uint32_t) late;
    uint64_t             seen; /* used by the watchdog only: `step_mark` at its last check */
} fli_lua_runner;

typedef struct fli_lua_watchdog {
    /* protects `stop`, `runners` and their `seen`; the other fields are set before the first step */
    fli_mutex       lock;
    fli_cond        wake;
    fli_thread      thread;
    bool            running, stop;
    bool            strict; /* the safepoints are strict: see safepoint.h */
    fli_lua_runner *runners;
    uint64_t        serial; /* random number that identifies the host */
    /* Held while the watchdog sleeps, until a step wakes it. So for each step that begins, either the watchdog sees the
     * `step_mark` of the step, or the step sees that `asleep` is held and wakes the watchdog. The watchdog takes the
     * safepoint; the watchdog or the step releases it. Both do so under the lock. */
    alignas(FLI_LINE) fli_lua_safepoint asleep;
} fli_lua_watchdog;

filch_err fli_lua_watchdog_init(struct filch_lua *lua);
void      fli_lua_watchdog_fini(struct filch_lua *lua);

/* Called before and after the Lua part of a step of `p`. In a simulation this step may run inside a send in the step of
 * another process. fli_lua_preempt_begin() sets *before to that other process, or to NULL; the caller passes it on to
 * fli_lua_preempt_end(). */
void fli_lua_preempt_begin(struct fli_lua_proc *p, struct fli_lua_proc **before);
void fli_lua_preempt_end(struct fli_lua_proc *p, struct fli_lua_proc *before);

/* Called before and after code in the state of `p` runs inside the step of another process, `of`. */
void fli_lua_preempt_lend(struct fli_lua_proc *p, const struct fli_lua_proc *of);
void fli_lua_preempt_return(struct fli_lua_proc *p, struct fli_lua_proc *of);

/* Returns true if the step that the runner's thread runs has taken longer than a slice. Used by C functions that can
 * yield. */
static inline bool fli_lua_is_late(const fli_lua_runner *runner)
{
    return runner != NULL && fli_load_rlx(&runner->late) >= FLI_LUA_LATE;
}

/* Waits while the watchdog sets a hook in the state of `p`. To be called before lua_pcallk with a continuation:
 * lua_pcallk stores a value in a field to which the watchdog's lua_sethook may write at the same time. */
void fli_lua_preempt_settle(struct fli_lua_proc *p);

/* Returns true if the step that runs `p` has used up its slice. */
bool fli_lua_preempt_late(struct fli_lua_proc *p);
/* Sets the hook in L, to run at the next instruction. */
void fli_lua_preempt_arm(lua_State *L);
/* Sets the hook in L, to run at the next instruction and whenever a function returns. */
void fli_lua_preempt_arm_returns(lua_State *L);
/* Removes the hook from L. If the states of the process have a counting hook, sets it again. */
void fli_lua_preempt_disarm(lua_State *L, struct fli_lua_proc *p);
/* Called in a job of work.run, which does not yield. Raises an error that ends the job if its result is no longer
 * wanted, or if the job has run for too long in a simulation. */
void fli_lua_preempt_now(lua_State *L, struct fli_lua_proc *p);

/* Sets the counting hook in the state of `p` in a simulation, and with the option FILCH_LUA_WATCH_COUNT. */
void fli_lua_preempt_count(struct fli_lua_proc *p);

#endif
