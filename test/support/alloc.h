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
    atomic_size_t        bytes, blocks; /* bytes and blocks allocated now */
    atomic_uint_fast64_t asked;         /* number of requests: new blocks and resizes */
    atomic_uint_fast64_t fail_at;       /* the number of the request that fails; 0: none */
    atomic_bool          fail_after;    /* all requests after `fail_at` fail too */
    atomic_uint_fast64_t refused;
    atomic_uint_fast64_t wrong; /* blocks freed with a wrong size or by another test_alloc, or written past their end */
} test_alloc;

/* The filch_alloc_fn. `user` is a test_alloc that was initialised to zeros. */
void *test_alloc_fn(void *user, void *old, size_t old_size, size_t size);

/* Makes the n-th request from now fail (1: the next one), with `and_after` also all later ones. n = 0: no request
 * fails. */
void test_alloc_fail(test_alloc *alloc, uint64_t nth, bool and_after);

/* Fails the running test unless all blocks were freed and none was counted as wrong. */
void test_alloc_balanced(test_alloc *alloc);

#endif
