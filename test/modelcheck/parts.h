/* parts.h - the closed programs of `explore`: each runs a few operations of one lock-free part on two to four
 * threads. */
#ifndef FILCH_TEST_PARTS_H
#define FILCH_TEST_PARTS_H

#include "sim/weak.h"

/* One list per file; each ends with an entry without a name. */
extern const fli_weak_program parts_litmus[], parts_deque[], parts_sync[], parts_proc[], parts_yield[], parts_limit[],
    parts_sched[], parts_io[], parts_parker[], parts_safepoint[], parts_inline[], parts_pool[];

/* Checks a property of the program; `what` is the property in words. */
#define must(condition, what) fli_weak_must((condition), (what))

#endif
