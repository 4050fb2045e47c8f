/* fail_alloc.c - preloaded into a program: every FAIL_EVERY-th allocation fails, from the 500th on. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);
void *aligned_alloc(size_t align, size_t size);

enum { FIRST = 500 };

static atomic_ulong  calls;
static unsigned long every;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("FAIL_EVERY");
    every = text != NULL ? strtoul(text, NULL, 10) : 0;
}

static int fails(void)
{
    unsigned long n = atomic_fetch_add(&calls, 1);
    if (every == 0 || n < FIRST || n % every != 0) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return size > 0 && fails() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}
