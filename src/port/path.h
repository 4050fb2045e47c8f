/* path.h - files by path, and what makes them last. Everything here may block. Answers as net.h: negative error
 * numbers. */
#ifndef FLI_PORT_PATH_H
#define FLI_PORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

/* Of an open file: what it holds is on the device (`data`: without its times), or has another size. */
int fli_path_sync(int fd, bool data);
int fli_path_truncate(int fd, int64_t size);

int fli_path_stat(const char *path, bool link, filch_file_info *info);
/* `flags` are FILCH_RENAME_*. */
int fli_path_rename(const char *from, const char *to, uint32_t flags);
int fli_path_unlink(const char *path);
int fli_path_mkdir(const char *path);
int fli_path_rmdir(const char *path);

/* The names in a directory, in order, as filch_as_entry reads them: a byte for the kind, the name, a NUL. The caller
 * frees *bytes, of *room bytes, of which *size are filled. -EMSGSIZE: over `most`; -ENOMEM. Then there is nothing to
 * free. */
int fli_path_list(const fli_mem *mem, const char *path, size_t most, char **bytes, size_t *room, size_t *size);

#endif
