/* cpu.h - how many CPUs this program may really use. */
#ifndef FLI_PORT_CPU_H
#define FLI_PORT_CPU_H

#include <stdint.h>

/* The smaller of the affinity mask and the cgroup quota, at least 1. */
uint32_t fli_cpu_count(void);

/* The CPUs that the cgroup quotas of this process allow, rounded up; UINT32_MAX when there is none. Looks at the group
 * itself and at all its ancestors, versions 1 and 2, in the file tree under `root` ("" for the real one): tests bring
 * a tree of their own. */
uint32_t fli_cpu_quota(const char *root);

#endif
