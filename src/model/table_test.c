/* table_test.c - the hash table behind names and groups. */
#include "model/table.h"

#include <stdio.h>
#include <string.h>

#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

typedef struct item {
    fli_entry entry;
    uint64_t  value;
} item;

static fli_mem counted(test_alloc *alloc)
{
    fli_mem mem;
    fli_mem_init(&mem, test_alloc_fn, alloc);
    return mem;
}

static void name_of(uint64_t i, char name[32])
{
    snprintf(name, 32, "entry number %llu", (unsigned long long)i);
}

static void add(const fli_mem *mem, fli_table *table, uint64_t i)
{
    char name[32];
    name_of(i, name);
    item *it = fli_entry_make(mem, sizeof *it, name);
    assert_non_null(it);
    it->value = i;
    fli_table_add(mem, table, it);
}

static void expect_all(const fli_table *table, uint64_t from, uint64_t to, bool there)
{
    char name[32];
    for (uint64_t i = from; i < to; i++) {
        name_of(i, name);
        const item *it = fli_table_find(table, name);
        assert_int_equal(it != NULL, there);
        if (there) same(it->value, i);
    }
}

static void remove_all(const fli_mem *mem, fli_table *table, uint64_t from, uint64_t to)
{
    char name[32];
    for (uint64_t i = from; i < to; i++) {
        name_of(i, name);
        item *it = fli_table_find(table, name);
        assert_non_null(it);
        fli_table_remove(mem, table, it);
        fli_entry_free(mem, it);
    }
}

TEST(entries_are_found_while_the_table_grows_and_gone_when_removed)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = counted(&alloc);
    fli_table  table;
    uint64_t   count = scaled(10000) + 100;
    ok(fli_table_init(&table));
    for (uint64_t i = 0; i < count; i++) add(&mem, &table, i);
    assert_true(table.index.bucket_count >= count / 2);
    expect_all(&table, 0, count, true);
    remove_all(&mem, &table, 0, count / 2);
    expect_all(&table, 0, count / 2, false);
    expect_all(&table, count / 2, count, true);
    remove_all(&mem, &table, count / 2, count);
    same(table.index.count, 0);
    fli_table_fini(&mem, &table);
    test_alloc_balanced(&alloc);
}

TEST(if_the_table_cannot_grow_every_entry_is_still_found)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = counted(&alloc);
    fli_table  table;
    ok(fli_table_init(&table));
    for (uint64_t i = 0; i < 100; i++) {
        char name[32];
        name_of(i, name);
        item *it = fli_entry_make(&mem, sizeof *it, name);
        it->value = i;
        test_alloc_fail(&alloc, 1, true);
        fli_table_add(&mem, &table, it);
        test_alloc_fail(&alloc, 0, false);
    }
    same(table.index.bucket_count, FLI_INDEX_FIRST);
    expect_all(&table, 0, 100, true);
    remove_all(&mem, &table, 0, 100);
    test_alloc_fail(&alloc, 1, false);
    assert_null(fli_entry_make(&mem, sizeof(item), "no memory"));
    fli_table_fini(&mem, &table);
    test_alloc_balanced(&alloc);
}

TEST(a_name_has_1_to_255_bytes)
{
    char name[300];
    memset(name, 'n', sizeof name);
    assert_false(fli_name_is_sound(NULL));
    assert_false(fli_name_is_sound(""));
    name[256] = '\0';
    assert_false(fli_name_is_sound(name));
    name[255] = '\0';
    assert_true(fli_name_is_sound(name));
    assert_true(fli_name_is_sound("n"));
    assert_true(fli_name_hash("a") != fli_name_hash("b"));
}

TEST(two_names_with_equal_hashes_are_two_entries)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = counted(&alloc);
    fli_table  table;
    ok(fli_table_init(&table));
    item *one = fli_entry_make(&mem, sizeof *one, "one"), *two = fli_entry_make(&mem, sizeof *two, "two");
    one->entry.hash = fli_name_hash("two"); /* forces a collision of the two hashes */
    fli_table_add(&mem, &table, two);
    fli_table_add(&mem, &table, one);
    assert_ptr_equal(fli_table_find(&table, "two"), two);
    fli_table_remove(&mem, &table, two);
    assert_null(fli_table_find(&table, "two"));
    fli_table_remove(&mem, &table, one);
    fli_entry_free(&mem, one);
    fli_entry_free(&mem, two);
    fli_table_fini(&mem, &table);
    test_alloc_balanced(&alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_found_while_the_table_grows_and_gone_when_removed),
        cmocka_unit_test(if_the_table_cannot_grow_every_entry_is_still_found),
        cmocka_unit_test(a_name_has_1_to_255_bytes),
        cmocka_unit_test(two_names_with_equal_hashes_are_two_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
