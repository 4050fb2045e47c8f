/* escape_test.c - no control character remains in an escaped text, and all other characters do. */
#include "base/escape.h"

#include <string.h>

#include "support/check.h"

static void becomes(const char *text, const char *want)
{
    char   got[256];
    size_t size = fli_escape(got, sizeof got, text, strlen(text));
    assert_string_equal(got, want);
    same(size, strlen(want));
    same(fli_escape_is_needed(text, strlen(text)), strcmp(text, want) != 0);
}

TEST(control_characters_of_every_kind_are_escaped)
{
    becomes("a\nb\r\tc", "a\\nb\\r\\tc");
    becomes("\033[31mred\a\177", "\\x1b[31mred\\x07\\x7f");
    becomes("next\xc2\x85line \xc2\x9b"
            "2J",
            "next\\u{85}line \\u{9b}2J");
    becomes("\xe2\x80\xa8\xe2\x80\xa9", "\\u{2028}\\u{2029}");
    becomes("\x9b"
            "2J \x80",
            "\\x9b2J \\x80");                                     /* no UTF-8 */
    becomes("\xc0\x8a \xe0\x82\x85", "\xc0\\x8a \xe0\\x82\\x85"); /* a newline and U+0085, both encoded too long */
    becomes("\xc2\x80 \xe0\x9f\xbf", "\\u{80} \xe0\\x9f\xbf");    /* U+0080, a control; U+07FF, encoded too long */
    becomes("\xf0\x8f\xbf\xbf", "\xf0\\x8f\xbf\xbf");             /* U+FFFF, encoded too long */
    becomes("\xed\xa0\x80 \xed\xbf\x9f", "\xed\xa0\\x80 \xed\xbf\\x9f"); /* surrogates */
    becomes("\xf4\x90\x80\x80", "\xf4\\x90\\x80\\x80");                  /* a number above U+10FFFF */
}

TEST(other_characters_are_kept)
{
    becomes("", "");
    becomes("plain \\n 'text' ~", "plain \\n 'text' ~");
    becomes("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc2\xa0", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc2\xa0");
    /* characters with the first and the last number of each encoded length, and the ones next to the surrogates */
    becomes("\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", "\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80");
    becomes("\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
    becomes("caf\xe9 \xc3", "caf\xe9 \xc3"); /* Latin-1, and a character that was cut */
}

TEST(no_control_byte_remains_of_any_two_bytes)
{
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            char   text[2] = { (char)a, (char)b }, got[16];
            size_t size = fli_escape(got, sizeof got, text, 2);
            assert_true(size <= sizeof text * FLI_ESCAPE_GROWTH);
            for (size_t i = 0; i < size; i++) {
                unsigned char c = (unsigned char)got[i];
                assert_true(c >= 0x20 && c != 0x7f);
                /* a byte of this range remains only as the second byte of a character */
                if (c >= 0x80 && c < 0xa0) assert_true(i == 1 && (unsigned char)got[0] >= 0xc3);
            }
        }
    }
}

TEST(a_zero_byte_is_escaped_and_an_escape_is_never_cut)
{
    char got[16];
    same(fli_escape(got, sizeof got, "a\0b", 3), 6);
    assert_string_equal(got, "a\\x00b");
    same(fli_escape(got, 5, "ab\033c", 4), 2);
    assert_string_equal(got, "ab");
    same(fli_escape(got, 1, "ab", 2), 0);
    assert_string_equal(got, "");
    same(fli_escape(got, 3, "\xe2\x82\xac", 3), 0);
    same(fli_escape(got, 4, "\xe2\x82\xac", 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_of_every_kind_are_escaped),
        cmocka_unit_test(other_characters_are_kept),
        cmocka_unit_test(no_control_byte_remains_of_any_two_bytes),
        cmocka_unit_test(a_zero_byte_is_escaped_and_an_escape_is_never_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
