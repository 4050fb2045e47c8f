/* descriptors.h - counts the descriptors and threads of this program, for a comparison before and after a test. */
#ifndef FILCH_TEST_DESCRIPTORS_H
#define FILCH_TEST_DESCRIPTORS_H

#include <dirent.h>
#include <stddef.h>

/* Returns the number of entries in the folder `path` except . and .., or -1 if the folder cannot be read. */
static inline int entry_count(const char *path)
{
    int  n = -2;
    DIR *dir = opendir(path);
    if (dir == NULL) return -1;
    while (readdir(dir) != NULL) n++;
    closedir(dir);
    return n;
}

static inline int open_descriptors(void)
{
    /* minus 1, because the descriptor by which the folder is read does not count */
    return entry_count("/proc/self/fd") - 1;
}

static inline int thread_count(void)
{
    return entry_count("/proc/self/task");
}

#endif
