/* path.c - files by path over POSIX. See path.h. */
#include "port/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* Returns 0 if a system call returned 0, otherwise the negative error number. A call that changes a name is not
 * repeated after EINTR: EINTR never occurs on a local disk, and on other file systems the first call may have taken
 * effect. */
static int result_of(int n)
{
    return n == 0 ? 0 : -errno;
}

/* ---- open files ---- */

int fli_path_sync(int fd, bool data)
{
    int n;
    do n = data ? fdatasync(fd) : fsync(fd);
    while (n != 0 && errno == EINTR);
    return result_of(n);
}

int fli_path_truncate(int fd, int64_t size)
{
    int n;
    do n = ftruncate(fd, (off_t)size);
    while (n != 0 && errno == EINTR);
    return result_of(n);
}

/* ---- one path ---- */

static filch_file_kind kind_of(mode_t mode)
{
    if (S_ISREG(mode)) return FILCH_FILE_REGULAR;
    if (S_ISDIR(mode)) return FILCH_FILE_DIRECTORY;
    return S_ISLNK(mode) ? FILCH_FILE_LINK : FILCH_FILE_OTHER;
}

int fli_path_stat(const char *path, bool link, filch_file_info *info)
{
    struct stat what;
    if (fstatat(AT_FDCWD, path, &what, link ? AT_SYMLINK_NOFOLLOW : 0) != 0) return -errno;
    *info = (filch_file_info){ .size = sizeof *info,
                               .kind = (uint32_t)kind_of(what.st_mode),
                               .mode = (uint32_t)what.st_mode & 07777u,
                               .byte_count = (uint64_t)what.st_size,
                               .modified_ns = (int64_t)what.st_mtim.tv_sec * 1000000000 + what.st_mtim.tv_nsec,
                               .device = (uint64_t)what.st_dev,
                               .inode = (uint64_t)what.st_ino };
    return 0;
}

int fli_path_unlink(const char *path)
{
    return result_of(unlink(path));
}

int fli_path_mkdir(const char *path)
{
    return result_of(mkdir(path, 0755));
}

int fli_path_rmdir(const char *path)
{
    return result_of(rmdir(path));
}

/* ---- rename ---- */

/* Returns the length of the part of `path` that names the parent directory of its last name; 0: the working
 * directory. */
static size_t folder_of(const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--; /* trailing slashes, as in "a/b/" */
    while (size > 0 && path[size - 1] != '/') size--; /* the last name */
    while (size > 1 && path[size - 1] == '/') size--; /* slashes before the last name, as in "a//b" */
    return size;
}

/* Opens the parent directory of the last name of `path`, for a sync. */
static int open_folder(const char *path)
{
    char   folder[4096] = ".";
    size_t size = folder_of(path);
    if (size >= sizeof folder) return -ENAMETOOLONG;
    if (size > 0) memcpy(folder, path, size);
    if (size > 0) folder[size] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static int rename_to(const char *from, const char *to, bool fresh)
{
    /* calls renameat2 by its number, because not every C library has the function */
    return result_of(fresh ? (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)
                           : rename(from, to));
}

/* Renames and syncs both directories. Opens both directories first, so that a failure to open changes nothing. */
static int rename_synced(const char *from, const char *to, bool fresh)
{
    size_t size = folder_of(from);
    bool   same = size == folder_of(to) && memcmp(from, to, size) == 0;
    int    into = open_folder(to), out_of = into >= 0 && !same ? open_folder(from) : -1;
    int    why = into < 0 ? into : same || out_of >= 0 ? rename_to(from, to, fresh) : out_of;
    if (why == 0) why = fli_path_sync(into, false);
    if (why == 0 && !same) why = fli_path_sync(out_of, false);
    if (out_of >= 0) (void)close(out_of);
    if (into >= 0) (void)close(into);
    return why;
}

int fli_path_rename(const char *from, const char *to, uint32_t flags)
{
    bool fresh = (flags & FILCH_RENAME_NEW) != 0;
    return (flags & FILCH_RENAME_SYNC) != 0 ? rename_synced(from, to, fresh) : rename_to(from, to, fresh);
}

/* ---- list ---- */

typedef struct list {
    const fli_mem *mem;
    char          *bytes;
    size_t         room, size, most;
    size_t         count;
} list;

static int add(list *l, filch_file_kind kind, const char *name)
{
    size_t size = strlen(name) + 2;
    if (l->size + size > l->most) return -EMSGSIZE;
    if (l->size + size > l->room) {
        size_t room = l->room * 2 > l->size + size ? l->room * 2 : l->size + size + 4096;
        char  *more = fli_resize(l->mem, l->bytes, l->room, room);
        if (more == NULL) return -ENOMEM;
        l->bytes = more;
        l->room = room;
    }
    l->bytes[l->size] = (char)kind;
    memcpy(l->bytes + l->size + 1, name, size - 1);
    l->size += size;
    l->count++;
    return 0;
}

static int add_entry(list *l, int folder, const struct dirent *entry)
{
    struct stat what;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) return 0;
    switch (entry->d_type) {
    case DT_REG: return add(l, FILCH_FILE_REGULAR, entry->d_name);
    case DT_DIR: return add(l, FILCH_FILE_DIRECTORY, entry->d_name);
    case DT_LNK: return add(l, FILCH_FILE_LINK, entry->d_name);
    case DT_UNKNOWN: break; /* some file systems do not return the kind */
    default: return add(l, FILCH_FILE_OTHER, entry->d_name);
    }
    /* An entry that was removed after readdir() returned it is not listed. */
    if (fstatat(folder, entry->d_name, &what, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -errno;
    return add(l, kind_of(what.st_mode), entry->d_name);
}

static int read_all(list *l, DIR *folder)
{
    int why = 0;
    for (errno = 0; why == 0; errno = 0) {
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) return -errno;
        why = add_entry(l, dirfd(folder), entry);
    }
    return why;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

/* Sorts the entries into newly allocated memory. */
static int sort(list *l)
{
    if (l->count < 2) return 0;
    char **entries = fli_alloc(l->mem, l->count * sizeof *entries), *sorted = fli_alloc(l->mem, l->room);
    int    why = entries != NULL && sorted != NULL ? 0 : -ENOMEM;
    if (why == 0) {
        char  *at = l->bytes;
        size_t filled = 0;
        for (size_t i = 0; i < l->count; i++, at += strlen(at) + 1) entries[i] = at;
        qsort(entries, l->count, sizeof *entries, by_name);
        for (size_t i = 0; i < l->count; i++) {
            size_t size = strlen(entries[i]) + 1;
            memcpy(sorted + filled, entries[i], size);
            filled += size;
        }
        char *old = l->bytes;
        l->bytes = sorted;
        sorted = old;
    }
    fli_free(l->mem, sorted, sorted != NULL ? l->room : 0);
    fli_free(l->mem, entries, entries != NULL ? l->count * sizeof *entries : 0);
    return why;
}

int fli_path_list(const fli_mem *mem, const char *path, size_t most, char **bytes, size_t *room, size_t *size)
{
    list l = { .mem = mem, .most = most };
    DIR *folder = opendir(path);
    if (folder == NULL) return -errno;
    int why = read_all(&l, folder);
    (void)closedir(folder);
    if (why == 0) why = sort(&l);
    if (why != 0) fli_free(mem, l.bytes, l.room);
    if (why != 0) return why;
    *bytes = l.bytes;
    *room = l.room;
    *size = l.size;
    return 0;
}
