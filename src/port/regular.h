/* regular.h - reads a regular file that lies inside one of a few folders: code that a program names. */
#ifndef FLI_PORT_REGULAR_H
#define FLI_PORT_REGULAR_H

#include <stdbool.h>
#include <stddef.h>

typedef enum fli_regular {
    FLI_REGULAR_OK,
    FLI_REGULAR_MISSING,  /* no such file, or it cannot be opened */
    FLI_REGULAR_OUTSIDE,  /* it lies in none of the folders, be it by a link */
    FLI_REGULAR_OTHER,    /* a folder, a device, a pipe */
    FLI_REGULAR_TOO_LARGE,
    FLI_REGULAR_BROKEN,   /* it cannot be read */
    FLI_REGULAR_NO_MEMORY
} fli_regular;

/* Reads all of the file at `path`, at most `max` bytes, if its real path (links followed) lies inside the real path of one of
 * `roots`: folders separated by ';'. NULL: anywhere. *bytes is malloc's. Never waits for another process: a pipe without a
 * writer is refused and not opened for good. */
fli_regular fli_regular_read(const char *path, const char *roots, size_t max, char **bytes, size_t *size);

/* Whether there is a regular file at `path` inside `roots`. */
bool fli_regular_exists(const char *path, const char *roots);

#endif
