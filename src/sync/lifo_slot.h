/* lifo_slot.h - the LIFO slot: one item beside a deque, which the owner takes next. Most queued items are taken by the
 * same thread a moment later; with the slot that costs a store and a swap, without the indices and the ring of the
 * deque. Thieves may take the item too.
 *
 *   put    if item is NULL: store it (release)         the owner
 *   take   if item is not NULL: swap it for NULL        any thread
 *
 * INVARIANT  only the owner stores an item other than NULL, and only after it has read NULL.
 *
 * Why no item is lost or taken twice. Takes are read-modify-writes of one word, so they are totally ordered: of two
 * takes without a put in between, the second finds NULL. A put overwrites nothing: the owner has read NULL, and other
 * threads store nothing but NULL. A take that was meant for the previous item but comes after the put gets the new
 * item, which is equally good. The load before the swap only saves the swap; if it is stale, the swap decides.
 * Design: docs/design/run-queues.md.
 */
#ifndef FLI_SYNC_LIFO_SLOT_H
#define FLI_SYNC_LIFO_SLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"
#include "port/atomic.h"

typedef struct fli_lifo_slot {
    /* the item; NULL: the slot is empty. writes: the owner by store, and any thread that takes the item, by swap.
     * reads: any. PAIR lifo_slot.item */
    FLI_ATOMIC(void *) item;
} fli_lifo_slot;

static inline void fli_lifo_slot_init(fli_lifo_slot *slot)
{
    fli_atomic_init(&slot->item, NULL);
}

/* Returns true if the slot is full: exact for the owner while no thief is active, otherwise possibly stale. Thread:
 * any. */
static inline bool fli_lifo_slot_is_full(fli_lifo_slot *slot)
{
    return fli_load_rlx(&slot->item) != NULL;
}

/* Stores `item`. Returns false and changes nothing if the slot is full. Thread: the owner. */
static inline bool fli_lifo_slot_put(fli_lifo_slot *slot, void *item)
{
    FLI_ASSUME(item != NULL);
    /* slot->item is loaded relaxed, because only this thread stores a value other than NULL */
    if (FLI_UNLIKELY(fli_lifo_slot_is_full(slot))) return false;
    fli_store_rel(&slot->item, item); /* PAIR lifo_slot.item, release half: publishes the content of the item */
    return true;
}

/* Takes the item; NULL if the slot is empty. Thread: any. */
static inline void *fli_lifo_slot_take(fli_lifo_slot *slot)
{
    if (!fli_lifo_slot_is_full(slot)) return NULL;
    /* PAIR lifo_slot.item, acquire half. There is no release half: the NULL only says that the slot is empty. */
    return fli_swap_acq(&slot->item, NULL);
}

#endif
