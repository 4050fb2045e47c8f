/* message_refs.h - a message that refers to blocks of memory instead of holding copies of them.
 *
 * The bytes of the message name blobs and long strings by number. The blocks are attached to the payload, each with
 * a reference of its own, and are dropped together with the payload, whether the message was read or not. A payload
 * with references is recognized by its free function (filch_shared_user), never by its bytes: so forged bytes cannot
 * refer to any block.
 */
#ifndef FLI_LUA_MESSAGE_REFS_H
#define FLI_LUA_MESSAGE_REFS_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fli_lua_total;

/* A list of blocks, with one reference to each. */
typedef struct fli_lua_refs {
    filch_data *at;
    uint32_t    count, room;
    size_t      bytes; /* total size of the blocks */
} fli_lua_refs;

/* Adds `block` to the list and takes a new reference to it, unless the list contains the block already. Sets *number to
 * the number of the block. Returns false if memory is short. */
bool fli_lua_refs_add(fli_lua_refs *refs, const filch_data *block, uint32_t *number);
void fli_lua_refs_fini(fli_lua_refs *refs);

/* Returns the number of bytes that were allocated for the list itself, without its blocks. */
static inline size_t fli_lua_refs_allocated(const fli_lua_refs *refs)
{
    return refs->room * sizeof *refs->at;
}

/* Makes one payload of `bytes` (allocated by malloc) and `refs`. *out gets one reference to the payload. The bytes and
 * the list count in `total` (NULL: nowhere) until the payload is freed; the blocks are not counted once more. Returns
 * true if the payload owns `bytes` and the references in `refs` now; returns false, and changes nothing, if the limit
 * would be exceeded or memory is short. */
bool fli_lua_message_join_refs(uint8_t *bytes, size_t size, fli_lua_refs *refs, struct fli_lua_total *total,
                               filch_data *out);

/* Returns the blocks attached to a payload, or NULL if there are none. */
const fli_lua_refs *fli_lua_message_refs(const filch_data *data);

/* Returns the number of bytes that a payload keeps alive: its own bytes, its list of blocks, and all blocks that it
 * refers to. */
size_t fli_lua_message_weight(const filch_data *data);

#endif
