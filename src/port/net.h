/* net.h - sockets and their addresses. Nothing here blocks, except fli_net_resolve; no call raises a signal.
 *
 * Calls that can fail answer with the system's error number, negative: -EAGAIN, -ECONNRESET.
 */
#ifndef FLI_PORT_NET_H
#define FLI_PORT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

/* An address as the system wants it: IPv4, IPv6 or a path. */
typedef struct fli_address {
    uint32_t size; /* 0: none */
    uint8_t  bytes[112];
} fli_address;

/* Reads "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80" (or "%2": the number of the interface), "*:80" (every address
 * of this machine), "unix:/path", "unix:@name". Names of hosts are not looked up. Returns false if it is no address. */
bool fli_address_read(fli_address *address, const char *text);
/* The text, cut to `room` bytes with its NUL; returns what it would take without the NUL: at most
 * FLI_ADDRESS_TEXT_MAX - 1. "" for an address that has no name: the other end of most unix sockets. A NUL byte inside
 * an abstract name, which no text can hold, is written as "@". */
size_t fli_address_write(const fli_address *address, char *text, size_t room);
#define FLI_ADDRESS_TEXT_MAX 128
/* Copies what the system has filled in; one that is longer than any address of our three families becomes "none". */
void fli_address_put(fli_address *address, const void *system, size_t size);
/* Returns true for the address of a unix socket. */
bool fli_address_is_unix(const fli_address *address);

/* The addresses of a name, one a line, as fli_address_read reads them. Blocks. FILCH_ENOHOST, FILCH_ETOOBIG: more than
 * `room`; *size gets the length without the NUL. */
filch_err fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);

/* `flags` are FILCH_SOCKET_*. Each gives a descriptor that does not block and is closed on exec. */
int fli_net_listen(const fli_address *address, uint32_t backlog, uint32_t flags);
/* *pending: it has begun, the socket becomes writable when it is over (fli_net_connected). */
int fli_net_connect(const fli_address *address, uint32_t flags, bool *pending);
/* -ECONNABORTED: that one has gone; the next may be fine. */
int fli_net_accept(int listener, uint32_t flags);
int fli_net_datagram(const fli_address *address, uint32_t flags);

/* 0, or why a pending connect failed. */
int fli_net_connected(int fd);
/* No more will be written: the other side reads the end. */
int fli_net_shutdown(int fd);
int fli_net_address(int fd, bool peer, fli_address *address);

int64_t fli_net_receive(int fd, void *bytes, size_t room);
/* From a unix socket, where a read ends behind bytes that were sent with a descriptor, also if more follow: *cut. The system
 * closes that descriptor. */
int64_t fli_net_receive_unix(int fd, void *bytes, size_t room, bool *cut);
int64_t fli_net_send(int fd, const void *bytes, size_t size);
/* The size of the datagram, which is more than `room` if it was cut. */
int64_t fli_net_receive_from(int fd, void *bytes, size_t room, fli_address *from);
int64_t fli_net_send_to(int fd, const void *bytes, size_t size, const fli_address *to);

#endif
