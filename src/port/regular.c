/* regular.c - see regular.h.
 *
 * The real path is determined first and then opened without following a link in its last part. Between these two
 * steps a folder of the path can be replaced by a link. Only a program with write access there can do that, and such
 * a program could also change the code itself.
 */
#include "port/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true if `real` lies inside `root`, a path of `size` bytes that may contain links. */
static bool is_inside(const char *real, const char *root, size_t size)
{
    char given[PATH_MAX], folder[PATH_MAX];
    if (size == 0 || size >= sizeof given) return false;
    memcpy(given, root, size);
    given[size] = '\0';
    if (realpath(given, folder) == NULL) return false;
    size_t length = strlen(folder);
    /* Removes trailing slashes. The root directory "/" becomes "". */
    while (length > 0 && folder[length - 1] == '/') length--;
    return strncmp(real, folder, length) == 0 && real[length] == '/';
}

static bool is_in_any(const char *real, const char *roots)
{
    for (; roots != NULL; roots = strchr(roots, ';'), roots = roots != NULL ? roots + 1 : NULL) {
        if (is_inside(real, roots, strcspn(roots, ";"))) return true;
    }
    return false;
}

/* Opens the file. Returns its descriptor, its real path and its size as reported by the system; or -1 and the
 * reason. */
static int open_regular(const char *path, const char *roots, char real[PATH_MAX], size_t *size, fli_regular *why)
{
    struct stat st;
    *why = FLI_REGULAR_MISSING;
    if (realpath(path, real) == NULL) return -1;
    int file = -1;
    if (roots != NULL && !is_in_any(real, roots)) *why = FLI_REGULAR_OUTSIDE;
    else file = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (file >= 0 && (fstat(file, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(file);
        file = -1;
        *why = FLI_REGULAR_OTHER;
    }
    if (file >= 0) *size = (size_t)st.st_size;
    return file;
}

/* Reads until the end of the file, at most `room` bytes. */
static bool read_up_to(int file, char *bytes, size_t room, size_t *size)
{
    *size = 0;
    for (ssize_t got = 1; got != 0 && *size < room;) {
        got = read(file, bytes + *size, room - *size);
        if (got < 0 && errno != EINTR) return false;
        if (got > 0) *size += (size_t)got;
        if (got < 0) got = 1;
    }
    return true;
}

fli_regular fli_regular_read(const char *path, const char *roots, size_t max, char **bytes, size_t *size)
{
    fli_regular why;
    char        real[PATH_MAX];
    size_t      stat_size = 0;
    int         file = open_regular(path, roots, real, &stat_size, &why);
    if (file < 0) return why;
    why = FLI_REGULAR_TOO_LARGE;
    if (stat_size <= max) {
        /* Allocates one byte more than the reported size, so that a file that has grown since is noticed. */
        size_t room = stat_size + 1;
        char  *all = malloc(room);
        why = all != NULL ? FLI_REGULAR_OK : FLI_REGULAR_NO_MEMORY;
        if (all != NULL && !read_up_to(file, all, room, size)) why = FLI_REGULAR_BROKEN;
        else if (all != NULL && *size > stat_size)
            why = FLI_REGULAR_BROKEN; /* the file has grown: it is being written */
        if (why == FLI_REGULAR_OK) *bytes = all;
        else free(all);
    }
    close(file);
    return why;
}

bool fli_regular_exists(const char *path, const char *roots, char *real, size_t room)
{
    fli_regular why;
    char        found[PATH_MAX];
    size_t      size;
    int         file = open_regular(path, roots, found, &size, &why);
    if (file < 0) return false;
    close(file);
    if (real == NULL) return true;
    size = strlen(found) + 1;
    if (size > room) return false;
    memcpy(real, found, size);
    return true;
}
