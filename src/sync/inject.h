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
    /* Plain, under lock. */
    void  **ring; /* the oldest items: `length` of them, from place `first` on */
    size_t  room; /* places of the ring: a power of two, or 0 */
    size_t  first, length;
    void   *oldest, *newest; /* the chain of items behind the ring. `newest` is valid only while `oldest` is not NULL */
    size_t  link;            /* plain: set at init. Offset of the link in an item */
    fli_mem mem;             /* plain: set at init */
    /* Number of items.  writes: under lock.  reads: any, as a hint before taking the lock.  PAIR inject.count  On its
     * own cache line: workers that only read it do not disturb the holder of the lock. */
    alignas(FLI_LINE) FLI_ATOMIC(size_t) count;
} fli_inject;

/* `link` is the offset of a `void *` in each item; it belongs to the queue while the item is queued. */
filch_err fli_inject_init(fli_inject *queue, const fli_mem *mem, size_t link);
/* Thread: no other thread uses it any more. Items still inside are forgotten. */
void fli_inject_fini(fli_inject *queue);

/* Thread: any. `item` is in no other queue that uses the same link. */
void fli_inject_put(fli_inject *queue, void *item);
/* Puts `item` at the front: it is taken before all others. Thread: any. */
void fli_inject_put_first(fli_inject *queue, void *item);
/* Takes up to `max` items, oldest first. Returns how many. Takes no lock if the queue is empty. Thread: any. */
size_t fli_inject_take(fli_inject *queue, void **items, size_t max);
/* Returns the number of items: a hint, exact only without concurrent calls. Never 0 for a thread that knows of a put
 * (its own, or one that happened before the call) if the item has not been taken. Thread: any. */
size_t fli_inject_count(fli_inject *queue);

#endif
