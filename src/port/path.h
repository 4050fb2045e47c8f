/* path.h - files by path, and syncing them to the device. Every function may block. Functions return negative error
 * numbers, as in net.h. */
#ifndef FLI_PORT_PATH_H
#define FLI_PORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

/* fli_path_sync() writes the content of an open file to the device (`data`: without the file's times).
 * fli_path_truncate() sets the size of an open file. */
int fli_path_sync(int fd, bool data);
int fli_path_truncate(int fd, int64_t size);

int fli_path_stat(const char *path, bool link, filch_file_info *info);
/* Renames a file. `flags` are FILCH_RENAME_*. */
int fli_path_rename(const char *from, const char *to, uint32_t flags);
int fli_path_unlink(const char *path);
int fli_path_mkdir(const char *path);
int fli_path_rmdir(const char *path);

/* Lists the names in a directory, sorted, in the form that filch_as_entry() reads: for each name a byte for its kind,
 * the name, a NUL. The caller frees *bytes, which has *room bytes; the first *size of them are filled. -EMSGSIZE: the
 * list needs more than `most` bytes; -ENOMEM. After an error there is nothing to free. */
int fli_path_list(const fli_mem *mem, const char *path, size_t most, char **bytes, size_t *room, size_t *size);

#endif
