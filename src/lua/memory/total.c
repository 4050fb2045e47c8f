/* total.c - see total.h. */
#include "lua/memory/total.h"

#include <string.h>

bool fli_lua_total_take_slow(fli_lua_total *total, size_t size)
{
    if (total->spare == NULL || size > total->max) return false;
    total->spare(total->spare_user);
    if (fli_add_rlx(&total->held, size) <= total->max - size) return true;
    (void)fli_add_rlx(&total->held, (uint64_t)0 - size);
    return false;
}

static void free_counted(void *user, void *bytes, size_t size)
{
    fli_lua_total_give(user, size);
    free(bytes);
}

bool fli_lua_total_share(fli_lua_total *total, void *bytes, size_t size, filch_data *out)
{
    if (!fli_lua_total_take(total, size)) return false;
    if (filch_share(bytes, size, free_counted, total, out) == FILCH_OK) return true;
    fli_lua_total_give(total, size);
    return false;
}

bool fli_lua_total_copy(fli_lua_total *total, const void *bytes, size_t size, filch_data *out)
{
    void *copy = malloc(size);
    if (copy != NULL && fli_lua_total_share(total, copy, size, out)) {
        memcpy(copy, bytes, size);
        return true;
    }
    free(copy);
    return false;
}
