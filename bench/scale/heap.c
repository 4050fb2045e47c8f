/* heap.c - see heap.h. */
#include "scale/heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "scale/lines.h"

#define STEP 16 /* block sizes are rounded up to a multiple of STEP */
#define CLASSES (SCALE_HEAP_MAX / STEP + 1)
#define CHUNK ((size_t)64 << 10)    /* bytes that a thread takes from the arena at once */
#define RESERVED ((size_t)64 << 30) /* addresses, not memory */

/* Header in front of each block of the heap of the scale model. */
typedef struct header {
    size_t size; /* rounded up */
    size_t unused;
} header;
_Static_assert(sizeof(header) == STEP, "blocks are aligned for every type");

typedef struct free_block {
    struct free_block *next;
} free_block;

typedef struct thread_heap {
    free_block *free[CLASSES];
    char       *at, *end; /* the part of the thread's chunk that is not allocated yet */
} thread_heap;

static char        *arena, *arena_at;
static thread_heap *heaps;

void *scale_map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) return at;
    fprintf(stderr, "scale: out of memory\n");
    exit(1);
}

void scale_unmap(void *at, size_t size)
{
    (void)munmap(at, size);
}

static void open_arena(void)
{
    arena = arena_at = scale_map(RESERVED);
    heaps = scale_map(SCALE_CORES_MAX * sizeof *heaps);
}

bool scale_heap_owns(const void *block)
{
    return arena != NULL && (const char *)block >= arena && (const char *)block < arena + RESERVED;
}

size_t scale_heap_size(const void *block)
{
    return ((const header *)block - 1)->size;
}

static void *carve(thread_heap *heap, size_t size)
{
    if ((size_t)(heap->end - heap->at) < size + sizeof(header)) {
        if (arena_at + CHUNK > arena + RESERVED) return NULL;
        heap->at = arena_at;
        heap->end = arena_at += CHUNK;
    }
    header *h = (header *)(void *)heap->at;
    heap->at += size + sizeof *h;
    h->size = size;
    return h + 1;
}

void *scale_heap_alloc(uint32_t thread, size_t size)
{
    if (arena == NULL) open_arena();
    size_t       rounded = size == 0 ? STEP : (size + STEP - 1) / STEP * STEP;
    thread_heap *heap = &heaps[thread];
    free_block  *block = heap->free[rounded / STEP];
    if (block == NULL) return carve(heap, rounded);
    heap->free[rounded / STEP] = block->next;
    return block;
}

void scale_heap_free(uint32_t thread, void *old)
{
    free_block **list = &heaps[thread].free[scale_heap_size(old) / STEP], *block = old;
    block->next = *list;
    *list = block;
}
