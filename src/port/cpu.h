/* cpu.h - how many CPUs this program may use. */
#ifndef FLI_PORT_CPU_H
#define FLI_PORT_CPU_H

#include <stdint.h>

/* Returns the number of CPUs in the affinity mask of this program, or the number that its cgroup quotas allow,
 * whichever is smaller; at least 1. */
uint32_t fli_cpu_count(void);

/* Returns the number of CPUs that the cgroup quotas of this program allow, rounded up; UINT32_MAX if there is no quota.
 * Reads the quotas of the program's group and of all ancestors of the group, cgroup versions 1 and 2, in the file tree
 * under `root`. `root` is "" for the real tree; tests pass a tree of their own. */
uint32_t fli_cpu_quota(const char *root);

#endif
