/* address.c - addresses of sockets as text, and back. See net.h.
 *
 * The address of a peer can be longer than the system's struct: the address of a unix socket bound to a path of 108
 * bytes is one byte longer than struct sockaddr_un, because Linux counts the NUL behind the path. So this file
 * compares every length that the system returned with the size of the destination before it copies.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "port/net.h"

#define PATH_AT offsetof(struct sockaddr_un, sun_path)
#define PATH_MOST sizeof((struct sockaddr_un *)NULL)->sun_path

_Static_assert(sizeof(struct sockaddr_un) + 1 <= sizeof((fli_address *)NULL)->bytes, "a full path and its NUL fit");
_Static_assert(sizeof(struct sockaddr_in6) <= sizeof((fli_address *)NULL)->bytes, "an IPv6 address fits");
_Static_assert(sizeof "unix:" + PATH_MOST <= FLI_ADDRESS_TEXT_MAX, "its text fits");
_Static_assert(sizeof "[%]:65535" + INET6_ADDRSTRLEN + IF_NAMESIZE <= FLI_ADDRESS_TEXT_MAX, "its text fits");

void fli_address_put(fli_address *address, const void *system, size_t size)
{
    if (size > sizeof address->bytes) size = 0;
    memset(address->bytes, 0, sizeof address->bytes);
    memcpy(address->bytes, system, size);
    address->size = (uint32_t)size;
}

bool fli_address_is_unix(const fli_address *address)
{
    sa_family_t family;
    memcpy(&family, address->bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    return address->size > 0 && family == AF_UNIX;
}

/* ---- reading addresses ---- */

static bool read_unix(fli_address *address, const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t             size = strlen(path);
    if (size == 0 || size > sizeof at.sun_path) return false;
    memcpy(at.sun_path, path, size);
    bool abstract = path[0] == '@', full = size == sizeof at.sun_path;
    if (abstract) at.sun_path[0] = '\0';
    if (abstract && size == 1) return false;
    fli_address_put(address, &at, PATH_AT + size + (abstract || full ? 0 : 1));
    return true;
}

/* Reads `text` as a number of at most `most`. Returns false if `text` contains anything but digits. */
static bool read_number(const char *text, uint64_t most, uint32_t *number)
{
    char              *end;
    unsigned long long value;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 10) return false;
    value = strtoull(text, &end, 10);
    if (*end != '\0' || value > most) return false;
    *number = (uint32_t)value;
    return true;
}

/* Reads what follows the "%" of an IPv6 address: the interface by name, otherwise by number. A number is accepted
 * even if no such interface exists now, as an address is accepted even if no such host exists. */
static bool read_scope(const char *text, uint32_t *scope)
{
    *scope = if_nametoindex(text);
    return *scope != 0 || (read_number(text, UINT32_MAX, scope) && *scope != 0);
}

static bool read_six(fli_address *address, char *host, in_port_t port)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = port };
    char               *percent = strchr(host, '%');
    if (percent != NULL) {
        *percent = '\0';
        if (!read_scope(percent + 1, &at.sin6_scope_id)) return false;
    }
    if (inet_pton(AF_INET6, host, &at.sin6_addr) != 1) return false;
    fli_address_put(address, &at, sizeof at);
    return true;
}

static bool read_four(fli_address *address, const char *host, in_port_t port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = port };
    if (strcmp(host, "*") != 0 && inet_pton(AF_INET, host, &at.sin_addr) != 1) return false;
    fli_address_put(address, &at, sizeof at);
    return true;
}

bool fli_address_read(fli_address *address, const char *text)
{
    if (strncmp(text, "unix:", 5) == 0) return read_unix(address, text + 5);
    const char *colon = strrchr(text, ':');
    char        host[INET6_ADDRSTRLEN + IF_NAMESIZE];
    uint32_t    number;
    if (colon == NULL || strlen(colon) > 6 || !read_number(colon + 1, 65535, &number)) return false;
    if (colon == text) return false;
    in_port_t port = htons((uint16_t)number);
    bool      six = text[0] == '[' && colon[-1] == ']';
    size_t    size = (size_t)(colon - text) - (six ? 2 : 0);
    if (size == 0 || size >= sizeof host) return false;
    memcpy(host, text + (six ? 1 : 0), size);
    host[size] = '\0';
    return six ? read_six(address, host, port) : read_four(address, host, port);
}

/* ---- writing addresses ---- */

static int write_four(const fli_address *address, char *text, size_t room)
{
    char               host[INET_ADDRSTRLEN] = "";
    struct sockaddr_in at;
    memcpy(&at, address->bytes, sizeof at);
    (void)inet_ntop(AF_INET, &at.sin_addr, host, sizeof host);
    return snprintf(text, room, "%s:%u", host, ntohs(at.sin_port));
}

static int write_six(const fli_address *address, char *text, size_t room)
{
    char                host[INET6_ADDRSTRLEN] = "", scope[IF_NAMESIZE + 1] = "";
    struct sockaddr_in6 at;
    memcpy(&at, address->bytes, sizeof at);
    (void)inet_ntop(AF_INET6, &at.sin6_addr, host, sizeof host);
    if (at.sin6_scope_id != 0) {
        scope[0] = '%';
        if (if_indextoname(at.sin6_scope_id, scope + 1) == NULL) {
            (void)snprintf(scope + 1, sizeof scope - 1, "%u", (unsigned)at.sin6_scope_id);
        }
    }
    return snprintf(text, room, "[%s%s]:%u", host, scope, ntohs(at.sin6_port));
}

/* Writes the address of a unix socket. A path ends at its NUL, or at the end of the system's array for it. An abstract
 * name begins with a byte 0 and extends to the end of the address. */
static int write_unix(const fli_address *address, char *text, size_t room)
{
    char        name[PATH_MOST + 1] = "";
    size_t      size = address->size - PATH_AT;
    const char *path = (const char *)address->bytes + PATH_AT;
    if (size > PATH_MOST) size = PATH_MOST;
    bool abstract = path[0] == '\0';
    for (size_t i = 0; i < size && (abstract || path[i] != '\0'); i++) name[i] = path[i] != '\0' ? path[i] : '@';
    return snprintf(text, room, "unix:%s", name);
}

size_t fli_address_write(const fli_address *address, char *text, size_t room)
{
    sa_family_t family = AF_UNSPEC;
    int         n = 0;
    if (room > 0) text[0] = '\0';
    if (address->size > 0) memcpy(&family, address->bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    if (family == AF_INET) n = write_four(address, text, room);
    else if (family == AF_INET6) n = write_six(address, text, room);
    else if (family == AF_UNIX && address->size > PATH_AT) n = write_unix(address, text, room);
    return n > 0 ? (size_t)n : 0;
}
