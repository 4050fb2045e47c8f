/* preempt.h - no Lua process keeps a worker for itself: a step that runs too long is interrupted and goes on later.
 *
 * A hook that counts instructions would do, and would make all code twice as slow. So there is none while a process
 * behaves. A thread of the host, the watchdog, looks twice a slice whether a worker is still in the same step. When a
 * step has taken a slice, the watchdog sets a hook in the state that runs there; the hook removes itself and yields.
 *
 * Setting it is lua_sethook, called on a state that another thread runs. Lua means it to be called in the middle of
 * anything, by a signal handler of the same thread; what is different here, and why it is safe, is in preempt.c. With
 * option `signal` it is such a handler that calls it, on the thread itself.
 *
 * Where Lua cannot yield the step goes on for a while, and then the process ends: budget.h.
 *
 * In a simulation there is no watchdog: there every state has a counting hook, so that a run is the same each time. The
 * same hook serves hosts that want no thread (FILCH_LUA_WATCH_COUNT); then the clock decides. Design:
 * docs/design/lua/preemption.md.
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

/* Looks that have found the same step, until it is late: the first of them came up to half a slice after it began. */
enum { FLI_LUA_LATE = 2 };

/* A thread that runs processes of this host, or jobs. */
typedef struct fli_lua_runner {
    struct fli_lua_runner *next;
    uint64_t               thread;
    fli_lua_safepoint      safepoint; /* passed by that thread, held by the watchdog */
    /* Odd while a step runs; another number for each.  writes: that thread.  reads: the watchdog. */
    FLI_ATOMIC(uint64_t) turn;
    /* What it runs; NULL: nothing.  writes: that thread.  reads: the watchdog, while it holds the gate.  PAIR lua.runs
     */
    FLI_ATOMIC(struct fli_lua_proc *) proc;
    /* How many looks have found this step again.  writes: the watchdog, and that thread, which begins at 0.  reads:
     * both. */
    FLI_ATOMIC(uint32_t) late;
    uint64_t seen; /* the watchdog's own: the turn when it last looked */
} fli_lua_runner;

typedef struct fli_lua_watchdog {
    fli_mutex       lock; /* of all but what is atomic */
    fli_cond        wake;
    fli_thread      thread;
    bool            running, stop;
    bool            strict; /* the kind of gates */
    fli_lua_runner *runners;
    uint64_t        serial; /* no two hosts have the same, ever */
    /* Held while the watchdog waits to be woken by a step: either the watchdog sees the turn of a step that has begun,
     * or the step sees that it is held. Held by the watchdog, released by it and by the step that wakes it, under the
     * lock. */
    alignas(FLI_LINE) fli_lua_safepoint asleep;
} fli_lua_watchdog;

filch_err fli_lua_watchdog_init(struct filch_lua *lua);
void      fli_lua_watchdog_fini(struct filch_lua *lua);

/* Around the Lua part of a step. A step may run inside another one's send, in a simulation: *before keeps its place. */
void fli_lua_preempt_begin(struct fli_lua_proc *p, struct fli_lua_proc **before);
void fli_lua_preempt_end(struct fli_lua_proc *p, struct fli_lua_proc *before);

/* Inside the step of `of`, another state runs for a while. */
void fli_lua_preempt_lend(struct fli_lua_proc *p, const struct fli_lua_proc *of);
void fli_lua_preempt_return(struct fli_lua_proc *p, struct fli_lua_proc *of);

/* Whether this step has taken longer than a slice: for calls that can let others run by themselves. */
static inline bool fli_lua_is_late(const fli_lua_runner *runner)
{
    return runner != NULL && fli_load_rlx(&runner->late) >= FLI_LUA_LATE;
}

/* Before lua_pcallk with a continuation, which keeps something where a hook that is being set would write. */
void fli_lua_preempt_settle(struct fli_lua_proc *p);

/* Whether the step that p runs has taken its slice. */
bool fli_lua_preempt_late(struct fli_lua_proc *p);
/* Sets the hook in L for the next instruction. */
void fli_lua_preempt_arm(lua_State *L);
/* In a job, which does not yield: raises an error if its result has become useless. */
void fli_lua_preempt_now(lua_State *L, struct fli_lua_proc *p);

/* Sets the counting hook, if this state needs one. */
void fli_lua_preempt_count(struct fli_lua_proc *p);

#endif
