/* fuzz_lua_formats.c - any bytes as MessagePack or JSON (the first byte says which). Reading is safe and reports errors
 * with their position. A value that was read can be written and read again; with MessagePack the second value is
 * equal. */
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

#include "fuzz/bytes.h"
#include "fuzz/lua_values.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/host/state.h"
#include "lua/process/proc.h"

static filch_lua *lua;

static void push_function(lua_State *L, const char *library, const char *name)
{
    MUST(fli_lua_push_named(L, library, name), "no such function");
}

/* Lua function with the input as its argument. The only error that the function may raise is that memory ran out. */
static int there_and_back(lua_State *L)
{
    fuzz_bytes *in = lua_touserdata(L, 1);
    bool        packed = fuzz_byte(in) % 2 == 0;
    const char *library = packed ? "msgpack" : "json";
    push_function(L, library, "decode");
    lua_pushlstring(L, (const char *)in->at, in->left);
    lua_call(L, 1, 2);
    if (lua_isstring(L, -1) && lua_isnil(L, -2)) {
        MUST(strncmp(lua_tostring(L, -1), "byte ", 5) == 0, "an error without a place");
        return 0;
    }
    MUST(lua_isnil(L, -1), "more than a value");
    lua_settop(L, 2);
    push_function(L, library, "encode");
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    push_function(L, library, "decode");
    lua_pushvalue(L, 3);
    lua_call(L, 1, 2);
    MUST(lua_isnil(L, -1), "what was written cannot be read");
    MUST(!packed || lua_is_same(L, 2, 4), "another value the second time");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes in = { at, size };
    if (lua == NULL) MUST(filch_lua_create(&lua, NULL) == FILCH_OK, "no host");
    fli_lua_proc *p = fli_lua_state_new(lua, 1 << 20, 1);
    MUST(p != NULL, "no state");
    lua_pushcfunction(p->L, there_and_back);
    lua_pushlightuserdata(p->L, &in);
    int status = lua_pcall(p->L, 1, 0, 0);
    if (status != LUA_OK && status != LUA_ERRMEM) fprintf(stderr, "%s\n", lua_tostring(p->L, -1));
    MUST(status == LUA_OK || status == LUA_ERRMEM, "an error that is not about memory");
    fli_lua_state_free(lua, p);
    return 0;
}
