/* desc.h - descriptors of any kind: reading, writing, closing. Answers as net.h: negative error numbers. */
#ifndef FLI_PORT_DESC_H
#define FLI_PORT_DESC_H

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

/* A descriptor from which the numbers of these signals are read, one at a time: fli_desc_read_signal. */
int fli_desc_signals(const int *numbers, size_t count);
int fli_desc_read_signal(int fd);

#endif
