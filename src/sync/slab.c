/* slab.c - type-stable objects behind 32-bit handles. See slab.h.
 *
 * Memory is allocated in segments, each as large as all earlier segments together, so 23 segments hold 2^31 handles. A
 * map, indexed by the upper bits of a handle, gives its segment: two loads and a shift. Memory behind handles that were
 * not made yet is never touched.
 *
 * The depot has two parts. `spare` is an array of pointers, from which a batch is moved by one copy. Objects that do
 * not fit into it are *stored* in pages of 64: one bit for each. A page whose 64 bits are set can be returned to the
 * system (fli_slab_trim). A thread that finds `spare` empty takes from partial pages first, so that free pages stay
 * free, then from free pages, then from returned pages, and makes new objects last.
 *
 * INVARIANT  an object is in exactly one place: with its user, in one magazine, or in the depot. INVARIANT  giving an
 * object back needs no memory: each object has its bit in a page.
 *
 * Returning memory. The thread that trims takes free pages off their list, so that no other thread can take their
 * objects. It reads their generations and then discards their memory, without the lock. At any time other threads may
 * read one of these objects through a stale handle. They read the bytes of a free object, whose generation is newer
 * than the generation in the handle, or zeros. Neither matches a handle, and a thread whose handle does not match
 * writes nothing. Before an object of a returned page is given out again, its generation is set to the largest
 * generation in its page when the page was returned. Each generation is the one that the object would use next, so no
 * generation of a handle is used twice. Explored: slab_return_1, slab_return_2 of ./dev modelcheck.
 *
 * Rejected: a free list through the objects. Walking it under the lock touches one cold cache line per object; an array
 * of pointers moves 64 of them with one copy. An array of handles would be half as large, and every take would begin
 * with a lookup in the map. Also rejected: `spare` with space for all objects, because 8 bytes for each object are kept
 * for ever. Also rejected: finding the segment by the position of the handle's highest bit. It needs no map, but the
 * instruction for it is slow on some machines and delays the next load: reading a long mailbox took 33 ns per message
 * that way, and takes 21 with the map (docs/design/memory.md).
 */
#include "sync/slab.h"

#include <string.h>

#include "base/assert.h"
#include "port/pages.h"

/* alignment in bytes of segments over 64 KiB: a slab page of 4 KiB is then a page of the system */
#define SEGMENT_ALIGN 4096
#define RUN_MAX 64 /* how many neighbouring slab pages one system call gives back to the system at most */

filch_err fli_slab_init(fli_slab *slab, const fli_mem *mem, size_t size, uint32_t max,
                        void (*make)(void *object, uint32_t handle))
{
    FLI_ASSERT(size % 64 == 0 || size == 32);
    memset(slab, 0, sizeof *slab);
    slab->mem = *mem;
    slab->size = size;
    slab->size_shift = (size & (size - 1)) == 0 ? (uint8_t)__builtin_ctzll(size) : 0;
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

static uint32_t page_count(unsigned i)
{
    return length_of(i) >> FLI_SLAB_PAGE_BITS;
}

static size_t segment_align(const fli_slab *slab, unsigned i)
{
    return (size_t)length_of(i) * slab->size > 16 * SEGMENT_ALIGN ? SEGMENT_ALIGN : FLI_LINE;
}

static size_t map_bytes(uint32_t room)
{
    return sizeof(fli_slab_map) + room * sizeof(uintptr_t);
}

void fli_slab_fini(fli_slab *slab)
{
    for (unsigned i = 0; i < FLI_SLAB_SEGMENTS; i++) {
        if (slab->segments[i] == NULL) continue;
        fli_free_aligned(&slab->mem, slab->segments[i], (size_t)length_of(i) * slab->size, segment_align(slab, i));
        fli_free(&slab->mem, slab->pages[i], page_count(i) * sizeof(fli_slab_page));
    }
    for (fli_slab_map *map = fli_load_rlx(&slab->map), *older; map != NULL; map = older) {
        older = map->older;
        fli_free(&slab->mem, map, map_bytes(map->room));
    }
    fli_free(&slab->mem, slab->spare, slab->spare_room * sizeof *slab->spare);
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

/* Enlarges the array `spare` for a slab of `reach` handles, to at most FLI_SLAB_SPARE places. Returns false if out of
 * memory. */
static bool enlarge_spare_locked(fli_slab *slab, uint32_t reach)
{
    uint32_t room = reach < FLI_SLAB_SPARE ? reach : FLI_SLAB_SPARE;
    if (slab->spare_room == room) return true;
    void **spare = fli_resize(&slab->mem, slab->spare, slab->spare_room * sizeof *spare, room * sizeof *spare);
    if (spare == NULL) return false;
    slab->spare = spare;
    slab->spare_room = room;
    return true;
}

/* Adds the next segment, and space for its handles in the map and in `spare`. Returns false if out of memory. */
static bool extend_locked(fli_slab *slab)
{
    unsigned i = slab->segment_count;
    if (i >= FLI_SLAB_SEGMENTS - 1) return false;
    size_t         bytes = (size_t)length_of(i) * slab->size, align = segment_align(slab, i);
    uint32_t       reach = first_of(i) + length_of(i);
    fli_slab_map  *map = map_for_locked(slab, reach >> FLI_SLAB_FIRST_BITS);
    void          *memory = map != NULL ? fli_alloc_aligned(&slab->mem, bytes, align) : NULL;
    fli_slab_page *pages = memory != NULL ? fli_zalloc(&slab->mem, page_count(i) * sizeof *pages) : NULL;
    if (pages == NULL || !enlarge_spare_locked(slab, reach)) {
        fli_free(&slab->mem, pages, page_count(i) * sizeof *pages);
        if (memory != NULL) fli_free_aligned(&slab->mem, memory, bytes, align);
        if (map != NULL && map != fli_load_rlx(&slab->map)) fli_free(&slab->mem, map, map_bytes(map->room));
        return false;
    }
    slab->segments[i] = memory;
    slab->pages[i] = pages;
    slab->segment_count = i + 1;
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

/* ---- pages ---- */

/* Returns the page with the number `number`. Page n has the handles from n * FLI_SLAB_PAGE on. */
static fli_slab_page *page_at(const fli_slab *slab, uint32_t number)
{
    unsigned i = fli_slab_segment(number << FLI_SLAB_PAGE_BITS);
    return &slab->pages[i][number - (first_of(i) >> FLI_SLAB_PAGE_BITS)];
}

static uint64_t all_stored(void)
{
    return UINT64_MAX >> (64 - FLI_SLAB_PAGE);
}

static size_t page_bytes(const fli_slab *slab)
{
    return FLI_SLAB_PAGE * slab->size;
}

static void add_returned_locked(fli_slab *slab, uint64_t bytes)
{
    fli_store_rlx(&slab->returned_bytes, fli_load_rlx(&slab->returned_bytes) + bytes);
}

static void list_locked(fli_slab *slab, uint32_t number, uint8_t list)
{
    fli_slab_page *page = page_at(slab, number);
    page->list = list;
    page->prev = 0;
    page->next = slab->lists[list];
    if (page->next != 0) page_at(slab, page->next - 1)->prev = number + 1;
    slab->lists[list] = number + 1;
    if (list == FLI_PAGE_FREE) fli_store_rlx(&slab->free_pages, fli_load_rlx(&slab->free_pages) + 1);
    if (list == FLI_PAGE_RETURNED) add_returned_locked(slab, page_bytes(slab));
}

static void unlist_locked(fli_slab *slab, uint32_t number)
{
    fli_slab_page *page = page_at(slab, number);
    if (page->next != 0) page_at(slab, page->next - 1)->prev = page->prev;
    if (page->prev != 0) page_at(slab, page->prev - 1)->next = page->next;
    else slab->lists[page->list] = page->next;
    if (page->list == FLI_PAGE_FREE) {
        uint32_t left = fli_load_rlx(&slab->free_pages) - 1;
        fli_store_rlx(&slab->free_pages, left);
        if (left < slab->free_low) slab->free_low = left;
    }
    if (page->list == FLI_PAGE_RETURNED) add_returned_locked(slab, 0 - (uint64_t)page_bytes(slab));
    page->list = FLI_PAGE_BUSY;
}

/* Called after an object of the page was stored. If the object is the first stored object of the page, puts the page on
 * the list PARTIAL. If all objects of the page are stored now, moves the page to the list FREE, unless it `stays`. */
static void relist_locked(fli_slab *slab, uint32_t number)
{
    fli_slab_page *page = page_at(slab, number);
    bool           is_free = page->stored == all_stored() && !page->stays;
    if (is_free && page->list == FLI_PAGE_PARTIAL) unlist_locked(slab, number);
    if (page->list == FLI_PAGE_BUSY) list_locked(slab, number, is_free ? FLI_PAGE_FREE : FLI_PAGE_PARTIAL);
}

/* Returns the segment that holds `object`. Begins with the newest segment, which is as large as all others together. */
static unsigned segment_of(const fli_slab *slab, const void *object)
{
    unsigned i = slab->segment_count - 1;
    while ((uintptr_t)object - (uintptr_t)slab->segments[i] >= (uintptr_t)length_of(i) * slab->size) i--;
    return i;
}

/* Stores `count` free objects in their pages. Does not read the objects, because they may be in no cache. */
static void store_locked(fli_slab *slab, void *const *objects, uint32_t count)
{
    unsigned i = 0, shift = slab->size_shift;
    /* address and size of segment i, which contained the previous object and mostly contains the next one too */
    uintptr_t      begin = 0, bytes = 0;
    fli_slab_page *pages = NULL;
    for (uint32_t k = 0; k < count; k++) {
        uintptr_t offset = (uintptr_t)objects[k] - begin;
        if (FLI_UNLIKELY(offset >= bytes)) {
            i = segment_of(slab, objects[k]);
            begin = (uintptr_t)slab->segments[i];
            bytes = (uintptr_t)length_of(i) * slab->size;
            pages = slab->pages[i];
            offset = (uintptr_t)objects[k] - begin;
        }
        uint32_t       at = (uint32_t)(shift != 0 ? offset >> shift : offset / slab->size);
        fli_slab_page *page = &pages[at >> FLI_SLAB_PAGE_BITS];
        uint64_t       before = page->stored, after = before | UINT64_C(1) << (at & (FLI_SLAB_PAGE - 1));
        FLI_ASSERT(before != after); /* asserts that the object was not stored before */
        page->stored = after;
        if (FLI_UNLIKELY(before == 0 || after == all_stored())) {
            relist_locked(slab, (first_of(i) + at) >> FLI_SLAB_PAGE_BITS);
        }
    }
    slab->stored += count;
}

/* Takes up to `want` objects of one page. Returns their number, 0 if no object is stored. */
static uint32_t unstore_locked(fli_slab *slab, void **objects, uint32_t want)
{
    unsigned list = FLI_PAGE_PARTIAL;
    while (list <= FLI_PAGE_RETURNED && slab->lists[list] == 0) list++;
    if (list > FLI_PAGE_RETURNED) return 0;
    uint32_t       number = slab->lists[list] - 1, taken = 0;
    fli_slab_page *page = page_at(slab, number);
    unlist_locked(slab, number);
    for (uint32_t i = FLI_SLAB_PAGE; list == FLI_PAGE_RETURNED && i-- > 0;) {
        uint32_t handle = number << FLI_SLAB_PAGE_BITS | i;
        slab->return_ops->remake(fli_slab_at(slab, handle), handle, page->generation);
    }
    for (; taken < want && page->stored != 0; taken++) {
        objects[taken] = fli_slab_at(slab, number << FLI_SLAB_PAGE_BITS | (uint32_t)__builtin_ctzll(page->stored));
        page->stored &= page->stored - 1;
    }
    slab->stored -= taken;
    if (page->stored != 0) list_locked(slab, number, FLI_PAGE_PARTIAL);
    return taken;
}

void fli_slab_allow_return(fli_slab *slab, const fli_slab_return_ops *ops)
{
    slab->return_ops = ops;
}

/* Takes a run of neighbouring FREE pages of one segment, at most `most` pages, off the list of FREE pages. Returns the
 * number of pages in the run, and stores the number of the first page in *first. */
static uint32_t take_run_locked(fli_slab *slab, uint32_t most, uint32_t *first)
{
    if (slab->lists[FLI_PAGE_FREE] == 0 || most == 0) return 0;
    uint32_t at = slab->lists[FLI_PAGE_FREE] - 1, length = 0;
    unsigned i = fli_slab_segment(at << FLI_SLAB_PAGE_BITS);
    uint32_t begin = first_of(i) >> FLI_SLAB_PAGE_BITS, end = begin + page_count(i);
    if (most > RUN_MAX) most = RUN_MAX;
    for (uint32_t back = 1; back < most && at > begin && page_at(slab, at - 1)->list == FLI_PAGE_FREE; back++) at--;
    *first = at;
    for (; length < most && at < end && page_at(slab, at)->list == FLI_PAGE_FREE; length++) unlist_locked(slab, at++);
    return length;
}

/* Stores the largest generation of the objects of page `number` in page->generation. Sets page->stays if the memory of
 * an object must not be returned to the system (FLI_SLAB_STAYS). Requires that this thread has taken the page off its
 * list. */
static void note_generation(fli_slab *slab, uint32_t number)
{
    fli_slab_page *page = page_at(slab, number);
    page->generation = 0;
    for (uint32_t i = 0; i < FLI_SLAB_PAGE; i++) {
        uint32_t generation = slab->return_ops->generation(fli_slab_at(slab, number << FLI_SLAB_PAGE_BITS | i));
        if (generation == FLI_SLAB_STAYS) page->stays = true;
        else if (generation > page->generation) page->generation = generation;
    }
}

/* Returns the memory of a run of pages to the system, except the memory of pages that stay. Each part of the run
 * between two such pages takes one call. */
static void release_run(fli_slab *slab, uint32_t first, uint32_t length)
{
    for (uint32_t from = 0, to; from < length; from = to + 1) {
        for (to = from; to < length && !page_at(slab, first + to)->stays;) to++;
        if (to == from) continue;
        fli_pages_discard(fli_slab_at(slab, (first + from) << FLI_SLAB_PAGE_BITS), (to - from) * page_bytes(slab));
    }
}

uint32_t fli_slab_trim(fli_slab *slab, uint32_t pages_max)
{
    if (slab->return_ops == NULL) return 0;
    for (;;) {
        uint32_t first = 0;
        fli_mutex_lock(&slab->lock);
        uint32_t unused = slab->free_low,
                 length = take_run_locked(slab, pages_max < unused ? pages_max : unused, &first);
        slab->free_low = unused - length;
        if (unused == 0) slab->free_low = fli_load_rlx(&slab->free_pages); /* begins a new interval */
        fli_mutex_unlock(&slab->lock);
        if (length == 0) return unused;
        /* The pages are in no list, so no other thread uses their objects, except through stale handles. */
        for (uint32_t i = 0; i < length; i++) note_generation(slab, first + i);
        release_run(slab, first, length);
        fli_mutex_lock(&slab->lock);
        for (uint32_t i = 0; i < length; i++) {
            list_locked(slab, first + i, page_at(slab, first + i)->stays ? FLI_PAGE_PARTIAL : FLI_PAGE_RETURNED);
        }
        fli_mutex_unlock(&slab->lock);
        pages_max -= length;
    }
}

bool fli_slab_is_whole(fli_slab *slab)
{
    return slab->spare_count + slab->stored + 1 == fli_load_rlx(&slab->fresh);
}

/* ---- the depot ---- */

static uint32_t take_locked(fli_slab *slab, void **objects, uint32_t want)
{
    uint32_t n = slab->spare_count < want ? slab->spare_count : want;
    if (n == 0) {
        n = unstore_locked(slab, objects, want);
        return n != 0 ? n : make_locked(slab, objects, want);
    }
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
    if (FLI_LIKELY(slab->spare_count + count <= slab->spare_room)) {
        memcpy(slab->spare + slab->spare_count, objects, count * sizeof *objects);
        slab->spare_count += count;
        return;
    }
    store_locked(slab, objects, count);
}

void fli_slab_spill(fli_slab *slab, fli_magazine *magazine, void *object)
{
    fli_mutex_lock(&slab->lock);
    if (magazine != NULL) {
        /* The objects that were given first go to the depot, because those given later are still in the cache. */
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
