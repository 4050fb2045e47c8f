/* message_refs.c - see message_refs.h. */
#include "lua/message/message_refs.h"

#include <stdlib.h>

#include "lua/memory/total.h"

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

/* What the payload of a message with references owns besides its bytes. */
typedef struct joined {
    fli_lua_refs   refs;    /* first, because fli_lua_message_refs() returns its address */
    fli_lua_total *total;   /* NULL: the message counts nowhere */
    size_t         counted; /* bytes that count in `total` */
} joined;

/* Frees the payload; `user` is its struct joined. */
static void free_with_refs(void *user, void *bytes, size_t size)
{
    joined *j = user;
    (void)size;
    fli_lua_refs_fini(&j->refs);
    if (j->total != NULL) fli_lua_total_give(j->total, j->counted);
    free(j);
    free(bytes);
}

bool fli_lua_message_join_refs(uint8_t *bytes, size_t size, fli_lua_refs *refs, fli_lua_total *total, filch_data *out)
{
    joined *j = malloc(sizeof *j);
    if (j == NULL) return false;
    *j = (joined){ .refs = *refs, .total = total, .counted = sizeof *j + size + fli_lua_refs_allocated(refs) };
    if (total != NULL && !fli_lua_total_take(total, j->counted)) goto no_total;
    if (filch_share(bytes, size, free_with_refs, j, out) != FILCH_OK) goto no_payload;
    *refs = (fli_lua_refs){ .at = NULL };
    return true;
no_payload:
    if (total != NULL) fli_lua_total_give(total, j->counted);
no_total:
    free(j);
    return false;
}

const fli_lua_refs *fli_lua_message_refs(const filch_data *data)
{
    return filch_shared_user(data, free_with_refs);
}

size_t fli_lua_message_weight(const filch_data *data)
{
    const fli_lua_refs *refs = fli_lua_message_refs(data);
    return filch_size(data) + (refs != NULL ? fli_lua_refs_allocated(refs) + refs->bytes : 0);
}
