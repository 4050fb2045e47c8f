/* parts.h - the closed programs of `explore`: each a few operations of one lock-free part, by two to four threads. */
#ifndef FILCH_TEST_PARTS_H
#define FILCH_TEST_PARTS_H

#include "sim/weak.h"

/* One list per file; each ends with a program that has no name. */
extern const fli_weak_program parts_litmus[], parts_deque[], parts_sync[], parts_proc[], parts_yield[], parts_limit[],
    parts_sched[], parts_io[], parts_bell[], parts_gate[], parts_inline[], parts_pool[];

/* What must hold, in the words of the promise. */
#define must(condition, what) fli_weak_must((condition), (what))

#endif
