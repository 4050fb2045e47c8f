/* cap.h - an allocator with a limit: option `memory_max`. */
#ifndef FLI_SCHED_CAP_H
#define FLI_SCHED_CAP_H

#include <filch.h>

#include "base/mem.h"

/* Puts a limit of `max` bytes before `mem`. Give it back with fli_cap_drop. */
filch_err fli_cap_create(fli_mem *mem, size_t max);
/* Nothing for an allocator without a limit. Blocks that are still out keep it until they come back. */
void fli_cap_drop(const fli_mem *mem);

#endif
