/* describe_test.c - descriptions of messages: every tag of codec.h, and the result if the message bytes or the space
 * for text end early. */
#include <filch_lua.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lua/message/codec.h"
#include "support/check.h"

/* Returns the description of a message: the mark, then `bytes`. An unreadable page follows the last byte, so that a
 * read beyond the end is detected. */
static const char *description_of(const void *bytes, size_t size)
{
    static char text[512];
    size_t      page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t    *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t    *message = pages + page - FLI_LUA_MARK_SIZE - size;
    assert_true(pages != MAP_FAILED && size + FLI_LUA_MARK_SIZE <= page);
    ok(mprotect(pages + page, page, PROT_NONE));
    memcpy(message, fli_lua_mark, FLI_LUA_MARK_SIZE);
    memcpy(message + FLI_LUA_MARK_SIZE, bytes, size);
    size += FLI_LUA_MARK_SIZE;
    size_t n = filch_lua_describe(NULL, message, size, size, text, sizeof text - 1);
    assert_true(n < sizeof text);
    text[n] = '\0';
    ok(munmap(pages, 2 * page));
    return text;
}

/* `bytes` is a string literal; its terminating zero is not part of the message. */
#define reads(bytes, words) assert_string_equal(description_of(bytes, sizeof bytes - 1), words)

TEST(every_kind_of_value_has_a_description)
{
    reads("\x00", "nil");
    reads("\x01", "false");
    reads("\x02", "true");
    reads("\x03\xFE", "-2");
    reads("\x04\x00\x80", "-32768");
    reads("\x05\x01\x00\x00\x00", "1");
    reads("\x06\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", "9223372036854775807");
    reads("\x07\x00\x00\x00\x00\x00\x00\xE0\x3F", "0.5");
    reads("\x08\x03"
          "abc",
          "\"abc\"");
    reads("\x09\x02\x00\x00\x00xy", "\"xy\"");
    reads("\x0C"
          "0123456789abcdef",
          "a pid");
    reads("\x0F\x01\x00\x00\x00", "a blob");
    reads("\x14\x01\x00\x00\x00", "a long string");
    reads("\x1B", "null");
    reads("\x1C", "{}");
    reads("\x40", "0");
    reads("\x7F", "63");
    reads("\xC0", "64");
    reads("\xFF", "127");
    reads("\x82hi", "\"hi\"");
    reads("\x13 any bytes", "a blob");
}

TEST(special_bytes_are_shown_as_decimal_escapes)
{
    reads("\x84\"\\\n\xFF", "\"\\34\\92\\10\\255\"");
}

TEST(tables_are_shown_with_their_keys)
{
    reads("\x0A\x02\x00\x41\x42", "{1, 2}");
    reads("\x0B\x01\x00\x00\x00\x01\x00\x00\x00\x41\x83key\x42", "{1, key = 2}");
    reads("\x0A\x00\x01\x83"
          "a_9\x41",
          "{a_9 = 1}");
    reads("\x0A\x00\x01\x83"
          "a-9\x41",
          "{[\"a-9\"] = 1}");
    reads("\x0A\x00\x01\x80\x41", "{[\"\"] = 1}");
    reads("\x0A\x00\x01\xC0\x41", "{[64] = 1}");
    reads("\x0A\x00\x00", "{}");
}

TEST(requests_replies_and_refusals_are_distinguished)
{
    reads("\x10"
          "12345678\x41",
          "a request, 1");
    reads("\x11"
          "12345678\x41",
          "a reply, 1");
    reads("\x12"
          "12345678\x82no",
          "a refusal, \"no\"");
}

TEST(a_message_that_ends_early_is_marked_as_cut)
{
    reads("\x03", "...");
    reads("\x06\x01\x02", "...");
    reads("\x07\x01", "...");
    reads("\x08", "...");
    reads("\x08\x09"
          "abc",
          "\"abc...");
    reads("\x09\x01\x00", "...");
    reads("\x0A\x01", "...");
    reads("\x0A\x01\x00", "{...");
    reads("\x0A\x02\x00\x41", "{1, ...");
    reads("\x0A\x00\x01", "{[...");
    reads("\x0A\x00\x01\x83"
          "ab",
          "{[\"ab...");
    reads("\x0B\x01\x00\x00\x00", "...");
    reads("\x10"
          "1234",
          "...");
}

TEST(tags_that_are_not_for_messages_are_cut)
{
    reads("\x0D\x01x", "...");
    reads("\x15"
          "12345678",
          "...");
    reads("\x3F", "...");
}

TEST(tables_nested_too_deep_are_cut)
{
    uint8_t bytes[3 * (FLI_LUA_DEPTH_MAX + 1) + 1];
    char    want[FLI_LUA_DEPTH_MAX + 4];
    for (int i = 0; i <= FLI_LUA_DEPTH_MAX; i++) memcpy(bytes + 3 * i, "\x0A\x01\x00", 3);
    bytes[sizeof bytes - 1] = 0x02;
    memset(want, '{', FLI_LUA_DEPTH_MAX);
    strcpy(want + FLI_LUA_DEPTH_MAX, "...");
    assert_string_equal(description_of(bytes, sizeof bytes), want);
}

TEST(a_message_without_the_mark_is_a_string)
{
    char text[64];
    same(filch_lua_describe(NULL, "plain", 5, 5, text, sizeof text), 7);
    assert_memory_equal(text, "\"plain\"", 7);
    /* a message of 900 bytes; only 5 are given */
    same(filch_lua_describe(NULL, "plain", 5, 900, text, sizeof text), 9);
    assert_memory_equal(text, "\"plain...", 9);
}

TEST(no_more_bytes_than_the_buffer_holds_are_written)
{
    for (size_t room = 0; room < 24; room++) {
        char text[32];
        memset(text, '#', sizeof text);
        size_t n = filch_lua_describe(NULL, "a string of letters", 19, 19, text, room);
        assert_true(n <= room);
        for (size_t i = n; i < sizeof text; i++) same(text[i], '#');
        if (room >= 3) assert_memory_equal(text + n - 3, "...", 3);
    }
    same(filch_lua_describe(NULL, NULL, 5, 5, (char[8]){ 0 }, 8), 0);
    same(filch_lua_describe(NULL, "bytes", 5, 5, NULL, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_value_has_a_description),
        cmocka_unit_test(special_bytes_are_shown_as_decimal_escapes),
        cmocka_unit_test(tables_are_shown_with_their_keys),
        cmocka_unit_test(requests_replies_and_refusals_are_distinguished),
        cmocka_unit_test(a_message_that_ends_early_is_marked_as_cut),
        cmocka_unit_test(tags_that_are_not_for_messages_are_cut),
        cmocka_unit_test(tables_nested_too_deep_are_cut),
        cmocka_unit_test(a_message_without_the_mark_is_a_string),
        cmocka_unit_test(no_more_bytes_than_the_buffer_holds_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
