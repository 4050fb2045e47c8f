/* safepoint.c - see safepoint.h. */
#include "lua/memory/safepoint.h"

#include "port/barrier.h"
#include "port/thread.h"

fli_lua_gate fli_lua_gate_open;

void fli_lua_gate_init(fli_lua_gate *gate, bool strict)
{
    fli_atomic_init(&gate->held, 0);
    gate->strict = strict;
}

void fli_lua_gate_hold(fli_lua_gate *gate)
{
    if (gate->strict) {
        (void)fli_swap_acqrel(&gate->held, 1); /* PAIR lua.gate: see fli_lua_gate_pass */
        return;
    }
    fli_store_rlx(&gate->held, 1);
    fli_barrier_everywhere();
}

void fli_lua_gate_release(fli_lua_gate *gate)
{
    /* PAIR lua.gate, release half: what was looked at and written comes before the owner goes on. In a strict gate by a
     * read-modify-write, as all changes of the word are there: a store would hide the owner's additions from the next swap. */
    if (gate->strict) (void)fli_and_acqrel(&gate->held, 0);
    else fli_store_rel(&gate->held, 0);
}

void fli_lua_gate_wait(fli_lua_gate *gate)
{
    /* Mostly a few instructions; longer if the holder has lost its processor, or the state has a million active calls. */
    while (fli_load_acq(&gate->held) != 0) fli_thread_yield(); /* PAIR lua.gate, acquire half */
}
