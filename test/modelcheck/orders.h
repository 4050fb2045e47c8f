/* orders.h - which memory orders of src/ the programs of `explore` need (explore --mutants). */
#ifndef FILCH_TEST_PARTS_ORDERS_H
#define FILCH_TEST_PARTS_ORDERS_H

#include "sim/weak.h"

/* Returns the maximum number of preemptions in an execution of `program`, with `one_more` one more than its own bound;
 * -1: no limit. */
static inline int32_t orders_bound_of(const fli_weak_program *program, bool one_more)
{
    if (program->bound == 0) return -1;
    return (program->bound == FLI_WEAK_NO_PREEMPTION ? 0 : program->bound) + (one_more ? 1 : 0);
}

/* Weakens every memory order in src/ by one step, one at a time, runs the `count` programs that use it, and prints
 * which program detects the change. Only orders at source lines that contain `part` are weakened ("": all). Then
 * compares the orders that no program detects with the list kept_orders.txt. `most`: maximal number of executions of a
 * program each time; 0: no limit. Returns 0 if they are the same, otherwise 1. */
int orders_weaken(const fli_weak_program *const *programs, uint32_t count, const char *part, uint64_t most);

#endif
