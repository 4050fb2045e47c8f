/* net.c - sockets and addresses over POSIX. See net.h. */
#include "port/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns true if `service` is a number but not a valid port. The system would accept it and use its low 16 bits. */
static bool is_no_port(const char *service)
{
    char         *end;
    unsigned long value = strtoul(service, &end, 10);
    bool          number = end != service && *end == '\0';
    /* true if the number is no port: it begins with a sign or a blank, or is too large */
    return number && (service[0] < '0' || value > 65535);
}

filch_err fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size)
{
    if (service != NULL && is_no_port(service)) return FILCH_ENOHOST;
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *all = NULL;
    int             why = getaddrinfo(host, service, &hints, &all);
    size_t          used = 0;
    if (why == EAI_MEMORY) return FILCH_ENOMEM;
    if (why != 0) return FILCH_ENOHOST;
    for (struct addrinfo *one = all; one != NULL; one = one->ai_next) {
        fli_address address;
        if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
        fli_address_put(&address, one->ai_addr, one->ai_addrlen);
        char   line[128];
        size_t n = fli_address_write(&address, line, sizeof line);
        if (used + n + 2 > room) {
            freeaddrinfo(all);
            return FILCH_ETOOBIG;
        }
        if (used > 0) text[used++] = '\n';
        memcpy(text + used, line, n);
        used += n;
    }
    freeaddrinfo(all);
    text[used] = '\0';
    *size = used;
    return used > 0 ? FILCH_OK : FILCH_ENOHOST;
}

/* ---- sockets ---- */

static sa_family_t family_of(const fli_address *address)
{
    sa_family_t family;
    memcpy(&family, address->bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    return family;
}

static const struct sockaddr *system_of(const fli_address *address)
{
    return (const struct sockaddr *)(const void *)address->bytes;
}

/* Sets options of the socket. Errors are ignored: the socket works without these options if the system does not know
 * them. */
static void set_up(int fd, sa_family_t family, bool stream, uint32_t flags)
{
    int on = 1;
    if (family != AF_UNIX && stream && (flags & FILCH_SOCKET_GATHER) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if ((flags & FILCH_SOCKET_KEEPALIVE) != 0) (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if ((flags & FILCH_SOCKET_BROADCAST) != 0) (void)setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    if ((flags & FILCH_SOCKET_SHARED_PORT) != 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
}

static int make(const fli_address *address, int type)
{
    int fd = socket(family_of(address), type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd >= 0 ? fd : -errno;
}

/* Closes the descriptor after a system call has failed. Returns the negative error number of that system call. */
static int give_up(int fd)
{
    int why = errno;
    (void)close(fd);
    return -why;
}

int fli_net_listen(const fli_address *address, uint32_t backlog, uint32_t flags)
{
    int fd = make(address, SOCK_STREAM), on = 1;
    if (fd < 0) return fd;
    set_up(fd, family_of(address), true, flags);
    /* Lets a restarted server bind its port without waiting for old connections to time out. */
    if (family_of(address) != AF_UNIX) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, system_of(address), address->size) != 0) return give_up(fd);
    if (listen(fd, backlog < INT32_MAX ? (int)backlog : INT32_MAX) != 0) return give_up(fd);
    return fd;
}

int fli_net_connect(const fli_address *address, uint32_t flags, bool *pending)
{
    int fd = make(address, SOCK_STREAM);
    if (fd < 0) return fd;
    set_up(fd, family_of(address), true, flags);
    *pending = false;
    if (connect(fd, system_of(address), address->size) == 0) return fd;
    /* EINTR: an interrupted connect continues in the background. */
    if (errno != EINPROGRESS && errno != EINTR) return give_up(fd);
    *pending = true;
    return fd;
}

int fli_net_accept(int listener, uint32_t flags)
{
    int fd;
    do fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    int       family = AF_UNIX;
    socklen_t size = sizeof family;
    (void)getsockopt(listener, SOL_SOCKET, SO_DOMAIN, &family, &size);
    set_up(fd, (sa_family_t)family, true, flags & ~(uint32_t)FILCH_SOCKET_SHARED_PORT);
    return fd;
}

int fli_net_datagram(const fli_address *address, uint32_t flags)
{
    int fd = make(address, SOCK_DGRAM);
    if (fd < 0) return fd;
    set_up(fd, family_of(address), false, flags);
    if (bind(fd, system_of(address), address->size) != 0) return give_up(fd);
    return fd;
}

int fli_net_connected(int fd)
{
    int       why = 0;
    socklen_t size = sizeof why;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0) return -errno;
    if (why != 0) return -why;
    /* Asks for the address of the peer, because some kinds of sockets are writable before they are connected. */
    struct sockaddr_storage peer;
    size = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &size) == 0 ? 0 : errno == ENOTCONN ? -EAGAIN : -errno;
}

int fli_net_shutdown(int fd)
{
    return shutdown(fd, SHUT_WR) == 0 ? 0 : -errno;
}

int fli_net_address(int fd, bool peer, fli_address *address)
{
    struct sockaddr_storage at;
    socklen_t               size = sizeof at;
    memset(&at, 0, sizeof at);
    int failed = peer ? getpeername(fd, (struct sockaddr *)&at, &size) : getsockname(fd, (struct sockaddr *)&at, &size);
    if (failed != 0 && errno == ENOTCONN) return 0; /* not connected: a listener, for example */
    if (failed != 0) return -errno;
    fli_address_put(address, &at, size);
    return 0;
}

int64_t fli_net_receive(int fd, void *bytes, size_t room)
{
    ssize_t n;
    do n = recv(fd, bytes, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n >= 0 ? n : -errno;
}

int64_t fli_net_receive_unix(int fd, void *bytes, size_t room, bool *cut)
{
    struct iovec  into = { .iov_base = bytes, .iov_len = room };
    struct msghdr message = { .msg_iov = &into, .msg_iovlen = 1 };
    ssize_t       n;
    do n = recvmsg(fd, &message, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    /* The call provides no buffer for descriptors. So the system sets MSG_CTRUNC if a descriptor was sent with these
     * bytes. */
    *cut = n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return n >= 0 ? n : -errno;
}

int64_t fli_net_send(int fd, const void *bytes, size_t size)
{
    ssize_t n;
    do n = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n >= 0 ? n : -errno;
}

int64_t fli_net_receive_from(int fd, void *bytes, size_t room, fli_address *from)
{
    struct sockaddr_storage at;
    socklen_t               size = sizeof at;
    ssize_t                 n;
    memset(&at, 0, sizeof at);
    do n = recvfrom(fd, bytes, room, MSG_TRUNC | MSG_DONTWAIT, (struct sockaddr *)&at, &size);
    while (n < 0 && errno == EINTR);
    if (n < 0) return -errno;
    fli_address_put(from, &at, size);
    return n;
}

int64_t fli_net_send_to(int fd, const void *bytes, size_t size, const fli_address *to)
{
    ssize_t n;
    do n = sendto(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT, system_of(to), to->size);
    while (n < 0 && errno == EINTR);
    return n >= 0 ? n : -errno;
}
