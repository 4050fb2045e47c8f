/* heap_test.c - the memory of one Lua process: blocks keep their bytes, sizes are counted, the limit holds. */
#include "lua/memory/heap.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "support/check.h"
#include "support/until.h"

static char first[4096];

TEST(blocks_keep_their_bytes_over_random_operations)
{
    enum { SLOTS = 64 };
    static struct {
        unsigned char *at;
        size_t         size;
        unsigned char  mark;
    } slots[SLOTS];
    fli_lua_heap heap;
    fli_prng     prng;
    fli_lua_heap_init(&heap, first, sizeof first, (size_t)1 << 22);
    fli_prng_init(&prng, 7);
    memset(slots, 0, sizeof slots);
    size_t asked = 0;
    for (uint64_t i = scaled(200000); i > 0; i--) {
        unsigned n = fli_prng_below(&prng, SLOTS);
        size_t   size =
            fli_prng_below(&prng, 4) == 0 ? 0 : 1 + fli_prng_below(&prng, fli_prng_below(&prng, 8) == 0 ? 20000 : 300);
        for (size_t k = 0; k < slots[n].size; k++) same(slots[n].at[k], slots[n].mark);
        unsigned char *at = fli_lua_heap_resize(&heap, slots[n].at, slots[n].size, size);
        if (size > 0 && at == NULL) continue; /* the request was refused: the old block still exists */
        for (size_t k = 0; at != NULL && k < slots[n].size && k < size; k++) same(at[k], slots[n].mark);
        same((uintptr_t)at % FLI_LUA_GRAIN, 0);
        asked += size - slots[n].size;
        slots[n].at = at;
        slots[n].size = size;
        slots[n].mark = (unsigned char)i;
        if (size > 0) memset(at, slots[n].mark, size);
        assert_true(heap.used >= asked && heap.used <= heap.max);
    }
    for (int n = 0; n < SLOTS; n++) fli_lua_heap_resize(&heap, slots[n].at, slots[n].size, 0);
    same(heap.used, 0);
    fli_lua_heap_fini(&heap);
}

TEST(the_limit_refuses_growth_and_never_shrinking)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, 10100);
    void *a = fli_lua_heap_resize(&heap, NULL, 0, 9000), *b = fli_lua_heap_resize(&heap, NULL, 0, 900);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(fli_lua_heap_resize(&heap, NULL, 0, 2000));
    assert_true(heap.refused);
    assert_null(fli_lua_heap_resize(&heap, a, 9000, 12000));
    /* the block moves from malloc into a chunk, although old and new block together exceed the limit */
    a = fli_lua_heap_resize(&heap, a, 9000, 3000);
    assert_non_null(a);
    b = fli_lua_heap_resize(&heap, b, 900, 24);
    assert_non_null(b);
    assert_true(fli_lua_heap_charge(&heap, 5000));
    assert_false(fli_lua_heap_charge(&heap, 5000));
    fli_lua_heap_discharge(&heap, 5000);
    assert_null(fli_lua_heap_resize(&heap, NULL, 0, SIZE_MAX - 8));
    fli_lua_heap_resize(&heap, a, 3000, 0);
    fli_lua_heap_resize(&heap, b, 24, 0);
    same(heap.used, 0);
    fli_lua_heap_fini(&heap);
}

TEST(sizes_beyond_all_memory_are_refused)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, SIZE_MAX);
    assert_null(fli_lua_heap_resize(&heap, NULL, 0, SIZE_MAX - 8));
    assert_true(heap.refused);
    void *big = fli_lua_heap_resize(&heap, NULL, 0, 10000);
    assert_non_null(big);
    assert_null(fli_lua_heap_resize(&heap, big, 10000, SIZE_MAX - 8));
    /* the old size is given as 0: the call ignores `big` and takes a new block */
    void *small = fli_lua_heap_resize(&heap, big, 0, 16);
    assert_non_null(small);
    same(heap.used, 10000 + 16);
    fli_lua_heap_resize(&heap, big, 10000, 0);
    fli_lua_heap_resize(&heap, small, 16, 0);
    same(heap.used, 0);
    fli_lua_heap_fini(&heap);
}

/* The size of a block decides whether it lies in a chunk. give() and take_block() must agree about the largest such
 * size. */
TEST(a_block_of_the_largest_class_lies_in_a_chunk)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, SIZE_MAX);
    void *largest = fli_lua_heap_resize(&heap, NULL, 0, FLI_LUA_BLOCK_MAX);
    assert_null(heap.bigs);
    void *larger = fli_lua_heap_resize(&heap, NULL, 0, FLI_LUA_BLOCK_MAX + 1);
    assert_non_null(heap.bigs);
    fli_lua_heap_resize(&heap, larger, FLI_LUA_BLOCK_MAX + 1, 0);
    assert_null(heap.bigs);
    fli_lua_heap_resize(&heap, largest, FLI_LUA_BLOCK_MAX, 0);
    assert_ptr_equal(fli_lua_heap_resize(&heap, NULL, 0, FLI_LUA_BLOCK_MAX), largest);
    fli_lua_heap_resize(&heap, largest, FLI_LUA_BLOCK_MAX, 0);
    same(heap.used, 0);
    fli_lua_heap_fini(&heap);
}

TEST(blocks_never_freed_are_released_with_the_heap)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, SIZE_MAX);
    for (size_t size = 1; size < 100000; size += 777) memset(fli_lua_heap_resize(&heap, NULL, 0, size), 1, size);
    fli_lua_heap_fini(&heap); /* the sanitizers and valgrind would report memory that was not freed */
    assert_null(heap.bigs);
    assert_null(heap.chunks);
}

static unsigned moves;

static void count_move(fli_lua_heap *heap)
{
    (void)heap;
    moves++;
}

/* Does what Lua does to move a vector: allocates a new block, then another block of `between` bytes (0: none), and
 * frees the old block. Returns true if the heap reported a moved stack. */
static bool moves_with(size_t old_size, size_t size, size_t between)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, 1 << 20);
    heap.on_move = count_move;
    moves = 0;
    void *old = fli_lua_heap_alloc(&heap, NULL, 0, old_size);
    void *small = fli_lua_heap_alloc(&heap, NULL, 5, 24);
    small = fli_lua_heap_alloc(&heap, small, 24, 0); /* puts a block on its free list */
    void *block = fli_lua_heap_alloc(&heap, NULL, 0, size);
    void *other = between != 0 ? fli_lua_heap_alloc(&heap, NULL, 5, between) : NULL;
    same(moves, 0);
    (void)fli_lua_heap_alloc(&heap, old, old_size, 0);
    bool moved = moves == 1;
    if (other != NULL) (void)fli_lua_heap_alloc(&heap, other, between, 0);
    (void)fli_lua_heap_alloc(&heap, block, size, 0);
    assert_true(moves <= 1 && small == NULL);
    fli_lua_heap_fini(&heap);
    return moved;
}

TEST(a_stack_that_moves_is_reported)
{
    assert_true(moves_with(45 * 16, 85 * 16, 0));
    assert_true(moves_with(85 * 16, 45 * 16, 0));
    assert_true(moves_with(45 * 16, 48 * 16, 0));
    assert_true(moves_with(40 * 16, 80 * 16, 0));
    assert_true(moves_with(48 * 16, 85 * 16, 0));
    assert_true(moves_with(48 * 16, 96 * 16, 0)); /* stacks, although 32 and 64 nodes of a table have these sizes */
    assert_true(moves_with(85 * 16, 48 * 16, 0));
    assert_true(moves_with(1285 * 16, 2565 * 16, 0));
}

TEST(nodes_of_a_table_that_are_replaced_are_not_taken_for_a_stack)
{
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, 1 << 20);
    heap.on_move = count_move;
    moves = 0;
    for (size_t array = 0; array <= 64; array += 64) {
        void *old = fli_lua_heap_alloc(&heap, NULL, 0, 32 * 24);
        void *values = fli_lua_heap_alloc(&heap, NULL, 0, array);
        void *nodes = fli_lua_heap_alloc(&heap, NULL, 0, 64 * 24);
        values = fli_lua_heap_alloc(&heap, values, array, array);
        (void)fli_lua_heap_alloc(&heap, old, 32 * 24, 0);
        (void)fli_lua_heap_alloc(&heap, nodes, 64 * 24, 0);
        (void)fli_lua_heap_alloc(&heap, values, array, 0);
    }
    same(moves, 0);
    fli_lua_heap_fini(&heap);
}

TEST(other_blocks_that_are_freed_are_not_taken_for_a_stack)
{
    assert_false(moves_with(39 * 16, 85 * 16, 0)); /* smaller than a stack */
    assert_false(moves_with(85 * 16, 39 * 16, 0));
    assert_false(moves_with(45 * 16 + 8, 85 * 16, 0)); /* no whole number of slots */
    assert_false(moves_with(45 * 16, 85 * 16 + 8, 0));
    assert_false(moves_with(45 * 16, 85 * 16, 24)); /* another block is allocated before the old one is freed */
    assert_false(moves_with(45 * 16, 85 * 16, 5000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_keep_their_bytes_over_random_operations),
        cmocka_unit_test(the_limit_refuses_growth_and_never_shrinking),
        cmocka_unit_test(sizes_beyond_all_memory_are_refused),
        cmocka_unit_test(a_block_of_the_largest_class_lies_in_a_chunk),
        cmocka_unit_test(blocks_never_freed_are_released_with_the_heap),
        cmocka_unit_test(a_stack_that_moves_is_reported),
        cmocka_unit_test(nodes_of_a_table_that_are_replaced_are_not_taken_for_a_stack),
        cmocka_unit_test(other_blocks_that_are_freed_are_not_taken_for_a_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
