/* desc.h - descriptors of any kind: reading, writing, closing. Answers as net.h: negative error numbers. */
#ifndef FLI_PORT_DESC_H
#define FLI_PORT_DESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Once: the descriptor is gone whatever it says. 0, or the error of something written before. */
int fli_desc_close(int fd);

int64_t fli_desc_read(int fd, void *bytes, size_t room);
/* Raises no SIGPIPE, whatever the program does with that. */
int64_t fli_desc_write(int fd, const void *bytes, size_t size);
int64_t fli_desc_seek(int fd, int64_t offset, int whence);

/* A file, which blocks: for the work pool. `flags` are FILCH_OPEN_*. */
int fli_desc_open(const char *path, uint32_t flags);

/* ---- descriptors that are open already ---- */

/* Returns what the descriptor is ready for now, as FILCH_POLL_*: of `events`, and of the conditions that are always
 * reported; 0: nothing. Does not wait. */
int fli_desc_poll(int fd, uint32_t events);

typedef enum fli_desc_kind {
    FLI_DESC_STREAM, /* a socket that carries bytes */
    FLI_DESC_LISTENER,
    FLI_DESC_DATAGRAM, /* any other socket */
    FLI_DESC_PIPE,     /* a pipe, a terminal: can be waited for */
    FLI_DESC_FILE      /* cannot */
} fli_desc_kind;

/* Its kind, or a negative error number. */
int fli_desc_kind_of(int fd);
/* Duplicates the descriptor, with close-on-exec. */
int fli_desc_copy(int fd);
/* Returns a non-blocking descriptor of the file behind `fd`. A pipe or a terminal is opened a second time. For other
 * kinds, and if that open is refused, `fd` is duplicated, and O_NONBLOCK is set for all descriptors of the file. */
int fli_desc_copy_nonblocking(int fd);
int fli_desc_copy_flagged(int fd); /* duplicates and sets O_NONBLOCK */

/* A descriptor from which the numbers of these signals are read, one at a time: fli_desc_read_signal. */
int fli_desc_signals(const int *numbers, size_t count);
int fli_desc_read_signal(int fd);

#endif
