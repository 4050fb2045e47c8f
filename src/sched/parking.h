/* parking.h - parking and unparking workers. See parking.c. */
#ifndef FLI_SCHED_PARKING_H
#define FLI_SCHED_PARKING_H

#include <filch.h>

#include "sched/idle.h"

typedef enum fli_wake {
    FLI_WAKE_UNPARKED, /* unparked by another thread, or work was visible before the worker slept */
    FLI_WAKE_TIMEOUT,  /* the timeout of the worker has passed */
    FLI_WAKE_LEAVE     /* the scheduler ends: the thread must return */
} fli_wake;

/* Parks `w` until it is unparked or until its timeout. Does not park if work is visible. After the return `w` counts
 * as searching; but if `has_handoff` is set, it counts as working. Thread: `w`, which counts as searching before the
 * call. */
fli_wake fli_parking_park(struct fli_worker *w);
/* Unparks one worker, unless a worker is searching already. Thread: any. */
void fli_parking_wake_one(filch_sched *sched);
/* Returns true if `w` has more work queued than it can do in the time that a wake-up takes. Thread: `w`. */
bool fli_parking_is_worth_wake(struct fli_worker *w);

#endif
