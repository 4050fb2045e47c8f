/* versioned_test.c - option structs of programs compiled with older and newer headers. */
#include "base/versioned.h"

#include "support/check.h"

typedef struct older {
    size_t   size;
    uint32_t first;
} older;

typedef struct known {
    size_t   size;
    uint32_t first, second;
} known;

typedef struct newer {
    size_t   size;
    uint32_t first, second;
    uint64_t third;
} newer;

#define KNOWN_INIT          \
    {                       \
        sizeof(known), 1, 2 \
    }

TEST(without_a_struct_the_defaults_stay)
{
    known out;
    ok(FLI_VERSIONED_READ(&out, NULL, "options", KNOWN_INIT));
    same(out.size, sizeof out);
    same(out.first, 1);
    same(out.second, 2);
}

TEST(a_shorter_struct_leaves_the_rest_at_the_defaults)
{
    known out;
    older given = { offsetof(known, second), 7 };
    ok(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT));
    same(out.size, sizeof out);
    same(out.first, 7);
    same(out.second, 2);
}

TEST(a_longer_struct_is_accepted_if_the_unknown_bytes_are_zero)
{
    known out;
    newer given = { sizeof given, 7, 8, 0 };
    ok(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT));
    same(out.size, sizeof out);
    same(out.second, 8);
    /* sets a bit of the last byte of `given`, a byte that the known struct does not have */
    given.third = UINT64_C(1) << 63;
    same(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT), FILCH_EINVAL);
    assert_non_null(strstr(filch_err_detail(), "does not know"));
}

TEST(a_struct_without_its_size_is_refused_by_name)
{
    known out, given = { 0, 7, 8 };
    same(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT), FILCH_EINVAL);
    assert_string_equal(filch_err_detail(), "options.size is not set: begin with KNOWN_INIT");
    given.size = sizeof given.size - 1;
    same(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT), FILCH_EINVAL);
    given.size = sizeof given.size;
    ok(FLI_VERSIONED_READ(&out, &given, "options", KNOWN_INIT));
    same(out.first, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_struct_the_defaults_stay),
        cmocka_unit_test(a_shorter_struct_leaves_the_rest_at_the_defaults),
        cmocka_unit_test(a_longer_struct_is_accepted_if_the_unknown_bytes_are_zero),
        cmocka_unit_test(a_struct_without_its_size_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
