/* blob.h - bytes that never change, stored once for all processes that hold them.
 *
 * A blob is a userdata with a reference to a counted block. Sending a blob, alone or inside a table, sends the
 * reference. Each process that holds a blob is charged for all of its bytes, because the process keeps these bytes
 * alive.
 *
 * Long strings are sent by reference too, where that saves a copy: a string that is sent several times in one step, or
 * received and sent on in one step, is copied into a block once. The process keeps a few such blocks until the end of
 * the step.
 */
#ifndef FLI_LUA_BLOB_H
#define FLI_LUA_BLOB_H

#include <filch.h>
#include <lua.h>
#include <stdbool.h>

struct fli_lua_proc;

/* Strings of at least this many bytes are long: copying such a string takes longer than counting references (4 us
 * against 0.3 us on x86-64). */
enum { FLI_LUA_LONG = 16384 };

/* Returns the payload of the blob at `index`, valid as long as the value. Returns NULL if the value is not a blob. */
const filch_data *fli_lua_to_blob(lua_State *L, int index);
/* Returns the bytes of a blob and their number. */
const char *fli_lua_blob_bytes(const filch_data *blob, size_t *size);

/* Pushes a new blob with `data`, the payload of another blob, and keeps a reference to `data`. May raise memory
 * errors. */
void fli_lua_push_blob(lua_State *L, const filch_data *data);

/* Drops the references to all blocks that the process holds for blobs and long strings. Does not use the Lua state. */
void fli_lua_blocks_drop(struct fli_lua_proc *p);

/* Creates the cache of long strings, which fli_lua_long_block() needs. To be called where Lua errors may be raised. */
void fli_lua_long_prepare(lua_State *L);
/* Returns the long string at `index` as a block that messages can share; the block is valid until the end of the step.
 * Returns NULL if no such block exists and none can be made: the caller then copies the string. */
const filch_data *fli_lua_long_block(lua_State *L, int index);
/* Records that the string on top of the stack was made from the block `data`. May raise memory errors. */
void fli_lua_long_made(lua_State *L, const filch_data *data);
/* Empties the cache of long strings. Called at the end of the step. */
void fli_lua_long_forget(struct fli_lua_proc *p);

#endif
