/* deque.h - a worker's own run queue. One owner pushes and pops at the bottom; any number of thieves take from the
 * top. Push and pop are here because they are most of what a worker does; deque.c has the rest and the argument why
 * no item is lost or handed out twice. */
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

/* Slots of a new deque; a power of two. The small build comes to the edges sooner. */
#ifdef FLI_SMALL
#define FLI_DEQUE_SLOTS 4
#else
#define FLI_DEQUE_SLOTS 256
#endif

/* The most that one steal moves. */
#define FLI_DEQUE_STEAL_MAX 64

/* The most slots there can ever be. Far below 2^31, so that the sign of a difference of two indices means something. */
#define FLI_DEQUE_SLOTS_MAX (UINT32_C(1) << 30)

typedef struct fli_ring fli_ring;
struct fli_ring {
    uint32_t  mask;  /* plain: slots - 1, set before the ring is published by PAIR deque.ring */
    fli_ring *older; /* plain: only the owner follows it. The ring this one replaced, kept until fini */
    /* The item with index i is in slots[i & mask].  writes: the owner.  reads: the owner and thieves, relaxed: the
     * contents travel by PAIR deque.bottom, and a read that lost a race is thrown away by the CAS after it. */
    FLI_ATOMIC(void *) slots[];
};

typedef struct fli_deque {
    /* tag:32 | top:32. Counts pops (tag) and names the oldest item (top).
     * writes: the owner by add (pop), anybody by CAS (steal).  reads: any.  PAIR deque.word */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* One past the newest item.  writes: the owner, always with release.  reads: thieves.  PAIR deque.bottom
     * On the line of `word`: who wants one wants the other. */
    FLI_ATOMIC(uint32_t) bottom;
    /* Where the items are.  writes: the owner, when it grows.  reads: thieves.  PAIR deque.ring */
    FLI_ATOMIC(fli_ring *) ring;
    alignas(FLI_LINE) fli_mem mem; /* plain: set once at init */
} fli_deque;

typedef enum fli_steal {
    FLI_STEAL_EMPTY, /* there was nothing */
    FLI_STEAL_RETRY, /* there may be something: somebody else was faster. Not a reason to sleep */
    FLI_STEAL_GOT
} fli_steal;

filch_err fli_deque_init(fli_deque *deque, const fli_mem *mem);
/* Thread: nobody else uses it any more. Items still inside are forgotten. */
void fli_deque_fini(fli_deque *deque);

/* Thread: the owner. `item` is not NULL. False: it is full and there is no memory to grow; nothing changed. */
FILCH_MUST_USE static inline bool fli_deque_push(fli_deque *deque, void *item);
/* Thread: the owner. The newest item, or NULL. Wait-free: one read-modify-write, none if it looks empty. */
FILCH_MUST_USE static inline void *fli_deque_pop(fli_deque *deque);
/* Thread: the owner. Where the next push goes: for fli_deque_push_under. */
FILCH_MUST_USE static inline uint32_t fli_deque_mark(fli_deque *deque);
/* Thread: the owner. As push, but under all that was pushed since `mark`: those pop first. Nothing was popped since. */
FILCH_MUST_USE bool fli_deque_push_under(fli_deque *deque, void *item, uint32_t mark);
/* Thread: the owner. The oldest item; NULL only if there is none. */
FILCH_MUST_USE void *fli_deque_take_oldest(fli_deque *deque);

/* Thread: the owner of `into`, which is another deque. Moves half of `from` (rounded up, at most FLI_DEQUE_STEAL_MAX)
 * in one CAS: gives the oldest stolen item in *first, pushes the rest to `into` in an order that makes the next oldest
 * pop first. Takes no more than `into` has room for; `into` grows for it if there is memory. *count is how many were
 * moved in all, *first included. Both are written only for FLI_STEAL_GOT. */
FILCH_MUST_USE fli_steal fli_deque_steal_half_into(fli_deque *from, fli_deque *into, void **first, uint32_t *count);
/* Thread: any. Takes the oldest item only. */
FILCH_MUST_USE fli_steal fli_deque_steal_one(fli_deque *from, void **item);

/* Thread: any. About how many items there are: exact for the owner while no thief is at work, for others a guess that
 * may be old. */
uint32_t fli_deque_count(fli_deque *deque);

/* ---- the owner's fast paths ---------------------------------------------------------------------------------- */

/* One pop more in the tag. It overflows out of the word's upper end and never disturbs top. */
#define FLI_DEQUE_TAG_ONE (UINT64_C(1) << 32)

static inline uint32_t fli_deque_top(uint64_t word)
{
    return (uint32_t)word;
}

/* Thread: the owner. Doubles the ring and returns the new one; NULL: no memory, nothing changed. */
FILCH_MUST_USE fli_ring *fli_deque_grow(fli_deque *deque);

/* Thread: the owner. Pushes if there is room: true, and how many there were before, if not fewer. False: nothing changed. */
static inline bool fli_deque_try_push(fli_deque *deque, void *item, uint32_t *before)
{
    FLI_ASSERT(item != NULL);
    uint32_t  bottom = fli_load_rlx(&deque->bottom); /* relaxed: our own store */
    fli_ring *ring = fli_load_rlx(&deque->ring);     /* the same */
    /* PAIR deque.word, acquire half: a thief has read the slot that we are about to reuse before it moved top. */
    uint32_t used = bottom - fli_deque_top(fli_load_acq(&deque->word));
    if (FLI_UNLIKELY(used > ring->mask)) return false;
    fli_store_rlx(&ring->slots[bottom & ring->mask], item);
    /* PAIR deque.bottom, release half: whoever sees the new bottom sees the slot, the ring and what the item holds. */
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

/* Thread: the owner. Thieves may empty it at any time. */
static inline bool fli_deque_is_empty(fli_deque *deque)
{
    /* Relaxed is enough: bottom is our own store; top never goes back, so an old one can only fail to look empty. */
    return fli_load_rlx(&deque->bottom) == fli_deque_top(fli_load_rlx(&deque->word));
}

static inline uint32_t fli_deque_mark(fli_deque *deque)
{
    return fli_load_rlx(&deque->bottom); /* relaxed: our own store */
}

/* Thread: the owner. What may be the oldest item, NULL if there is none: a hint, and nothing to look into. */
static inline const void *fli_deque_guess_oldest(fli_deque *deque)
{
    uint32_t  top = fli_deque_top(fli_load_rlx(&deque->word));
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: our own store, as are bottom and the slot */
    return top != fli_load_rlx(&deque->bottom) ? fli_load_rlx(&ring->slots[top & ring->mask]) : NULL;
}

static inline void *fli_deque_pop(fli_deque *deque)
{
    if (fli_deque_is_empty(deque)) return NULL; /* if it only fails to look so, the add decides */
    uint32_t bottom = fli_load_rlx(&deque->bottom), newest = bottom - 1; /* relaxed: our own store */
    /* PAIR deque.bottom, release half. Not weaker: a thief that reads this value, but still the word from before the
     * add, would have nothing that ties it to the pushes below. x86 would hide that. */
    fli_store_rel(&deque->bottom, newest);
    /* PAIR deque.word, both halves: from here on no thief that looked before us can claim anything; those that look
     * after us see the lower bottom. */
    uint64_t word = fli_add_acqrel(&deque->word, FLI_DEQUE_TAG_ONE);
    int32_t  above = (int32_t)(newest - fli_deque_top(word));
    if (FLI_UNLIKELY(above < 0)) {
        FLI_ASSERT(above == -1); /* a thief took the last item; it cannot have taken more than there was */
        /* PAIR deque.bottom, release half: top and bottom are equal again. */
        fli_store_rel(&deque->bottom, bottom);
        return NULL;
    }
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: our own store, as is the slot */
    void     *item = fli_load_rlx(&ring->slots[newest & ring->mask]);
    FLI_ASSUME(item != NULL);
    return item;
}

#endif
