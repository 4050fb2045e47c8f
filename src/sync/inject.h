/* inject.h - the global queue: first in, first out, any thread puts and any worker takes. Items carry their own link,
 * so putting cannot fail. */
#ifndef FLI_SYNC_INJECT_H
#define FLI_SYNC_INJECT_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"

typedef struct fli_inject {
    alignas(FLI_LINE) fli_mutex lock;
    void  *oldest, *newest; /* plain: under lock */
    size_t link;            /* plain: set at init. Where in an item the pointer to the next one is */
    /* How many. writes: under lock. reads: any, as a hint before taking the lock.  */
    FLI_ATOMIC(size_t) count;
} fli_inject;

/* `link` is the offset of a `void *` inside the items that belongs to the queue while they are in it. */
filch_err fli_inject_init(fli_inject *queue, size_t link);
void      fli_inject_fini(fli_inject *queue);

void fli_inject_put(fli_inject *queue, void *item);
/* Gives up to `max` of the oldest, oldest first; returns how many. */
size_t fli_inject_take(fli_inject *queue, void **items, size_t max);
/* A hint: exact only under quiescence, but never 0 for the thread that just put. */
size_t fli_inject_count(fli_inject *queue);

#endif
