/* pages.h - memory that is given back to the system while its addresses stay in use. */
#ifndef FLI_PORT_PAGES_H
#define FLI_PORT_PAGES_H

#include <stddef.h>

/* Discards the system's pages that lie completely within the `bytes` bytes at `at`. The memory must have been allocated
 * by malloc. From now on each of these pages reads as zeros until it is written; the first write gets new memory for
 * the page. If the system refuses, the bytes keep their values. Other threads may read and write the memory during the
 * call: each of their accesses comes before or after the discarding of the page that it accesses. Thread: any. */
void fli_pages_discard(void *at, size_t bytes);

#endif
