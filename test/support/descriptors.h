/* descriptors.h - how many descriptors and threads this program has: what a test compares before and after. */
#ifndef FILCH_TEST_DESCRIPTORS_H
#define FILCH_TEST_DESCRIPTORS_H

#include <dirent.h>
#include <stddef.h>

/* Entries but . and .., or -1. */
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
    return entry_count("/proc/self/fd") - 1; /* without the one that reads this */
}

static inline int thread_count(void)
{
    return entry_count("/proc/self/task");
}

#endif
