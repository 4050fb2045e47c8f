/* regular.h - reads a regular file that lies inside one of a few folders: code that a program names. */
#ifndef FLI_PORT_REGULAR_H
#define FLI_PORT_REGULAR_H

#include <stdbool.h>
#include <stddef.h>

typedef enum fli_regular {
    FLI_REGULAR_OK,
    FLI_REGULAR_MISSING, /* the file does not exist or cannot be opened */
    FLI_REGULAR_OUTSIDE, /* the file lies in none of the folders, perhaps because of a link */
    FLI_REGULAR_OTHER,   /* a folder, a device or a pipe */
    FLI_REGULAR_TOO_LARGE,
    FLI_REGULAR_BROKEN, /* the file cannot be read, or has grown while it was read */
    FLI_REGULAR_NO_MEMORY
} fli_regular;

/* Reads the whole file at `path`, at most `max` bytes, if its real path (links followed) lies inside the real path
 * of one of `roots`, folders separated by ';'. `roots` NULL: any place. *bytes is allocated with malloc. Never waits
 * for another process: a pipe is refused. */
fli_regular fli_regular_read(const char *path, const char *roots, size_t max, char **bytes, size_t *size);

/* Returns true if there is a regular file at `path` inside `roots`. Writes its real path (links followed) to `real`,
 * which has room for `room` bytes, unless `real` is NULL. Returns false also if the real path is longer than that. */
bool fli_regular_exists(const char *path, const char *roots, char *real, size_t room);

#endif
