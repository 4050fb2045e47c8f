/* prng_test.c - random numbers repeat with the same seed, and are distributed evenly enough to choose victims. */
#include "base/prng.h"
#include "support/check.h"

TEST(the_same_seed_repeats)
{
    fli_prng a, b;
    fli_prng_init(&a, 42);
    fli_prng_init(&b, 42);
    for (int i = 0; i < 1000; i++) assert_true(fli_prng_next(&a) == fli_prng_next(&b));
}

TEST(adjacent_seeds_differ_from_the_first_number_on)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        fli_prng a, b;
        fli_prng_init(&a, seed);
        fli_prng_init(&b, seed + 1);
        int differ = __builtin_popcountll(fli_prng_next(&a) ^ fli_prng_next(&b));
        assert_in_range(differ, 8, 56);
    }
}

/* Known answers: splitmix64 seeded with 0, xorshift64* with 1. Recordings and seeds of earlier versions depend on
 * these values.
 */
TEST(the_numbers_are_those_of_the_algorithms)
{
    fli_prng prng = { .state = 1 };
    assert_true(fli_prng_mix(0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(fli_prng_mix(UINT64_C(0x9e3779b97f4a7c15)) == UINT64_C(0x6e789e6aa1b965f4));
    assert_true(fli_prng_next(&prng) == UINT64_C(0x47e4ce4b896cdd1d));
}

/* Tests the only seed for which fli_prng_mix() returns 0. From state 0, xorshift would return 0 for ever. */
TEST(no_seed_gets_stuck_at_zero)
{
    uint64_t stuck = (uint64_t)0 - 0x9e3779b97f4a7c15u;
    assert_true(fli_prng_mix(stuck) == 0);
    fli_prng prng;
    fli_prng_init(&prng, stuck);
    uint64_t first = fli_prng_next(&prng);
    assert_true(first != 0);
    assert_true(fli_prng_next(&prng) != first);
}

TEST(below_is_evenly_distributed_over_its_range)
{
    enum { DRAWS = 10000 };
    for (uint32_t bound = 1; bound <= 16; bound++) {
        uint32_t hits[16] = { 0 };
        fli_prng prng;
        fli_prng_init(&prng, bound);
        for (int i = 0; i < DRAWS; i++) {
            uint32_t drawn = fli_prng_below(&prng, bound);
            assert_true(drawn < bound);
            hits[drawn]++;
        }
        /* The tolerance is 30 %; seven standard deviations are less than that. */
        for (uint32_t i = 0; i < bound; i++)
            assert_in_range(hits[i], DRAWS / bound * 7 / 10, DRAWS / bound * 13 / 10 + 1);
    }
}

TEST(below_copes_with_the_largest_bound)
{
    fli_prng prng;
    fli_prng_init(&prng, 1);
    uint32_t largest = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t drawn = fli_prng_below(&prng, UINT32_MAX);
        assert_true(drawn < UINT32_MAX);
        if (drawn > largest) largest = drawn;
    }
    assert_true(largest > UINT32_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_are_those_of_the_algorithms),
        cmocka_unit_test(the_same_seed_repeats),
        cmocka_unit_test(adjacent_seeds_differ_from_the_first_number_on),
        cmocka_unit_test(no_seed_gets_stuck_at_zero),
        cmocka_unit_test(below_is_evenly_distributed_over_its_range),
        cmocka_unit_test(below_copes_with_the_largest_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
