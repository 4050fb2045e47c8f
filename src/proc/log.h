/* log.h - what the runtime tells its host in words: option `on_log`. Nothing is formatted where there is no hook. */
#ifndef FLI_PROC_LOG_H
#define FLI_PROC_LOG_H

#include <filch.h>

#include "proc/runtime.h"

/* Tells the hook of `rt`, if it has one. `pid` nobody and `type` NULL: about no process. Thread: any that may block as long as the
 * hook takes: no lock may be held. */
__attribute__((format(printf, 6, 7))) void fli_log(const fli_runtime *rt, filch_log_level level, filch_pid pid,
                                                   const char *type, filch_err error, const char *format, ...);

#endif
