/* safepoint.h - keeps the owner of a Lua state from freeing memory while another thread (the watchdog) reads and writes
 * the state.
 *
 * The owner is the thread that runs the state. The owner passes the safepoint before each operation that must not
 * happen while the other thread accesses the state. The other thread is the holder: it holds the safepoint during its
 * access. Either the owner sees that the safepoint is held, and waits, or the holder sees everything that the owner did
 * before it passed. This guarantee needs a full barrier on both sides. The owner passes whenever Lua frees a block,
 * which is frequent, so the holder executes the barrier for both (port/barrier.h). Where the system has no such
 * barrier, the safepoint is `strict`: the owner passes by a read-modify-write.
 * Design: docs/design/lua/preemption.md.
 */
#ifndef FLI_LUA_SAFEPOINT_H
#define FLI_LUA_SAFEPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "port/atomic.h"
#include "port/barrier.h"

typedef struct fli_lua_safepoint {
    /* 1 while the safepoint is held, otherwise 0.  writes: the holder; the watchdog's safepoint `asleep` is released
     * also by a thread that wakes the watchdog.  reads: the owner, in a strict safepoint by adding 0; of `asleep` also
     * the holder.  PAIR lua.safepoint */
    FLI_ATOMIC(uint32_t) held;
    /* Not 0: the owner reads `held` by a read-modify-write that adds 0, see fli_lua_safepoint_is_held(). Not atomic:
     * set before another thread can access the safepoint. */
    uint32_t strict;
} fli_lua_safepoint;

/* A safepoint that is never held, for heaps that the watchdog does not access. */
extern fli_lua_safepoint fli_lua_safepoint_never_held;

void fli_lua_safepoint_init(fli_lua_safepoint *safepoint, bool strict);

/* Holds the safepoint, so that the owner (the thread that runs the Lua state) waits when it passes the safepoint. After
 * the call, the caller sees everything that the owner did before fli_lua_safepoint_is_held() last returned 0 to the
 * owner.  Thread: one holder at a time. */
void fli_lua_safepoint_hold(fli_lua_safepoint *safepoint);
void fli_lua_safepoint_release(fli_lua_safepoint *safepoint);

/* Slow path of fli_lua_safepoint_pass(): waits until the safepoint is released. */
void fli_lua_safepoint_wait(fli_lua_safepoint *safepoint);

/* Returns a value other than 0 while the safepoint is held. Thread: the owner. PAIR lua.safepoint, acquire half: if the
 * result is 0, the accesses of every earlier holder come before everything that the owner does next, such as a free. In
 * a strict safepoint the owner's addition and the holder's swap change the same word, one after the other; the thread
 * that comes second sees what the first thread did before its change (PAIR lua.safepoint, both halves). In a safepoint
 * that is not strict, the owner only reads, and the holder's barrier replaces the addition. */
static inline uint32_t fli_lua_safepoint_is_held(fli_lua_safepoint *safepoint)
{
    fli_barrier_here();
    return safepoint->strict ? fli_add_acqrel(&safepoint->held, 0) : fli_load_acq(&safepoint->held);
}

/* Waits while the safepoint is held, then returns. Thread: the owner. */
static inline void fli_lua_safepoint_pass(fli_lua_safepoint *safepoint)
{
    if (__builtin_expect(fli_lua_safepoint_is_held(safepoint) != 0, 0)) fli_lua_safepoint_wait(safepoint);
    fli_barrier_here();
}

#endif
