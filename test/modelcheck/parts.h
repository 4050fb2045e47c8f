/* parts.h - the closed programs of `explore`: each runs a few operations of one lock-free part on two to four
 * threads. */
#ifndef FILCH_TEST_PARTS_H
#define FILCH_TEST_PARTS_H

#include "sim/weak.h"

/* Lists of model programs, one list per file. Each list ends with an entry without a name. */
extern const fli_weak_program parts_litmus[], parts_deque[], parts_sync[], parts_proc[], parts_yield[], parts_limit[],
    parts_sched[], parts_io[], parts_parker[], parts_safepoint[], parts_inline[], parts_pool[], parts_timers[];

/* Reports a violation if `condition` is false; `what` is the property in words. */
#define must(condition, what) fli_weak_must((condition), (what))

#endif
