/* fuzz_lua_codec.c - any bytes as a message for a Lua process. Reading them is safe, whatever they are; a value that
 * was read is written as bytes that read as an equal value. Payload blocks are attached to the message, so that
 * references in the bytes can be valid. */
#include <lauxlib.h>
#include <lua.h>

#include "fuzz/bytes.h"
#include "fuzz/lua_values.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/state.h"
#include "lua/message/blob.h"
#include "lua/message/codec.h"
#include "lua/message/functions.h"
#include "lua/process/proc.h"

static filch_lua *lua;

/* Creates a Lua state with the global names that a process has. */
static fli_lua_proc *open_state(void)
{
    if (lua == NULL) MUST(filch_lua_create(&lua, NULL) == FILCH_OK, "no host");
    fli_lua_proc *p = fli_lua_state_new(lua, 1 << 20, 1);
    MUST(p != NULL, "no state");
    p->self = (filch_pid){ 7, 1 };
    return p;
}

/* Returns the attached blocks to which the input may refer: a blob, a text, a block too short for a blob, and the code
 * of a function with two upvalues. */
static fli_lua_refs attached(void)
{
    static const char *const blocks[] = { "\xF1\x1C\x4C\x01\x13 the bytes of a blob", "the bytes of a text", "x" };
    fli_lua_refs             refs = { .at = NULL };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        filch_data block;
        uint32_t   number;
        MUST(filch_share(strdup(blocks[i]), strlen(blocks[i]), NULL, NULL, &block) == FILCH_OK, "no memory");
        MUST(fli_lua_refs_add(&refs, &block, &number) && number == i, "not added");
        filch_drop(&block);
    }
    static const char      chunk[] = "local a, b local function f() return a, b, f end return f";
    static filch_lua_code *code;
    if (code == NULL) {
        lua_State *compiler = luaL_newstate();
        MUST(compiler != NULL && luaL_loadstring(compiler, chunk) == LUA_OK, "no code");
        lua_call(compiler, 0, 1);
        MUST(fli_lua_code_of(lua, compiler, 0, &code) == FILCH_OK, "no code");
        lua_close(compiler);
    }
    filch_data block;
    uint32_t   number;
    fli_lua_code_hold(code);
    MUST(fli_lua_code_wrap(code, &block) == FILCH_OK && fli_lua_refs_add(&refs, &block, &number), "not added");
    filch_drop(&block);
    return refs;
}

/* Decodes the input as a message that may refer to the blocks of attached(). */
static void unpack_with_refs(lua_State *L, const fuzz_bytes *in)
{
    fli_lua_refs refs = attached();
    filch_data   payload;
    uint8_t     *bytes = malloc(in->left + 1);
    memcpy(bytes, in->at, in->left);
    MUST(fli_lua_message_join_refs(bytes, in->left, &refs, NULL, &payload),
         "the references could not be joined to the message");
    MUST(fli_lua_message_weight(&payload) >= in->left, "lighter than its bytes");
    /* stored in the upvalue, so that the caller drops the payload, also if fli_lua_unpack() raises an error */
    *(filch_data *)lua_touserdata(L, lua_upvalueindex(1)) = payload;
    fli_lua_unpack(L, &payload);
    lua_pop(L, 1);
}

/* Decodes the input as a value that may contain functions. If the value is a function, calls it. */
static void read_functions(lua_State *L, const fuzz_bytes *in)
{
    const uint8_t *at = in->at;
    int            top = lua_gettop(L);
    lua_newtable(L);
    lua_pushcfunction(L, fli_lua_pid_text); /* a C function, to which the input can refer as function number 0 */
    lua_rawseti(L, -2, 1);
    fli_lua_attach_functions(lua_gettop(L));
    if (fli_lua_decode(L, &at, in->at + in->left) && lua_isfunction(L, -1)) (void)lua_pcall(L, 0, 0, 0);
    fli_lua_attach_functions(0);
    lua_settop(L, top);
    lua_gc(L, LUA_GCCOLLECT);
}

/* Lua function with a pointer to the input as its argument. Decodes the input, encodes the decoded value, decodes the
 * encoded bytes, and checks that both decoded values are equal. */
static int there_and_back(lua_State *L)
{
    const fuzz_bytes *in = lua_touserdata(L, 1);
    filch_data        message = filch_bytes(in->at, in->left);
    uint64_t          id;
    (void)fli_lua_sort_of(&message, &id);
    unpack_with_refs(L, in);
    fli_lua_unpack(L, &message);
    const uint8_t *at = in->at, *end = at + in->left;
    fli_lua_attach(fli_lua_message_refs(lua_touserdata(L, lua_upvalueindex(1))));
    read_functions(L, in);
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
        fli_lua_attach(&first.refs);
        MUST(fli_lua_decode(L, &at, first.at + first.size), "what was written cannot be read");
        MUST(at == first.at + first.size, "not all of what was written was read");
        MUST(fli_lua_encode(L, 4, "value", &second, &why), "what was read cannot be written");
        /* Compares the decoded values, not the encoded bytes: a hash table may list its fields in another order, and
         * then the entries 1, 2, ... may be encoded with or without their keys. */
        MUST(lua_is_same(L, 3, 4), "another value the second time");
    }
    fli_lua_bytes_fini(&first);
    fli_lua_bytes_fini(&second);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes    in = { at, size };
    fli_lua_proc *p = open_state();
    filch_data    payload = filch_none();
    lua_pushlightuserdata(p->L, &payload);
    lua_pushcclosure(p->L, there_and_back, 1);
    lua_pushlightuserdata(p->L, &in);
    int status = lua_pcall(p->L, 1, 0, 0);
    MUST(status == LUA_OK || status == LUA_ERRMEM, "an error that is not about memory");
    fli_lua_state_free(lua, p);
    filch_drop(&payload);
    return 0;
}
