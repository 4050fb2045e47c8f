/* regular.c - see regular.h.
 *
 * The real path is found first and opened without following a link in its last part. Between the two a folder in the middle can
 * be replaced by a link; only a program that may write there can do that, and it could as well write the code.
 */
#include "port/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether `real` lies inside `root`, `size` bytes of a path that need not be real. */
static bool is_inside(const char *real, const char *root, size_t size)
{
    char given[PATH_MAX], folder[PATH_MAX];
    if (size == 0 || size >= sizeof given) return false;
    memcpy(given, root, size);
    given[size] = '\0';
    if (realpath(given, folder) == NULL) return false;
    size_t length = strlen(folder);
    while (length > 0 && folder[length - 1] == '/') length--; /* the root of all has one */
    return strncmp(real, folder, length) == 0 && real[length] == '/';
}

static bool is_in_any(const char *real, const char *roots)
{
    for (; roots != NULL; roots = strchr(roots, ';'), roots = roots != NULL ? roots + 1 : NULL) {
        if (is_inside(real, roots, strcspn(roots, ";"))) return true;
    }
    return false;
}

/* The descriptor of the file, and its size as far as the system knows it; -1 and why. */
static int open_regular(const char *path, const char *roots, size_t *size, fli_regular *why)
{
    struct stat st;
    char        real[PATH_MAX];
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

/* Reads until the end or one byte more than `room`. */
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
    size_t      told = 0;
    int         file = open_regular(path, roots, &told, &why);
    if (file < 0) return why;
    why = FLI_REGULAR_TOO_LARGE;
    if (told <= max) {
        /* One byte more than there should be: so a file that grows is read to its end, or found to be too large. */
        size_t room = told + 1;
        char  *all = malloc(room);
        why = all != NULL ? FLI_REGULAR_OK : FLI_REGULAR_NO_MEMORY;
        if (all != NULL && !read_up_to(file, all, room, size)) why = FLI_REGULAR_BROKEN;
        else if (all != NULL && *size > told) why = FLI_REGULAR_BROKEN; /* it is being written */
        if (why == FLI_REGULAR_OK) *bytes = all;
        else free(all);
    }
    close(file);
    return why;
}

bool fli_regular_exists(const char *path, const char *roots)
{
    fli_regular why;
    size_t      size;
    int         file = open_regular(path, roots, &size, &why);
    if (file >= 0) close(file);
    return file >= 0;
}
