/* gate.c - see gate.h. */
#include "lua/gate.h"

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
    fli_store_rel(&gate->held, 0); /* PAIR lua.gate, release half: what was written comes before the owner goes on */
}

void fli_lua_gate_wait(fli_lua_gate *gate)
{
    /* Mostly a few instructions; longer if the holder has lost its processor, or the state has a million active calls. */
    while (fli_load_acq(&gate->held) != 0) fli_thread_yield(); /* PAIR lua.gate, acquire half */
}
