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
    /* PAIR lua.safepoint, release half: the holder's accesses come before what the owner does after it has passed the
     * safepoint. A strict safepoint is released by a read-modify-write too: a plain store would break the chain of
     * read-modify-writes, and the next holder's swap would not be ordered after earlier additions of the owner. */
    if (safepoint->strict) (void)fli_and_acqrel(&safepoint->held, 0);
    else fli_store_rel(&safepoint->held, 0);
}

void fli_lua_safepoint_wait(fli_lua_safepoint *safepoint)
{
    /* The wait usually lasts a few instructions. It is longer if the holder's thread is not scheduled, or if the Lua
     * state has very many active calls, because setting a hook walks over all of them. */
    while (fli_load_acq(&safepoint->held) != 0) fli_thread_yield(); /* PAIR lua.safepoint, acquire half */
}
