/* orders.h - which memory orders of src/ the programs of `explore` need (explore --mutants). */
#ifndef FILCH_TEST_PARTS_ORDERS_H
#define FILCH_TEST_PARTS_ORDERS_H

#include "sim/weak.h"

/* Returns the maximum number of preemptions in an execution of `program`: its own bound, plus 1 if `one_more` is true;
 * -1: no limit. */
static inline int32_t orders_bound_of(const fli_weak_program *program, bool one_more)
{
    if (program->bound == 0) return -1;
    return (program->bound == FLI_WEAK_NO_PREEMPTION ? 0 : program->bound) + (one_more ? 1 : 0);
}

/* Weakens every memory order in src/ by one step, one at a time, runs the `count` programs that use it, and prints
 * which program detects the change. Only orders at source lines that contain `part` are weakened ("": all). Then
 * compares the orders that no program detects with the orders in kept_orders.txt. `most`: maximum number of executions
 * in one run of a program; 0: no limit. Returns 0 if both sets of orders are equal, otherwise 1. */
int orders_weaken(const fli_weak_program *const *programs, uint32_t count, const char *part, uint64_t most);

#endif
