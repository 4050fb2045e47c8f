/* fs.c - the library `fs` for files and directories; exists only if the host grants the right. See streams.c.
 *
 *     local f = fs.open("state.new", "w")  f:write(text)  f:sync()  f:close()  fs.rename("state.new", "state", "sync")
 * Page: docs/lua/reference.md.
 */
#include <lauxlib.h>

#include "lua/host/libs.h"
#include "lua/lib/streams.h"
#include "lua/value/checks.h"

/* Limit in bytes for the names in one directory, all together. fs.list refuses larger directories, because building the
 * table of names cannot be suspended. */
#define NAMES_MAX ((size_t)1 << 20)

/* fs.open(path [, mode as for io.open]) -> stream */
static int fs_open(lua_State *L)
{
    static const char *const modes[] = { "r", "w", "a", "r+", "w+", "a+", NULL };
    static const uint32_t    flags[] = {
           FILCH_OPEN_READ,
           FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY,
           FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_APPEND,
           FILCH_OPEN_READ | FILCH_OPEN_WRITE,
           FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY,
           FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_APPEND,
    };
    const char   *path = fli_lua_check_text(L, 1);
    int           mode = fli_lua_check_word(L, 2, "r", modes);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_open(p->out, tag, path, flags[mode]), FLI_LUA_AS_STREAM);
}

/* ---- paths ---- */

static const char *const kinds[] = { "?", "file", "directory", "link", "other" };

int fli_lua_push_info(lua_State *L, const filch_data *data)
{
    filch_file_info info = FILCH_FILE_INFO_INIT;
    (void)!filch_as_file_info(data, &info);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, kinds[info.kind <= FILCH_FILE_OTHER ? info.kind : 0]);
    lua_setfield(L, -2, "kind");
    lua_pushinteger(L, (lua_Integer)info.byte_count);
    lua_setfield(L, -2, "size");
    lua_pushinteger(L, (lua_Integer)info.mode);
    lua_setfield(L, -2, "mode");
    lua_pushnumber(L, (lua_Number)info.modified_ns / 1e9);
    lua_setfield(L, -2, "modified");
    return 1;
}

int fli_lua_push_names(lua_State *L, const filch_data *data)
{
    const char *name;
    size_t      at = 0;
    lua_Integer count = 0;
    if (filch_size(data) > NAMES_MAX) return fli_lua_return_error(L, FILCH_ETOOBIG);
    lua_newtable(L);
    while (filch_as_entry(data, &at, &name, NULL) == FILCH_OK) {
        lua_pushstring(L, name);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

/* fs.stat(path) -> { kind = , size = , mode = , modified = } */
static int fs_stat(lua_State *L)
{
    const char   *path = fli_lua_check_text(L, 1);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_stat(p->out, tag, path, 0), FLI_LUA_AS_INFO);
}

/* fs.list(path) -> names, sorted */
static int fs_list(lua_State *L)
{
    const char   *path = fli_lua_check_text(L, 1);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_list(p->out, tag, path), FLI_LUA_AS_NAMES);
}

/* fs.rename(from, to [, "sync"]) -> true */
static int fs_rename(lua_State *L)
{
    static const char *const names[] = { "", "sync", NULL };
    const char              *from = fli_lua_check_text(L, 1), *to = fli_lua_check_text(L, 2);
    uint32_t                 flags = fli_lua_check_word(L, 3, "", names) == 1 ? FILCH_RENAME_SYNC : 0;
    uint64_t                 tag;
    fli_lua_proc            *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_rename(p->out, tag, from, to, flags), FLI_LUA_AS_NOTHING);
}

static int change(lua_State *L, filch_err (*yield)(filch_out *out, uint64_t tag, const char *path))
{
    const char   *path = fli_lua_check_text(L, 1);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, yield(p->out, tag, path), FLI_LUA_AS_NOTHING);
}

static int fs_remove(lua_State *L)
{
    return change(L, filch_yield_remove);
}

static int fs_mkdir(lua_State *L)
{
    return change(L, filch_yield_mkdir);
}

static int fs_rmdir(lua_State *L)
{
    return change(L, filch_yield_rmdir);
}

/* ---- methods of a file ---- */

int fli_lua_stream_sync(lua_State *L)
{
    static const char *const names[] = { "", "data", NULL };
    filch_stream             stream = fli_lua_check_stream(L);
    uint32_t                 flags = fli_lua_check_word(L, 2, "", names) == 1 ? FILCH_SYNC_DATA : 0;
    uint64_t                 tag;
    fli_lua_proc            *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_sync(p->out, tag, stream, flags), FLI_LUA_AS_NOTHING);
}

int fli_lua_stream_truncate(lua_State *L)
{
    filch_stream stream = fli_lua_check_stream(L);
    lua_Integer  size = luaL_checkinteger(L, 2);
    uint64_t     tag;
    fli_lua_check_arg(L, size >= 0, 2, "must be a number of bytes, 0 or more");
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_truncate(p->out, tag, stream, (uint64_t)size), FLI_LUA_AS_NOTHING);
}

const fli_lua_member fli_lua_fs_members[] = {
    { .library = "fs", .name = "open", .fn = fs_open },     { .library = "fs", .name = "stat", .fn = fs_stat },
    { .library = "fs", .name = "list", .fn = fs_list },     { .library = "fs", .name = "rename", .fn = fs_rename },
    { .library = "fs", .name = "remove", .fn = fs_remove }, { .library = "fs", .name = "mkdir", .fn = fs_mkdir },
    { .library = "fs", .name = "rmdir", .fn = fs_rmdir },   { .name = NULL },
};
