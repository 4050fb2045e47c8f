/* trim.h - returns the memory of nodes and processes to the system after a peak. See trim.c. */
#ifndef FLI_SCHED_TRIM_H
#define FLI_SCHED_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef struct fli_trim {
    /* When the next portion may be returned; FLI_NEVER: there is nothing to return.  writes: workers that park, and the
     * thread that ticks.  reads: those threads. Relaxed: only a time; the slabs have locks of their own. */
    FLI_ATOMIC(uint64_t) due_ns;
} fli_trim;

void fli_trim_init(fli_trim *trim);
/* Called before a worker parks and at the end of a tick: begins to watch whether free memory is used again, if there is
 * much of it. */
void fli_trim_plan(filch_sched *sched);
/* Returns the time at which a parked worker must call fli_trim_run(), or FLI_NEVER. */
uint64_t fli_trim_due_ns(filch_sched *sched);
/* Returns a portion of the free memory to the system, if it is due and no other thread does so. */
void fli_trim_run(filch_sched *sched, uint64_t now_ns);

#endif
