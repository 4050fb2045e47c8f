/* heap.c - see heap.h.
 *
 * INVARIANT  a block of at most FLI_LUA_BLOCK_MAX bytes lies in a chunk, and its size determines its free list; a
 * larger block comes from malloc, with a fli_lua_big in front. Lua passes the old size with every call of the
 *            allocator, so blocks carry no header.
 */
#include "lua/memory/heap.h"

#include <stdlib.h>
#include <string.h>

#include "lua/memory/total.h"

/* SLOT, STACK_MIN: bytes of a slot of a Lua stack, and of the smallest stack. */
enum { GROW_FIRST = 2048 - 16, GROW_MAX = 65536 - 16, SLOT = 16, STACK_MIN = 40 * SLOT };

/* Returns the number of the free list for blocks of `size` bytes (1 to FLI_LUA_BLOCK_MAX). Sets *room to the size of
 * the blocks in that list. */
static unsigned class_of(size_t size, size_t *room)
{
    if (size <= FLI_LUA_FINE_MAX) {
        unsigned class = (unsigned)((size - 1) / FLI_LUA_GRAIN);
        *room = (class + 1) * (size_t)FLI_LUA_GRAIN;
        return class;
    }
    /* exponent of the largest power of 2 below `size`: 8 to 11 */
    unsigned doubling = 63u - (unsigned)__builtin_clzll(size - 1);
    size_t   quarter = (size_t)1 << (doubling - 2);
    unsigned part = (unsigned)((size - 1) / quarter) - 4;
    *room = (part + 5) * quarter;
    return 32 + (doubling - 8) * 4 + part;
}

void fli_lua_heap_init(fli_lua_heap *heap, char *at, size_t size, size_t max)
{
    size_t skip = (size_t)(-(uintptr_t)at & (FLI_LUA_GRAIN - 1));
    *heap = (fli_lua_heap){
        .at = at + skip, .end = at + size, .max = max, .grow = GROW_FIRST, .safepoint = &fli_lua_safepoint_never_held
    };
}

/* Adds memory taken from the system to the total of all processes. Returns false if the total would exceed its
 * limit. */
static bool hold(fli_lua_heap *heap, size_t size)
{
    if (heap->total != NULL && !fli_lua_total_take(heap->total, size)) {
        heap->over_total = true;
        return false;
    }
    heap->held += size;
    return true;
}

/* Returns true if the limit of this process allows `size` more bytes. */
static bool fits(fli_lua_heap *heap, size_t size)
{
    if (heap->max - heap->used >= size) return true;
    if (heap->relieve != NULL && heap->relieve(heap) && heap->max - heap->used >= size) return true;
    heap->over_total = false;
    return false;
}

static void let_go(fli_lua_heap *heap, size_t size)
{
    heap->held -= size;
    if (heap->total != NULL) fli_lua_total_give(heap->total, size);
}

void fli_lua_heap_fini(fli_lua_heap *heap)
{
    let_go(heap, heap->held);
    while (heap->bigs != NULL) {
        fli_lua_big *big = heap->bigs;
        heap->bigs = big->next;
        free(big);
    }
    while (heap->chunks != NULL) {
        fli_lua_chunk *chunk = heap->chunks;
        heap->chunks = chunk->next;
        free(chunk);
    }
}

static void *cut(fli_lua_heap *heap, size_t room)
{
    if ((size_t)(heap->end - heap->at) < room) {
        size_t size = heap->grow;
        while (size < room + sizeof(fli_lua_chunk)) size *= 2;
        if (!hold(heap, size)) return NULL;
        fli_lua_chunk *chunk = malloc(size);
        if (chunk == NULL) {
            let_go(heap, size);
            return NULL;
        }
        *chunk = (fli_lua_chunk){ .next = heap->chunks, .size = size };
        heap->chunks = chunk;
        if (heap->grow < GROW_MAX) heap->grow = heap->grow * 2 + 16;
        /* Puts the unused rest of the old chunk on the free lists as small blocks, so that it is not lost. The rest is
         * smaller than `room`. */
        while ((size_t)(heap->end - heap->at) >= FLI_LUA_GRAIN) {
            size_t rest = (size_t)(heap->end - heap->at), piece;
            unsigned class =
                class_of(rest < FLI_LUA_FINE_MAX ? rest & ~(size_t)(FLI_LUA_GRAIN - 1) : FLI_LUA_FINE_MAX, &piece);
            *(void **)(void *)heap->at = heap->free[class];
            heap->free[class] = heap->at;
            heap->at += piece;
        }
        heap->at = (char *)(chunk + 1);
        heap->end = (char *)chunk + size;
    }
    void *block = heap->at;
    heap->at += room;
    return block;
}

static void *take_block(fli_lua_heap *heap, size_t size)
{
    if (size > FLI_LUA_BLOCK_MAX) {
        if (!fits(heap, size)) return NULL;
        if (size > SIZE_MAX - sizeof(fli_lua_big) || !hold(heap, size)) return NULL;
        fli_lua_big *big = malloc(sizeof *big + size);
        if (big == NULL) {
            let_go(heap, size);
            return NULL;
        }
        *big = (fli_lua_big){ .next = heap->bigs };
        if (heap->bigs != NULL) heap->bigs->prev = big;
        heap->bigs = big;
        heap->used += size;
        return big + 1;
    }
    size_t room;
    unsigned class = class_of(size, &room);
    if (!fits(heap, room)) return NULL;
    void *block = heap->free[class];
    if (block != NULL) memcpy(&heap->free[class], block, sizeof(void *));
    else if ((block = cut(heap, room)) == NULL) return NULL;
    heap->used += room;
    return block;
}

static void give(fli_lua_heap *heap, void *block, size_t size)
{
    if (size > FLI_LUA_BLOCK_MAX) {
        fli_lua_big *big = (fli_lua_big *)block - 1;
        if (big->prev != NULL) big->prev->next = big->next;
        else heap->bigs = big->next;
        if (big->next != NULL) big->next->prev = big->prev;
        heap->used -= size;
        free(big);
        let_go(heap, size);
        return;
    }
    size_t room;
    unsigned class = class_of(size, &room);
    memcpy(block, &heap->free[class], sizeof(void *));
    heap->free[class] = block;
    heap->used -= room;
}

/* Resizes a large block by realloc. Typical: a long array or a string buffer grows, and realloc can often extend the
 * block without copying it. */
static void *resize_big(fli_lua_heap *heap, void *old, size_t old_size, size_t size)
{
    if (size > old_size && !fits(heap, size - old_size)) return NULL;
    if (size > SIZE_MAX - sizeof(fli_lua_big)) return NULL;
    if (size > old_size && !hold(heap, size - old_size)) return NULL;
    fli_lua_big *big = realloc((fli_lua_big *)old - 1, sizeof *big + size);
    if (big == NULL) {
        if (size > old_size) let_go(heap, size - old_size);
        return NULL;
    }
    if (size < old_size) let_go(heap, old_size - size);
    if (big->prev != NULL) big->prev->next = big;
    else heap->bigs = big;
    if (big->next != NULL) big->next->prev = big;
    heap->used += size - old_size;
    return big + 1;
}

/* Shrinks a block in place. The bytes after the smaller block cannot be used again until the process ends. */
static void *keep_shrunk(fli_lua_heap *heap, void *old, size_t old_size, size_t size)
{
    size_t had, wanted;
    (void)class_of(old_size, &had);
    (void)class_of(size, &wanted);
    heap->used -= had - wanted;
    return old;
}

static void *resize(fli_lua_heap *heap, void *old, size_t old_size, size_t size)
{
    if (old_size > FLI_LUA_BLOCK_MAX && size > FLI_LUA_BLOCK_MAX) return resize_big(heap, old, old_size, size);
    if (old_size <= FLI_LUA_BLOCK_MAX && size <= FLI_LUA_BLOCK_MAX) {
        size_t had, wanted;
        if (class_of(old_size, &had) == class_of(size, &wanted)) return old;
    }
    /* Lua requires that shrinking a block always succeeds. So while a block shrinks, the limit is not checked; if
     * memory is short, a block that lies in a chunk stays where it is (keep_shrunk). */
    bool   shrinks = size < old_size;
    size_t max = heap->max;
    if (shrinks) heap->max = SIZE_MAX;
    void *block = take_block(heap, size);
    heap->max = max;
    if (block == NULL) return shrinks && old_size <= FLI_LUA_BLOCK_MAX ? keep_shrunk(heap, old, old_size, size) : NULL;
    memcpy(block, old, shrinks ? size : old_size);
    give(heap, old, old_size);
    return block;
}

void *fli_lua_heap_resize(fli_lua_heap *heap, void *old, size_t old_size, size_t size)
{
    bool has_old = old != NULL && old_size > 0;
    if (has_old) fli_lua_safepoint_pass(heap->safepoint);
    if (size == 0) {
        if (has_old) give(heap, old, old_size);
        return NULL;
    }
    void *block = has_old ? resize(heap, old, old_size, size) : take_block(heap, size);
    heap->refused = block == NULL;
    return block;
}

bool fli_lua_heap_charge(fli_lua_heap *heap, size_t size)
{
    if (!fits(heap, size)) return false;
    heap->used += size;
    return true;
}

void fli_lua_heap_discharge(fli_lua_heap *heap, size_t size)
{
    heap->used -= size;
}

size_t fli_lua_heap_used(fli_lua_heap *heap)
{
    if (heap->relieve != NULL) (void)heap->relieve(heap);
    return heap->used;
}

/* Fast path of the allocator: takes a small block from its free list, or puts a small block back. Returns false for any
 * other request: the caller then uses fli_lua_heap_resize(). */
static inline bool fast(fli_lua_heap *heap, void *old, size_t old_size, size_t size, void **out)
{
    if (old == NULL) {
        /* true for a block that is not small, and for size 0: 0 - 1 wraps around to the largest number */
        if (size - 1 >= FLI_LUA_FINE_MAX) return false;
        size_t class = (size - 1) / FLI_LUA_GRAIN, room = (class + 1) * FLI_LUA_GRAIN;
        void *block = heap->free[class];
        if (block == NULL || heap->max - heap->used < room) return false;
        memcpy(&heap->free[class], block, sizeof(void *));
        heap->used += room;
        heap->refused = false;
        heap->fresh = 0;
        *out = block;
        return true;
    }
    if (size != 0 || old_size - 1 >= FLI_LUA_FINE_MAX) return false;
    fli_lua_safepoint_pass(heap->safepoint);
    size_t class = (old_size - 1) / FLI_LUA_GRAIN;
    memcpy(old, &heap->free[class], sizeof(void *));
    heap->free[class] = old;
    heap->used -= (class + 1) * FLI_LUA_GRAIN;
    heap->fresh = 0;
    *out = NULL;
    return true;
}

static bool may_be_stack(size_t size)
{
    return size >= STACK_MIN && size % SLOT == 0;
}

/* Calls on_move if Lua may have moved a stack. Only for a stack does Lua allocate a new vector and then free the old
 * one without another request in between. When Lua replaces the nodes of a table, it resizes the array of the table in
 * between, also if the array keeps its size or is empty. Called for each request of the slow path that allocates or
 * frees a block of `size` bytes; `is_new`: the request allocates a vector. */
static void note_vector(fli_lua_heap *heap, size_t size, bool is_new)
{
    size_t fresh = heap->fresh;
    heap->fresh = is_new && may_be_stack(size) ? size : 0;
    if (!is_new && fresh != 0 && may_be_stack(size) && heap->on_move != NULL) heap->on_move(heap);
}

void *fli_lua_heap_alloc(void *user, void *old, size_t old_size, size_t size)
{
    fli_lua_heap *heap = user;
    void         *block;
    if (fast(heap, old, old_size, size, &block)) return block;
    bool is_vector = old != NULL ? size > old_size : old_size == 0;
    if (size >= FLI_LUA_LARGE && is_vector && heap->may_grow != NULL && !heap->may_grow(heap, old_size, size)) {
        heap->refused = true;
        return NULL;
    }
    /* resizing a block neither begins nor ends the move of a vector that note_vector() looks for */
    if (old != NULL && size > 0) heap->fresh = 0;
    else note_vector(heap, old != NULL ? old_size : size, old == NULL && is_vector);
    /* If there is no old block, Lua passes the type of the new object in `old_size`, which is not a size then. */
    return fli_lua_heap_resize(heap, old, old != NULL ? old_size : 0, size);
}
