/* lifo_slot.h - room for one item beside a deque: the one its owner will take next. Most of what is queued is taken by the same
 * thread a moment later; here that takes a store and a swap, where the deque needs indices, a ring and the same
 * read-modify-write. Thieves may take it as well: nothing is hidden from them.
 *
 *   put    if item is NULL: item = it (release)      the owner
 *   take   if item is not NULL: swap it for NULL     anybody
 *
 * INVARIANT  only the owner makes the item another than NULL, and only when it has seen NULL.
 *
 * Why no item is lost or doubled. Takes are read-modify-writes of one word, so they stand in one order: of two takes with
 * no put in between, the second finds NULL. A put overwrites nothing: the owner saw NULL, whoever made it so, and nobody
 * else stores anything but NULL. A take that comes after the put, meant for the item before it, gets the new one: that is
 * as good. The look before the swap is there to spare the swap; if it is out of date, the swap decides.
 * Design: docs/design/run-queues.md.
 */
#ifndef FLI_SYNC_LIFO_SLOT_H
#define FLI_SYNC_LIFO_SLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"
#include "port/atomic.h"

typedef struct fli_lifo_slot {
    FLI_ATOMIC(void *) item; /* writes: see above.  reads: any.  PAIR lifo_slot.item */
} fli_lifo_slot;

static inline void fli_lifo_slot_init(fli_lifo_slot *slot)
{
    fli_atomic_init(&slot->item, NULL);
}

/* Thread: any. Exact for the owner while no thief is at work, for others a guess that may be old. */
static inline bool fli_lifo_slot_is_full(fli_lifo_slot *slot)
{
    return fli_load_rlx(&slot->item) != NULL;
}

/* Thread: the owner. False: it is full, and nothing changed. */
static inline bool fli_lifo_slot_put(fli_lifo_slot *slot, void *item)
{
    FLI_ASSUME(item != NULL);
    if (FLI_UNLIKELY(fli_lifo_slot_is_full(slot))) return false; /* relaxed: our own store, or nothing any more */
    fli_store_rel(&slot->item, item); /* PAIR lifo_slot.item, release half: what the item holds */
    return true;
}

/* Thread: any. NULL: it is empty. */
static inline void *fli_lifo_slot_take(fli_lifo_slot *slot)
{
    if (!fli_lifo_slot_is_full(slot)) return NULL;
    return fli_swap_acqrel(&slot->item, NULL); /* PAIR lifo_slot.item, acquire half */
}

#endif
