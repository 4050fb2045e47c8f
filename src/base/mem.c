/* mem.c - see mem.h. */
#include "base/mem.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void *plain(void *user, void *old, size_t old_size, size_t size)
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
    *mem = (fli_mem){ .alloc = alloc != NULL ? alloc : plain, .user = user };
}

filch_err fli_mem_probe(const fli_mem *mem)
{
    static const size_t sizes[] = { 16, 40, 200, 4096 };
    if (mem->alloc == plain) return FILCH_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *at = fli_alloc(mem, sizes[i]);
        if (at == NULL) return FILCH_ENOMEM;
        bool sound = (uintptr_t)at % alignof(max_align_t) == 0;
        fli_free(mem, at, sizes[i]);
        if (!sound) return filch_invalid("options.alloc returned memory that is not aligned for every type");
    }
    return FILCH_OK;
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
