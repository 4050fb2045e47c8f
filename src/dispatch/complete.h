/* complete.h - completing a yield that the caller has claimed. filch_complete() is in filch.h. */
#ifndef FLI_DISPATCH_COMPLETE_H
#define FLI_DISPATCH_COMPLETE_H

#include <filch.h>

#include "proc/runtime.h"

/* Completes the yield of `node`, which the caller has claimed by fli_yield_claim(), with `error` and a payload in value
 * form. Thread: the worker that runs the process of the yield, inside a handler. */
void fli_complete_claimed(fli_runtime *rt, fli_event_node *node, filch_data value, filch_err error);

#endif
