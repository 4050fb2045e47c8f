/* gate.h - a gate: a place inside a call where a thread waits until the test opens the gate. */
#ifndef FILCH_TEST_GATE_H
#define FILCH_TEST_GATE_H

#include "port/atomic.h"
#include "support/until.h"

typedef struct gate {
    FLI_ATOMIC(bool)     is_shut;
    FLI_ATOMIC(uint32_t) waiting;
} gate;

static inline bool gate_is_open(void *at)
{
    return !fli_load_acq(&((gate *)at)->is_shut);
}

/* Waits until the gate is open. Returns at once if the gate is open already. */
static inline void gate_pass(gate *g)
{
    if (gate_is_open(g)) return;
    (void)fli_add_rel(&g->waiting, 1);
    (void)until_or_late(gate_is_open, g);
    (void)fli_add_rel(&g->waiting, (uint32_t)-1);
}

static inline void gate_shut(gate *g)
{
    fli_store_rel(&g->is_shut, true);
}

static inline void gate_open(gate *g)
{
    fli_store_rel(&g->is_shut, false);
}

/* Returns true if a thread waits at the gate. */
static inline bool gate_is_waiting(gate *g)
{
    return fli_load_acq(&g->waiting) > 0;
}

#endif
