/* builtin.h - the built-in commands. See builtin.c. */
#ifndef FLI_SCHED_BUILTIN_H
#define FLI_SCHED_BUILTIN_H

#include <filch.h>

filch_err fli_builtin_registry(filch_registry **out);

#endif
