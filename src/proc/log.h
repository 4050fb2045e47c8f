/* log.h - log lines of the runtime for the option `on_log`. Without the hook nothing is formatted. */
#ifndef FLI_PROC_LOG_H
#define FLI_PROC_LOG_H

#include <filch.h>

#include "proc/runtime.h"

/* Passes a formatted line to the hook of `rt`, if there is one. `pid` {0, 0} and `type` NULL: the line is about no
 * process. Thread: any; the caller must hold no lock, because the hook may block. */
__attribute__((format(printf, 6, 7))) void fli_log(const fli_runtime *rt, filch_log_level level, filch_pid pid,
                                                   const char *type, filch_err error, const char *format, ...);

#endif
