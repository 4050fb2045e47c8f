/* parking.h - parking and unparking workers. See parking.c. */
#ifndef FLI_SCHED_PARKING_H
#define FLI_SCHED_PARKING_H

#include <filch.h>

#include "sched/idle.h"

typedef enum fli_wake {
    FLI_WAKE_UNPARKED, /* by another thread, or because work was visible before it slept */
    FLI_WAKE_TIMEOUT,  /* its own timeout has passed */
    FLI_WAKE_LEAVE     /* the scheduler ends: the thread must return */
} fli_wake;

/* Parks `w` until it is unparked, until its timeout, or not at all if work is visible. Afterwards `w` counts as searching; or, if
 * `has_handoff` is set, as working. Thread: `w`, which counts as searching. */
fli_wake fli_parking_park(struct fli_worker *w);
/* Unparks one worker, unless one searches already. Thread: any. */
void fli_parking_wake_one(filch_sched *sched);
/* Returns true if `w` has more work queued than it can do in the time of a wake-up. Thread: `w`. */
bool fli_parking_is_worth_wake(struct fli_worker *w);

#endif
