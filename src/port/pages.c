/* pages.c - see pages.h. */
#include "port/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void fli_pages_discard(void *at, size_t bytes)
{
    long system_page = sysconf(_SC_PAGESIZE);
    if (system_page <= 0) return;
    uintptr_t mask = (uintptr_t)system_page - 1;
    uintptr_t begin = ((uintptr_t)at + mask) & ~mask, end = ((uintptr_t)at + bytes) & ~mask;
    /* The result is ignored: if the system refuses (for locked memory, for example), the pages stay. */
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}
