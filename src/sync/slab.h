/* slab.h - objects of one size, named by 32-bit handles, whose memory is never given back while the slab lives.
 * An object knows its handle: it is told when it is made.
 *
 * Because the memory stays, anybody may look at an object through an old handle: what he finds may belong to somebody
 * else by now, but it is an object, and the generation kept inside tells. That is how stale pids and late completions
 * are answered without locks.
 *
 * Each worker keeps a *magazine* of spare objects and trades with the common depot in batches, so that taking and
 * giving cost no atomic operation. An object may be given back by another worker than the one that took it.
 * Threads without a magazine pass NULL and go to the depot each time.
 *
 * Handle 0 is nothing. See slab.c for the layout.
 * Design: docs/design/memory.md.
 */
#ifndef FLI_SYNC_SLAB_H
#define FLI_SYNC_SLAB_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "base/assert.h"
#include "base/mem.h"
#include "port/atomic.h"
#include "port/thread.h"

/* A magazine holds four times what is traded at once. With twice as much, what a step takes and its receiver gives back
 * (64 messages, twice that when the oldest goes first, or some hundreds of processes) emptied it and filled it to the brim in
 * turn, and each time the depot was asked: docs/design/worker-throttling.md. */
#ifdef FLI_SMALL
#define FLI_MAGAZINE 4
#define FLI_SLAB_BATCH 2
#define FLI_SLAB_FIRST_BITS 2
#define FLI_SLAB_MAP_MORE 1
#else
#define FLI_MAGAZINE 256
#define FLI_SLAB_BATCH 64
#define FLI_SLAB_FIRST_BITS 9
#define FLI_SLAB_MAP_MORE 8 /* a new map has room for so many times what is needed */
#endif
#define FLI_SLAB_SEGMENTS (33 - FLI_SLAB_FIRST_BITS)

/* Plain: belongs to one worker. */
typedef struct fli_magazine {
    uint32_t count;
    void    *objects[FLI_MAGAZINE];
} fli_magazine;

/* Where the objects are. One entry for every 2^FIRST_BITS handles: their segment's memory, minus the offset of its first
 * handle. A larger map takes the place of one that is full; the old one stays for those who still read it. */
typedef struct fli_slab_map {
    struct fli_slab_map *older; /* plain, under lock */
    uint32_t             room;  /* entries; the same */
    /* writes: under lock, once.  reads: any, with a handle that came to them by an acquire.  PAIR slab.fresh */
    FLI_ATOMIC(uintptr_t) base[];
} fli_slab_map;

typedef struct fli_slab {
    FLI_ATOMIC(fli_slab_map *) map; /* writes: under lock.  reads: any.  PAIR slab.map */
    /* Handles below this have been made.  writes: under lock.  reads: any.  PAIR slab.fresh */
    FLI_ATOMIC(uint32_t) fresh;
    size_t  size;                              /* plain: set at init. Bytes per object */
    void (*make)(void *object, uint32_t handle); /* plain: set at init */
    fli_mem mem;                               /* plain: set at init */
    alignas(FLI_LINE) fli_mutex lock;
    /* Plain, under lock from here on; the first two on its line, for those who come without a magazine. */
    void    **spare;       /* given back; has room for `reach` objects, so giving back cannot fail */
    uint32_t  spare_count;
    uint32_t  max;         /* handles that may be made, those of retired objects included */
    uint32_t  reach;       /* handles the segments have room for */
    void     *segments[FLI_SLAB_SEGMENTS]; /* their memory */
} fli_slab;

/* `make` prepares a new object once, before anybody can name it; NULL leaves it zeroed. `max` is how many objects may
 * exist beside those that were retired. `size` is a multiple of 64: objects start on a cache line. */
filch_err fli_slab_init(fli_slab *slab, const fli_mem *mem, size_t size, uint32_t max,
                        void (*make)(void *object, uint32_t handle));
/* Thread: nobody else uses it any more. */
void fli_slab_fini(fli_slab *slab);

/* Thread: the owner of `magazine`; any if NULL. NULL: out of memory, or `max` reached. The object is as it was given. */
FILCH_MUST_USE void *fli_slab_refill(fli_slab *slab, fli_magazine *magazine);
void                 fli_slab_spill(fli_slab *slab, fli_magazine *magazine, void *object);
/* An object that was taken will never be given back: another one may be made in its place. Thread: any. */
void fli_slab_retire(fli_slab *slab);
/* Returns everything in the magazine to the depot. */
void fli_slab_empty(fli_slab *slab, fli_magazine *magazine);

FILCH_MUST_USE static inline void *fli_slab_take(fli_slab *slab, fli_magazine *magazine)
{
    if (magazine != NULL && magazine->count > 0) return magazine->objects[--magazine->count];
    return fli_slab_refill(slab, magazine);
}

static inline void fli_slab_give(fli_slab *slab, fli_magazine *magazine, void *object)
{
    if (magazine != NULL && magazine->count < FLI_MAGAZINE) {
        magazine->objects[magazine->count++] = object;
        return;
    }
    fli_slab_spill(slab, magazine, object);
}

/* The same for several. */
static inline void fli_slab_give_many(fli_slab *slab, fli_magazine *magazine, void *const *objects, uint32_t count)
{
    if (FLI_LIKELY(magazine->count + count <= FLI_MAGAZINE)) {
        memcpy(magazine->objects + magazine->count, objects, count * sizeof *objects);
        magazine->count += count;
        return;
    }
    for (uint32_t i = 0; i < count; i++) fli_slab_give(slab, magazine, objects[i]);
}

/* Segment 0 holds handles below 2^FIRST_BITS, segment i those from 2^(FIRST_BITS+i-1) up to twice that. */
static inline unsigned fli_slab_segment(uint32_t handle)
{
    unsigned top = 31u - (unsigned)__builtin_clz(handle | ((1u << FLI_SLAB_FIRST_BITS) - 1));
    return top + 1 - FLI_SLAB_FIRST_BITS;
}

/* The object of a handle that has been made. `size` is the slab's, for those who know it: a shift instead of a product. */
static inline void *fli_slab_at_size(fli_slab *slab, uint32_t handle, size_t size)
{
    fli_slab_map *map = fli_load_acq(&slab->map); /* PAIR slab.map, acquire half: it may be newer than the handle */
    /* Relaxed: whoever has the handle got it by an acquire that comes after the entry was stored. */
    uintptr_t base = fli_load_rlx(&map->base[handle >> FLI_SLAB_FIRST_BITS]);
    return (void *)(base + (uintptr_t)handle * size);
}

/* The same for one of a chain of objects that name each other: those are mostly near each other, and then the address need not
 * wait for a look into the map. Begins with { 0, 0 } and the handle of an object that has been made. */
typedef struct fli_slab_block {
    uint32_t  number; /* of the map's entry, plus one */
    uintptr_t base;
} fli_slab_block;

static inline void *fli_slab_next(fli_slab *slab, fli_slab_block *block, uint32_t handle, size_t size)
{
    if (FLI_UNLIKELY((handle >> FLI_SLAB_FIRST_BITS) + 1 != block->number)) {
        block->number = (handle >> FLI_SLAB_FIRST_BITS) + 1;
        block->base = (uintptr_t)fli_slab_at_size(slab, handle, size) - (uintptr_t)handle * size;
    }
    return (void *)(block->base + (uintptr_t)handle * size);
}

static inline void *fli_slab_at(fli_slab *slab, uint32_t handle)
{
    return fli_slab_at_size(slab, handle, slab->size);
}

/* Is there an object of this handle, which comes from outside and may be nonsense? */
static inline bool fli_slab_is_made(fli_slab *slab, uint32_t handle)
{
    /* PAIR slab.fresh, acquire half: a handle below `fresh` has its segment and has been made. Nothing and too much in
     * one comparison: `fresh` is at least 1. */
    return handle - 1 < fli_load_acq(&slab->fresh) - 1;
}

/* The same in one comparison, for those who know that at least one has been made. There is an object 0 too: it is never
 * taken, and all zero for ever. */
static inline bool fli_slab_reaches(fli_slab *slab, uint32_t handle)
{
    return handle < fli_load_acq(&slab->fresh); /* PAIR slab.fresh, acquire half: as above */
}

/* That object, or NULL. */
static inline void *fli_slab_find_size(fli_slab *slab, uint32_t handle, size_t size)
{
    return FLI_LIKELY(fli_slab_is_made(slab, handle)) ? fli_slab_at_size(slab, handle, size) : NULL;
}

static inline void *fli_slab_find(fli_slab *slab, uint32_t handle)
{
    return fli_slab_find_size(slab, handle, slab->size);
}

#endif
