/* net_test.c - addresses: what is read, what is written, and what is no address. */
#include "port/net.h"

#include <string.h>

#include "support/check.h"

TEST(addresses_come_back_as_they_were_read)
{
    static const char *const all[] = { "127.0.0.1:80", "0.0.0.0:0",    "255.255.255.255:65535",
                                       "[::1]:443",    "[fe80::1]:1",  "unix:/tmp/a b",
                                       "unix:@name",   "unix:relative" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        fli_address address;
        char        text[128], shorter[4];
        assert_true(fli_address_read(&address, all[i]));
        same(fli_address_write(&address, text, sizeof text), strlen(all[i]));
        assert_string_equal(text, all[i]);
        same(fli_address_write(&address, shorter, sizeof shorter), strlen(all[i])); /* cut, and it says so */
        same(strlen(shorter), 3);
    }
    fli_address any;
    char        text[32];
    assert_true(fli_address_read(&any, "*:8080"));
    (void)fli_address_write(&any, text, sizeof text);
    assert_string_equal(text, "0.0.0.0:8080");
}

TEST(what_is_no_address_is_refused)
{
    static const char *const all[] = { "",
                                       ":",
                                       ":80",
                                       "80",
                                       "127.0.0.1",
                                       "127.0.0.1:",
                                       "127.0.0.1:65536",
                                       "127.0.0.1:-1",
                                       "127.0.0.1:80x",
                                       "127.0.0.1:999999999999",
                                       "127.0.0:80",
                                       "localhost:80",
                                       "[::1]",
                                       "[]:80",
                                       "[::1:80",
                                       "::1:80",
                                       "[::g]:80",
                                       "[:80",
                                       "unix:",
                                       "unix:@",
                                       "*",
                                       "256.0.0.1:1",
                                       "[127.0.0.1]:80",
                                       "[0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0]:1" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        fli_address address;
        if (fli_address_read(&address, all[i])) fail_msg("taken for an address: %s", all[i]);
    }
    char        path[200] = "unix:/";
    fli_address address;
    memset(path + 6, 'a', sizeof path - 7);
    path[sizeof path - 1] = '\0';
    assert_false(fli_address_read(&address, path)); /* longer than the system takes */
}

TEST(an_address_without_a_name_is_empty)
{
    fli_address none = { .size = 0 };
    char        text[8] = "x";
    same(fli_address_write(&none, text, sizeof text), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_come_back_as_they_were_read),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(an_address_without_a_name_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
