/* desc.h - descriptors of any kind: reading, writing, closing. Functions return negative error numbers, as in net.h. */
#ifndef FLI_PORT_DESC_H
#define FLI_PORT_DESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Closes the descriptor. Never retry it: the descriptor is closed even if the call fails. Returns 0, or the error of
 * an earlier write. */
int fli_desc_close(int fd);

int64_t fli_desc_read(int fd, void *bytes, size_t room);
/* Writes without raising SIGPIPE, whatever handler the program has for it. */
int64_t fli_desc_write(int fd, const void *bytes, size_t size);
int64_t fli_desc_seek(int fd, int64_t offset, int whence);

/* Opens a file. Reads and writes of it block, so they belong on the thread pool. `flags` are FILCH_OPEN_*. */
int fli_desc_open(const char *path, uint32_t flags);

/* ---- descriptors that are already open ---- */

/* Returns what the descriptor is ready for now, as FILCH_POLL_* bits: those of `events` that hold, and error and
 * hang-up, which are always reported; 0: none. Does not wait. */
int fli_desc_poll(int fd, uint32_t events);

typedef enum fli_desc_kind {
    FLI_DESC_STREAM, /* a stream socket */
    FLI_DESC_LISTENER,
    FLI_DESC_DATAGRAM, /* a socket that is neither a stream nor a listener */
    FLI_DESC_PIPE,     /* a pipe or a terminal: the poller can wait for it */
    FLI_DESC_FILE      /* any other descriptor: the poller cannot wait for it */
} fli_desc_kind;

/* Returns the kind of the descriptor, or a negative error number. */
int fli_desc_kind_of(int fd);
/* Duplicates the descriptor and sets close-on-exec. */
int fli_desc_copy(int fd);
/* Returns a non-blocking descriptor of the file behind `fd`. A pipe or a terminal is opened a second time. For other
 * kinds, and if that open is refused, `fd` is duplicated, and O_NONBLOCK is set for all descriptors of the file. */
int fli_desc_copy_nonblocking(int fd);
int fli_desc_copy_flagged(int fd); /* duplicates the descriptor and sets O_NONBLOCK */

/* Returns a descriptor from which fli_desc_read_signal() reads the numbers of these signals, one at a time. */
int fli_desc_signals(const int *numbers, size_t count);
int fli_desc_read_signal(int fd);

#endif
