/* safepoint.h - keeps a thread away from certain places for a moment, while another one writes into the state that it
 * runs.
 *
 * The owner passes the gate wherever it is about to do what must not happen meanwhile; the other one holds it. Either
 * the owner sees that it is held, and waits, or the holder sees all that the owner did before it passed. That needs a
 * full barrier on both sides. The owner passes with every block that Lua frees, so the holder pays for both
 * (port/barrier.h); where it cannot, the owner passes by a read-modify-write (`strict`).
 */
#ifndef FLI_LUA_SAFEPOINT_H
#define FLI_LUA_SAFEPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "port/atomic.h"
#include "port/barrier.h"

typedef struct fli_lua_safepoint {
    /* 1 while held.  writes: the holder.  reads: the owner, which in a strict gate adds 0.  PAIR lua.safepoint */
    FLI_ATOMIC(uint32_t) held;
    uint32_t strict; /* plain: set before the gate is known to anybody */
} fli_lua_safepoint;

/* One that nobody holds. */
extern fli_lua_safepoint fli_lua_safepoint_never_held;

void fli_lua_safepoint_init(fli_lua_safepoint *safepoint, bool strict);

/* When it returns, the holder sees all that an owner did before a look that found the gate open. Thread: one at a time.
 */
void fli_lua_safepoint_hold(fli_lua_safepoint *safepoint);
void fli_lua_safepoint_release(fli_lua_safepoint *safepoint);

/* Out of line: the gate is held. */
void fli_lua_safepoint_wait(fli_lua_safepoint *safepoint);

/* Returns not 0 while the gate is held. Thread: the owner.
 * PAIR lua.safepoint, acquire half: what the last holder looked at comes before what the owner frees after a 0.
 * In a strict gate the owner's addition and the holder's swap are in one order, and the second of them sees what came
 * before the first: PAIR lua.safepoint, both halves. In the other kind the holder's barrier takes the place of the
 * addition. */
static inline uint32_t fli_lua_safepoint_is_held(fli_lua_safepoint *safepoint)
{
    fli_barrier_here();
    return safepoint->strict ? fli_add_acqrel(&safepoint->held, 0) : fli_load_acq(&safepoint->held);
}

/* Thread: the owner. Passes, and waits if it has to. */
static inline void fli_lua_safepoint_pass(fli_lua_safepoint *safepoint)
{
    if (__builtin_expect(fli_lua_safepoint_is_held(safepoint) != 0, 0)) fli_lua_safepoint_wait(safepoint);
    fli_barrier_here();
}

#endif
