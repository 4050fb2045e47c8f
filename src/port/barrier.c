/* barrier.c - see barrier.h. */
#include "port/barrier.h"

#include "base/assert.h"

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool fli_barrier_ready(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void fli_barrier_everywhere(void)
{
    FLI_ASSERT(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
}
#else
bool fli_barrier_ready(void)
{
    return false;
}

void fli_barrier_everywhere(void)
{
    FLI_ASSERT(false);
}
#endif
