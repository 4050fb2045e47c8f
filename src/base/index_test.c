/* index_test.c - the hash index: everything added is found, no operation touches many items, memory is given back. */
#include "base/index.h"

#include <stdlib.h>

#include "base/prng.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

typedef struct item {
    fli_index_item item;
    uint64_t       key;
} item;

static uint64_t hashed; /* number of computed hashes: one for each item that an operation has looked at */

static uint64_t hash_of(const fli_index_item *at)
{
    hashed++;
    return fli_prng_mix(((const item *)at)->key);
}

static item *find(const fli_index *index, uint64_t key)
{
    item *it = (item *)fli_index_bucket(index, fli_prng_mix(key));
    while (it != NULL && it->key != key) it = (item *)it->item.next;
    return it;
}

static fli_mem counted(test_alloc *alloc)
{
    fli_mem mem;
    fli_mem_init(&mem, test_alloc_fn, alloc);
    return mem;
}

TEST(items_are_found_while_the_index_grows_and_shrinks)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = counted(&alloc);
    fli_index  index;
    uint64_t   count = scaled(20000) + 100;
    item      *items = calloc(count, sizeof *items);
    fli_index_init(&index, hash_of);
    for (uint64_t i = 0; i < count; i++) {
        items[i].key = i;
        fli_index_add(&mem, &index, &items[i].item);
        assert_ptr_equal(find(&index, i / 2), &items[i / 2]);
    }
    same(index.count, count);
    same(index.bucket_count, count);
    for (uint64_t i = 0; i < count; i++) assert_ptr_equal(find(&index, i), &items[i]);
    for (uint64_t i = 0; i < count; i++) {
        (void)fli_index_remove(&mem, &index, &items[i].item);
        assert_null(find(&index, i));
        if (i + 1 < count) assert_ptr_equal(find(&index, (i + count) / 2), &items[(i + count) / 2]);
    }
    same(index.count, 0);
    assert_true(index.bucket_count <= 2 * FLI_INDEX_FIRST); /* the memory of the buckets is given back */
    fli_index_fini(&mem, &index);
    test_alloc_balanced(&alloc);
    free(items);
}

/* An add splits one bucket and a remove merges four: each looks at a few items, whatever the number of items is. */
TEST(no_operation_looks_at_many_items)
{
    fli_mem   mem;
    fli_index index;
    uint64_t  count = scaled(100000) + 1000, most = 0;
    item     *items = calloc(count, sizeof *items);
    fli_mem_init(&mem, NULL, NULL);
    fli_index_init(&index, hash_of);
    for (uint64_t i = 0; i < count; i++) {
        items[i].key = i;
        hashed = 0;
        fli_index_add(&mem, &index, &items[i].item);
        if (hashed > most) most = hashed;
    }
    assert_in_range(most, 1, 20);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t chain = 0;
        for (fli_index_item *at = fli_index_bucket(&index, fli_prng_mix(i)); at != NULL; at = at->next) chain++;
        /* the average is at most one item per bucket; 40 allows for an uneven distribution */
        assert_in_range(chain, 1, 40);
        (void)fli_index_remove(&mem, &index, &items[i].item);
    }
    fli_index_fini(&mem, &index);
    free(items);
}

TEST(without_memory_every_item_is_still_found)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = counted(&alloc);
    fli_index  index;
    item       items[100];
    fli_index_init(&index, hash_of);
    for (uint64_t i = 0; i < 100; i++) {
        items[i].key = i;
        /* the allocation of the array `more` succeeds, the next one, of the first array of buckets, fails */
        if (i == 50) test_alloc_fail(&alloc, 2, true);
        else test_alloc_fail(&alloc, 1, true);
        fli_index_add(&mem, &index, &items[i].item);
        test_alloc_fail(&alloc, 0, false);
    }
    same(index.bucket_count, FLI_INDEX_FIRST);
    for (uint64_t i = 0; i < 100; i++) assert_ptr_equal(find(&index, i), &items[i]);
    for (uint64_t i = 0; i < 100; i++) (void)fli_index_remove(&mem, &index, &items[i].item);
    fli_index_fini(&mem, &index);
    test_alloc_balanced(&alloc);
}

TEST(replace_keeps_the_others_of_the_bucket)
{
    fli_mem   mem;
    fli_index index;
    item      items[64], other;
    fli_mem_init(&mem, NULL, NULL);
    fli_index_init(&index, hash_of);
    for (uint64_t i = 0; i < 64; i++) {
        items[i].key = i;
        fli_index_add(&mem, &index, &items[i].item);
    }
    for (uint64_t i = 0; i < 64; i++) {
        other.key = i;
        fli_index_replace(&index, &items[i].item, &other.item);
        assert_ptr_equal(find(&index, i), &other);
        for (uint64_t j = 0; j < 64; j++) assert_ptr_equal(find(&index, j), j == i ? &other : &items[j]);
        fli_index_replace(&index, &other.item, &items[i].item);
    }
    for (uint64_t i = 0; i < 64; i++) (void)fli_index_remove(&mem, &index, &items[i].item);
    fli_index_fini(&mem, &index);
}

TEST(any_finds_every_item_when_each_is_removed)
{
    fli_mem   mem;
    fli_index index;
    uint64_t  count = 5000, found = 0;
    uint32_t  cursor = 0;
    item     *items = calloc(count, sizeof *items);
    fli_mem_init(&mem, NULL, NULL);
    fli_index_init(&index, hash_of);
    assert_null(fli_index_any(&index, &cursor));
    for (uint64_t i = 0; i < count; i++) {
        items[i].key = i;
        fli_index_add(&mem, &index, &items[i].item);
    }
    for (fli_index_item *at; (at = fli_index_any(&index, &cursor)) != NULL; found++) {
        (void)fli_index_remove(&mem, &index, at);
    }
    same(found, count);
    fli_index_fini(&mem, &index);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_found_while_the_index_grows_and_shrinks),
        cmocka_unit_test(no_operation_looks_at_many_items),
        cmocka_unit_test(without_memory_every_item_is_still_found),
        cmocka_unit_test(replace_keeps_the_others_of_the_bucket),
        cmocka_unit_test(any_finds_every_item_when_each_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
