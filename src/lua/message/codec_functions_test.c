/* codec_functions_test.c - functions as bytes: bytes that are cut off anywhere are refused, a changed byte damages
 * nothing but the value, and each invalid reference is detected. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/state.h"
#include "lua/message/codec.h"
#include "lua/message/functions.h"
#include "lua/process/proc.h"
#include "support/check.h"

static filch_lua    *lua;
static fli_lua_proc *p;
static lua_State    *L;

static int open_state(void **state)
{
    (void)state;
    ok(filch_lua_create(&lua, NULL));
    p = fli_lua_state_new(lua, (size_t)8 << 20, 1);
    assert_non_null(p);
    L = p->L;
    p->self = (filch_pid){ 7, 1 };
    p->simulated = true; /* switches off the time budget, which would count as spent because no step has begun */
    fli_lua_libs_install(L);
    return 0;
}

static int close_state(void **state)
{
    (void)state;
    lua_close(L);
    fli_lua_state_free(lua, p);
    ok(filch_lua_destroy(lua));
    return 0;
}

/* ---- writing and reading functions ---- */

static struct {
    fli_lua_bytes     bytes;
    fli_lua_functions functions;
} out;

/* Writes the value that the chunk returns. */
static void write_value(const char *chunk)
{
    fli_lua_refusal why = { "" };
    lua_settop(L, 0);
    if (luaL_loadbuffer(L, chunk, strlen(chunk), "=test") != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK) {
        fail_msg("%s", lua_tostring(L, -1));
    }
    fli_lua_bytes_init(&out.bytes, SIZE_MAX / 4);
    fli_lua_functions_init(&out.functions, NULL);
    out.bytes.by_name = true;
    out.bytes.functions = &out.functions;
    if (!fli_lua_encode(L, 1, "value", &out.bytes, &why)) fail_msg("%s", why.text);
    lua_settop(L, 0);
}

static void drop_value(void)
{
    fli_lua_attach(NULL);
    fli_lua_functions_fini(&out.functions);
    fli_lua_bytes_fini(&out.bytes);
}

/* Pushes a list of functions, with a function made here as first element (number 0), and then the value read from
 * `bytes`. Returns true if the bytes are a value. */
static bool read_value(const uint8_t *bytes, size_t size, const fli_lua_refs *refs)
{
    const uint8_t *at = bytes;
    lua_settop(L, 0);
    lua_newtable(L);
    assert_int_equal(luaL_loadstring(L, "local x, y = 1, 2 return function() return x + y end"), LUA_OK);
    lua_call(L, 0, 1);
    lua_rawseti(L, 1, 1); /* number 0: in a spawn, the function that the process runs */
    fli_lua_attach(refs);
    fli_lua_attach_functions(1);
    bool fine = fli_lua_decode(L, &at, bytes + size) && at == bytes + size;
    fli_lua_attach(NULL);
    if (!fine) lua_settop(L, 1);
    same(lua_gettop(L), fine ? 2 : 1);
    return fine;
}

static const char CHUNK[] = "local n, shared = 5, 0\n"
                            "local function fact(k) if k <= 1 then return 1 end return k * fact(k - 1) end\n"
                            "local function bump() shared = shared + n return shared end\n"
                            "local function look() return shared end\n"
                            "return { fact, bump, look, { again = fact } }";

TEST(decoded_functions_share_their_variables)
{
    write_value(CHUNK);
    assert_true(read_value(out.bytes.at, out.bytes.size, &out.bytes.refs));
    lua_setglobal(L, "t");
    assert_int_equal(
        luaL_dostring(
            L, "assert(t[1](5) == 120 and t[2]() == 5 and t[2]() == 10 and t[3]() == 10 and t[4].again == t[1])"),
        LUA_OK);
    drop_value();
}

TEST(functions_cut_off_at_any_byte_are_refused)
{
    write_value(CHUNK);
    for (size_t size = 0; size < out.bytes.size; size++) {
        /* a block exactly as long as the bytes, so that a sanitizer finds a read beyond its end */
        uint8_t *cut = malloc(size > 0 ? size : 1);
        memcpy(cut, out.bytes.at, size);
        assert_false(read_value(cut, size, &out.bytes.refs));
        free(cut);
    }
    drop_value();
}

TEST(a_changed_byte_of_a_function_gives_another_value_or_none)
{
    write_value(CHUNK);
    uint8_t *changed = malloc(out.bytes.size);
    unsigned taken = 0, refused = 0;
    for (size_t i = 0; i < out.bytes.size; i++) {
        for (unsigned step = 1; step < 256; step += step < 4 ? 1 : 50) {
            memcpy(changed, out.bytes.at, out.bytes.size);
            changed[i] = (uint8_t)(changed[i] + step);
            if (read_value(changed, out.bytes.size, &out.bytes.refs)) taken++;
            else refused++;
        }
    }
    assert_true(taken > 0 && refused > 100);
    free(changed);
    drop_value();
}

/* `bytes` is a string literal; its last byte, a zero, is left out. */
#define refuses(bytes, refs) assert_false(read_value((const uint8_t *)(bytes), sizeof(bytes) - 1, (refs)))

static void free_nothing(void *user, void *bytes, size_t size)
{
    (void)user, (void)bytes, (void)size;
}

TEST(a_function_whose_code_is_not_attached_is_refused)
{
    static char  bytes[] = "some bytes";
    fli_lua_refs other = { .at = NULL };
    filch_data   block;
    uint32_t     number;
    ok(filch_share(bytes, 10, free_nothing, NULL, &block));
    assert_true(fli_lua_refs_add(&other, &block, &number));
    refuses("\x18\x00\x00\x00\x00", NULL);
    refuses("\x18\x00\x00\x00\x00", &other); /* the block is not code */
    refuses("\x18\x01\x00\x00\x00", &other);
    refuses("\x18\x00\x00", &other);
    refuses("\x19\x05\x00\x00\x00", &other); /* there is no function with number 5 */
    refuses("\x19\x05", &other);
    fli_lua_refs_fini(&other);
    filch_drop(&block);
}

TEST(functions_are_refused_if_no_list_of_functions_is_attached)
{
    write_value(CHUNK);
    const uint8_t *at = out.bytes.at;
    fli_lua_attach(&out.bytes.refs); /* blocks are attached, but no list of functions */
    assert_false(fli_lua_decode(L, &at, at + out.bytes.size));
    static const uint8_t again[] = { 0x19, 0, 0, 0, 0 };
    at = again;
    assert_false(fli_lua_decode(L, &at, again + sizeof again));
    same(lua_gettop(L), 0);
    drop_value();
}

static int of_c(lua_State *state)
{
    (void)state;
    return 0;
}

/* Reads the i-th variable of function number 0. */
static bool reads_variable(int i, const char *bytes, size_t size)
{
    const uint8_t *at = (const uint8_t *)bytes, *end = at + size;
    lua_rawgeti(L, 1, 1);
    int  top = lua_gettop(L);
    bool fine = fli_lua_decode_variable(L, top, i, &at, end) && at == end;
    same(lua_gettop(L), top);
    lua_pop(L, 1);
    return fine;
}

TEST(a_variable_with_an_invalid_reference_is_refused)
{
    assert_true(read_value((const uint8_t *)"\x41", 1, NULL));
    lua_settop(L, 1);
    lua_pushcfunction(L, of_c);
    lua_rawseti(L, 1, 2); /* number 1: a C function */
    lua_pushinteger(L, 5);
    lua_rawseti(L, 1, 3); /* number 2: not a function */
    fli_lua_attach_functions(1);
    assert_true(reads_variable(1, "\x45", 1));
    /* the bytes make variable 1 the same upvalue as variable 2 */
    assert_true(reads_variable(1, "\x1A\x00\x00\x00\x00\x02", 6));
    assert_false(reads_variable(1, "", 0));
    assert_false(reads_variable(1, "\x08", 1));
    assert_false(reads_variable(9, "\x45", 1)); /* function number 0 has fewer than 9 variables */
    assert_false(reads_variable(1, "\x1A\x00\x00", 3));
    assert_false(reads_variable(1, "\x1A\x00\x00\x00\x00", 5));
    assert_false(reads_variable(1, "\x1A\x09\x00\x00\x00\x01", 6));
    assert_false(reads_variable(1, "\x1A\x01\x00\x00\x00\x01", 6));
    assert_false(reads_variable(1, "\x1A\x02\x00\x00\x00\x01", 6));
    assert_false(reads_variable(1, "\x1A\x00\x00\x00\x00\x09", 6));
    static const uint8_t again[] = { 0x19, 2, 0, 0, 0 };
    const uint8_t       *at = again;
    assert_false(fli_lua_decode(L, &at, again + sizeof again));
    lua_settop(L, 1);
    fli_lua_attach(NULL);
}

TEST(functions_nested_too_deep_are_refused)
{
    fli_lua_refusal why;
    lua_settop(L, 0);
    assert_int_equal(luaL_dostring(L, "local f = function() return 0 end\n"
                                      "for i = 1, 150 do local g = f f = function() return g() + 1 end end return f"),
                     LUA_OK);
    fli_lua_bytes_init(&out.bytes, SIZE_MAX / 4);
    fli_lua_functions_init(&out.functions, NULL);
    out.bytes.functions = &out.functions;
    assert_false(fli_lua_encode(L, 1, "value", &out.bytes, &why));
    assert_non_null(strstr(why.text, "nested too deep"));
    drop_value();
}

/* Writes a value into buffers of every size, which cannot grow. The value is refused if the buffer is too small. */
TEST(a_value_that_does_not_fit_is_refused_at_every_buffer_size)
{
    fli_lua_refusal why;
    lua_settop(L, 0);
    assert_int_equal(
        luaL_dostring(L,
                      "local n, shared = 5, 0\n"
                      "local function bump() shared = shared + n return shared end\n"
                      "local function look() return shared, bump end\n"
                      "local many = {} for i = 1, 300 do many[i] = i end\n"
                      "return { bump, look, ('s'):rep(60), ('m'):rep(100), 1 << 40, 2.5, bump, many, ('l'):rep(300) }"),
        LUA_OK);
    for (size_t room = 0; room <= sizeof out.bytes.first; room++) {
        fli_lua_bytes_init(&out.bytes, 0);
        fli_lua_functions_init(&out.functions, NULL);
        out.bytes.room = room;
        out.bytes.by_name = true;
        out.bytes.functions = &out.functions;
        assert_false(fli_lua_encode(L, 1, "value", &out.bytes, &why));
        if (strstr(why.text, "not enough memory to send it") == NULL) fail_msg("%s", why.text);
        assert_true(out.bytes.size <= room);
        drop_value();
        same(lua_gettop(L), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_functions_share_their_variables),
        cmocka_unit_test(functions_cut_off_at_any_byte_are_refused),
        cmocka_unit_test(a_changed_byte_of_a_function_gives_another_value_or_none),
        cmocka_unit_test(a_function_whose_code_is_not_attached_is_refused),
        cmocka_unit_test(functions_are_refused_if_no_list_of_functions_is_attached),
        cmocka_unit_test(a_variable_with_an_invalid_reference_is_refused),
        cmocka_unit_test(functions_nested_too_deep_are_refused),
        cmocka_unit_test(a_value_that_does_not_fit_is_refused_at_every_buffer_size),
    };
    return cmocka_run_group_tests(tests, open_state, close_state);
}
