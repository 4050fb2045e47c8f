/* check.h - looks at everything a scheduler holds and says whether it can be true. */
#ifndef FILCH_TEST_SIM_CHECK_H
#define FILCH_TEST_SIM_CHECK_H

#include <filch.h>

/* Walks all queues, processes, mailboxes and nodes. Calls fli_sim_fail when an invariant does not hold. Holds at every
 * point of a run, also in the middle of other threads' work; touches nothing and is no point itself. */
void fli_check_everything(filch_sched *sched);

#endif
