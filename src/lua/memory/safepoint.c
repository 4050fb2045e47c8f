/* safepoint.c - see safepoint.h. */
#include "lua/memory/safepoint.h"

#include "port/barrier.h"
#include "port/thread.h"

fli_lua_safepoint fli_lua_safepoint_never_held;

void fli_lua_safepoint_init(fli_lua_safepoint *safepoint, bool strict)
{
    fli_atomic_init(&safepoint->held, 0);
    safepoint->strict = strict;
}

void fli_lua_safepoint_hold(fli_lua_safepoint *safepoint)
{
    if (safepoint->strict) {
        (void)fli_swap_acqrel(&safepoint->held, 1); /* PAIR lua.safepoint: see fli_lua_safepoint_is_held() */
        return;
    }
    fli_store_rlx(&safepoint->held, 1);
    fli_barrier_everywhere();
}

void fli_lua_safepoint_release(fli_lua_safepoint *safepoint)
{
    /* PAIR lua.safepoint, release half: the holder's accesses come before what the owner does after it has passed. In a
     * strict safepoint this change is a read-modify-write too: after a plain store, the next swap of a holder would not
     * be ordered after the owner's earlier additions. */
    if (safepoint->strict) (void)fli_and_acqrel(&safepoint->held, 0);
    else fli_store_rel(&safepoint->held, 0);
}

void fli_lua_safepoint_wait(fli_lua_safepoint *safepoint)
{
    /* The wait usually lasts a few instructions. It is longer if the holder's thread has lost its processor, or if the
     * state has a million active calls. */
    while (fli_load_acq(&safepoint->held) != 0) fli_thread_yield(); /* PAIR lua.safepoint, acquire half */
}
