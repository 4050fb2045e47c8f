/* check.h - checks the invariants of all data of a scheduler. */
#ifndef FILCH_TEST_SIM_CHECK_H
#define FILCH_TEST_SIM_CHECK_H

#include <stdbool.h>

#include <filch.h>

/* Called before a run: resets the state of the checks, so that this run alone determines when the checks are made and
 * what they check. */
void fli_check_begin(void);

/* Checks all queues and parked workers in every call. Checks the processes with their mailboxes every few calls, or in
 * every call with `all`. Calls fli_sim_fail() if an invariant does not hold. May be called whenever the simulator
 * switches threads, also while other threads are inside a call of the library. Changes nothing. The simulator does not
 * switch threads during the check. */
void fli_check_everything(filch_sched *sched, bool all);

/* Called when every thread waits and the next event is a timeout. Checks that no worker is parked while the global
 * queue holds work: otherwise a wake-up was lost. */
void fli_check_rest(filch_sched *sched);

#endif
