/* streams.h - functions shared by the I/O libraries (streams.c, fs.c): they begin a yield, and turn its completion into
 * Lua values.
 * Page: docs/lua/reference.md. */
#ifndef FLI_LUA_STREAMS_H
#define FLI_LUA_STREAMS_H

#include <filch.h>
#include <lua.h>

#include "lua/process/proc.h"

/* The Lua values into which a completion is turned. */
typedef enum fli_lua_shape {
    FLI_LUA_AS_VALUE,
    FLI_LUA_AS_WRITTEN, /* as FLI_LUA_AS_VALUE, for a write: during a stop, a cancel does not end the wait */
    FLI_LUA_AS_STREAM,
    FLI_LUA_AS_PROGRAM,
    FLI_LUA_AS_NOTHING, /* returns true */
    FLI_LUA_AS_INFO,
    FLI_LUA_AS_NAMES
} fli_lua_shape;

/* Called at the beginning of every I/O call that waits. Returns the process, and a new tag for the yield of the call in
 * *tag. */
fli_lua_proc *fli_lua_io_begin(lua_State *L, uint64_t *tag);
/* Called with `err`, the result of the filch_yield function that yielded the command with `tag`. Waits for the
 * completion of this yield. */
int fli_lua_io_await(lua_State *L, fli_lua_proc *p, uint64_t tag, filch_err err, fli_lua_shape shape);
/* Returns the stream at stack index 1, on which the method was called. Raises an error if the value is not a stream. */
filch_stream fli_lua_check_stream(lua_State *L);

/* In fs.c: push the values for FLI_LUA_AS_INFO and FLI_LUA_AS_NAMES. Each returns the number of values pushed. */
int fli_lua_push_info(lua_State *L, const filch_data *data);
int fli_lua_push_names(lua_State *L, const filch_data *data);
/* In fs.c: the methods stream:sync(["data"]) and stream:truncate(size). */
int fli_lua_stream_sync(lua_State *L);
int fli_lua_stream_truncate(lua_State *L);

#endif
