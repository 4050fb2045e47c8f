/* address_test.c - addresses: which texts are read, what is written, which texts are refused; and addresses of peers
 * as the system returns them, including the longest ones. */
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "port/net.h"
#include "support/check.h"

TEST(an_address_that_was_read_is_written_as_the_same_text)
{
    static const char *const all[] = { "127.0.0.1:80",
                                       "0.0.0.0:0",
                                       "255.255.255.255:65535",
                                       "[::1]:443",
                                       "10.0.0.9:9",
                                       "[fe80::1]:1",
                                       "unix:/tmp/a b",
                                       "unix:@name",
                                       "unix:relative",
                                       "[fe80::1%4294967295]:1" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        fli_address address;
        char        text[128], shorter[4];
        assert_true(fli_address_read(&address, all[i]));
        same(fli_address_write(&address, text, sizeof text), strlen(all[i]));
        assert_string_equal(text, all[i]);
        same(fli_address_write(&address, shorter, sizeof shorter), strlen(all[i])); /* the text is cut, and the
                                                                                       result is the length of the
                                                                                       whole text */
        same(strlen(shorter), 3);
    }
    fli_address any;
    char        text[32];
    assert_true(fli_address_read(&any, "*:8080"));
    (void)fli_address_write(&any, text, sizeof text);
    assert_string_equal(text, "0.0.0.0:8080");
}

TEST(texts_that_are_no_address_are_refused)
{
    static const char *const all[] = {
        "",
        ":",
        ":80",
        "80",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:80x",
        "127.0.0.1:x",
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
        "[fe80::1%]:80",
        "[fe80::1%0]:80",
        "[fe80::1%no such interface]:80",
        "[fe80::1%4294967296]:80",
        "[fe80::1%99999999999]:80",
        "[%1]:80",
        "127.0.0.1%1:80",
        "[0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0]:1"
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        fli_address address;
        if (fli_address_read(&address, all[i])) fail_msg("accepted as an address: %s", all[i]);
    }
    char        path[200] = "unix:/";
    fli_address address;
    memset(path + 6, 'a', sizeof path - 7);
    path[sizeof path - 1] = '\0';
    assert_false(fli_address_read(&address, path)); /* longer than the system accepts */
}

TEST(an_unnamed_address_is_an_empty_text)
{
    fli_address none = { .size = 0 };
    char        text[8] = "x";
    same(fli_address_write(&none, text, sizeof text), 0);
    assert_string_equal(text, "");
    /* A socketpair has no name, like the peer of most unix sockets. */
    int         ends[2];
    fli_address peer;
    ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    ok(fli_net_address(ends[0], true, &peer));
    strcpy(text, "x");
    same(fli_address_write(&peer, text, sizeof text), 0);
    assert_string_equal(text, "");
    close(ends[0]);
    close(ends[1]);
}

TEST(a_write_into_0_bytes_returns_the_length_of_the_address)
{
    fli_address address;
    char        text[4] = "abc";
    assert_true(fli_address_read(&address, "127.0.0.1:80"));
    same(fli_address_write(&address, text, 0), strlen("127.0.0.1:80"));
    assert_string_equal(text, "abc");
}

/* ---- addresses that the system returns ---- */

/* Returns a unix socket bound to a path of exactly `size` bytes. `path` must have space for one byte more. */
static int bound(char *path, size_t size, bool datagram)
{
    struct {
        struct sockaddr_un at;
        char               end; /* a NUL after the path, which valgrind looks for */
    } full = { .at = { .sun_family = AF_UNIX } };
    int n = snprintf(path, size + 1, "/tmp/filch-address-%d-", (int)getpid());
    memset(path + n, 'a', size - (size_t)n);
    path[size] = '\0';
    memcpy(full.at.sun_path, path, size);
    (void)unlink(path);
    int fd = socket(AF_UNIX, (datagram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    ok(bind(fd, (struct sockaddr *)&full.at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)));
    return fd;
}

TEST(a_peer_bound_to_the_longest_path_is_named_in_full)
{
    enum { FULL = sizeof((struct sockaddr_un *)NULL)->sun_path };
    for (size_t size = FULL - 2; size <= FULL; size++) {
        char        path[FULL + 1], want[FULL + 8], text[FLI_ADDRESS_TEXT_MAX];
        fli_address server, peer, again;
        assert_true(fli_address_read(&server, "unix:@filch-address-test"));
        int listener = fli_net_listen(&server, 1, 0), client = bound(path, size, false);
        assert_true(listener >= 0);
        ok(connect(client, (struct sockaddr *)(void *)server.bytes, server.size));
        int accepted = fli_net_accept(listener, 0);
        assert_true(accepted >= 0);
        ok(fli_net_address(accepted, true, &peer));
        snprintf(want, sizeof want, "unix:%s", path);
        same(fli_address_write(&peer, text, sizeof text), strlen(want));
        assert_string_equal(text, want);
        /* The text can be read back, to connect to the address. */
        assert_true(fli_address_read(&again, text));
        same(fli_address_write(&again, text, sizeof text), strlen(want));
        assert_string_equal(text, want);
        close(accepted);
        close(client);
        close(listener);
        ok(unlink(path));
    }
}

TEST(the_sender_of_a_datagram_with_the_longest_path_is_named_in_full)
{
    enum { FULL = sizeof((struct sockaddr_un *)NULL)->sun_path };
    char        path[FULL + 1], text[FLI_ADDRESS_TEXT_MAX], byte;
    fli_address server, from;
    assert_true(fli_address_read(&server, "unix:@filch-address-test"));
    int receiver = fli_net_datagram(&server, 0), sender = bound(path, FULL, true);
    assert_true(receiver >= 0);
    same(sendto(sender, "x", 1, 0, (struct sockaddr *)(void *)server.bytes, server.size), 1);
    same(fli_net_receive_from(receiver, &byte, 1, &from), 1);
    same(fli_address_write(&from, text, sizeof text), 5 + FULL);
    assert_string_equal(text + 5, path);
    close(sender);
    close(receiver);
    ok(unlink(path));
}

TEST(an_abstract_name_is_written_in_full)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    fli_address        address;
    char               text[FLI_ADDRESS_TEXT_MAX], want[FLI_ADDRESS_TEXT_MAX] = "unix:@";
    memset(at.sun_path + 1, 'n', sizeof at.sun_path - 1);
    memset(want + 6, 'n', sizeof at.sun_path - 1);
    fli_address_put(&address, &at, sizeof at);
    same(fli_address_write(&address, text, sizeof text), 5 + sizeof at.sun_path);
    assert_string_equal(text, want);
    fli_address again;
    assert_true(fli_address_read(&again, text));
    same(again.size, address.size);
    assert_memory_equal(again.bytes, address.bytes, address.size);
    /* An abstract name with a NUL byte inside, which no text can contain. */
    memcpy(at.sun_path, "\0a\0b", 4);
    fli_address_put(&address, &at, offsetof(struct sockaddr_un, sun_path) + 4);
    same(fli_address_write(&address, text, sizeof text), 9);
    assert_string_equal(text, "unix:@a@b");
}

TEST(an_address_longer_than_any_supported_one_is_empty)
{
    uint8_t     large[200];
    fli_address address;
    char        text[8];
    memset(large, 1, sizeof large);
    fli_address_put(&address, large, sizeof large);
    same(address.size, 0);
    same(fli_address_write(&address, text, sizeof text), 0);
}

TEST(the_scope_of_a_link_local_address_is_read_and_written)
{
    unsigned            loopback = if_nametoindex("lo");
    struct sockaddr_in6 at;
    fli_address         address;
    char                text[FLI_ADDRESS_TEXT_MAX];
    assert_true(loopback != 0);
    assert_true(fli_address_read(&address, "[fe80::1%lo]:80"));
    memcpy(&at, address.bytes, sizeof at);
    same(at.sin6_scope_id, loopback);
    (void)fli_address_write(&address, text, sizeof text);
    assert_string_equal(text, "[fe80::1%lo]:80");
    snprintf(text, sizeof text, "[fe80::1%%%u]:80", loopback);
    assert_true(fli_address_read(&address, text));
    (void)fli_address_write(&address, text, sizeof text);
    assert_string_equal(text, "[fe80::1%lo]:80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_that_was_read_is_written_as_the_same_text),
        cmocka_unit_test(texts_that_are_no_address_are_refused),
        cmocka_unit_test(an_unnamed_address_is_an_empty_text),
        cmocka_unit_test(a_write_into_0_bytes_returns_the_length_of_the_address),
        cmocka_unit_test(a_peer_bound_to_the_longest_path_is_named_in_full),
        cmocka_unit_test(the_sender_of_a_datagram_with_the_longest_path_is_named_in_full),
        cmocka_unit_test(an_abstract_name_is_written_in_full),
        cmocka_unit_test(an_address_longer_than_any_supported_one_is_empty),
        cmocka_unit_test(the_scope_of_a_link_local_address_is_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
