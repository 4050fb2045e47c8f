/* total.h - counts the memory that all Lua processes of a host hold together: heaps, blobs, large messages
 * and code.
 * Memory is counted when it is taken from the system, not with each Lua object.
 * Design: docs/design/lua/budgets.md. */
#ifndef FLI_LUA_TOTAL_H
#define FLI_LUA_TOTAL_H

#include <filch.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "port/atomic.h"

typedef struct fli_lua_total {
    /* Number of bytes that all processes of the host hold.  writes and reads: any thread that takes or returns memory
     * of a process. The number orders no other memory access. */
    FLI_ATOMIC(uint64_t) held;
    /* limit of `held`; not atomic, like the fields below: set before the first process starts */
    uint64_t max;
    void (*spare)(void *user); /* frees memory that is only cached; NULL: no memory is cached */
    void *spare_user;
} fli_lua_total;

/* Slow path of fli_lua_total_take(): calls `spare` to free memory, then tries again. */
bool fli_lua_total_take_slow(fli_lua_total *total, size_t size);

/* Adds `size` bytes to the count. Returns false, and adds nothing, if the limit would be exceeded. */
static inline bool fli_lua_total_take(fli_lua_total *total, size_t size)
{
    uint64_t before = fli_add_rlx(&total->held, size);
    if (size <= total->max && before <= total->max - size) return true;
    (void)fli_add_rlx(&total->held, (uint64_t)0 - size);
    return fli_lua_total_take_slow(total, size);
}

static inline void fli_lua_total_give(fli_lua_total *total, size_t size)
{
    (void)fli_add_rlx(&total->held, (uint64_t)0 - size);
}

/* Makes a shared payload of `bytes` (allocated by malloc). The bytes count in `total` until the payload is freed.
 * Returns true if the payload owns `bytes` now, false if the limit would be exceeded or memory is short. */
bool fli_lua_total_share(fli_lua_total *total, void *bytes, size_t size, filch_data *out);

/* Makes a shared payload with a copy of `bytes`. The copy counts in `total` until the payload is freed. Returns false
 * if the limit would be exceeded or memory is short. */
bool fli_lua_total_copy(fli_lua_total *total, const void *bytes, size_t size, filch_data *out);

#endif
