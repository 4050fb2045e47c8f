/* heap.h - the memory of one Lua process: counted, limited, and freed all at once.
 *
 * A Lua state is stored in a few chunks. Small blocks are cut from the chunks, and freed blocks are kept in lists by
 * size. Large blocks come from malloc and are on a list. So ending a process costs a few calls of free(), whatever the
 * process held, and no Lua code runs for it.
 *
 * The fli_lua_heap itself lies at the beginning of the first chunk, together with the process: one piece of memory,
 * which state.c can copy to start the next process.
 * Design: docs/design/lua/states.md.
 */
#ifndef FLI_LUA_HEAP_H
#define FLI_LUA_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lua/memory/safepoint.h"

enum {
    FLI_LUA_GRAIN = 8, /* block sizes are multiples of this number, the alignment that Lua's objects need */
    /* sizes up to this number of bytes have one free list per multiple of FLI_LUA_GRAIN */
    FLI_LUA_FINE_MAX = 256,
    /* larger sizes, up to this number of bytes, have four free lists per power of 2; still larger blocks: malloc */
    FLI_LUA_BLOCK_MAX = 4096,
    FLI_LUA_CLASSES = 32 + 4 * 4, /* 32 lists for sizes up to 256, then 4 each for sizes up to 512, 1024, 2048, 4096 */
    FLI_LUA_LARGE = 32768, /* `may_grow` is asked about blocks of at least this many bytes that are not objects */
    FLI_LUA_CHUNK = 8176,  /* bytes of the first chunk: two pages together with malloc's own 16 bytes */
};

typedef struct fli_lua_chunk {
    struct fli_lua_chunk *next;
    size_t                size;
} fli_lua_chunk;

typedef struct fli_lua_big {
    struct fli_lua_big *next, *prev;
} fli_lua_big;

typedef struct fli_lua_heap {
    char  *at, *end; /* the unused rest of the newest chunk */
    size_t used;     /* bytes of the blocks that Lua holds, each rounded up to its block size, and charged bytes */
    size_t max;      /* limit of `used` */
    bool   refused;  /* the last request was refused. Lua then collects garbage and asks again; if that is refused too,
                        it raises a memory error */
    void                 *free[FLI_LUA_CLASSES];
    fli_lua_chunk        *chunks; /* all chunks except the first */
    fli_lua_big          *bigs;
    size_t                grow;       /* bytes of the next chunk */
    size_t                held;       /* bytes of chunks and large blocks, counted in `total` */
    struct fli_lua_total *total;      /* total of all processes; NULL: not counted */
    bool                  over_total; /* the last refusal was due to the limit for all processes (`total`), not `max` */
    /* the thread that runs the process passes this safepoint before it frees a block: the watchdog may read the block
     */
    fli_lua_safepoint *safepoint;
    /* Asked before Lua gets a block of FLI_LUA_LARGE bytes or more that is not an object: a new one (`old_size` 0) or
     * one that grows. If it returns false, the request is refused. NULL: not asked. */
    bool (*may_grow)(struct fli_lua_heap *heap, size_t old_size, size_t size);
    /* Called when `max` does not allow a request. Discharges bytes that are charged but no longer held. Returns true if
     * it has discharged any. NULL: not called. */
    bool (*relieve)(struct fli_lua_heap *heap);
    /* Called when Lua frees a block that may be the old place of a stack: immediately before, Lua has allocated the new
     * place. NULL: not called. */
    void (*on_move)(struct fli_lua_heap *heap);
    /* bytes of the vector that the last request has allocated, if this vector may be a stack; otherwise 0 */
    size_t fresh;
} fli_lua_heap;

/* Sets up an empty heap in the first chunk, of which `size` bytes from `at` on are unused. The first chunk belongs
 * to the caller. */
void fli_lua_heap_init(fli_lua_heap *heap, char *at, size_t size, size_t max);

/* Frees all memory of the heap except the first chunk. */
void fli_lua_heap_fini(fli_lua_heap *heap);

/* Works like realloc, with the old size as an argument; `size` 0 frees. Returns NULL if the limit would be exceeded
 * or malloc fails. */
void *fli_lua_heap_resize(fli_lua_heap *heap, void *old, size_t old_size, size_t size);

/* fli_lua_heap_charge() counts `size` bytes that were allocated outside the heap against the limit of the heap; returns
 * false, and counts nothing, if the limit would be exceeded. fli_lua_heap_discharge() subtracts `size` bytes again. */
bool fli_lua_heap_charge(fli_lua_heap *heap, size_t size);
void fli_lua_heap_discharge(fli_lua_heap *heap, size_t size);

/* Returns heap->used, after bytes that are no longer held have been discharged (`relieve`). */
size_t fli_lua_heap_used(fli_lua_heap *heap);

/* fli_lua_heap_resize() as a lua_Alloc function; `heap` is the user pointer of the allocator. */
void *fli_lua_heap_alloc(void *heap, void *old, size_t old_size, size_t size);

#endif
