/* mem_test.c - the allocator hooks are called as filch_alloc_fn promises: every block is freed with its own size. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/check.h"

/* An allocator that stores each block's size in front of the block, fills new memory with garbage, and can be told to
 * fail. */
typedef struct ledger {
    size_t calls, blocks, bytes;
    bool   refuse;
} ledger;

/* bytes in front of each block, which hold its size; 16, so that the block stays aligned for any type */
#define FRONT 16
#define DIRT 0xa5

static void *ledger_alloc(void *user, void *old, size_t old_size, size_t size)
{
    ledger *l = user;
    l->calls++;
    char *raw = old == NULL ? NULL : (char *)old - FRONT;
    if (raw != NULL) assert_memory_equal(raw, &old_size, sizeof old_size);
    else same(old_size, 0);
    if (size == 0) {
        assert_non_null(raw);
        l->blocks--;
        l->bytes -= old_size;
        free(raw);
        return NULL;
    }
    if (l->refuse) return NULL;
    char *at = realloc(raw, FRONT + size);
    assert_non_null(at);
    if (size > old_size) memset(at + FRONT + old_size, DIRT, size - old_size);
    memcpy(at, &size, sizeof size);
    l->blocks += raw == NULL;
    l->bytes += size - old_size;
    return at + FRONT;
}

static void assert_filled(const void *at, size_t size, uint8_t with)
{
    for (size_t i = 0; i < size; i++) same(((const uint8_t *)at)[i], with);
}

TEST(blocks_come_from_the_hook_and_return_with_their_size)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    void *a = fli_alloc(&mem, 100), *b = fli_alloc(&mem, 1);
    assert_non_null(a);
    assert_non_null(b);
    same(l.blocks, 2);
    same(l.bytes, 101);
    fli_free(&mem, a, 100);
    fli_free(&mem, b, 1);
    same(l.blocks, 0);
    same(l.bytes, 0);
}

TEST(zalloc_clears_dirty_memory)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    uint8_t *plain = fli_alloc(&mem, 64), *zeroed = fli_zalloc(&mem, 64);
    assert_filled(plain, 64, DIRT);
    assert_filled(zeroed, 64, 0);
    fli_free(&mem, plain, 64);
    fli_free(&mem, zeroed, 64);
}

TEST(resize_keeps_the_contents_and_passes_the_old_size)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    uint8_t *at = fli_resize(&mem, NULL, 77, 10); /* without an old block the old size does not matter */
    assert_non_null(at);
    memset(at, 7, 10);
    at = fli_resize(&mem, at, 10, 1000);
    assert_filled(at, 10, 7);
    at = fli_resize(&mem, at, 1000, 5);
    assert_filled(at, 5, 7);
    same(l.bytes, 5);
    fli_free(&mem, at, 5);
    same(l.blocks, 0);
}

TEST(freeing_null_does_not_reach_the_hook)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    fli_free(&mem, NULL, 10);
    fli_free_aligned(&mem, NULL, 10, 64);
    same(l.calls, 0);
}

TEST(a_refused_allocation_is_null_and_changes_nothing)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    uint8_t *at = fli_zalloc(&mem, 8);
    l.refuse = true;
    assert_null(fli_alloc(&mem, 8));
    assert_null(fli_zalloc(&mem, 8));
    assert_null(fli_zalloc_aligned(&mem, 8, 64));
    assert_null(fli_resize(&mem, at, 8, 16));
    assert_filled(at, 8, 0);
    same(l.bytes, 8);
    fli_free(&mem, at, 8);
    same(l.blocks, 0);
}

TEST(aligned_blocks_are_aligned_zeroed_and_return_whole)
{
    ledger  l = { 0 };
    fli_mem mem;
    fli_mem_init(&mem, ledger_alloc, &l);
    for (size_t align = 16; align <= 4096; align *= 2) {
        for (size_t size = 1; size < 300; size += 37) {
            uint8_t *at = fli_zalloc_aligned(&mem, size, align);
            assert_non_null(at);
            same((uintptr_t)at % align, 0);
            assert_filled(at, size, 0);
            memset(at, 1, size);
            fli_free_aligned(&mem, at, size, align);
            same(l.blocks, 0);
            same(l.bytes, 0);
        }
    }
}

TEST(without_a_hook_malloc_is_used)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    uint8_t *at = fli_zalloc(&mem, 10);
    assert_non_null(at);
    at = fli_resize(&mem, at, 10, 10000);
    assert_non_null(at);
    assert_filled(at, 10, 0);
    fli_free(&mem, at, 10000);
    at = fli_zalloc_aligned(&mem, 100, 128);
    assert_filled(at, 100, 0);
    fli_free_aligned(&mem, at, 100, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_from_the_hook_and_return_with_their_size),
        cmocka_unit_test(zalloc_clears_dirty_memory),
        cmocka_unit_test(resize_keeps_the_contents_and_passes_the_old_size),
        cmocka_unit_test(freeing_null_does_not_reach_the_hook),
        cmocka_unit_test(a_refused_allocation_is_null_and_changes_nothing),
        cmocka_unit_test(aligned_blocks_are_aligned_zeroed_and_return_whole),
        cmocka_unit_test(without_a_hook_malloc_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
