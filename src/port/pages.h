/* pages.h - memory that is given back to the system while its addresses stay in use. */
#ifndef FLI_PORT_PAGES_H
#define FLI_PORT_PAGES_H

#include <stddef.h>

/* Discards the pages of the system that lie completely in `bytes` bytes at `at`, which were allocated by malloc. From
 * now on each of these pages reads as zeros until it is written; a write brings memory back. If the system refuses, the
 * bytes keep their values. Other threads may read and write the memory meanwhile: each of their accesses comes before
 * or after the discarding of its page. Thread: any. */
void fli_pages_discard(void *at, size_t bytes);

#endif
