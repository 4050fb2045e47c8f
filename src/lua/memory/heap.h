/* heap.h - the memory of one Lua process: counted, limited, and given back all at once.
 *
 * A state lives in a few chunks. Small blocks are cut from them and kept by size when they come back; large ones are
 * malloc's, on a list. So ending a process costs a few frees, whatever it held, and no Lua code runs for it.
 *
 * The heap's own record sits at the beginning of the first chunk, together with the process: one piece of memory, which
 * state.c can copy to start the next process.
 */
#ifndef FLI_LUA_HEAP_H
#define FLI_LUA_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lua/memory/safepoint.h"

enum {
    FLI_LUA_GRAIN = 8,            /* blocks are multiples of this: all that Lua's objects need */
    FLI_LUA_FINE_MAX = 256,       /* up to here one list per multiple */
    FLI_LUA_BLOCK_MAX = 4096,     /* up to here four lists per doubling; beyond, malloc */
    FLI_LUA_CLASSES = 32 + 4 * 4, /* 8..256, then (256, 4096] */
    FLI_LUA_CHUNK = 8176,         /* the first chunk: with malloc's own 16 bytes two pages */
};

typedef struct fli_lua_chunk {
    struct fli_lua_chunk *next;
    size_t                size;
} fli_lua_chunk;

typedef struct fli_lua_big {
    struct fli_lua_big *next, *prev;
} fli_lua_big;

typedef struct fli_lua_heap {
    char                 *at, *end; /* what is left of the newest chunk */
    size_t                used;     /* bytes Lua holds, rounded up to what they occupy */
    size_t                max;      /* refuses to hold more */
    bool                  refused;  /* the last request was refused: Lua collects, asks again, and then gives up */
    void                 *free[FLI_LUA_CLASSES];
    fli_lua_chunk        *chunks; /* all but the first */
    fli_lua_big          *bigs;
    size_t                grow;       /* bytes of the next chunk */
    size_t                held;       /* bytes of chunks and large blocks, counted in `total` */
    struct fli_lua_total *total;      /* of all processes; NULL: none counts */
    bool                  over_total; /* the last request that was refused was refused because of that one */
    fli_lua_safepoint    *safepoint;  /* passed before anything is freed: another thread may be looking at it */
} fli_lua_heap;

/* Sets up an empty heap over `first` (`size` bytes from `at`), which belongs to the caller. */
void fli_lua_heap_init(fli_lua_heap *heap, char *at, size_t size, size_t max);

/* Gives back everything but the first chunk. */
void fli_lua_heap_fini(fli_lua_heap *heap);

/* Memory like realloc, with the old size; size 0 frees. NULL: the limit, or malloc's. */
void *fli_lua_heap_resize(fli_lua_heap *heap, void *old, size_t old_size, size_t size);

/* Counts memory from elsewhere against the limit, and no longer. False: it would be too much. */
bool fli_lua_heap_charge(fli_lua_heap *heap, size_t size);
void fli_lua_heap_discharge(fli_lua_heap *heap, size_t size);

/* The same as a lua_Alloc; `heap` is the user pointer. */
void *fli_lua_heap_alloc(void *heap, void *old, size_t old_size, size_t size);

#endif
