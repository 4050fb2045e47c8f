/* total.h - the memory that all Lua processes of a host hold together: their heaps, blobs and large messages. Counted
 * where memory comes from the system, not with each object. */
#ifndef FLI_LUA_TOTAL_H
#define FLI_LUA_TOTAL_H

#include <filch.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "port/atomic.h"

typedef struct fli_lua_total {
    /* Bytes.  writes: any thread that takes or gives memory of a process.  reads: the same. Only counts: nothing is
     * ordered by it. */
    FLI_ATOMIC(uint64_t) held;
    uint64_t max;              /* plain, as all that follows: set before there is a process */
    void (*spare)(void *user); /* gives back what is only kept for later; NULL: there is none */
    void *spare_user;
} fli_lua_total;

/* Out of line: after what was only kept for later has been given back. */
bool fli_lua_total_take_slow(fli_lua_total *total, size_t size);

/* Returns false, and counts nothing, if that would be more than the limit. */
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

/* Shares `bytes`, malloc's, as a payload that counts until it is freed. Takes them if it returns true; false: the
 * limit, or no memory. */
bool fli_lua_total_share(fli_lua_total *total, void *bytes, size_t size, filch_data *out);

#endif
