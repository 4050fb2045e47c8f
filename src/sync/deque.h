/* deque.h - a worker's own run queue. One owner pushes and pops at the bottom; any number of thieves take from the
 * top. See deque.c for the argument. */
#ifndef FLI_SYNC_DEQUE_H
#define FLI_SYNC_DEQUE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

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

typedef struct fli_ring fli_ring;

typedef struct fli_deque {
    /* tag:32 | top:32. Counts pops (tag) and names the oldest item (top).  writes: the owner by add, anybody by CAS. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) word;
    /* One past the newest item.  writes: the owner.  reads: thieves. */
    FLI_ATOMIC(uint32_t) bottom;
    /* Where the items are.  writes: the owner, when it grows.  reads: thieves. */
    FLI_ATOMIC(fli_ring *) ring;
    alignas(FLI_LINE) fli_mem mem; /* plain: set once at init */
    fli_ring *old;                 /* plain: the owner's list of outgrown rings, freed at fini */
} fli_deque;

typedef enum fli_steal {
    FLI_STEAL_EMPTY, /* there was nothing */
    FLI_STEAL_RETRY, /* there may be something: somebody else was faster. Not a reason to sleep */
    FLI_STEAL_GOT
} fli_steal;

filch_err fli_deque_init(fli_deque *deque, const fli_mem *mem);
/* Thread: nobody else uses it any more. */
void fli_deque_fini(fli_deque *deque);

/* Thread: the owner. False: it is full and there is no memory to grow; nothing changed. */
FILCH_MUST_USE bool fli_deque_push(fli_deque *deque, void *item);
/* Thread: the owner. The newest item, or NULL. Wait-free. */
FILCH_MUST_USE void *fli_deque_pop(fli_deque *deque);
/* Thread: the owner. The oldest item, or NULL. */
FILCH_MUST_USE void *fli_deque_take_oldest(fli_deque *deque);

/* Thread: the owner of `into`, which is another deque. Moves half of `from` (rounded up, at most FLI_DEQUE_STEAL_MAX)
 * in one CAS: gives the oldest stolen item in *first, pushes the rest to `into` in an order that makes the next oldest
 * pop first. Takes no more than `into` has room for without failing. *count is how many were moved in all. */
FILCH_MUST_USE fli_steal fli_deque_steal_half_into(fli_deque *from, fli_deque *into, void **first, uint32_t *count);
/* Thread: any. Takes the oldest item only. */
FILCH_MUST_USE fli_steal fli_deque_steal_one(fli_deque *from, void **item);

/* Thread: any. How many items there were at some moment; exact for the owner while no thief is at work. */
uint32_t fli_deque_count(fli_deque *deque);

#endif
