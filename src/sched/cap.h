/* cap.h - the allocator of a scheduler: counts the bytes in use, and keeps them below option `memory_max`. */
#ifndef FLI_SCHED_CAP_H
#define FLI_SCHED_CAP_H

#include <filch.h>

#include "base/mem.h"
#include "proc/runtime.h"

/* Replaces the allocator `*mem` by an allocator that calls the old one, counts the bytes in use, and refuses an
 * allocation that would bring them above `max` bytes (0: no limit). The memory of the counter itself is counted too.
 * Released by fli_cap_drop(). Returns FILCH_ENOMEM if there is no memory, or if the counter alone is over the limit. */
filch_err fli_cap_create(fli_mem *mem, size_t max, uint32_t worker_count);
/* Called when `rt` has been created. If there is no limit, each worker of `rt` counts in a stripe (a counter) of its
 * own from now on. */
void fli_cap_begin(const fli_mem *mem, fli_runtime *rt);
/* Adds the stripes of the workers to the shared count. Called before the memory of `rt` is freed, when no worker is
 * left. */
void fli_cap_end(const fli_mem *mem);
/* Releases the counter, after the scheduler is freed. If fli_cap_begin() was called, fli_cap_end() must have been
 * called too. If blocks are still in use, the counter is freed together with the last of these blocks. */
void fli_cap_drop(const fli_mem *mem);
/* Returns the number of bytes in use, including the bytes of the counter itself. Thread: any. */
uint64_t fli_cap_used(const fli_mem *mem);

#endif
