/* inject.h - the global queue: first in, first out, any thread puts and any worker takes. Items carry a link of their own
 * for when there is no memory, so putting cannot fail. */
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
    void **ring;            /* the oldest items: `length` of them, from place `first` on */
    size_t room;            /* places of the ring: a power of two, or none */
    size_t first, length;
    void  *oldest, *newest; /* the chain of those behind them. `newest` means something only while `oldest` is not NULL */
    size_t  link;           /* plain: set at init. Where in an item the pointer to the next one is */
    fli_mem mem;            /* plain: set at init */
    /* How many.  writes: under lock.  reads: any, as a hint before taking the lock.  PAIR inject.count
     * On a line of its own: workers that only ask do not disturb those that hold the lock. */
    alignas(FLI_LINE) FLI_ATOMIC(size_t) count;
} fli_inject;

/* `link` is the offset of a `void *` inside the items that belongs to the queue while they are in it. */
filch_err fli_inject_init(fli_inject *queue, const fli_mem *mem, size_t link);
/* Thread: nobody else uses it any more. Items still inside are forgotten. */
void fli_inject_fini(fli_inject *queue);

/* Thread: any. `item` is in no other queue that uses the same link. */
void fli_inject_put(fli_inject *queue, void *item);
/* The same, but it is taken before all others. */
void fli_inject_put_first(fli_inject *queue, void *item);
/* Thread: any. Gives up to `max` of the oldest, oldest first; returns how many. Takes no lock when there is nothing. */
size_t fli_inject_take(fli_inject *queue, void **items, size_t max);
/* Thread: any. A hint: exact only under quiescence, but never 0 for a thread that knows of a put (its own, or one that
 * happened before it looked) whose item nobody has taken. */
size_t fli_inject_count(fli_inject *queue);

#endif
