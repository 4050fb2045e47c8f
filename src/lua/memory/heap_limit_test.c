/* heap_limit_test.c - a heap can hold exactly its limit, to the byte, on every path of the allocator. */
#include "lua/memory/heap.h"

#include <stdlib.h>
#include <string.h>

#include "lua/memory/total.h"
#include "support/check.h"

static _Alignas(16) char first[4096];

static const size_t sizes[] = { 1,    7,    8,    9,    16,   17,   248,  249,  255,   256,
                                257,  319,  320,  321,  511,  512,  513,  1024, 1025,  2048,
                                2049, 3584, 3585, 4095, 4096, 4097, 5000, 8192, 65536, 100000 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Returns the bytes that a block of `size` occupies: multiples of 8 up to 256, then four sizes per doubling up to
 * 4096, then `size` itself. */
static size_t room_of(size_t size)
{
    if (size <= 256) return (size + 7) / 8 * 8;
    if (size > 4096) return size;
    size_t doubling = 256;
    while (doubling * 2 < size) doubling *= 2;
    return (size + doubling / 4 - 1) / (doubling / 4) * (doubling / 4);
}

static void init_heap(fli_lua_heap *heap, size_t max)
{
    fli_lua_heap_init(heap, first, sizeof first, max);
}

TEST(a_block_occupies_its_size_class)
{
    for (size_t size = 1; size < 5000; size++) {
        fli_lua_heap heap;
        init_heap(&heap, 1 << 20);
        void *block = fli_lua_heap_resize(&heap, NULL, 0, size);
        same(heap.used, room_of(size));
        fli_lua_heap_resize(&heap, block, size, 0);
        same(heap.used, 0);
        fli_lua_heap_fini(&heap);
    }
}

TEST(the_last_block_may_fill_the_heap_and_not_a_byte_more)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (int by_lua = 0; by_lua < 2; by_lua++) {
            for (int less = 0; less < 2; less++) {
                fli_lua_heap heap;
                init_heap(&heap, 1000 + room_of(sizes[i]) - (size_t)less);
                assert_true(fli_lua_heap_charge(&heap, 1000));
                void *block = by_lua ? fli_lua_heap_alloc(&heap, NULL, 5, sizes[i])
                                     : fli_lua_heap_resize(&heap, NULL, 0, sizes[i]);
                assert_true((block != NULL) == (less == 0));
                same(heap.refused, less != 0);
                if (block != NULL) memset(block, 1, sizes[i]);
                if (block != NULL) (void)fli_lua_heap_alloc(&heap, block, sizes[i], 0);
                same(heap.used, 1000);
                fli_lua_heap_fini(&heap);
            }
        }
    }
}

/* A block from a free list is tested separately, because the allocator takes it on its fast path. */
TEST(a_block_of_the_free_list_counts_against_the_limit_too)
{
    for (size_t i = 0; i < SIZES && sizes[i] <= 256; i++) {
        for (int less = 0; less < 2; less++) {
            fli_lua_heap heap;
            init_heap(&heap, 1 << 20);
            void *left = fli_lua_heap_alloc(&heap, NULL, 0, sizes[i]);
            (void)fli_lua_heap_alloc(&heap, left, sizes[i], 0);
            heap.max = 500 + room_of(sizes[i]) - (size_t)less;
            heap.refused = true;
            assert_true(fli_lua_heap_charge(&heap, 500));
            void *block = fli_lua_heap_alloc(&heap, NULL, 0, sizes[i]);
            assert_ptr_equal(block, less ? NULL : left);
            same(heap.refused, less != 0);
            fli_lua_heap_fini(&heap);
        }
    }
}

TEST(memory_of_a_heap_counts_in_the_total_until_fini)
{
    fli_lua_total total = { .max = 1 << 20 };
    fli_lua_heap  heap;
    init_heap(&heap, 1 << 20);
    heap.total = &total;
    assert_non_null(fli_lua_heap_resize(&heap, NULL, 0, 100));
    assert_non_null(fli_lua_heap_resize(&heap, NULL, 0, 5000));
    assert_true(fli_load_rlx(&total.held) >= 5000);
    fli_lua_heap_fini(&heap);
    same(fli_load_rlx(&total.held), 0);
}

/* While a block is copied, the old and the new block both count against the limit, unless realloc can extend the old
 * block. */
TEST(a_block_grows_up_to_the_limit)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t k = i + 1; k < SIZES; k++) {
            size_t from = room_of(sizes[i]), to = room_of(sizes[k]);
            if (from == to) continue;
            bool   in_place = sizes[i] > 4096;
            size_t needed = in_place ? to : from + to;
            for (int less = 0; less < 2; less++) {
                fli_lua_heap heap;
                init_heap(&heap, needed - (size_t)less);
                unsigned char *block = fli_lua_heap_resize(&heap, NULL, 0, sizes[i]);
                assert_non_null(block);
                memset(block, 7, sizes[i]);
                unsigned char *grown = fli_lua_heap_resize(&heap, block, sizes[i], sizes[k]);
                if ((grown != NULL) != (less == 0)) fail_msg("%zu to %zu with %d less", sizes[i], sizes[k], less);
                same(heap.used, less ? from : to);
                for (size_t n = 0; grown != NULL && n < sizes[i]; n++) same(grown[n], 7);
                fli_lua_heap_fini(&heap);
            }
        }
    }
}

TEST(a_block_shrinks_whatever_the_limit_is)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t k = 0; k < i; k++) {
            fli_lua_heap heap;
            init_heap(&heap, 1 << 20);
            unsigned char *block = fli_lua_heap_resize(&heap, NULL, 0, sizes[i]);
            memset(block, 7, sizes[i]);
            heap.max = heap.used;
            unsigned char *shrunk = fli_lua_heap_resize(&heap, block, sizes[i], sizes[k]);
            assert_non_null(shrunk);
            same(heap.used, room_of(sizes[k]));
            for (size_t n = 0; n < sizes[k]; n++) same(shrunk[n], 7);
            same(heap.max, room_of(sizes[i])); /* shrinking has not changed the limit */
            fli_lua_heap_fini(&heap);
        }
    }
}

TEST(charged_memory_counts_to_the_byte)
{
    fli_lua_heap heap;
    init_heap(&heap, 100);
    assert_true(fli_lua_heap_charge(&heap, 60));
    assert_false(fli_lua_heap_charge(&heap, 41));
    assert_true(fli_lua_heap_charge(&heap, 40));
    assert_false(fli_lua_heap_charge(&heap, 1));
    assert_true(fli_lua_heap_charge(&heap, 0));
    fli_lua_heap_discharge(&heap, 1);
    assert_true(fli_lua_heap_charge(&heap, 1));
    same(heap.used, 100);
    fli_lua_heap_fini(&heap);
}

/* When the next chunk is needed, the rest of the old chunk becomes small blocks: fewer than FLI_LUA_GRAIN bytes are
 * lost. */
TEST(the_rest_of_a_chunk_is_used_for_small_blocks)
{
    for (size_t left = 0; left <= 600; left += 8) {
        fli_lua_heap heap;
        init_heap(&heap, 1 << 20);
        while ((size_t)(heap.end - heap.at) >= left + 264) assert_non_null(fli_lua_heap_resize(&heap, NULL, 0, 256));
        while ((size_t)(heap.end - heap.at) >= left + 8) assert_non_null(fli_lua_heap_resize(&heap, NULL, 0, 8));
        same((size_t)(heap.end - heap.at), left);
        char *rest = heap.at;
        assert_non_null(fli_lua_heap_resize(&heap, NULL, 0, 2000)); /* a block of 2000 bytes needs another chunk */
        size_t found = 0;
        for (unsigned class = 0; class < FLI_LUA_CLASSES; class ++) {
            for (char *block = heap.free[class]; block != NULL; memcpy(&block, (void *)block, sizeof block)) {
                assert_true(block >= rest && block + (class + 1) * 8 <= rest + left);
                found += (class + 1) * 8;
            }
        }
        same(found, left);
        fli_lua_heap_fini(&heap);
    }
}

TEST(blocks_are_aligned_wherever_the_first_chunk_begins)
{
    for (size_t off = 0; off < 16; off++) {
        fli_lua_heap heap;
        fli_lua_heap_init(&heap, first + off, 512, 1 << 20);
        for (int i = 0; i < 3; i++) {
            char *block = fli_lua_heap_resize(&heap, NULL, 0, 24);
            same((uintptr_t)block % 8, 0);
            assert_true(block >= first + off && block + 24 <= first + off + 512);
            if (i == 0) assert_true(block < first + off + 8); /* at most 7 bytes are lost before the first block */
        }
        fli_lua_heap_fini(&heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_occupies_its_size_class),
        cmocka_unit_test(the_last_block_may_fill_the_heap_and_not_a_byte_more),
        cmocka_unit_test(a_block_of_the_free_list_counts_against_the_limit_too),
        cmocka_unit_test(memory_of_a_heap_counts_in_the_total_until_fini),
        cmocka_unit_test(a_block_grows_up_to_the_limit),
        cmocka_unit_test(a_block_shrinks_whatever_the_limit_is),
        cmocka_unit_test(blocks_are_aligned_wherever_the_first_chunk_begins),
        cmocka_unit_test(charged_memory_counts_to_the_byte),
        cmocka_unit_test(the_rest_of_a_chunk_is_used_for_small_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
