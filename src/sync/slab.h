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

/* A magazine holds four batches. With two batches, the objects that a step takes and its receiver gives back (64
 * messages, twice that at a fairness pick, or some hundreds of processes) alternately emptied and filled the magazine,
 * and each time the depot was used: docs/design/memory.md. */
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
#define FLI_SLAB_SPARE 4096 /* free objects that the depot keeps at hand */
#endif
#define FLI_SLAB_SEGMENTS (33 - FLI_SLAB_FIRST_BITS)
#define FLI_SLAB_PAGE (1u << FLI_SLAB_PAGE_BITS)

/* Free objects of one worker. Not atomic: only that worker uses its magazine. */
typedef struct fli_magazine {
    uint32_t count;
    void    *objects[FLI_MAGAZINE];
} fli_magazine;

/* Maps handles to memory. An entry stands for 2^FIRST_BITS handles and holds the address of their segment minus the
 * offset of the segment's first handle. A full map is replaced by a larger map; the old map is kept for threads that
 * still read it. */
typedef struct fli_slab_map {
    struct fli_slab_map *older; /* the map that this one replaced; not atomic, under lock */
    uint32_t             room;  /* number of entries; not atomic, under lock */
    /* writes: under lock, once for each entry.  reads: any, with a handle that was obtained by an acquire.  PAIR
     * slab.fresh */
    FLI_ATOMIC(uintptr_t) base[];
} fli_slab_map;

/* Where a page is listed; all lists are under the slab's lock. */
enum {
    FLI_PAGE_BUSY,    /* in no list: no object of the page is stored, or a thread is returning its memory */
    FLI_PAGE_PARTIAL, /* some of its objects are stored */
    FLI_PAGE_FREE,    /* all its objects are stored */
    FLI_PAGE_RETURNED /* all its objects are stored, and their memory was returned to the system */
};

/* FLI_SLAB_PAGE objects with neighbouring handles. A free object that is neither in a magazine nor in `spare` is
 * *stored*: its bit in its page is set. */
typedef struct fli_slab_page {
    uint64_t stored;     /* bit i: the object with the i-th handle of the page is stored */
    uint32_t next, prev; /* neighbours in the list: page numbers plus one; 0: none */
    uint32_t generation; /* RETURNED: the generation with which its objects go on */
    uint8_t  list;       /* FLI_PAGE_* */
    bool     stays;      /* an object has used up so many generations that the page is never returned */
} fli_slab_page;

/* How a slab returns memory; for objects that threads read through stale handles. */
typedef struct fli_slab_return_ops {
    /* Returns the generation that a free object will have when it is used next, or FLI_SLAB_STAYS. Thread: the only one
     * that may use the object. */
    uint32_t (*generation)(void *object);
    /* Initialises an object whose bytes are those it had when it was given back, or are all zero. Stale handles may be
     * read meanwhile, so fields that they read are written by atomic stores. */
    void (*remake)(void *object, uint32_t handle, uint32_t generation);
} fli_slab_return_ops;
#define FLI_SLAB_STAYS UINT32_MAX

typedef struct fli_slab {
    FLI_ATOMIC(fli_slab_map *) map; /* writes: under lock.  reads: any.  PAIR slab.map */
    /* Handles below this value have been made.  writes: under lock.  reads: any.  PAIR slab.fresh */
    FLI_ATOMIC(uint32_t) fresh;
    size_t               size;                   /* bytes per object. Not atomic: set at init */
    uint8_t              size_shift;             /* its logarithm; 0: not a power of two. Not atomic: set at init */
    void (*make)(void *object, uint32_t handle); /* initialises a new object. Not atomic: set at init */
    fli_mem                    mem;              /* not atomic: set at init */
    const fli_slab_return_ops *return_ops;       /* NULL: the slab returns no memory. Not atomic: set after init */
    alignas(FLI_LINE) fli_mutex lock;
    /* The fields from here on are not atomic: used under lock. The first two are on the lock's cache line, for
     * threads without a magazine. */
    void         **spare; /* free objects at hand, at most `spare_room`; the others are stored in their pages */
    uint32_t       spare_count, spare_room;
    uint32_t       max;   /* number of handles that may be made, those of retired objects included */
    uint32_t       reach; /* number of handles for which the segments have memory */
    uint32_t       segment_count;
    void          *segments[FLI_SLAB_SEGMENTS];  /* memory of each segment */
    fli_slab_page *pages[FLI_SLAB_SEGMENTS];     /* the pages of each segment */
    uint32_t       lists[FLI_PAGE_RETURNED + 1]; /* first page of each list, plus one; 0: empty */
    uint32_t       stored;                       /* number of stored objects */
    /* Number of FREE pages.  writes: under lock.  reads: any; relaxed: a hint for whether trimming is worth while */
    FLI_ATOMIC(uint32_t) free_pages;
    uint32_t             free_low; /* smallest value of free_pages since fli_slab_trim() reset it */
    /* Bytes of the RETURNED pages.  writes: under lock.  reads: any, for reports; relaxed */
    FLI_ATOMIC(uint64_t) returned_bytes;
} fli_slab;

/* Initialises a slab. `make` initialises a new object once, before any thread knows its handle; NULL leaves the
 * object zeroed. `max` is the number of objects that may exist, not counting retired objects. `size` is a multiple
 * of 64, so that objects begin on a cache line, or 32. */
filch_err fli_slab_init(fli_slab *slab, const fli_mem *mem, size_t size, uint32_t max,
                        void (*make)(void *object, uint32_t handle));
/* Frees the slab and all its objects. Thread: no other thread uses the slab any more. */
void fli_slab_fini(fli_slab *slab);

/* Refills the magazine and returns an object with the content it had when it was given back; NULL if out of memory
 * or `max` is reached. Thread: the owner of `magazine`; any thread if `magazine` is NULL. */
FILCH_MUST_USE void *fli_slab_refill(fli_slab *slab, fli_magazine *magazine);
void                 fli_slab_spill(fli_slab *slab, fli_magazine *magazine, void *object);
/* Records that a taken object will never be given back, so that another object may be made in its place. Thread:
 * any. */
void fli_slab_retire(fli_slab *slab);
/* Lets the slab return memory to the system. Call it right after init, and only if the memory comes from malloc: the
 * pages of another allocator may not be private memory that can be discarded. */
void fli_slab_allow_return(fli_slab *slab, const fli_slab_return_ops *ops);
/* Returns the memory of up to `pages_max` pages to the system. A page is returned if it was not needed in the current
 * interval: as many pages as were FREE at each moment of it. A call that has nothing left to return begins a new
 * interval. Returns the number of pages that further calls can return in the current interval. The depot is not locked
 * while memory is returned. Thread: any. */
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

/* Gives several objects back, as fli_slab_give() does for one. */
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
    fli_slab_map *map = fli_load_acq(&slab->map); /* PAIR slab.map, acquire half; the map may be newer than the
                                                     handle */
    /* Relaxed: the caller got the handle by an acquire that comes after the store of this entry. */
    uintptr_t base = fli_load_rlx(&map->base[handle >> FLI_SLAB_FIRST_BITS]);
    return (void *)(base + (uintptr_t)handle * size);
}

/* Position for fli_slab_next(), which follows a chain of objects. Neighbours in a chain are mostly in the same
 * block; then the address is computed without a load from the map. Start with { 0, 0 } and the handle of an object
 * that has been made. */
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
    /* PAIR slab.fresh, acquire half: a handle below `fresh` has its segment and has been made. One comparison excludes
     * 0 and handles beyond `fresh`: `fresh` is at least 1. */
    return handle - 1 < fli_load_acq(&slab->fresh) - 1;
}

/* Returns true if `handle` may be dereferenced. Accepts handle 0, which names a permanent all-zero object that is never
 * taken. Requires that at least one object has been made. */
static inline bool fli_slab_reaches(fli_slab *slab, uint32_t handle)
{
    return handle < fli_load_acq(&slab->fresh); /* PAIR slab.fresh, acquire half: as in fli_slab_is_made() */
}

/* Returns the object of a handle that may be garbage, or NULL. */
static inline void *fli_slab_find_size(fli_slab *slab, uint32_t handle, size_t size)
{
    return FLI_LIKELY(fli_slab_is_made(slab, handle)) ? fli_slab_at_size(slab, handle, size) : NULL;
}

static inline void *fli_slab_find(fli_slab *slab, uint32_t handle)
{
    return fli_slab_find_size(slab, handle, slab->size);
}

#endif
