/* pages_test.c - discarded pages read as zeros, and the bytes around them stay. */
#include "port/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

TEST(whole_pages_are_zero_and_the_bytes_around_them_stay)
{
    size_t   page = (size_t)sysconf(_SC_PAGESIZE), size = 8 * page;
    uint8_t *block = aligned_alloc(page, size);
    assert_non_null(block);
    memset(block, 7, size);
    fli_pages_discard(block + 1, page - 1); /* no whole page */
    for (size_t i = 0; i < size; i++) assert_int_equal(block[i], 7);
    fli_pages_discard(block + page - 1, 3 * page);
    for (size_t i = 0; i < size; i++) assert_int_equal(block[i], i >= page && i < 3 * page ? 0 : 7);
    memset(block, 8, size);
    for (size_t i = 0; i < size; i++) assert_int_equal(block[i], 8);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole_pages_are_zero_and_the_bytes_around_them_stay) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
