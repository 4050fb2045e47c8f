/* fuzz_lua_codec.c - any bytes as a message for a Lua process. Reading them is safe, whatever they are; what can be read
 * is written again as bytes that read as the same value, and those as the same bytes. */
#include <lauxlib.h>
#include <lua.h>

#include "fuzz/bytes.h"
#include "lua/codec.h"
#include "lua/host.h"
#include "lua/proc.h"
#include "lua/state.h"

static filch_lua *lua;

/* A state with its names, as a process has it. */
static fli_lua_proc *open_state(void)
{
    if (lua == NULL) MUST(filch_lua_create(&lua, NULL) == FILCH_OK, "no host");
    fli_lua_proc *p = fli_lua_state_new(lua, 1 << 20, 1);
    MUST(p != NULL, "no state");
    p->self = (filch_pid){ 7, 1 };
    return p;
}

/* Reads and writes what is at 1, as bytes; leaves the bytes of the first writing. */
static int there_and_back(lua_State *L)
{
    const fuzz_bytes *in = lua_touserdata(L, 1);
    filch_data        message = filch_bytes(in->at, in->left);
    uint64_t          id;
    (void)fli_lua_sort_of(&message, &id);
    fli_lua_unpack(L, &message);
    const uint8_t *at = in->at, *end = at + in->left;
    if (!fli_lua_decode(L, &at, end)) {
        MUST(lua_gettop(L) == 2, "something was left on the stack");
        return 0;
    }
    MUST(at <= end && lua_gettop(L) == 3, "read beyond the end");
    fli_lua_bytes   first, second;
    fli_lua_refusal why = { "" };
    fli_lua_bytes_init(&first, 1 << 20);
    fli_lua_bytes_init(&second, 1 << 20);
    first.by_name = second.by_name = true;
    bool wrote = fli_lua_encode(L, 3, "value", &first, &why);
    MUST(wrote || why.text[0] != '\0', "refused without a word");
    if (wrote) {
        at = first.at;
        MUST(fli_lua_decode(L, &at, first.at + first.size), "what was written cannot be read");
        MUST(at == first.at + first.size, "not all of what was written was read");
        MUST(fli_lua_encode(L, 4, "value", &second, &why), "what was read cannot be written");
        /* Hash tables may list their fields in another order, but nothing gets lost. */
        MUST(first.size == second.size, "another size the second time");
    }
    fli_lua_bytes_fini(&first);
    fli_lua_bytes_fini(&second);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes    in = { at, size };
    fli_lua_proc *p = open_state();
    lua_pushcfunction(p->L, there_and_back);
    lua_pushlightuserdata(p->L, &in);
    int status = lua_pcall(p->L, 1, 0, 0);
    MUST(status == LUA_OK || status == LUA_ERRMEM, "an error that is not about memory");
    fli_lua_state_free(lua, p);
    return 0;
}
