/* blob.h - bytes that never change, kept once for all processes that hold them.
 *
 * A blob is a userdata with a reference to a counted block. Sending one, alone or inside a table, sends the reference.
 * Every process that holds one is charged for all of its bytes: what it keeps alive, not what is its own.
 *
 * Long strings travel in the same way where that costs nothing more: a string that is sent several times in one step,
 * or received and sent on in one, is put into a block once. The process remembers a few of them until the step is over.
 */
#ifndef FLI_LUA_BLOB_H
#define FLI_LUA_BLOB_H

#include <filch.h>
#include <lua.h>
#include <stdbool.h>

struct fli_lua_proc;

/* A string of so many bytes is long: copying it takes longer than counting references (4 us against 0.3). */
enum { FLI_LUA_LONG = 16384 };

/* The payload that is the blob at `index`, as a message; lent as long as the value. NULL: it is none. */
const filch_data *fli_lua_to_blob(lua_State *L, int index);
/* Its bytes, for one that writes them somewhere. */
const char *fli_lua_blob_bytes(const filch_data *blob, size_t *size);

/* Pushes a blob: `data` is the payload of one, and a reference to it is kept. May raise memory errors. */
void fli_lua_push_blob(lua_State *L, const filch_data *data);

/* Gives back all blocks that the process holds. Uses nothing of its state. */
void fli_lua_blocks_drop(struct fli_lua_proc *p);

/* What has to be there for the next call to find anything: to be called where errors may be raised. */
void fli_lua_long_prepare(lua_State *L);
/* The string at `index`, which is long, as a block that others can share; lent until the step is over. NULL: it
 * is cheaper to copy it. */
const filch_data *fli_lua_long_block(lua_State *L, int index);
/* The string on top has been made from the block `data`. May raise memory errors. */
void fli_lua_long_made(lua_State *L, const filch_data *data);
/* The step is over. */
void fli_lua_long_forget(struct fli_lua_proc *p);

#endif
