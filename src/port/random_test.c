/* random_test.c - seeds differ from one another and are never zero. */
#include "port/random.h"
#include "support/check.h"

TEST(seeds_are_never_zero_and_do_not_repeat)
{
    enum { COUNT = 1000 };
    static uint64_t seen[COUNT];
    uint64_t        ever_set = 0, always_set = UINT64_MAX;
    for (int i = 0; i < COUNT; i++) {
        seen[i] = fli_random_u64();
        assert_true(seen[i] != 0);
        ever_set |= seen[i];
        always_set &= seen[i];
        for (int j = 0; j < i; j++) assert_true(seen[i] != seen[j]);
    }
    assert_true(ever_set == UINT64_MAX); /* every bit was set at least once */
    assert_true(always_set == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_are_never_zero_and_do_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
