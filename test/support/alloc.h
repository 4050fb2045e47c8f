/* alloc.h - an allocator for filch_options.alloc that keeps books: what is out, whether sizes and owners are right when
 * memory comes back, and that fails on demand. Fresh and freed memory is filled with rubbish, and resizing always
 * moves, so that whoever relies on luck is found. Safe from any thread. */
#ifndef FILCH_TEST_ALLOC_H
#define FILCH_TEST_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_alloc {
    atomic_size_t        bytes, blocks; /* out right now */
    atomic_uint_fast64_t asked;         /* times memory was asked for: new blocks and other sizes */
    atomic_uint_fast64_t fail_at;       /* the asking that is refused; 0 none */
    atomic_bool          fail_after;    /* and all that follow */
    atomic_uint_fast64_t refused;
    atomic_uint_fast64_t wrong; /* blocks that came back with another size than they have, to a stranger, or written beyond their end */
} test_alloc;

/* The filch_alloc_fn; `user` is a test_alloc that began as all zeros. */
void *test_alloc_fn(void *user, void *old, size_t old_size, size_t size);

/* From now on: refuse the n-th asking (1: the next), or that and all that follow. 0: refuse nothing any more. */
void test_alloc_fail(test_alloc *alloc, uint64_t nth, bool and_after);

/* Everything came back, as it went out. Fails the running test otherwise. */
void test_alloc_balanced(test_alloc *alloc);

#endif
