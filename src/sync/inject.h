/* inject.h - the global queue: first in, first out; any thread puts, any worker takes. Items contain a link that is
 * used when there is no memory for the ring, so putting cannot fail. */
#ifndef FLI_SYNC_INJECT_H
#define FLI_SYNC_INJECT_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"
#include "port/atomic.h"
#include "port/thread.h"

typedef struct fli_inject {
    alignas(FLI_LINE) fli_mutex lock;
    /* The fields down to `newest` are not atomic: used under the lock. */
    void **ring; /* holds the `length` oldest items, from index `first` on; NULL: no ring */
    size_t room; /* number of items for which the ring has room: a power of two, or 0 */
    size_t first, length;
    /* chain of the items that are newer than the items in the ring. `newest` is valid only if `oldest` is not NULL */
    void *oldest, *newest;
    /* offset in bytes of the `void *` in an item that links the chain. Not atomic: set at init */
    size_t  link;
    fli_mem mem; /* not atomic: set at init */
    /* Number of items. writes: under lock. reads: any, as a hint before taking the lock.
     * PAIR inject.count. On its own cache line, so that workers that only read the count do not slow down the holder of
     * the lock. */
    alignas(FLI_LINE) FLI_ATOMIC(size_t) count;
} fli_inject;

/* Initialises an empty queue. `link` is the offset of a `void *` in each item; that pointer belongs to the queue
 * while the item is queued. */
filch_err fli_inject_init(fli_inject *queue, const fli_mem *mem, size_t link);
/* Frees the queue, but not the items that are still in it. Thread: no other thread uses the queue any more. */
void fli_inject_fini(fli_inject *queue);

/* Puts `item` at the end. `item` must be in no other queue that uses the same link. Thread: any. */
void fli_inject_put(fli_inject *queue, void *item);
/* Puts `item` at the front: it is taken before all others. Thread: any. */
void fli_inject_put_first(fli_inject *queue, void *item);
/* Takes up to `max` items, oldest first. Returns the number of items. Takes no lock if the queue is empty. Thread:
 * any. */
size_t fli_inject_take(fli_inject *queue, void **items, size_t max);
/* Returns the number of items: a hint, exact only if no other thread changes the queue. The result is not 0 if an item
 * that has not been taken was put before this call (by this thread, or by a put that is ordered before the call).
 * Thread: any. */
size_t fli_inject_count(fli_inject *queue);

#endif
