/* desc.h - descriptors of any kind: reading, writing, closing. Functions return negative error numbers, as in net.h. */
#ifndef FLI_PORT_DESC_H
#define FLI_PORT_DESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Closes the descriptor. Do not repeat a call that has failed: the descriptor is closed even then. Returns 0, or the
 * negative error number of an earlier write. */
int fli_desc_close(int fd);

int64_t fli_desc_read(int fd, void *bytes, size_t room);
/* Writes without raising SIGPIPE, whatever handler the program has for this signal. */
int64_t fli_desc_write(int fd, const void *bytes, size_t size);
int64_t fli_desc_seek(int fd, int64_t offset, int whence);

/* Opens a file. Reads and writes of the file block, so they belong on the thread pool. `flags` are FILCH_OPEN_*. */
int fli_desc_open(const char *path, uint32_t flags);

/* ---- descriptors that are already open ---- */

/* Returns what the descriptor is ready for now, as FILCH_POLL_* bits: the bits of `events` that apply, and error and
 * hang-up, which are always reported; 0: not ready. Does not wait. */
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
/* Returns a non-blocking descriptor of the file that `fd` refers to, or a negative error number. If `fd` is blocking
 * and refers to a pipe or a terminal, the file is opened a second time, and only the new descriptor is non-blocking. In
 * all other cases (another kind, the master of a terminal, /dev/tty, an `fd` that is already non-blocking, a second
 * open that is refused) `fd` is duplicated and O_NONBLOCK is set; then `fd` and all its duplicates are non-blocking
 * too. */
int fli_desc_copy_nonblocking(int fd);
int fli_desc_copy_flagged(int fd); /* duplicates the descriptor and sets O_NONBLOCK */

/* Returns a descriptor from which fli_desc_read_signal() reads the signals in `numbers`, one signal number per call. */
int fli_desc_signals(const int *numbers, size_t count);
int fli_desc_read_signal(int fd);

#endif
