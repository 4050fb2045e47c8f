/* cpu.c - counts CPUs: the size of the calling thread's affinity mask, limited by the cgroup quotas.
 *
 * A quota applies to a group and everything below it, so the result is the smallest quota between the program's own
 * group and the visible top of the tree. The steps:
 *   1. /proc/self/cgroup says which group the program is in, one line per hierarchy ("0::/path" is version 2).
 *   2. /proc/self/mountinfo says where that hierarchy is mounted, and from which of its groups downwards; the usual
 *      place under /sys/fs/cgroup will do if it does not say.
 *   3. From the group's folder up to the mount point, read each quota and keep the smallest.
 *
 * A quota that cannot be read or parsed counts as no limit, because a wrong guess must not keep the program from
 * starting.
 */
#include "port/cpu.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_LIMIT UINT32_MAX

/* A cgroup hierarchy that contains a group of this program. */
typedef struct hierarchy {
    bool        v2;
    const char *group; /* path of the program's group in the hierarchy, "/a/b" */
} hierarchy;

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- quotas -------------------------------------------------------------------------------------------------- */

/* Reads a number at *at and moves *at behind it. Returns 0 for anything that is not a number: "max", "-1", nothing,
 * too many digits. */
static uint64_t number(const char **at)
{
    while (**at == ' ') (*at)++;
    if (!isdigit((unsigned char)**at)) return 0;
    char *end;
    errno = 0;
    uint64_t value = strtoull(*at, &end, 10);
    *at = end;
    bool whole = *end == '\0' || isspace((unsigned char)*end);
    return errno == 0 && whole ? value : 0;
}

static uint32_t cpus(uint64_t quota, uint64_t period)
{
    if (quota == 0 || period == 0) return NO_LIMIT;
    uint64_t count = quota / period + (quota % period != 0);
    return count < NO_LIMIT ? (uint32_t)count : NO_LIMIT;
}

/* Reads the first line of folder/name; `line` is "" if there is none. */
static void first_line(char *line, size_t size, const char *folder, const char *name)
{
    char path[PATH_MAX];
    line[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if ((size_t)length >= sizeof path)
        return; /* the path is too long, or snprintf has failed: its negative result is a large number as size_t */
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    if (fgets(line, (int)size, file) == NULL) line[0] = '\0';
    fclose(file);
}

static uint32_t quota_of_folder(const char *folder, bool v2)
{
    char        line[64];
    const char *at = line;
    first_line(line, sizeof line, folder, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    uint64_t quota = number(&at);
    if (!v2) {
        first_line(line, sizeof line, folder, "cpu.cfs_period_us");
        at = line;
    }
    return cpus(quota, number(&at));
}

/* Returns the smallest quota from root/mount/below up to root/mount. `below` is "" or begins with a slash. */
static uint32_t quota_of_branch(const char *root, const char *mount, const char *below, bool v2)
{
    char folder[PATH_MAX];
    int  length = snprintf(folder, sizeof folder, "%s%s%s", root, mount, below);
    if ((size_t)length >= sizeof folder) return NO_LIMIT;
    size_t   top = strlen(root) + strlen(mount);
    uint32_t least = NO_LIMIT;
    for (;;) {
        least = smaller(least, quota_of_folder(folder, v2));
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + top) return least;
        *slash = '\0';
    }
}

/* ---- where the hierarchy is mounted -------------------------------------------------------------------------- */

/* Returns true if `word` is one of the words of `list`, which are separated by commas. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (list != NULL && *list != '\0') {
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0')) return true;
        list = strchr(list, ',');
        if (list != NULL) list++;
    }
    return false;
}

/* Undoes in place the escapes of mountinfo, which writes blanks and backslashes as \ and three octal digits. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        bool octal = from[0] == '\\' && strspn(from + 1, "01234567") >= 3;
        *to = octal ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : from[0];
        from += octal ? 4 : 1;
    }
    *to = '\0';
}

/* Returns the part of `group` below `from`, or NULL if `group` is not below `from`. */
static const char *below(const char *group, const char *from)
{
    if (strstr(group, "/..") != NULL) return NULL;
    if (strcmp(from, "/") == 0) from = "";
    size_t length = strlen(from);
    if (strncmp(group, from, length) != 0) return NULL;
    const char *rest = group + length;
    if (strcmp(rest, "/") == 0) rest = "";
    return *rest == '\0' || *rest == '/' ? rest : NULL;
}

/* Parses a line of mountinfo: id parent device FROM POINT options [more]... - TYPE source SUPER. Returns true if the
 * line mounts a part of the hierarchy `h` that contains the program's group. Then *point_out is the mount point, and
 * *below_out the path of the group below the mount point. Changes `line`. */
static bool mount_of(const hierarchy *h, char *line, const char **point_out, const char **below_out)
{
    char *save = NULL, *words[6] = { NULL };
    for (int i = 0; i < 6; i++) {
        words[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
        if (words[i] == NULL) return false;
    }
    char *word = words[5];
    while (word != NULL && strcmp(word, "-") != 0) word = strtok_r(NULL, " \n", &save);
    const char *type = strtok_r(NULL, " \n", &save);
    const char *source = strtok_r(NULL, " \n", &save);
    const char *super = strtok_r(NULL, " \n", &save);
    if (type == NULL || source == NULL || super == NULL) return false;
    if (h->v2 ? strcmp(type, "cgroup2") != 0 : strcmp(type, "cgroup") != 0 || !has_word(super, "cpu")) return false;
    unescape(words[3]);
    unescape(words[4]);
    *point_out = words[4];
    *below_out = below(h->group, words[3]);
    return *below_out != NULL;
}

static uint32_t quota_at_usual_place(const char *root, const hierarchy *h)
{
    const char *rest = below(h->group, "/");
    if (rest == NULL) rest = "";
    if (h->v2) return quota_of_branch(root, "/sys/fs/cgroup", rest, true);
    return smaller(quota_of_branch(root, "/sys/fs/cgroup/cpu", rest, false),
                   quota_of_branch(root, "/sys/fs/cgroup/cpu,cpuacct", rest, false));
}

/* ---- reading /proc ------------------------------------------------------------------------------------------- */

static FILE *open_proc(const char *root, const char *name)
{
    char path[PATH_MAX];
    int  length = snprintf(path, sizeof path, "%s/proc/self/%s", root, name);
    return (size_t)length >= sizeof path ? NULL : fopen(path, "re");
}

static uint32_t quota_of_hierarchy(const char *root, const hierarchy *h)
{
    FILE *mounts = open_proc(root, "mountinfo");
    if (mounts == NULL) return quota_at_usual_place(root, h);
    uint32_t    least = NO_LIMIT;
    bool        found = false;
    char       *line = NULL;
    size_t      room = 0;
    const char *point, *rest;
    while (getline(&line, &room, mounts) > 0) {
        if (!mount_of(h, line, &point, &rest)) continue;
        least = smaller(least, quota_of_branch(root, point, rest, h->v2));
        found = true;
    }
    free(line);
    fclose(mounts);
    return found ? least : quota_at_usual_place(root, h);
}

/* Parses a line of /proc/self/cgroup: ID:CONTROLLERS:GROUP. Returns false if the line is not about CPU time. Changes
 * `line`. */
static bool hierarchy_of(char *line, hierarchy *out)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL || group[1] != '/') return false;
    *controllers++ = '\0';
    *group++ = '\0';
    *out = (hierarchy){ .v2 = *controllers == '\0' && strcmp(line, "0") == 0, .group = group };
    return out->v2 || has_word(controllers, "cpu");
}

uint32_t fli_cpu_quota(const char *root)
{
    FILE *groups = open_proc(root, "cgroup");
    if (groups == NULL) return NO_LIMIT;
    uint32_t  least = NO_LIMIT;
    char     *line = NULL;
    size_t    room = 0;
    hierarchy h;
    while (getline(&line, &room, groups) > 0) {
        if (hierarchy_of(line, &h)) least = smaller(least, quota_of_hierarchy(root, &h));
    }
    free(line);
    fclose(groups);
    return least;
}

/* ---- affinity ------------------------------------------------------------------------------------------------ */

static uint32_t affinity(void)
{
    /* 65536 CPUs: the kernel refuses a mask shorter than its own, and one cpu_set_t covers only 1024. */
    cpu_set_t mask[64];
    if (sched_getaffinity(0, sizeof mask, mask) != 0) return 1;
    return (uint32_t)CPU_COUNT_S(sizeof mask, mask);
}

uint32_t fli_cpu_count(void)
{
    uint32_t count = smaller(affinity(), fli_cpu_quota(""));
    return count > 0 ? count : 1;
}
