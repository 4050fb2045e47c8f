/* mem.h - memory through the host program's allocator hooks, or malloc. Every byte the library holds comes through
 * here and goes back with its size. */
#ifndef FLI_BASE_MEM_H
#define FLI_BASE_MEM_H

#include <stddef.h>

#include <filch.h>

typedef struct fli_mem {
    filch_alloc_fn alloc; /* never NULL */
    void          *user;
} fli_mem;

/* `alloc` NULL: malloc, realloc and free. */
void fli_mem_init(fli_mem *mem, filch_alloc_fn alloc, void *user);

/* Tries a few blocks. FILCH_EINVAL: one was not aligned for any type. FILCH_ENOMEM. The default is not tried. */
FILCH_MUST_USE filch_err fli_mem_probe(const fli_mem *mem);

void *fli_alloc(const fli_mem *mem, size_t size);
void *fli_zalloc(const fli_mem *mem, size_t size);
void *fli_resize(const fli_mem *mem, void *old, size_t old_size, size_t size);
/* NULL is fine. */
void fli_free(const fli_mem *mem, void *old, size_t size);

/* `size` bytes aligned to `align` (a power of two); freed with the same numbers. */
void *fli_alloc_aligned(const fli_mem *mem, size_t size, size_t align);
void *fli_zalloc_aligned(const fli_mem *mem, size_t size, size_t align);
void  fli_free_aligned(const fli_mem *mem, void *at, size_t size, size_t align);
/* How many bytes the allocator is asked for by fli_alloc_aligned(). */
size_t fli_aligned_size(size_t size, size_t align);

#endif
