/* torn.h - ends a process after a C++ exception has left its step. See torn.c. */
#ifndef FLI_SCHED_TORN_H
#define FLI_SCHED_TORN_H

#include "sched/worker.h"

/* Called when a C++ exception has left a step of caller_worker: stores the process of that step in w->torn. Thread: the
 * one that uses caller_worker. */
void fli_torn_note(fli_worker *w);
/* Ends the process in w->torn, if there is one. Thread: the next one that uses caller_worker. */
void fli_torn_mend(fli_worker *w);

#endif
