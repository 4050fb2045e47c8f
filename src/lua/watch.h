/* watch.h - no Lua process keeps a worker for itself: a step that runs too long is interrupted and goes on later.
 *
 * A hook that counts instructions would do, and would make all code twice as slow. So there is none while a process
 * behaves. A thread of the host, the watchdog, looks every slice whether a worker is still in the same step as the last
 * time. If so it sends that worker's thread a signal; the handler, on that thread, sets a hook on the state that runs
 * there, which Lua allows in signal handlers; the hook removes itself and yields.
 *
 * Where Lua cannot yield (inside table.sort, say) the step goes on, and fails when it has taken `runaway_ns`.
 * What runs inside C, such as a pattern that tries everything, has limits of its own.
 *
 * In a simulation there is no watchdog: there every state has a counting hook, so that a run is the same each time.
 */
#ifndef FLI_LUA_WATCH_H
#define FLI_LUA_WATCH_H

#include <filch.h>
#include <lua.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "port/atomic.h"
#include "port/thread.h"

struct filch_lua;
struct fli_lua_proc;

/* A thread that steps processes of this host. */
typedef struct fli_lua_runner {
    struct fli_lua_runner *next;
    uint64_t               thread;
    /* Odd while a step runs; another number for each.  writes: that thread.  reads: the watchdog. */
    FLI_ATOMIC(uint64_t) turn;
    /* How many slices the step has taken.  writes: the watchdog, and that thread, which begins at 0.  reads: both. */
    FLI_ATOMIC(uint32_t) late;
    uint64_t seen; /* the watchdog's own: the turn when it last looked */
} fli_lua_runner;

typedef struct fli_lua_watch {
    fli_mutex       lock; /* of all but what is atomic */
    fli_cond        wake;
    fli_thread      thread;
    bool            running, stop;
    fli_lua_runner *runners;
    uint64_t        serial; /* no two hosts have the same, ever */
    /* The watchdog waits to be woken by a step.  writes: the watchdog and who wakes it, under the lock.  reads: steps. */
    alignas(FLI_LINE) FLI_ATOMIC(uint32_t) asleep;
} fli_lua_watch;

filch_err fli_lua_watch_init(struct filch_lua *lua);
void      fli_lua_watch_fini(struct filch_lua *lua);

/* Around the Lua part of a step. A step may run inside another one's send, in a simulation: *before keeps its place. */
void fli_lua_watch_begin(struct fli_lua_proc *p, struct fli_lua_proc **before);
void fli_lua_watch_end(struct fli_lua_proc *p, struct fli_lua_proc *before);

/* Inside the step of `of`, another state runs for a while. */
void fli_lua_watch_lend(struct fli_lua_proc *p, const struct fli_lua_proc *of);
void fli_lua_watch_return(struct fli_lua_proc *p, struct fli_lua_proc *of);

/* Whether this step has taken longer than a slice: for calls that can let others run by themselves. */
static inline bool fli_lua_is_late(const fli_lua_runner *runner)
{
    return runner != NULL && fli_load_rlx(&runner->late) > 0;
}

/* For a simulation: sets the counting hook. */
void fli_lua_watch_count(lua_State *L);

#endif
