/* err_test.c - every error code has a name and a sentence; unknown codes get a common one. */
#include <stdio.h>
#include <string.h>

#include <filch.h>

#include "support/check.h"

TEST(every_code_has_its_name_and_sentence)
{
#define CHECK(name, value, text)                      \
    same(name, value);                                \
    assert_string_equal(filch_err_name(name), #name); \
    assert_string_equal(filch_err_text(name), text);
    FILCH_ERR_MAP(CHECK)
#undef CHECK
}

TEST(no_two_codes_share_a_sentence)
{
#define TEXT(name, value, text) text,
    static const char *const texts[] = { FILCH_ERR_MAP(TEXT) };
#undef TEXT
    size_t count = sizeof texts / sizeof texts[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) assert_string_not_equal(texts[i], texts[j]);
    }
}

TEST(codes_that_are_not_listed_are_unknown)
{
    static const filch_err unlisted[] = { -1, INT32_MIN, FILCH_EACCESS + 500, FILCH_EUSER - 1 };
    for (size_t i = 0; i < sizeof unlisted / sizeof unlisted[0]; i++) {
        assert_string_equal(filch_err_text(unlisted[i]), "unknown error");
        assert_string_equal(filch_err_name(unlisted[i]), "unknown");
    }
}

TEST(application_codes_have_a_common_name_and_text)
{
    assert_string_equal(filch_err_text(FILCH_EUSER), "application error");
    assert_string_equal(filch_err_text(INT32_MAX), "application error");
    assert_string_equal(filch_err_name(FILCH_EUSER + 7), "FILCH_EUSER");
}

TEST(version_is_that_of_the_header)
{
    char want[32];
    snprintf(want, sizeof want, "%d.%d.%d", FILCH_VERSION_MAJOR, FILCH_VERSION_MINOR, FILCH_VERSION_PATCH);
    assert_string_equal(filch_version(), want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_name_and_sentence),
        cmocka_unit_test(no_two_codes_share_a_sentence),
        cmocka_unit_test(codes_that_are_not_listed_are_unknown),
        cmocka_unit_test(application_codes_have_a_common_name_and_text),
        cmocka_unit_test(version_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
