/* deque.h - the local run queue of a worker. One owner pushes and pops at the bottom; any number of thieves take from
 * the top. Push and pop are inlined here, because they are most of a worker's queue operations; deque.c has the rest,
 * and the argument why no item is lost or taken twice. */
#ifndef FLI_SYNC_DEQUE_H
#define FLI_SYNC_DEQUE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/assert.h"
#include "base/mem.h"
#include "port/atomic.h"

/* Slots of a new deque; a power of two. The small build (FLI_SMALL) has fewer slots, so that tests reach growth and
 * wrap-around sooner. */
#ifdef FLI_SMALL
#define FLI_DEQUE_SLOTS 4
#else
#define FLI_DEQUE_SLOTS 256
#endif

/* Maximum number of items that one steal moves. */
#define FLI_DEQUE_STEAL_MAX 64

/* Maximum number of slots. Far below 2^31, so that the sign of a difference of two indices is meaningful. */
#define FLI_DEQUE_SLOTS_MAX (UINT32_C(1) << 30)

typedef struct fli_ring fli_ring;
struct fli_ring {
    uint32_t  mask;  /* number of slots - 1. Not atomic: set before the ring is published by PAIR deque.ring */
    fli_ring *older; /* the ring that this ring replaced, kept until fini. Not atomic: only the owner follows it */
    /* The item with index i is in slots[i & mask].  writes: the owner.  reads: the owner and thieves, relaxed: the
     * contents are published by PAIR deque.bottom, and a read that lost a race is discarded because the CAS after it
     * fails. */
    FLI_ATOMIC(void *) slots[];
};

typedef struct fli_deque {
    /* Bits: high 32 = tag, the number of pops; low 32 = top, the index of the oldest item.
     * PAIR deque.word. writes: the owner by add (pop), any thread by CAS (steal).  reads: any. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* One more than the index of the newest item. writes: the owner, always with release. reads: thieves.
     * PAIR deque.bottom. On the cache line of `word`, because every thread that reads `bottom` also reads `word`. */
    FLI_ATOMIC(uint32_t) bottom;
    /* The current ring.  writes: the owner, when the deque grows.  reads: thieves.  PAIR deque.ring */
    FLI_ATOMIC(fli_ring *) ring;
    alignas(FLI_LINE) fli_mem mem; /* not atomic: set once at init */
} fli_deque;

typedef enum fli_steal {
    FLI_STEAL_EMPTY, /* the deque was empty */
    /* another thread changed the deque during this attempt. The deque may have more items, so the thief must not park
     * because of this result */
    FLI_STEAL_RETRY,
    FLI_STEAL_GOT
} fli_steal;

filch_err fli_deque_init(fli_deque *deque, const fli_mem *mem);
/* Frees the deque, but not the items that are still in it. Thread: no other thread uses the deque any more. */
void fli_deque_fini(fli_deque *deque);

/* Pushes `item`, which is not NULL. Returns false and changes nothing if the deque is full and out of memory for a
 * larger ring. Thread: the owner. */
FILCH_MUST_USE static inline bool fli_deque_push(fli_deque *deque, void *item);
/* Removes the newest item and returns it; NULL if there is none. Wait-free: one read-modify-write, or none if the deque
 * looks empty. Thread: the owner. */
FILCH_MUST_USE static inline void *fli_deque_pop(fli_deque *deque);
/* Returns the index that the next pushed item will have, for fli_deque_push_under(). Thread: the owner. */
FILCH_MUST_USE static inline uint32_t fli_deque_mark(fli_deque *deque);
/* Pushes `item` below every item that was pushed since fli_deque_mark() returned `mark`, so that those items are popped
 * before `item`. Requires that the owner has popped no item since. Returns false if there is no memory for a larger
 * ring. Thread: the owner. */
FILCH_MUST_USE bool fli_deque_push_under(fli_deque *deque, void *item, uint32_t mark);
/* Removes the oldest item and returns it; NULL if there is none. Thread: the owner. */
FILCH_MUST_USE void *fli_deque_take_oldest(fli_deque *deque);

/* Steals half of the items of `from` (rounded up, at most FLI_DEQUE_STEAL_MAX) in one CAS. Stores the oldest stolen
 * item in *first, and pushes the others to the deque `into` so that the oldest of them is popped first. Steals no more
 * items than `into` can hold; `into` grows if there is memory. *count is the number of stolen items, *first included.
 * *first and *count are written only if the result is FLI_STEAL_GOT. Thread: the owner of `into`. */
FILCH_MUST_USE fli_steal fli_deque_steal_half_into(fli_deque *from, fli_deque *into, void **first, uint32_t *count);
/* Takes the oldest item of `from`. Thread: any. */
FILCH_MUST_USE fli_steal fli_deque_steal_one(fli_deque *from, void **item);

/* Returns the number of items: exact for the owner while no thief is active, otherwise possibly stale. Thread: any. */
uint32_t fli_deque_count(fli_deque *deque);

/* ---- the owner's fast paths ---------------------------------------------------------------------------------- */

/* Adding this number to `word` counts one pop in the tag. If the tag overflows, the carry is lost at the upper end of
 * the word, so top never changes. */
#define FLI_DEQUE_TAG_ONE (UINT64_C(1) << 32)

static inline uint32_t fli_deque_top(uint64_t word)
{
    return (uint32_t)word;
}

/* Replaces the ring by a ring with twice as many slots, and returns the new ring. Returns NULL, and changes nothing, if
 * out of memory. Thread: the owner. */
FILCH_MUST_USE fli_ring *fli_deque_grow(fli_deque *deque);

/* Pushes `item` if a slot is free. Returns true and stores in *before the number of items before the push (thieves
 * may have taken some of them since). Returns false and changes nothing if the deque is full. Thread: the owner. */
static inline bool fli_deque_try_push(fli_deque *deque, void *item, uint32_t *before)
{
    FLI_ASSERT(item != NULL);
    uint32_t  bottom = fli_load_rlx(&deque->bottom); /* relaxed: only this thread writes `bottom` */
    fli_ring *ring = fli_load_rlx(&deque->ring);     /* relaxed: only this thread writes `ring` */
    /* PAIR deque.word, acquire half: every thief that took an item from this slot read the slot before it advanced
     * top. So the slot can be reused. */
    uint32_t used = bottom - fli_deque_top(fli_load_acq(&deque->word));
    if (FLI_UNLIKELY(used > ring->mask)) return false;
    fli_store_rlx(&ring->slots[bottom & ring->mask], item);
    /* PAIR deque.bottom, release half: a thread that sees the new bottom sees the slot, the ring and the item's
     * content. */
    fli_store_rel(&deque->bottom, bottom + 1);
    *before = used;
    return true;
}

static inline bool fli_deque_push(fli_deque *deque, void *item)
{
    uint32_t before;
    while (FLI_UNLIKELY(!fli_deque_try_push(deque, item, &before))) {
        if (fli_deque_grow(deque) == NULL) return false;
    }
    return true;
}

/* Returns true if the deque is empty. Thread: the owner. (A deque that is not empty may be emptied by thieves at any
 * time.) */
static inline bool fli_deque_is_empty(fli_deque *deque)
{
    /* Relaxed is enough: only this thread writes bottom; top never goes back, so a stale top can only make an empty
     * deque look non-empty. */
    return fli_load_rlx(&deque->bottom) == fli_deque_top(fli_load_rlx(&deque->word));
}

static inline uint32_t fli_deque_mark(fli_deque *deque)
{
    return fli_load_rlx(&deque->bottom); /* relaxed: only this thread writes `bottom` */
}

/* Returns the probable oldest item, NULL if there is none: a hint, not to be dereferenced. Thread: the owner. */
static inline const void *fli_deque_guess_oldest(fli_deque *deque)
{
    uint32_t  top = fli_deque_top(fli_load_rlx(&deque->word));
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: only this thread writes ring, bottom and slots */
    return top != fli_load_rlx(&deque->bottom) ? fli_load_rlx(&ring->slots[top & ring->mask]) : NULL;
}

static inline void *fli_deque_pop(fli_deque *deque)
{
    if (fli_deque_is_empty(deque))
        return NULL; /* a stale top can make an empty deque look non-empty; then the add below reads the current top */
    uint32_t bottom = fli_load_rlx(&deque->bottom), newest = bottom - 1; /* relaxed: only this thread writes `bottom` */
    /* PAIR deque.bottom, release half. A relaxed store would be wrong: a thief may read this bottom together with the
     * word from before the add, and would then not be ordered after the pushes of the items below. x86 would hide the
     * error. */
    fli_store_rel(&deque->bottom, newest);
    /* PAIR deque.word, both halves: a thief that loaded the word before this add can claim no item any more; a thief
     * that loads the word later sees the lowered bottom. */
    uint64_t word = fli_add_acqrel(&deque->word, FLI_DEQUE_TAG_ONE);
    int32_t  above = (int32_t)(newest - fli_deque_top(word));
    if (FLI_UNLIKELY(above < 0)) {
        /* a thief took the item that this pop wanted; top is never above the old bottom */
        FLI_ASSERT(above == -1);
        /* PAIR deque.bottom, release half: restores bottom, so that top and bottom are equal again. */
        fli_store_rel(&deque->bottom, bottom);
        return NULL;
    }
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: only this thread writes the ring and its slots */
    void     *item = fli_load_rlx(&ring->slots[newest & ring->mask]);
    FLI_ASSUME(item != NULL);
    return item;
}

#endif
