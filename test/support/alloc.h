/* alloc.h - an allocator for filch_options.alloc that counts bytes and blocks, checks size and owner of each block that
 * is freed, and fails when a test asks for it. New and freed memory is filled with a pattern, and a resize always moves
 * the block, so that uses of uninitialised or freed memory show. Safe from any thread. */
#ifndef FILCH_TEST_ALLOC_H
#define FILCH_TEST_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_alloc {
    atomic_size_t        bytes, blocks; /* number of bytes and blocks that are allocated now */
    atomic_uint_fast64_t asked;         /* number of requests so far: for new blocks and for resizes */
    atomic_uint_fast64_t fail_at;       /* the number of the request that fails; 0: none */
    atomic_bool          fail_after;    /* true: all requests after number `fail_at` fail too */
    atomic_uint_fast64_t refused;
    atomic_uint_fast64_t wrong; /* blocks freed with a wrong size or by another test_alloc, or written past their end */
} test_alloc;

/* An allocator (filch_alloc_fn). `user` points to a test_alloc that was initialised to zeros. */
void *test_alloc_fn(void *user, void *old, size_t old_size, size_t size);

/* Makes request number `nth` from now fail (1: the next request); with `and_after` all later requests fail too. If
 * `nth` is 0, no request fails. */
void test_alloc_fail(test_alloc *alloc, uint64_t nth, bool and_after);

/* Fails the running test unless all blocks were freed and alloc->wrong is 0. */
void test_alloc_balanced(test_alloc *alloc);

#endif
