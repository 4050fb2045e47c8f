/* message_refs.c - see message_refs.h. */
#include "lua/message/message_refs.h"

#include <stdlib.h>

enum { ROOM_FIRST = 4, LOOK_BACK = 8 };

bool fli_lua_refs_add(fli_lua_refs *refs, const filch_data *block, uint32_t *number)
{
    /* If the block was added before, it is usually among the last LOOK_BACK entries. A block that is not found there is
     * added a second time, which is correct but takes more memory. */
    for (uint32_t i = refs->count; i-- > 0 && i + LOOK_BACK >= refs->count;) {
        if (filch_raw(&refs->at[i]) != filch_raw(block)) continue;
        *number = i;
        return true;
    }
    if (refs->count == refs->room) {
        uint32_t    room = refs->room == 0 ? ROOM_FIRST : refs->room * 2;
        filch_data *at = realloc(refs->at, room * sizeof *at);
        if (at == NULL) return false;
        refs->at = at;
        refs->room = room;
    }
    if (filch_keep(block, &refs->at[refs->count]) != FILCH_OK) return false;
    refs->bytes += filch_size(block);
    *number = refs->count++;
    return true;
}

void fli_lua_refs_fini(fli_lua_refs *refs)
{
    for (uint32_t i = 0; i < refs->count; i++) filch_drop(&refs->at[i]);
    free(refs->at);
    *refs = (fli_lua_refs){ .at = NULL };
}

/* Frees the payload; `user` is its fli_lua_refs. */
static void free_with_refs(void *user, void *bytes, size_t size)
{
    (void)size;
    fli_lua_refs_fini(user);
    free(user);
    free(bytes);
}

bool fli_lua_message_join_refs(uint8_t *bytes, size_t size, fli_lua_refs *refs, filch_data *out)
{
    fli_lua_refs *kept = malloc(sizeof *kept);
    if (kept == NULL) return false;
    *kept = *refs;
    if (filch_share(bytes, size, free_with_refs, kept, out) != FILCH_OK) {
        free(kept);
        return false;
    }
    *refs = (fli_lua_refs){ .at = NULL };
    return true;
}

const fli_lua_refs *fli_lua_message_refs(const filch_data *data)
{
    return filch_shared_user(data, free_with_refs);
}

size_t fli_lua_message_weight(const filch_data *data)
{
    const fli_lua_refs *refs = fli_lua_message_refs(data);
    return filch_size(data) + (refs != NULL ? refs->bytes : 0);
}
