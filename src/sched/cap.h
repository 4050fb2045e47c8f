/* cap.h - the allocator of a scheduler: counts the bytes that are out, and keeps them below option `memory_max`. */
#ifndef FLI_SCHED_CAP_H
#define FLI_SCHED_CAP_H

#include <filch.h>

#include "base/mem.h"
#include "proc/runtime.h"

/* Puts a counter before `mem`, and a limit of `max` bytes (0: none) for all blocks and the counter itself. Give it back with
 * fli_cap_drop. FILCH_ENOMEM: also when the counter alone is over the limit. */
filch_err fli_cap_create(fli_mem *mem, size_t max, uint32_t worker_count);
/* The workers of `rt` exist, `worker_count` of them with caller_worker: from now on each counts for itself. */
void fli_cap_begin(const fli_mem *mem, fli_runtime *rt);
/* No worker of `rt` counts for itself any more. To be called before the memory of `rt` is freed. Thread: no worker is left. */
void fli_cap_end(const fli_mem *mem);
/* The scheduler is gone; fli_cap_end() was called, or fli_cap_begin() was not. Blocks that are still out keep the counter until
 * they come back. */
void fli_cap_drop(const fli_mem *mem);
/* Bytes that are out, the counter's own included. Thread: any. */
uint64_t fli_cap_used(const fli_mem *mem);

#endif
