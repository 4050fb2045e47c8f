/* net.h - sockets and their addresses. No call blocks, except fli_net_resolve(); no call raises a signal.
 *
 * Calls that can fail return the system's error number, negated: -EAGAIN, -ECONNRESET.
 */
#ifndef FLI_PORT_NET_H
#define FLI_PORT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

/* A socket address in the system's format: IPv4, IPv6 or a unix path. */
typedef struct fli_address {
    uint32_t size; /* bytes in use; 0: no address */
    uint8_t  bytes[112];
} fli_address;

/* Reads "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80" (or "%2": the number of the interface), "*:80" (every address
 * of this machine), "unix:/path", "unix:@name". Host names are not resolved. Returns false if `text` is not an
 * address. */
bool fli_address_read(fli_address *address, const char *text);
/* Writes the address as text, cut to `room` bytes including its NUL. Returns the length of the whole text without the
 * NUL, at most FLI_ADDRESS_TEXT_MAX - 1. The text is "" for an address without a name; the peers of most unix sockets
 * have no name. A NUL byte inside an abstract name is written as "@", because a text cannot contain it. */
size_t fli_address_write(const fli_address *address, char *text, size_t room);
#define FLI_ADDRESS_TEXT_MAX 128
/* Copies an address that the system has filled in. An address longer than any of the three families becomes "no
 * address". */
void fli_address_put(fli_address *address, const void *system, size_t size);
/* Returns true for the address of a unix socket. */
bool fli_address_is_unix(const fli_address *address);

/* Resolves a host name to its addresses, one per line, in the form that fli_address_read() reads. Blocks. Errors:
 * FILCH_ENOHOST; FILCH_ETOOBIG if the text needs more than `room` bytes, and then *size is the length of the whole text
 * without the NUL. */
filch_err fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);

/* fli_net_listen(), fli_net_connect(), fli_net_accept() and fli_net_datagram() return a descriptor that does not
 * block and is closed on exec. `flags` are FILCH_SOCKET_*. */
int fli_net_listen(const fli_address *address, uint32_t backlog, uint32_t flags);
/* Starts a connect. *pending is set to true if the connect goes on in the background: when the connect has ended, the
 * socket becomes writable, and the caller must call fli_net_connected(). */
int fli_net_connect(const fli_address *address, uint32_t flags, bool *pending);
/* Accepts a connection. Returns -ECONNABORTED if the connection was closed before it was accepted; the next call may
 * succeed. */
int fli_net_accept(int listener, uint32_t flags);
int fli_net_datagram(const fli_address *address, uint32_t flags);

/* Returns the result of a pending connect: 0, the negative error number of the connect, or -EAGAIN if the socket is not
 * connected yet. */
int fli_net_connected(int fd);
/* Ends the writing direction: the peer reads an end of file. */
int fli_net_shutdown(int fd);
int fli_net_address(int fd, bool peer, fli_address *address);

int64_t fli_net_receive(int fd, void *bytes, size_t room);
/* Receives from a unix socket. A read ends after bytes that were sent with a descriptor, even if more bytes follow;
 * then *cut is true, and the system closes that descriptor. */
int64_t fli_net_receive_unix(int fd, void *bytes, size_t room, bool *cut);
int64_t fli_net_send(int fd, const void *bytes, size_t size);
/* Receives a datagram. Returns its size, which is more than `room` if the datagram was cut. */
int64_t fli_net_receive_from(int fd, void *bytes, size_t room, fli_address *from);
int64_t fli_net_send_to(int fd, const void *bytes, size_t size, const fli_address *to);

#endif
