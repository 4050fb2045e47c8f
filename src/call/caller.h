/* caller.h - the process that serves a wait. */
#ifndef FLI_CALL_CALLER_H
#define FLI_CALL_CALLER_H

#include "call/call.h"

/* Starts a process that serves `call`, waits for the outcome and returns it. Takes the reference of the calling thread
 * to `call`, also on an error. */
filch_err fli_caller_run(filch_sched *sched, fli_hostcall *call, filch_err *ended, filch_data *reply);

#endif
