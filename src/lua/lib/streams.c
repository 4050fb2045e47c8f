/* streams.c - the libraries `net`, `fs` and `exec`: sockets, files and programs as streams. Each exists only if the
 * host grants the right.
 *
 *     local stream, why = net.connect("127.0.0.1:80")
 *     stream:write("hello\n")
 *     local line = stream:read_until("\n")
 *
 * A call that has to wait parks its task; the other tasks of the process and the worker continue. Failures outside the
 * program are returned as nil and a text; the end of a stream as nil, "end" and the bytes that came before it. The
 * streams of a process are closed when it ends.
 */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/lib/streams.h"
#include "lua/message/blob.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

static const char stream_key; /* its address is used as the registry key of the metatable of streams */

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void push_program(lua_State *L, const filch_data *data)
{
    static const char *const names[] = { "input", "output", "errors" };
    filch_program            program;
    (void)!filch_as_program(data, &program);
    const filch_stream streams[] = { program.input, program.output, program.errors };
    fli_lua_push_stream(L, program.self);
    lua_createtable(L, 0, 5);
    for (int i = 0; i < 3; i++) {
        if (streams[i].id == 0) continue;
        fli_lua_push_stream(L, streams[i]);
        lua_setfield(L, -2, names[i]);
    }
    lua_pushinteger(L, program.pid);
    lua_setfield(L, -2, "pid");
    lua_insert(L, -2);
    lua_setfield(L, -2, "self");
}

/* Pushes nil and the text of the error of an event. FILCH_ECOMMAND means that the library was built without I/O, so
 * that the command has no handler. */
static int return_error(lua_State *L, filch_err err)
{
    if (err != FILCH_ECOMMAND && err != FILCH_EINVAL) return fli_lua_return_error(L, err);
    lua_pushnil(L);
    if (err == FILCH_ECOMMAND) lua_pushliteral(L, "this library was built without I/O: build it with FILCH_IO=ON");
    else lua_pushliteral(L, "invalid argument: a malformed address or path, or a stream of another kind");
    return 2;
}

static int push_answer(lua_State *L, fli_lua_task *task, fli_lua_shape shape)
{
    int results = 1;
    task->answered = false;
    if (task->error == FILCH_EEND) {
        lua_pushnil(L);
        lua_pushliteral(L, "end");
        fli_lua_unpack(L, &task->answer);
        results = 3;
    } else if (task->error != FILCH_OK) {
        results = return_error(L, task->error);
    } else if (shape == FLI_LUA_AS_STREAM) {
        fli_lua_push_stream(L, filch_as_stream(&task->answer));
    } else if (shape == FLI_LUA_AS_PROGRAM) {
        push_program(L, &task->answer);
    } else if (shape == FLI_LUA_AS_NOTHING) {
        lua_pushboolean(L, 1);
    } else if (shape == FLI_LUA_AS_INFO) {
        results = fli_lua_push_info(L, &task->answer);
    } else if (shape == FLI_LUA_AS_NAMES) {
        results = fli_lua_push_names(L, &task->answer);
    } else {
        fli_lua_unpack(L, &task->answer);
    }
    filch_drop(&task->answer);
    return results;
}

/* Returns true if a pending cancel of the current task must not interrupt a write: a stop is in progress, which sends
 * the cancel, and the task is the main task. So a reply that the process has begun to write is written whole if the
 * deadline of the stop allows it. The next call that waits for something other than a write raises the cancel. */
static bool writes_during_stop(const fli_lua_proc *p)
{
    return p->current == &p->main && filch_sched_stopping(p->sched);
}

static int resume_request(lua_State *L, int status, lua_KContext shape)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_task *task = p->current;
    /* Data that has arrived is returned first; the next call that waits raises the cancel. */
    if (task->answered) return push_answer(L, task, (fli_lua_shape)shape);
    if (shape != FLI_LUA_AS_WRITTEN || !writes_during_stop(p)) {
        if (task->cancelled) task->awaits = 0;
        fli_lua_check_cancel(L, p);
    }
    return fli_lua_park(L, FLI_LUA_NEVER, shape, resume_request);
}

/* Called with `err`, the result of the filch_yield function that yielded the command with `tag`. Waits for the
 * completion of this yield. */
int fli_lua_io_await(lua_State *L, fli_lua_proc *p, uint64_t tag, filch_err err, fli_lua_shape shape)
{
    if (err != FILCH_OK) return err == FILCH_EINVAL ? fli_lua_return_refusal(L, err) : return_error(L, err);
    p->yields++;
    p->current->awaits = tag;
    p->current->asks = false;
    p->current->answered = false;
    return resume_request(L, LUA_OK, (lua_KContext)shape);
}

/* Called at the beginning of every I/O call that waits. Returns the process, and a new tag for the yield of the call in
 * *tag. */
fli_lua_proc *fli_lua_io_begin(lua_State *L, uint64_t *tag)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_wait_begin(L, p);
    *tag = p->next_tag++;
    return p;
}

/* Does what fli_lua_io_begin() does, for a write. During a stop, leaves the cancel of the main task pending. */
static fli_lua_proc *begin_write(lua_State *L, uint64_t *tag)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    if (!writes_during_stop(p)) fli_lua_check_cancel(L, p);
    fli_lua_wait_begin_uncancelled(L, p);
    *tag = p->next_tag++;
    return p;
}

static uint64_t timeout_at(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? FILCH_FOREVER : fli_lua_check_span(L, index);
}

bool fli_lua_to_stream(lua_State *L, int index, filch_stream *stream)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &stream_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    if (is) *stream = *(filch_stream *)lua_touserdata(L, index);
    return is;
}

filch_stream fli_lua_check_stream(lua_State *L)
{
    filch_stream stream = { 0 };
    if (!fli_lua_to_stream(L, 1, &stream)) luaL_typeerror(L, 1, "stream");
    return stream;
}

bool fli_lua_take_stream(fli_lua_proc *p, const filch_data *data, filch_stream *stream)
{
    /* A message that gives a stream is a small block of bytes that a program cannot forge. This check of the size
     * excludes most other messages quickly. */
    size_t size = filch_size(data);
    if (size <= 24 || size > 64 || filch_kind_of(data) != FILCH_KIND_BYTES) return false;
    if (p == NULL || p->out == NULL || p->simulated) return false;
    if (memcmp(filch_raw(data), fli_lua_mark, FLI_LUA_MARK_SIZE) == 0) return false;
    return filch_stream_take(p->out, data, stream) == FILCH_OK;
}

/* ---- methods of a stream --------------------------------------------------------------------------------------- */

static size_t size_at(lua_State *L, int index, lua_Integer otherwise)
{
    lua_Integer size = luaL_optinteger(L, index, otherwise);
    fli_lua_check_arg(L, size >= 0, index, "must be a number of bytes, 0 or more");
    return (size_t)size;
}

/* Lua function that returns "" without waiting. Used for a read of 0 bytes. */
static int return_nothing(lua_State *L)
{
    lua_pushliteral(L, "");
    return 1;
}

/* stream:read([most] [, timeout]) -> the bytes that are available, at most `most` */
static int stream_read(lua_State *L)
{
    filch_stream stream = fli_lua_check_stream(L);
    size_t       most = size_at(L, 2, 0);
    uint64_t     timeout = timeout_at(L, 3), tag;
    if (most == 0 && !lua_isnoneornil(L, 2)) return return_nothing(L);
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_read(p->out, tag, stream, most, timeout), FLI_LUA_AS_VALUE);
}

static int stream_read_exactly(lua_State *L)
{
    filch_stream stream = fli_lua_check_stream(L);
    size_t       size = size_at(L, 2, 0);
    uint64_t     timeout = timeout_at(L, 3), tag;
    if (size == 0 && !lua_isnoneornil(L, 2)) return return_nothing(L);
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_read_exactly(p->out, tag, stream, size, timeout), FLI_LUA_AS_VALUE);
}

/* stream:read_until(delimiter [, limit [, timeout]]) -> text up to and including the delimiter */
static int stream_read_until(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    size_t        size, limit = size_at(L, 3, 65536);
    const char   *delimiter = luaL_checklstring(L, 2, &size);
    uint64_t      timeout = timeout_at(L, 4), tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_read_until(p->out, tag, stream, delimiter, size, limit, timeout),
                            FLI_LUA_AS_VALUE);
}

/* stream:write(text or blob [, timeout]) -> the number of bytes written */
static int stream_write(lua_State *L)
{
    filch_stream      stream = fli_lua_check_stream(L);
    size_t            size;
    const filch_data *blob = fli_lua_to_blob(L, 2);
    const char       *text = blob != NULL ? fli_lua_blob_bytes(blob, &size) : luaL_checklstring(L, 2, &size);
    uint64_t          timeout = timeout_at(L, 3), tag;
    fli_lua_proc     *p = begin_write(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_write(p->out, tag, stream, filch_bytes(text, size), timeout),
                            FLI_LUA_AS_WRITTEN);
}

static int stream_accept(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    uint64_t      timeout = timeout_at(L, 2), tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_accept(p->out, tag, stream, timeout), FLI_LUA_AS_STREAM);
}

static int stream_shutdown(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_shutdown(p->out, tag, stream), FLI_LUA_AS_NOTHING);
}

static int stream_close(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_need_process(L);
    if (!fli_lua_can_wait(L, p)) { /* in a __close handler: closes without waiting */
        if (filch_yield_close(p->out, p->next_tag++, stream) == FILCH_OK) p->yields++;
        return 0;
    }
    p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_close(p->out, tag, stream), FLI_LUA_AS_NOTHING);
}

/* stream:seek(offset [, "set" | "cur" | "end"]) -> the new position */
static int stream_seek(lua_State *L)
{
    static const char *const names[] = { "set", "cur", "end", NULL };
    filch_stream             stream = fli_lua_check_stream(L);
    lua_Integer              offset = luaL_optinteger(L, 2, 0);
    int                      whence = fli_lua_check_word(L, 3, "set", names);
    uint64_t                 tag;
    fli_lua_proc            *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_seek(p->out, tag, stream, offset, whence), FLI_LUA_AS_VALUE);
}

static int address_of(lua_State *L, filch_address_of which)
{
    char          text[128];
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_err     err = filch_stream_address(p->out, fli_lua_check_stream(L), which, text, sizeof text);
    if (err != FILCH_OK) return fli_lua_return_error(L, err);
    lua_pushstring(L, text);
    return 1;
}

static int stream_address(lua_State *L)
{
    return address_of(L, FILCH_ADDRESS_LOCAL);
}

static int stream_peer(lua_State *L)
{
    return address_of(L, FILCH_ADDRESS_PEER);
}

/* Methods of the stream `self` of a started program: stream:wait([timeout]) -> exit status, or minus the number of the
 * signal that ended the program; stream:kill(signal). */
static int stream_wait(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    uint64_t      timeout = timeout_at(L, 2), tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_exit(p->out, tag, stream, timeout), FLI_LUA_AS_VALUE);
}

static int stream_kill(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    int           number = (int)luaL_optinteger(L, 2, 15);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_kill(p->out, tag, stream, number), FLI_LUA_AS_NOTHING);
}

/* stream:give(pid) -> true: the stream now belongs to the process `pid`, which gets the stream as a message. */
static int stream_give(lua_State *L)
{
    filch_stream  stream = fli_lua_check_stream(L);
    fli_lua_proc *p = fli_lua_need_process(L);
    return fli_lua_return(L, filch_stream_give(p->out, stream, fli_lua_check_pid(L, 2)));
}

FLI_LUA_RETURNING(stream_read)
FLI_LUA_RETURNING(stream_read_exactly)
FLI_LUA_RETURNING(stream_read_until)
FLI_LUA_RETURNING(stream_write)
FLI_LUA_RETURNING(stream_accept)
FLI_LUA_RETURNING(stream_shutdown)
FLI_LUA_RETURNING(stream_close)
FLI_LUA_RETURNING(stream_seek)
FLI_LUA_RETURNING(stream_address)
FLI_LUA_RETURNING(stream_peer)
FLI_LUA_RETURNING(stream_wait)
FLI_LUA_RETURNING(stream_kill)
FLI_LUA_RETURNING(stream_give)
FLI_LUA_RETURNING(fli_lua_stream_sync)
FLI_LUA_RETURNING(fli_lua_stream_truncate)

static const luaL_Reg stream_methods[] = {
    { "read", returning_stream_read },
    { "read_exactly", returning_stream_read_exactly },
    { "read_until", returning_stream_read_until },
    { "write", returning_stream_write },
    { "accept", returning_stream_accept },
    { "shutdown", returning_stream_shutdown },
    { "close", returning_stream_close },
    { "seek", returning_stream_seek },
    { "address", returning_stream_address },
    { "peer", returning_stream_peer },
    { "wait", returning_stream_wait },
    { "kill", returning_stream_kill },
    { "give", returning_stream_give },
    { "sync", returning_fli_lua_stream_sync },
    { "truncate", returning_fli_lua_stream_truncate },
    { NULL, NULL },
};

void fli_lua_push_stream(lua_State *L, filch_stream stream)
{
    luaL_checkstack(L, 6, NULL);
    *(filch_stream *)lua_newuserdatauv(L, sizeof stream, 0) = stream;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &stream_key) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_createtable(L, 0, 3);
        luaL_newlib(L, stream_methods);
        lua_setfield(L, -2, "__index");
        lua_pushcfunction(L, stream_close);
        lua_setfield(L, -2, "__close");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &stream_key);
    }
    lua_setmetatable(L, -2);
}

/* ---- the libraries ---------------------------------------------------------------------------------------------- */

/* net.connect(address [, timeout]) -> stream */
static int net_connect(lua_State *L)
{
    filch_socket_options options = FILCH_SOCKET_OPTIONS_INIT;
    const char          *address = fli_lua_check_text(L, 1);
    uint64_t             tag;
    if (!lua_isnoneornil(L, 2)) options.timeout_ns = fli_lua_check_span(L, 2);
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_connect(p->out, tag, address, &options), FLI_LUA_AS_STREAM);
}

static int net_listen(lua_State *L)
{
    const char   *address = fli_lua_check_text(L, 1);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_listen(p->out, tag, address, NULL), FLI_LUA_AS_STREAM);
}

/* net.resolve(host, service) -> addresses, one per line */
static int net_resolve(lua_State *L)
{
    const char   *host = fli_lua_opt_text(L, 1, NULL), *service = fli_lua_opt_text(L, 2, NULL);
    uint64_t      tag;
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    return fli_lua_io_await(L, p, tag, filch_yield_resolve(p->out, tag, host, service), FLI_LUA_AS_VALUE);
}

enum { ARGS = 256 };

/* Returns the text at `index`. Raises an error if the text contains a zero byte, because a C string would end there. */
static const char *check_text(lua_State *L, int index, const char *what)
{
    size_t      size = 0;
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tolstring(L, index, &size) : NULL;
    if (text == NULL || strlen(text) != size) luaL_error(L, "%s must be a text without a zero byte", what);
    return text;
}

/* Reads the table of environment variables on top of the stack into `list`, as texts "name=value". Raises an error if
 * there are more than ARGS. The texts are kept alive by a new table that stays on the stack. */
static void read_environment(lua_State *L, const char **list)
{
    lua_Integer count = 0;
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, -3) != 0) {
        const char *value = check_text(L, -1, "env"), *name = check_text(L, -2, "env");
        if (name[0] == '\0' || strchr(name, '=') != NULL || count == ARGS)
            luaL_error(L, "env: at most 256 names are allowed, and no name may be empty or contain '='");
        list[count++] = lua_pushfstring(L, "%s=%s", name, value);
        lua_rawseti(L, -4, count);
        lua_pop(L, 1);
    }
    list[count] = NULL;
}

/* Fills `list` with the environment variable PATH only. Used if the Lua process has no right to read the environment:
 * otherwise it could start a program that prints the other variables, and read its output. */
static void bare_environment(const char **list)
{
    extern char **environ;
    list[0] = list[1] = NULL;
    for (char **at = environ; at != NULL && *at != NULL && list[0] == NULL; at++) {
        if (strncmp(*at, "PATH=", 5) == 0) list[0] = *at;
    }
}

/* exec.run{ program, arguments...; input = , output = , errors = , merge = true, env = , directory = }
 * -> { self, input, output, errors, pid } */
static int exec_run(lua_State *L)
{
    const char       *argv[ARGS + 1], *environment[ARGS + 1];
    uint32_t          flags = 0;
    uint64_t          tag;
    filch_run_options options = FILCH_RUN_OPTIONS_INIT;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer count = (lua_Integer)lua_rawlen(L, 1);
    fli_lua_check_arg(L, count >= 1 && count <= ARGS, 1, "must be a list with a program and at most 255 arguments");
    luaL_checkstack(L, (int)count + 16, NULL);
    for (lua_Integer i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        argv[i] = fli_lua_check_text(L, -1); /* valid, because the text stays on the stack */
    }
    argv[count] = NULL;
    static const char *const names[] = { "input", "output", "errors", "merge" };
    for (unsigned i = 0; i < 4; i++) {
        lua_getfield(L, 1, names[i]);
        if (lua_toboolean(L, -1)) flags |= 1u << i;
        lua_pop(L, 1);
    }
    options.flags = flags;
    if (lua_getfield(L, 1, "directory") != LUA_TNIL) options.directory = check_text(L, -1, "directory");
    int kind = lua_getfield(L, 1, "env");
    if (kind != LUA_TNIL && kind != LUA_TTABLE)
        return luaL_error(L, "env must be a table of names and values, not a %s", luaL_typename(L, -1));
    if (kind == LUA_TTABLE) read_environment(L, environment);
    fli_lua_proc *p = fli_lua_io_begin(L, &tag);
    bool          all = kind == LUA_TNIL && (p->lua->opt.rights & FILCH_LUA_MAY_ENV) != 0;
    if (kind == LUA_TNIL && !all) bare_environment(environment);
    if (!all) options.environment = environment;
    return fli_lua_io_await(L, p, tag, filch_yield_run_with(p->out, tag, argv, &options), FLI_LUA_AS_PROGRAM);
}

static int os_getenv(lua_State *L)
{
    lua_pushstring(L, getenv(fli_lua_check_text(L, 1)));
    return 1;
}

const fli_lua_member fli_lua_net_members[] = {
    { .library = "net", .name = "connect", .fn = net_connect },
    { .library = "net", .name = "listen", .fn = net_listen },
    { .library = "net", .name = "resolve", .fn = net_resolve },
    { .name = NULL },
};
const fli_lua_member fli_lua_exec_members[] = { { .library = "exec", .name = "run", .fn = exec_run },
                                                { .name = NULL } };
const fli_lua_member fli_lua_env_members[] = { { .library = "os", .name = "getenv", .fn = os_getenv },
                                               { .name = NULL } };
