/* slab.c - type-stable objects behind 32-bit handles. See slab.h.
 *
 * Memory is allocated in segments, each as large as all earlier segments together, so 23 segments hold 2^31 handles.
 * A map, indexed by the upper bits of a handle, gives its segment: two loads and a shift. Memory behind handles that
 * were not made yet is never touched.
 *
 * INVARIANT  an object is in exactly one place: with its user, in one magazine, or in the depot.
 * INVARIANT  `spare` has space for all existing objects: giving an object back needs no memory.
 *
 * Rejected: a free list through the objects. Walking it under the lock touches one cold cache line per object; an array
 * of pointers moves 64 of them with one copy. An array of handles would be half as large, and every take would begin
 * with a lookup in the map. Also rejected: finding the segment by the position of the handle's highest bit. It needs no
 * map, but the instruction for it is slow on some machines and delays the next load: draining a long mailbox took 33 ns
 * per message that way, and takes 21 with the map (docs/design/memory.md).
 */
#include "sync/slab.h"

#include <string.h>

#include "base/assert.h"

filch_err fli_slab_init(fli_slab *slab, const fli_mem *mem, size_t size, uint32_t max,
                        void (*make)(void *object, uint32_t handle))
{
    FLI_ASSERT(size % 64 == 0 || size == 32);
    memset(slab, 0, sizeof *slab);
    slab->mem = *mem;
    slab->size = size;
    slab->make = make;
    slab->max = max;
    fli_atomic_init(&slab->fresh, 1);
    return fli_mutex_init(&slab->lock);
}

/* Returns the first handle of segment i. */
static uint32_t first_of(unsigned i)
{
    return i == 0 ? 0 : 1u << (FLI_SLAB_FIRST_BITS + i - 1);
}

static uint32_t length_of(unsigned i)
{
    return 1u << (i == 0 ? FLI_SLAB_FIRST_BITS : FLI_SLAB_FIRST_BITS + i - 1);
}

static size_t map_bytes(uint32_t room)
{
    return sizeof(fli_slab_map) + room * sizeof(uintptr_t);
}

void fli_slab_fini(fli_slab *slab)
{
    for (unsigned i = 0; i < FLI_SLAB_SEGMENTS; i++) {
        if (slab->segments[i] == NULL) continue;
        fli_free_aligned(&slab->mem, slab->segments[i], (size_t)length_of(i) * slab->size, FLI_LINE);
    }
    for (fli_slab_map *map = fli_load_rlx(&slab->map), *older; map != NULL; map = older) {
        older = map->older;
        fli_free(&slab->mem, map, map_bytes(map->room));
    }
    fli_free(&slab->mem, slab->spare, (size_t)slab->reach * sizeof *slab->spare);
    fli_mutex_fini(&slab->lock);
}

/* Returns a map for `entries` entries: the current map, or a larger copy that is not published yet. Returns NULL if
 * out of memory. */
static fli_slab_map *map_for_locked(fli_slab *slab, uint32_t entries)
{
    fli_slab_map *map = fli_load_rlx(&slab->map);
    if (map != NULL && map->room >= entries) return map;
    uint32_t      room = entries * FLI_SLAB_MAP_MORE;
    fli_slab_map *larger = fli_zalloc(&slab->mem, map_bytes(room));
    if (larger == NULL) return NULL;
    larger->older = map;
    larger->room = room;
    for (uint32_t i = 0; map != NULL && i < map->room; i++) {
        fli_store_rlx(&larger->base[i], fli_load_rlx(&map->base[i]));
    }
    return larger;
}

/* Adds the next segment, and space for its handles in the map and in `spare`. Returns false if out of memory. */
static bool extend_locked(fli_slab *slab)
{
    unsigned i = slab->reach == 0 ? 0 : fli_slab_segment(slab->reach);
    if (i >= FLI_SLAB_SEGMENTS - 1) return false;
    size_t        bytes = (size_t)length_of(i) * slab->size;
    uint32_t      reach = first_of(i) + length_of(i);
    fli_slab_map *map = map_for_locked(slab, reach >> FLI_SLAB_FIRST_BITS);
    if (map == NULL) return false;
    void *memory = fli_alloc_aligned(&slab->mem, bytes, FLI_LINE);
    /* Resizes `spare` last, because a resize cannot be undone without memory; the other allocations can be freed. */
    void **spare = memory == NULL ? NULL
                                  : fli_resize(&slab->mem, slab->spare, (size_t)slab->reach * sizeof *spare,
                                               (size_t)reach * sizeof *spare);
    if (spare == NULL) {
        if (memory != NULL) fli_free_aligned(&slab->mem, memory, bytes, FLI_LINE);
        if (map != fli_load_rlx(&slab->map)) fli_free(&slab->mem, map, map_bytes(map->room));
        return false;
    }
    slab->spare = spare;
    slab->segments[i] = memory;
    if (i == 0) memset(memory, 0, slab->size); /* zeroes object 0, which fli_slab_reaches() lets callers read */
    for (uint32_t entry = first_of(i) >> FLI_SLAB_FIRST_BITS; entry < reach >> FLI_SLAB_FIRST_BITS; entry++) {
        fli_store_rlx(&map->base[entry], (uintptr_t)memory - (uintptr_t)first_of(i) * slab->size);
    }
    fli_store_rel(&slab->map, map); /* PAIR slab.map, release half: a thread that loads this map sees its entries */
    slab->reach = reach;
    return true;
}

/* Makes up to `want` new objects. Returns the number of objects made. */
static uint32_t make_locked(fli_slab *slab, void **objects, uint32_t want)
{
    uint32_t fresh = fli_load_rlx(&slab->fresh), made = 0;
    while (made < want && fresh <= slab->max) {
        if (fresh >= slab->reach && !extend_locked(slab)) break;
        void *object = fli_slab_at(slab, fresh);
        memset(object, 0, slab->size);
        if (slab->make != NULL) slab->make(object, fresh);
        objects[made++] = object;
        fresh++;
    }
    /* PAIR slab.fresh, release half: the segment and the objects are written before `fresh` permits reading them. */
    fli_store_rel(&slab->fresh, fresh);
    return made;
}

static uint32_t take_locked(fli_slab *slab, void **objects, uint32_t want)
{
    uint32_t n = slab->spare_count < want ? slab->spare_count : want;
    if (n == 0) return make_locked(slab, objects, want);
    slab->spare_count -= n;
    memcpy(objects, slab->spare + slab->spare_count, n * sizeof *objects);
    return n;
}

void *fli_slab_refill(fli_slab *slab, fli_magazine *magazine)
{
    void *object = NULL;
    fli_mutex_lock(&slab->lock);
    if (magazine == NULL) {
        (void)take_locked(slab, &object, 1);
    } else {
        FLI_ASSERT(magazine->count == 0);
        magazine->count = take_locked(slab, magazine->objects, FLI_SLAB_BATCH);
        if (magazine->count > 0) object = magazine->objects[--magazine->count];
    }
    fli_mutex_unlock(&slab->lock);
    return object;
}

static void give_locked(fli_slab *slab, void *const *objects, uint32_t count)
{
    FLI_ASSERT(slab->spare_count + count <= slab->reach);
    memcpy(slab->spare + slab->spare_count, objects, count * sizeof *objects);
    slab->spare_count += count;
}

void fli_slab_spill(fli_slab *slab, fli_magazine *magazine, void *object)
{
    fli_mutex_lock(&slab->lock);
    if (magazine != NULL) {
        /* The oldest objects go to the depot: the newer ones are still in the cache. */
        give_locked(slab, magazine->objects, FLI_SLAB_BATCH);
        magazine->count -= FLI_SLAB_BATCH;
        memmove(magazine->objects, magazine->objects + FLI_SLAB_BATCH, magazine->count * sizeof object);
        magazine->objects[magazine->count++] = object;
    } else {
        give_locked(slab, &object, 1);
    }
    fli_mutex_unlock(&slab->lock);
}

void fli_slab_retire(fli_slab *slab)
{
    fli_mutex_lock(&slab->lock);
    if (slab->max < UINT32_MAX - 1) slab->max++;
    fli_mutex_unlock(&slab->lock);
}

void fli_slab_empty(fli_slab *slab, fli_magazine *magazine)
{
    if (magazine->count == 0) return;
    fli_mutex_lock(&slab->lock);
    give_locked(slab, magazine->objects, magazine->count);
    magazine->count = 0;
    fli_mutex_unlock(&slab->lock);
}
