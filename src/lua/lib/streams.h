/* streams.h - what the files of the I/O libraries share (streams.c, fs.c): a yield, and its answer as a value of Lua.
 */
#ifndef FLI_LUA_STREAMS_H
#define FLI_LUA_STREAMS_H

#include <filch.h>
#include <lua.h>

#include "lua/process/proc.h"

/* What an answer becomes. */
typedef enum fli_lua_shape {
    FLI_LUA_AS_VALUE,
    FLI_LUA_AS_STREAM,
    FLI_LUA_AS_PROGRAM,
    FLI_LUA_AS_NOTHING, /* true */
    FLI_LUA_AS_INFO,
    FLI_LUA_AS_NAMES
} fli_lua_shape;

/* What every call that waits begins with: a tag for its yield. */
fli_lua_proc *fli_lua_io_begin(lua_State *L, uint64_t *tag);
/* After the yield tagged `tag`, which answered `err`: waits for what it completes with. */
int fli_lua_io_await(lua_State *L, fli_lua_proc *p, uint64_t tag, filch_err err, fli_lua_shape shape);
/* The stream that the method was called with; raises an error if it is none. */
filch_stream fli_lua_check_stream(lua_State *L);

/* fs.c: what FLI_LUA_AS_INFO and FLI_LUA_AS_NAMES become. Each returns how many values it pushed. */
int fli_lua_push_info(lua_State *L, const filch_data *data);
int fli_lua_push_names(lua_State *L, const filch_data *data);
/* fs.c: stream:sync(["data"]) and stream:truncate(size) */
int fli_lua_stream_sync(lua_State *L);
int fli_lua_stream_truncate(lua_State *L);

#endif
