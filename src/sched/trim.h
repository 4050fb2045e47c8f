/* trim.h - returns the memory of nodes and processes to the system after a peak. See trim.c. */
#ifndef FLI_SCHED_TRIM_H
#define FLI_SCHED_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef struct fli_trim {
    /* When the next portion of memory may be returned to the system; FLI_NEVER: there is nothing to return.  writes:
     * workers that park, and the thread that ticks.  reads: those threads. Relaxed: only a time; the slabs have locks
     * of their own. */
    FLI_ATOMIC(uint64_t) due_ns;
} fli_trim;

void fli_trim_init(fli_trim *trim);
/* Called before a worker parks and at the end of a tick. If there is much free memory, begins an interval: the memory
 * that is not used in this interval will be returned to the system. */
void fli_trim_plan(filch_sched *sched);
/* Returns the time at which a parked worker must call fli_trim_run(), or FLI_NEVER if there is no memory to return to
 * the system. */
uint64_t fli_trim_due_ns(filch_sched *sched);
/* If a portion of the free memory is due to be returned to the system, and no other thread is returning one, returns
 * it. */
void fli_trim_run(filch_sched *sched, uint64_t now_ns);
/* Returns the number of bytes in pages that were returned to the system and are not in use again. */
uint64_t fli_trim_returned_bytes(filch_sched *sched);

#endif
