/* alloc.c - see alloc.h. Each block has a header with its size and its test_alloc, and a fence after its end that must
 * be unchanged when the block is freed. */
#include "support/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

typedef struct header {
    _Alignas(max_align_t) size_t size;
    test_alloc *owner;
} header;

enum { FRESH = 0xa5, FREED = 0xdd, FENCE = 0x5e, FENCE_SIZE = 16 };

static bool is_refused(test_alloc *alloc)
{
    uint64_t n = atomic_fetch_add(&alloc->asked, 1) + 1, at = atomic_load(&alloc->fail_at);
    bool     refused = at != 0 && (n == at || (n > at && atomic_load(&alloc->fail_after)));
    if (refused) atomic_fetch_add(&alloc->refused, 1);
    return refused;
}

static void *make(test_alloc *alloc, size_t size)
{
    header *h = malloc(sizeof *h + size + FENCE_SIZE);
    if (h == NULL) return NULL;
    *h = (header){ .size = size, .owner = alloc };
    memset(h + 1, FRESH, size);
    memset((unsigned char *)(h + 1) + size, FENCE, FENCE_SIZE);
    atomic_fetch_add(&alloc->bytes, size);
    atomic_fetch_add(&alloc->blocks, 1);
    return h + 1;
}

static bool is_fenced(const header *h)
{
    const unsigned char *fence = (const unsigned char *)(h + 1) + h->size;
    for (int i = 0; i < FENCE_SIZE; i++) {
        if (fence[i] != FENCE) return false;
    }
    return true;
}

static void unmake(void *at)
{
    header *h = (header *)at - 1;
    if (!is_fenced(h)) atomic_fetch_add(&h->owner->wrong, 1);
    atomic_fetch_sub(&h->owner->bytes, h->size);
    atomic_fetch_sub(&h->owner->blocks, 1);
    memset(at, FREED, h->size);
    free(h);
}

void *test_alloc_fn(void *user, void *old, size_t old_size, size_t size)
{
    test_alloc *alloc = user;
    header     *h = old != NULL ? (header *)old - 1 : NULL;
    if (h != NULL && (h->size != old_size || h->owner != alloc)) atomic_fetch_add(&alloc->wrong, 1);
    if (h == NULL && old_size != 0) atomic_fetch_add(&alloc->wrong, 1);
    void *fresh = NULL;
    if (size > 0) {
        if (is_refused(alloc)) return NULL;
        fresh = make(alloc, size);
        if (fresh == NULL) return NULL;
        if (old != NULL) memcpy(fresh, old, old_size < size ? old_size : size);
    }
    if (old != NULL) unmake(old);
    return fresh;
}

void test_alloc_fail(test_alloc *alloc, uint64_t nth, bool and_after)
{
    atomic_store(&alloc->fail_at, 0);
    atomic_store(&alloc->fail_after, and_after);
    if (nth != 0) atomic_store(&alloc->fail_at, atomic_load(&alloc->asked) + nth);
}

void test_alloc_balanced(test_alloc *alloc)
{
    same(atomic_load(&alloc->wrong), 0);
    same(atomic_load(&alloc->blocks), 0);
    same(atomic_load(&alloc->bytes), 0);
}
