/* net_test.c - host names; and sockets over loopback: their options, interrupted calls, and calls that the system
 * refuses. address_test.c tests addresses as text. */
#include "port/net.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"
#include "support/until.h"

INSTEAD(int, socket, (int family, int type, int protocol), (family, type, protocol))
INSTEAD(int, listen, (int fd, int backlog), (fd, backlog))
INSTEAD(int, accept4, (int fd, struct sockaddr *at, socklen_t *size, int flags), (fd, at, size, flags))
INSTEAD(int, getpeername, (int fd, struct sockaddr *at, socklen_t *size), (fd, at, size))
INSTEAD(ssize_t, recv, (int fd, void *bytes, size_t room, int flags), (fd, bytes, room, flags))
INSTEAD(ssize_t, send, (int fd, const void *bytes, size_t size, int flags), (fd, bytes, size, flags))
INSTEAD(ssize_t, recvfrom, (int fd, void *bytes, size_t room, int flags, struct sockaddr *at, socklen_t *size),
        (fd, bytes, room, flags, at, size))
INSTEAD(ssize_t, sendto,
        (int fd, const void *bytes, size_t count, int flags, const struct sockaddr *at, socklen_t size),
        (fd, bytes, count, flags, at, size))
/* A connect that fails with EINTR continues in the background, as on a real system. */
INSTEAD_BEGIN(int, connect, (int fd, const struct sockaddr *at, socklen_t size))
{
    int n = __real_connect(fd, at, size);
    return fault_strikes(&fault_of_connect) ? -1 : n;
}

/* Replaces getaddrinfo(): returns the names that the test has set. */
static struct addrinfo *names;
static int              names_error;

int  __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int  __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
void __real_freeaddrinfo(struct addrinfo *);
void __wrap_freeaddrinfo(struct addrinfo *);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    if (names == NULL && names_error == 0) return __real_getaddrinfo(host, service, hints, out);
    *out = names;
    return names_error;
}

void __wrap_freeaddrinfo(struct addrinfo *all)
{
    if (all != names) __real_freeaddrinfo(all);
}

/* ---- names ---- */

TEST(a_name_is_resolved_to_its_addresses_one_per_line)
{
    char   text[256], line[64];
    size_t size = 0;
    ok(fli_net_resolve("127.0.0.1", "80", text, sizeof text, &size));
    assert_string_equal(text, "127.0.0.1:80");
    same(size, strlen(text));
    ok(fli_net_resolve("::1", "443", text, sizeof text, &size));
    assert_string_equal(text, "[::1]:443");
    same(fli_net_resolve("127.0.0.1", "80x", text, sizeof text, &size), FILCH_ENOHOST);
    same(fli_net_resolve("127.0.0.1", "80", text, 13, &size), FILCH_ETOOBIG);
    ok(fli_net_resolve("127.0.0.1", "80", text, 14, &size));
    ok(fli_net_resolve(NULL, "80", text, sizeof text, &size)); /* without a host, the address is that of this machine */
    for (char *at = text, *end; *at != '\0'; at = *end == '\n' ? end + 1 : end) {
        fli_address address;
        end = at + strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        assert_true(fli_address_read(&address, line));
    }
}

TEST(results_of_getaddrinfo_that_are_no_ip_addresses_are_skipped)
{
    struct sockaddr_in  one = { .sin_family = AF_INET, .sin_port = htons(7), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_in6 two = { .sin6_family = AF_INET6, .sin6_port = htons(8), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    struct sockaddr_un  odd = { .sun_family = AF_UNIX, .sun_path = "/odd" };
    struct addrinfo     third = { .ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&two, .ai_addrlen = sizeof two };
    struct addrinfo     second = {
            .ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&odd, .ai_addrlen = sizeof odd, .ai_next = &third
    };
    struct addrinfo first = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&one, .ai_addrlen = sizeof one, .ai_next = &second
    };
    char   text[256];
    size_t size = 0;
    names = &first;
    ok(fli_net_resolve("some", "thing", text, sizeof text, &size));
    assert_string_equal(text, "127.0.0.1:7\n[::1]:8");
    same(size, strlen(text));
    same(fli_net_resolve("some", "thing", text, size, &size), FILCH_ETOOBIG);
    second.ai_next = NULL;
    names = &second;
    same(fli_net_resolve("some", "thing", text, sizeof text, &size), FILCH_ENOHOST);
    names = NULL;
    names_error = EAI_MEMORY;
    same(fli_net_resolve("some", "thing", text, sizeof text, &size), FILCH_ENOMEM);
    names_error = EAI_NONAME;
    same(fli_net_resolve("some", "thing", text, sizeof text, &size), FILCH_ENOHOST);
    names_error = 0;
}

/* ---- sockets ---- */

static fli_address loopback(void)
{
    fli_address address;
    assert_true(fli_address_read(&address, "127.0.0.1:0"));
    return address;
}

/* Returns the address to which the test's socket is bound. */
static fli_address local_address_of(int fd)
{
    fli_address address;
    ok(fli_net_address(fd, false, &address));
    return address;
}

static int setting(int fd, int level, int name)
{
    int       value = 0;
    socklen_t size = sizeof value;
    ok(getsockopt(fd, level, name, &value, &size));
    return value;
}

/* Makes a connection: ends[0] has connected with `flags`, ends[1] was accepted by a listener with `flags`. */
static void connection(int ends[2], uint32_t flags)
{
    fli_address at = loopback();
    bool        pending = false;
    int         listener = fli_net_listen(&at, 8, flags);
    assert_true(listener >= 0);
    at = local_address_of(listener);
    ends[0] = fli_net_connect(&at, flags, &pending);
    assert_true(ends[0] >= 0);
    until(!pending || fli_net_connected(ends[0]) == 0);
    until((ends[1] = fli_net_accept(listener, flags)) != -EAGAIN);
    assert_true(ends[1] >= 0);
    close(listener);
}

TEST(socket_options_are_set_as_requested_on_both_ends)
{
    int ends[2], before = open_descriptors();
    connection(ends, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(setting(ends[i], IPPROTO_TCP, TCP_NODELAY) != 0); /* small writes are sent without delay */
        same(setting(ends[i], SOL_SOCKET, SO_KEEPALIVE), 0);
        close(ends[i]);
    }
    connection(ends, FILCH_SOCKET_GATHER | FILCH_SOCKET_KEEPALIVE);
    for (int i = 0; i < 2; i++) {
        same(setting(ends[i], IPPROTO_TCP, TCP_NODELAY), 0);
        assert_true(setting(ends[i], SOL_SOCKET, SO_KEEPALIVE) != 0);
        close(ends[i]);
    }
    fli_address at = loopback();
    int         quiet = fli_net_datagram(&at, 0), loud = fli_net_datagram(&at, FILCH_SOCKET_BROADCAST);
    same(setting(quiet, SOL_SOCKET, SO_BROADCAST), 0);
    assert_true(setting(loud, SOL_SOCKET, SO_BROADCAST) != 0);
    close(quiet);
    close(loud);
    same(open_descriptors(), before);
}

TEST(a_port_is_shared_by_sockets_with_the_shared_port_flag)
{
    fli_address at = loopback();
    /* the backlog UINT32_MAX asks for the longest queue that the system allows */
    int first = fli_net_listen(&at, UINT32_MAX, FILCH_SOCKET_SHARED_PORT);
    at = local_address_of(first);
    int second = fli_net_listen(&at, 1, FILCH_SOCKET_SHARED_PORT), third = fli_net_listen(&at, 1, 0);
    assert_true(first >= 0 && second >= 0);
    same(third, -EADDRINUSE);
    close(first);
    close(second);
    int datagram = fli_net_datagram(&at, 0);
    assert_true(datagram >= 0);
    same(fli_net_datagram(&at, 0), -EADDRINUSE);
    close(datagram);
}

TEST(a_refused_socket_call_returns_its_errno_and_leaks_nothing)
{
    fli_address at = loopback();
    bool        pending;
    int         before = open_descriptors();
    refuse(socket, 3, EMFILE);
    same(fli_net_listen(&at, 1, 0), -EMFILE);
    same(fli_net_connect(&at, 0, &pending), -EMFILE);
    same(fli_net_datagram(&at, 0), -EMFILE);
    refuse(listen, 1, EADDRINUSE);
    same(fli_net_listen(&at, 1, 0), -EADDRINUSE);
    assert_true(fli_address_read(&at, "unix:/nonexistent/filch"));
    same(fli_net_connect(&at, 0, &pending), -ENOENT);
    same(open_descriptors(), before);
}

TEST(an_interrupted_connect_completes_in_the_background)
{
    fli_address at = loopback();
    bool        pending = false;
    int         listener = fli_net_listen(&at, 8, 0);
    at = local_address_of(listener);
    refuse(connect, 1, EINTR);
    int fd = fli_net_connect(&at, 0, &pending);
    assert_true(fd >= 0 && pending);
    until(fli_net_connected(fd) == 0);
    /* An accept that fails with ECONNABORTED does not affect the next accept; an interrupted accept is repeated. */
    refuse(accept4, 1, ECONNABORTED);
    same(fli_net_accept(listener, 0), -ECONNABORTED);
    int first = fli_net_accept(listener, 0);
    assert_true(first >= 0);
    same(fli_net_accept(listener, 0), -EAGAIN);
    refuse(accept4, 2, EINTR);
    same(fli_net_accept(listener, 0), -EAGAIN);
    same(refused(accept4), 2);
    refuse(accept4, 1, EMFILE);
    same(fli_net_accept(listener, 0), -EMFILE);
    close(first);
    close(fd);
    close(listener);
}

TEST(net_connected_tells_whether_a_socket_is_connected)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ends[2];
    same(fli_net_connected(fd), -EAGAIN); /* not connected yet */
    same(fli_net_shutdown(fd), -ENOTCONN);
    fli_address none = { .size = 0 };
    ok(fli_net_address(fd, true, &none)); /* a socket without a peer gives no error and no address */
    same(none.size, 0);
    close(fd);
    same(fli_net_connected(fd), -EBADF);
    same(fli_net_address(fd, true, &none), -EBADF);
    same(fli_net_address(fd, false, &none), -EBADF);
    connection(ends, 0);
    ok(fli_net_connected(ends[0]));
    refuse(getpeername, 1, ENOBUFS);
    same(fli_net_connected(ends[0]), -ENOBUFS);
    ok(fli_net_shutdown(ends[0]));
    close(ends[0]);
    close(ends[1]);
}

/* Sending and receiving 0 bytes returns 0, whatever value errno has before the call. */
TEST(a_send_or_receive_of_0_bytes_returns_0)
{
    int  pair[2];
    char byte;
    ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    errno = EIO;
    same(fli_net_send(pair[0], "", 0), 0);
    close(pair[0]);
    errno = EIO;
    same(fli_net_receive(pair[1], &byte, 1), 0);
    close(pair[1]);
}

TEST(interrupted_sends_and_receives_are_repeated)
{
    char got[16] = "";
    int  ends[2];
    connection(ends, 0);
    refuse(send, 2, EINTR);
    same(fli_net_send(ends[0], "over there", 10), 10);
    same(refused(send), 2);
    refuse(recv, 2, EINTR);
    int64_t n;
    until((n = fli_net_receive(ends[1], got, sizeof got)) != -EAGAIN);
    same(n, 10);
    same(refused(recv), 2);
    assert_string_equal(got, "over there");
    same(fli_net_receive(ends[1], got, sizeof got), -EAGAIN);
    close(ends[1]);
    until(fli_net_receive(ends[0], got, sizeof got) == 0);
    until(fli_net_send(ends[0], "x", 1) == -EPIPE); /* a broken connection gives an error and no signal */
    close(ends[0]);
}

TEST(a_received_datagram_has_the_address_of_its_sender)
{
    static char large[70000];
    fli_address at = loopback(), from, there, six;
    char        got[16] = "", text[64], want[64];
    int         a = fli_net_datagram(&at, 0), b = fli_net_datagram(&at, 0);
    there = local_address_of(b);
    refuse(sendto, 2, EINTR);
    same(fli_net_send_to(a, "hello", 5, &there), 5);
    same(refused(sendto), 2);
    refuse(recvfrom, 2, EINTR);
    int64_t n;
    until((n = fli_net_receive_from(b, got, sizeof got, &from)) != -EAGAIN);
    same(n, 5);
    same(refused(recvfrom), 2);
    assert_string_equal(got, "hello");
    there = local_address_of(a);
    (void)fli_address_write(&from, text, sizeof text);
    (void)fli_address_write(&there, want, sizeof want);
    assert_string_equal(text, want);
    same(fli_net_send_to(a, large, sizeof large, &from), -EMSGSIZE);
    assert_true(fli_address_read(&six, "[::1]:9"));
    same(fli_net_send_to(a, "x", 1, &six), -EAFNOSUPPORT);
    close(a);
    close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_resolved_to_its_addresses_one_per_line),
        cmocka_unit_test(results_of_getaddrinfo_that_are_no_ip_addresses_are_skipped),
        cmocka_unit_test(socket_options_are_set_as_requested_on_both_ends),
        cmocka_unit_test(a_port_is_shared_by_sockets_with_the_shared_port_flag),
        cmocka_unit_test(a_refused_socket_call_returns_its_errno_and_leaks_nothing),
        cmocka_unit_test(an_interrupted_connect_completes_in_the_background),
        cmocka_unit_test(net_connected_tells_whether_a_socket_is_connected),
        cmocka_unit_test(a_send_or_receive_of_0_bytes_returns_0),
        cmocka_unit_test(interrupted_sends_and_receives_are_repeated),
        cmocka_unit_test(a_received_datagram_has_the_address_of_its_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
