/* heap.h - the malloc of the program in the scale model. All virtual threads run on one real thread, so the C library
 * would give all of them blocks from one cache, and blocks would wander between cores that never share them on a real
 * machine. Here each virtual thread has free lists of its own, as with the per-thread caches of a real allocator, but
 * without a limit: a block goes to the list of the thread that frees it. Large blocks come from the C library.
 *
 * Also the memory of the engine itself, which must not lie between blocks of the program. */
#ifndef SCALE_HEAP_H
#define SCALE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks of more bytes than this come from the C library. */
#define SCALE_HEAP_MAX 1024

/* Allocates at most SCALE_HEAP_MAX bytes as thread `thread`. Returns NULL if there is no memory. */
void *scale_heap_alloc(uint32_t thread, size_t size);
/* Frees a block for which scale_heap_owns() is true. */
void scale_heap_free(uint32_t thread, void *old);
bool scale_heap_owns(const void *block);
/* Returns the size in bytes of a block for which scale_heap_owns() is true. */
size_t scale_heap_size(const void *block);

/* Returns zeroed memory for the engine, or ends the program. */
void *scale_map(size_t size);
void  scale_unmap(void *at, size_t size);

#endif
