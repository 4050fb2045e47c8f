/* check.h - checks the invariants of everything that a scheduler holds. */
#ifndef FILCH_TEST_SIM_CHECK_H
#define FILCH_TEST_SIM_CHECK_H

#include <stdbool.h>

#include <filch.h>

/* Called before a run, so that the choice of what is checked when depends on this run alone. */
void fli_check_begin(void);

/* Checks all queues and parked workers; and the processes with their mailboxes every few calls, or always with `all`.
 * Calls fli_sim_fail() if an invariant does not hold. May be called at every point of a run, also while other threads
 * are inside a call; changes nothing and is not a point itself. */
void fli_check_everything(filch_sched *sched, bool all);

/* fli_check_everything(), for the moment when every thread waits and the next thing to happen is a timeout: checks also
 * that no worker is parked while work is queued. */
void fli_check_rest(filch_sched *sched);

#endif
