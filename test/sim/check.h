/* check.h - looks at everything a scheduler holds and says whether it can be true. */
#ifndef FILCH_TEST_SIM_CHECK_H
#define FILCH_TEST_SIM_CHECK_H

#include <stdbool.h>

#include <filch.h>

/* Before a run: what is looked at when depends on this run alone. */
void fli_check_begin(void);

/* Walks all queues and sleepers, and the processes with their mailboxes if it is their turn, or `all`. Calls
 * fli_sim_fail when an invariant does not hold. Holds at every point of a run, also in the middle of other threads'
 * work; touches nothing and is no point itself. */
void fli_check_everything(filch_sched *sched, bool all);

/* The same, when every thread waits and the next thing to happen is an alarm: nobody sleeps on work. */
void fli_check_rest(filch_sched *sched);

#endif
