/* message_refs.h - a message that refers to blocks of memory instead of holding copies of them.
 *
 * The bytes of such a message name blobs and long strings by number; the blocks themselves are attached to the payload,
 * each with a reference of its own, and are given back with it, whether anybody has read it or not. A payload is known
 * to have them by who frees it (filch_shared_user), never by its bytes: so bytes that somebody made up refer to
 * nothing.
 */
#ifndef FLI_LUA_MESSAGE_REFS_H
#define FLI_LUA_MESSAGE_REFS_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks, each held once. */
typedef struct fli_lua_refs {
    filch_data *at;
    uint32_t    count, room;
    size_t      bytes; /* of all of them */
} fli_lua_refs;

/* Holds `block`, or finds it held already: its number. False: no memory. */
bool fli_lua_refs_add(fli_lua_refs *refs, const filch_data *block, uint32_t *number);
void fli_lua_refs_fini(fli_lua_refs *refs);

/* Bytes (malloc's) and references as one payload, with one reference to it. Takes both when it returns true. */
bool fli_lua_message_join_refs(uint8_t *bytes, size_t size, fli_lua_refs *refs, filch_data *out);

/* What is attached to a payload; NULL: nothing. */
const fli_lua_refs *fli_lua_message_refs(const filch_data *data);

/* The bytes of a payload with all that it refers to: what it costs to hold. */
size_t fli_lua_message_weight(const filch_data *data);

#endif
