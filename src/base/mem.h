/* mem.h - memory from the host program's allocator hooks, or from malloc. Every byte that the library holds is
 * allocated here, and is freed with its size. */
#ifndef FLI_BASE_MEM_H
#define FLI_BASE_MEM_H

#include <stddef.h>

#include <filch.h>

typedef struct fli_mem {
    filch_alloc_fn alloc; /* never NULL */
    void          *user;
} fli_mem;

/* Initialises `mem` with the hook `alloc`. NULL: malloc, realloc and free. */
void fli_mem_init(fli_mem *mem, filch_alloc_fn alloc, void *user);

/* Tests the hook with a few blocks, which it holds at once and resizes; malloc is not tested. FILCH_EINVAL: a block was
 * not aligned for every type. FILCH_ENOMEM: the hook returned NULL. */
FILCH_MUST_USE filch_err fli_mem_probe(const fli_mem *mem);

void *fli_alloc(const fli_mem *mem, size_t size);
void *fli_zalloc(const fli_mem *mem, size_t size);
void *fli_resize(const fli_mem *mem, void *old, size_t old_size, size_t size);
/* Frees a block of `size` bytes. NULL is allowed. */
void fli_free(const fli_mem *mem, void *old, size_t size);

/* Allocates `size` bytes aligned to `align` (a power of two). The block is freed with the same `size` and `align`. */
void *fli_alloc_aligned(const fli_mem *mem, size_t size, size_t align);
void *fli_zalloc_aligned(const fli_mem *mem, size_t size, size_t align);
void  fli_free_aligned(const fli_mem *mem, void *at, size_t size, size_t align);
/* Returns how many bytes fli_alloc_aligned() requests from the allocator. */
size_t fli_aligned_size(size_t size, size_t align);

#endif
