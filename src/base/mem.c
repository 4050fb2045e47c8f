/* mem.c - see mem.h. */
#include "base/mem.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void *default_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return old == NULL ? malloc(size) : realloc(old, size);
}

void fli_mem_init(fli_mem *mem, filch_alloc_fn alloc, void *user)
{
    *mem = (fli_mem){ .alloc = alloc != NULL ? alloc : default_alloc, .user = user };
}

/* Allocates a block of `size` bytes, or resizes the block *at of *held bytes. FILCH_EINVAL: the block is misaligned. */
static filch_err probe_block(const fli_mem *mem, void **at, size_t *held, size_t size)
{
    void *block = fli_resize(mem, *at, *held, size);
    if (block == NULL) return FILCH_ENOMEM;
    *at = block;
    *held = size;
    if ((uintptr_t)block % alignof(max_align_t) == 0) return FILCH_OK;
    return filch_invalid("options.alloc returned memory that is not aligned for every type");
}

filch_err fli_mem_probe(const fli_mem *mem)
{
    /* All blocks are held until the end; otherwise an arena that takes its newest block back would return the same
     * address each time. An arena that rounds sizes to 8 bytes misaligns the block after a block of 16 or of 24
     * bytes, whatever the arena puts in front of a block. An arena with a list per size misaligns the second block of
     * 24 bytes. No block is smaller than 16 bytes, because some allocators align smaller blocks only to their size. */
    static const size_t sizes[] = { 16, 24, 24, 40, 200, 4096 };
    static const size_t resized[] = { 24, 48, 56 }; /* new sizes of the first blocks */
    enum { BLOCKS = sizeof sizes / sizeof sizes[0], RESIZED = sizeof resized / sizeof resized[0] };
    void     *at[BLOCKS] = { NULL };
    size_t    held[BLOCKS] = { 0 };
    filch_err err = FILCH_OK;
    if (mem->alloc == default_alloc) return FILCH_OK;
    for (size_t i = 0; i < BLOCKS && err == FILCH_OK; i++) err = probe_block(mem, &at[i], &held[i], sizes[i]);
    for (size_t i = 0; i < RESIZED && err == FILCH_OK; i++) err = probe_block(mem, &at[i], &held[i], resized[i]);
    for (size_t i = BLOCKS; i-- > 0;) fli_free(mem, at[i], held[i]);
    return err;
}

void *fli_alloc(const fli_mem *mem, size_t size)
{
    FLI_ASSERT(size > 0);
    return mem->alloc(mem->user, NULL, 0, size);
}

void *fli_zalloc(const fli_mem *mem, size_t size)
{
    void *at = fli_alloc(mem, size);
    if (at != NULL) memset(at, 0, size);
    return at;
}

void *fli_resize(const fli_mem *mem, void *old, size_t old_size, size_t size)
{
    FLI_ASSERT(size > 0);
    return mem->alloc(mem->user, old, old == NULL ? 0 : old_size, size);
}

void fli_free(const fli_mem *mem, void *old, size_t size)
{
    if (old != NULL) (void)mem->alloc(mem->user, old, size, 0);
}

size_t fli_aligned_size(size_t size, size_t align)
{
    return size + align + sizeof(void *);
}

/* Stores the address that the allocator returned in the word before the aligned address. */
void *fli_alloc_aligned(const fli_mem *mem, size_t size, size_t align)
{
    char *raw = fli_alloc(mem, fli_aligned_size(size, align));
    if (raw == NULL) return NULL;
    uintptr_t at = ((uintptr_t)raw + sizeof(void *) + align - 1) & ~(uintptr_t)(align - 1);
    ((void **)at)[-1] = raw;
    return (void *)at;
}

void *fli_zalloc_aligned(const fli_mem *mem, size_t size, size_t align)
{
    void *at = fli_alloc_aligned(mem, size, align);
    if (at != NULL) memset(at, 0, size);
    return at;
}

void fli_free_aligned(const fli_mem *mem, void *at, size_t size, size_t align)
{
    if (at != NULL) fli_free(mem, ((void **)at)[-1], fli_aligned_size(size, align));
}
