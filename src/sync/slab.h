/* slab.h - objects of one size, named by 32-bit handles. Their addresses stay valid while the slab lives. An object
 * knows its handle from the time it is made.
 *
 * Because the addresses stay valid, any thread may read an object through a stale handle: the object may have been
 * reused, but its memory still holds an object, whose stored generation shows the reuse. Stale pids and late
 * completions are recognised in this way, without locks.
 *
 * The memory of objects that are free for a while can be returned to the system (fli_slab_trim). A stale handle then
 * reads zeros, and generation 0 of a free object matches no handle. The slab remembers the largest generation of the
 * objects whose memory it returned, and they go on with that generation when they are used again.
 *
 * Each worker keeps a *magazine* of free objects and exchanges batches with the shared *depot*, so that taking and
 * giving cost no atomic operation. An object may be given by another worker than the one that took it. Threads without
 * a magazine pass NULL and use the depot each time.
 *
 * Handle 0 names no object. See slab.c for the layout.
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

/* A magazine holds four batches. Two batches are too few for the objects that a step takes and its receiver gives back
 * (64 messages, 128 at a fairness pick, or some hundreds of processes): the magazine is emptied and filled alternately,
 * and each time objects move from or to the depot. See docs/design/memory.md. */
#ifdef FLI_SMALL
#define FLI_MAGAZINE 4
#define FLI_SLAB_BATCH 2
#define FLI_SLAB_FIRST_BITS 2
#define FLI_SLAB_MAP_MORE 1
#define FLI_SLAB_PAGE_BITS 2
#define FLI_SLAB_SPARE 4
#else
#define FLI_MAGAZINE 256
#define FLI_SLAB_BATCH 64
#define FLI_SLAB_FIRST_BITS 9
#define FLI_SLAB_MAP_MORE 8 /* a new map has space for this many times the needed entries */
#define FLI_SLAB_PAGE_BITS 6
#define FLI_SLAB_SPARE 4096 /* maximum number of free objects in the array `spare` of the depot */
#endif
#define FLI_SLAB_SEGMENTS (33 - FLI_SLAB_FIRST_BITS)
#define FLI_SLAB_PAGE (1u << FLI_SLAB_PAGE_BITS)

/* Free objects of one worker. Not atomic: only that worker uses its magazine. */
typedef struct fli_magazine {
    uint32_t count;
    void    *objects[FLI_MAGAZINE];
} fli_magazine;

/* Maps handles to memory. One entry stands for 2^FLI_SLAB_FIRST_BITS handles. It holds the address of the segment of
 * these handles, minus the offset that the segment's first handle would have from handle 0. A full map is replaced by a
 * larger map; the old map is kept for threads that still read it. */
typedef struct fli_slab_map {
    struct fli_slab_map *older; /* the map that this one replaced; not atomic, under lock */
    uint32_t             room;  /* number of entries; not atomic, under lock */
    /* writes: under lock, once for each entry.  reads: any, with a handle that was obtained by an acquire.  PAIR
     * slab.fresh */
    FLI_ATOMIC(uintptr_t) base[];
} fli_slab_map;

/* The list in which a page is. All lists are protected by the slab's lock. */
enum {
    FLI_PAGE_BUSY,    /* in no list: no object of the page is stored, or a thread is returning its memory */
    FLI_PAGE_PARTIAL, /* some objects of the page are stored; or all objects of a page that `stays` */
    FLI_PAGE_FREE,    /* all objects of the page are stored */
    FLI_PAGE_RETURNED /* all objects of the page are stored, and its memory was returned to the system */
};

/* A page is FLI_SLAB_PAGE objects with neighbouring handles. A free object that is neither in a magazine nor in the
 * array `spare` is *stored*: its bit in `stored` of its page is set. */
typedef struct fli_slab_page {
    uint64_t stored;     /* bit i: the object with the i-th handle of the page is stored */
    uint32_t next, prev; /* neighbours of this page in its list: their page numbers plus one; 0: none */
    uint32_t generation; /* in a RETURNED page: the generation that all its objects get when they are used again */
    uint8_t  list;       /* FLI_PAGE_* */
    /* an object of the page is near its last generation (FLI_SLAB_STAYS), so the page's memory is never returned */
    bool stays;
} fli_slab_page;

/* Functions that a slab needs to return memory if other threads may read its objects through stale handles. */
typedef struct fli_slab_return_ops {
    /* Returns the generation that a free object will have when it is used next; FLI_SLAB_STAYS: its memory must not be
     * returned. Thread: the only thread that may use the object. */
    uint32_t (*generation)(void *object);
    /* Initialises an object of a returned page before it is used again. Its bytes are those that it had when it was
     * given back, or all zero. Other threads may read the object through stale handles during the call, so this
     * function writes the fields that they read by atomic stores. */
    void (*remake)(void *object, uint32_t handle, uint32_t generation);
} fli_slab_return_ops;
#define FLI_SLAB_STAYS UINT32_MAX

typedef struct fli_slab {
    FLI_ATOMIC(fli_slab_map *) map; /* The current map.  writes: under lock.  reads: any.  PAIR slab.map */
    /* Number of handles that have been made, handle 0 included: handles below this value may be read.  writes: under
     * lock.  reads: any.  PAIR slab.fresh */
    FLI_ATOMIC(uint32_t) fresh;
    size_t               size; /* bytes per object. Not atomic: set at init */
    /* binary logarithm of `size`; 0: `size` is not a power of two. Not atomic: set at init */
    uint8_t size_shift;
    void (*make)(void *object, uint32_t handle); /* initialises a new object. Not atomic: set at init */
    fli_mem mem;                                 /* the allocator. Not atomic: set at init */
    /* functions for returning memory; NULL: the slab returns no memory. Not atomic: set right after init */
    const fli_slab_return_ops *return_ops;
    alignas(FLI_LINE) fli_mutex lock;
    /* The fields from here on are used under lock; those without FLI_ATOMIC are not atomic. `spare`, `spare_count` and
     * `spare_room` are on the cache line of the lock, because a thread without a magazine uses them at each take. */
    /* array of free objects, with space for `spare_room` pointers; free objects that do not fit are stored in their
     * pages */
    void         **spare;
    uint32_t       spare_count, spare_room;
    uint32_t       max;   /* largest handle that may be made; grows by one for each retired object */
    uint32_t       reach; /* number of handles for which the segments have memory */
    uint32_t       segment_count;
    void          *segments[FLI_SLAB_SEGMENTS]; /* memory of each segment */
    fli_slab_page *pages[FLI_SLAB_SEGMENTS];    /* the pages of each segment */
    /* for each list: number of its first page, plus one; 0: the list is empty */
    uint32_t lists[FLI_PAGE_RETURNED + 1];
    uint32_t stored; /* number of stored objects */
    /* Number of FREE pages.  writes: under lock.  reads: any; relaxed: a hint for whether trimming is worth while */
    FLI_ATOMIC(uint32_t) free_pages;
    uint32_t             free_low; /* smallest value that free_pages had in the current interval of fli_slab_trim() */
    /* Bytes of the RETURNED pages.  writes: under lock.  reads: any, for reports; relaxed */
    FLI_ATOMIC(uint64_t) returned_bytes;
} fli_slab;

/* Initialises a slab. `make` initialises a new object once, before any thread knows its handle; if `make` is NULL, a
 * new object is all zero. `max` is the number of objects that may exist, not counting retired objects. `size` is the
 * size of an object in bytes: a multiple of 64, so that objects begin on a cache line, or 32. */
filch_err fli_slab_init(fli_slab *slab, const fli_mem *mem, size_t size, uint32_t max,
                        void (*make)(void *object, uint32_t handle));
/* Frees the slab and all its objects. Thread: no other thread uses the slab any more. */
void fli_slab_fini(fli_slab *slab);

/* Moves a batch of free objects from the depot to the empty magazine, and returns one of them, with the content that it
 * had when it was given back. Returns NULL if out of memory or if `max` objects exist. Thread: the owner of `magazine`;
 * any thread if `magazine` is NULL. */
FILCH_MUST_USE void *fli_slab_refill(fli_slab *slab, fli_magazine *magazine);
void                 fli_slab_spill(fli_slab *slab, fli_magazine *magazine, void *object);
/* Records that a taken object will never be given back, so that another object may be made in its place. Thread:
 * any. */
void fli_slab_retire(fli_slab *slab);
/* Allows the slab to return memory to the system. Must be called right after fli_slab_init(), and only if the memory
 * comes from malloc: the pages of another allocator may be memory that must not be discarded. */
void fli_slab_allow_return(fli_slab *slab, const fli_slab_return_ops *ops);
/* Returns the memory of up to `pages_max` FREE pages to the system. Time is divided into intervals. In each interval,
 * as many pages may be returned as were FREE at every moment of the interval, because these were not needed. A call
 * that finds no such page begins a new interval. The result is the number of pages that further calls can return in the
 * current interval. The depot is not locked while memory is returned. Thread: any. */
uint32_t fli_slab_trim(fli_slab *slab, uint32_t pages_max);
/* Returns true if every object that was made is in the depot. Thread: no other thread uses the slab. */
bool fli_slab_is_whole(fli_slab *slab);
/* Gives every object of the magazine back to the depot. */
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

/* Gives `count` objects back, as fli_slab_give() gives back one. */
static inline void fli_slab_give_many(fli_slab *slab, fli_magazine *magazine, void *const *objects, uint32_t count)
{
    if (FLI_LIKELY(magazine->count + count <= FLI_MAGAZINE)) {
        memcpy(magazine->objects + magazine->count, objects, count * sizeof *objects);
        magazine->count += count;
        return;
    }
    for (uint32_t i = 0; i < count; i++) fli_slab_give(slab, magazine, objects[i]);
}

/* Returns the segment of a handle: segment 0 holds the handles below 2^FIRST_BITS, segment i the handles from
 * 2^(FIRST_BITS+i-1) to 2^(FIRST_BITS+i) - 1. */
static inline unsigned fli_slab_segment(uint32_t handle)
{
    unsigned top = 31u - (unsigned)__builtin_clz(handle | ((1u << FLI_SLAB_FIRST_BITS) - 1));
    return top + 1 - FLI_SLAB_FIRST_BITS;
}

/* Returns the object of a handle that has been made. `size` is the object size of the slab; if it is a constant, the
 * compiler turns the multiplication into a shift. */
static inline void *fli_slab_at_size(fli_slab *slab, uint32_t handle, size_t size)
{
    /* PAIR slab.map, acquire half; the loaded map may be newer than the one that was current when the handle was
     * made */
    fli_slab_map *map = fli_load_acq(&slab->map);
    /* Relaxed: the caller got the handle by an acquire, and this entry was stored before that. */
    uintptr_t base = fli_load_rlx(&map->base[handle >> FLI_SLAB_FIRST_BITS]);
    return (void *)(base + (uintptr_t)handle * size);
}

/* Position of fli_slab_next(), which follows a chain of objects. A block is the handles of one map entry. Neighbours in
 * a chain are mostly in the same block; then the address is computed without a load from the map. The caller starts
 * with { 0, 0 } and the handle of an object that has been made. */
typedef struct fli_slab_block {
    uint32_t  number; /* index of the block's entry in the map, plus one; 0: no block yet */
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

/* Returns true if the handle, which may be garbage, names an object that has been made. */
static inline bool fli_slab_is_made(fli_slab *slab, uint32_t handle)
{
    /* PAIR slab.fresh, acquire half: an object with a handle below `fresh` has been made, and its segment exists. One
     * comparison excludes handle 0 and handles from `fresh` on, because `fresh` is at least 1. */
    return handle - 1 < fli_load_acq(&slab->fresh) - 1;
}

/* Returns true if `handle` may be dereferenced. Accepts handle 0, which names a permanent all-zero object that is never
 * taken. Requires that at least one object has been made. */
static inline bool fli_slab_reaches(fli_slab *slab, uint32_t handle)
{
    return handle < fli_load_acq(&slab->fresh); /* PAIR slab.fresh, acquire half: as in fli_slab_is_made() */
}

/* Returns the object with the handle `handle`, or NULL if that object has not been made. The handle may be garbage. */
static inline void *fli_slab_find_size(fli_slab *slab, uint32_t handle, size_t size)
{
    return FLI_LIKELY(fli_slab_is_made(slab, handle)) ? fli_slab_at_size(slab, handle, size) : NULL;
}

static inline void *fli_slab_find(fli_slab *slab, uint32_t handle)
{
    return fli_slab_find_size(slab, handle, slab->size);
}

#endif
