/* codec_test.c - Lua values as bytes: for every kind of value, cut off and changed bytes are detected, values that are
 * too large or too deep are refused with their path, and missing memory is reported. */
#include "lua/message/codec.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/state.h"
#include "lua/process/proc.h"
#include "support/check.h"

static filch_lua    *lua;
static fli_lua_proc *p;
static lua_State    *L;

/* Creates a state with the libraries that a process has, on node 7. */
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

/* Pushes the value that the chunk returns. */
static void push(const char *chunk)
{
    lua_settop(L, 0);
    if (luaL_loadbuffer(L, chunk, strlen(chunk), "=test") != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK) {
        fail_msg("%s", lua_tostring(L, -1));
    }
}

static bool reads(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    int            top = lua_gettop(L);
    bool           fine = fli_lua_decode(L, &at, (const uint8_t *)bytes + size) && at == (const uint8_t *)bytes + size;
    same(lua_gettop(L), fine || lua_gettop(L) > top ? top + 1 : top);
    lua_settop(L, top);
    return fine;
}

static const char *const values[] = {
    "return nil",
    "return false",
    "return true",
    "return 1",
    "return 100",
    "return -5",
    "return -300",
    "return 70000",
    "return 1 << 40",
    "return 1.5",
    "return 'short'",
    "return ('m'):rep(100)",
    "return ('l'):rep(1000)",
    "return {}",
    "return { 1, 2, { a = 'b' } }",
    "return { [true] = 1.5, [2.5] = 2 }",
    "local t = {} for i = 1, 300 do t[i] = i end return t",
    "local t = {} for i = 1, 300 do t['k' .. i] = i end return t",
    "return string",
    "return string.upper",
};

TEST(a_value_cut_off_at_any_byte_is_refused)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        fli_lua_bytes   bytes;
        fli_lua_refusal why;
        push(values[i]);
        fli_lua_bytes_init(&bytes, SIZE_MAX / 4);
        bytes.by_name = true;
        assert_true(fli_lua_encode(L, 1, "value", &bytes, &why));
        assert_true(reads(bytes.at, bytes.size));
        for (size_t size = 0; size < bytes.size; size++) assert_false(reads(bytes.at, size));
        fli_lua_bytes_fini(&bytes);
    }
    static const uint8_t pid[] = { 0x0C, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0 };
    assert_true(reads(pid, sizeof pid));
    for (size_t size = 0; size < sizeof pid; size++) assert_false(reads(pid, size));
}

/* Streams and requests are accepted only in values that a process hands over to its upgraded code. */
TEST(streams_and_requests_are_read_whole_and_only_in_a_handover)
{
    uint8_t request[25] = { 0x16, 7 }, stream[9] = { 0x17, 5 };
    assert_false(reads(request, sizeof request));
    assert_false(reads(stream, sizeof stream));
    p->handing_over = true;
    assert_true(reads(request, sizeof request));
    assert_true(reads(stream, sizeof stream));
    for (size_t size = 0; size < sizeof request; size++) assert_false(reads(request, size));
    for (size_t size = 0; size < sizeof stream; size++) assert_false(reads(stream, size));
    p->handing_over = false;
}

TEST(malformed_bytes_are_refused)
{
    static const struct {
        const char *bytes;
        size_t      size;
    } bad[] = {
        { "\x3E", 1 },                                      /* no such tag */
        { "\x0F\0\0\0\0", 5 },                              /* a blob, but no block is attached */
        { "\x14\0\0\0\0", 5 },                              /* a string, but no block is attached */
        { "\x18\0\0\0\0", 5 },                              /* a function where none is allowed */
        { "\x19\0\0\0\0", 5 },                              /* a reference to a function */
        { "\x1A\0\0\0\0\0", 6 },                            /* a reference to a variable */
        { "\x0F\0", 2 },                                    /* a blob: the number of its block is cut off */
        { "\x13\x41", 2 },                                  /* a blob inside a value, but not as an attached block */
        { "\x10\0\0\0\0\0\0\0\0\x41", 10 },                 /* a request inside a value */
        { "\x3F", 1 },                                      /* no such tag */
        { "\x0A\x05\0\x41", 4 },                            /* five values announced, one present */
        { "\x0A\0\x02\x41\x41", 5 },                        /* two pairs announced, one present */
        { "\x0A\0\x01\0\x41", 5 },                          /* nil as a key */
        { "\x0A\0\x01\x07\0\0\0\0\0\0\xF8\x7F\x41", 13 },   /* NaN as a key */
        { "\x0A\0\x01\x0F\x41", 5 },                        /* a key that cannot be read */
        { "\x0A\0\x01\x41\x0F", 5 },                        /* a value of a pair that cannot be read */
        { "\x0A\x01\0\x0F", 4 },                            /* a value of the list that cannot be read */
        { "\x0B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x41", 10 }, /* 2^32 - 1 values announced */
        { "\x0B\0\0\0\0\xFF\xFF\xFF\xFF\x41", 10 },         /* 2^32 - 1 pairs announced */
        { "\x0D\x04none", 6 },                              /* no such library */
        { "\x0E\x06string\x04none", 13 },                   /* no such function */
        { "\x0E\x04none\x05upper", 12 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (reads(bad[i].bytes, bad[i].size)) fail_msg("bad value %zu is accepted", i);
    }
    uint8_t deep[3 * (FLI_LUA_DEPTH_MAX + 1) + 1];
    for (size_t i = 0; i <= FLI_LUA_DEPTH_MAX; i++) memcpy(deep + 3 * i, "\x0A\x01", 3);
    deep[sizeof deep - 1] = 0x41;
    assert_true(reads(deep + 3, sizeof deep - 3)); /* the largest depth allowed */
    assert_false(reads(deep, sizeof deep));
}

/* Unpacks `bytes` with the mark in front, as a message, and checks the type of the value. */
static void unpacks(const void *bytes, size_t size, const char *type)
{
    char       block[64];
    filch_data data;
    memcpy(block, fli_lua_mark, FLI_LUA_MARK_SIZE);
    memcpy(block + FLI_LUA_MARK_SIZE, bytes, size);
    data = filch_bytes(block, size + FLI_LUA_MARK_SIZE);
    fli_lua_unpack(L, &data);
    assert_string_equal(luaL_typename(L, -1), type);
    if (strcmp(type, "string") == 0) same(lua_rawlen(L, -1), size + FLI_LUA_MARK_SIZE);
    lua_pop(L, 1);
}

TEST(malformed_messages_with_the_mark_are_strings)
{
    filch_data data = filch_bytes(fli_lua_mark, FLI_LUA_MARK_SIZE);
    uint64_t   id = 0;
    fli_lua_unpack(L, &data); /* only the mark, no value */
    same(lua_rawlen(L, -1), FLI_LUA_MARK_SIZE);
    data = filch_bytes("", 0);
    fli_lua_unpack(L, &data);
    same(lua_rawlen(L, -1), 0);
    lua_settop(L, 0);
    unpacks("\x41", 1, "number");
    unpacks("\x0F", 1, "string");     /* a blob: the number of its block is missing */
    unpacks("\x41\x41", 2, "string"); /* bytes follow the value */
    unpacks("\x10\x05\0\0\0\0\0\0\0\x41", 10, "number");
    unpacks("\x10\x05\0\0\0\0\0\0\0\x0F", 10, "string");
    unpacks("\x3F\x05\0\0\0\0\0\0\0\x41", 10, "string"); /* no such tag */
    unpacks("\x13\x05", 2, "userdata");                  /* a blob of one byte */
    unpacks("\x07\x05\0\0\0\0\0\0\0", 9, "number");
    char block[32] = { 0 };
    memcpy(block, fli_lua_mark, FLI_LUA_MARK_SIZE);
    for (uint8_t tag = 0x0F; tag <= 0x13; tag++) {
        block[FLI_LUA_MARK_SIZE] = (char)tag;
        block[FLI_LUA_MARK_SIZE + 1] = 5;
        data = filch_bytes(block, 14);
        fli_lua_sort sort = fli_lua_sort_of(&data, &id);
        same(sort, tag >= 0x10 && tag <= 0x12 ? FLI_LUA_REQUEST + (tag - 0x10) : FLI_LUA_VALUE);
        data = filch_bytes(block, 13); /* too short for a value */
        same(fli_lua_sort_of(&data, &id), FLI_LUA_VALUE);
    }
    same(id, 5);
    data = filch_int(5);
    same(fli_lua_sort_of(&data, &id), FLI_LUA_VALUE);
    data = filch_bytes("not our mark at all", 19);
    same(fli_lua_sort_of(&data, &id), FLI_LUA_VALUE);
}

TEST(payloads_from_c_arrive_as_lua_values)
{
    int        place = 0;
    filch_data data = filch_num(2.5);
    fli_lua_unpack(L, &data);
    assert_true(lua_tonumber(L, -1) == 2.5 && !lua_isinteger(L, -1));
    data = filch_int(-3);
    fli_lua_unpack(L, &data);
    assert_true(lua_isinteger(L, -1) && lua_tointeger(L, -1) == -3);
    data = filch_none();
    fli_lua_unpack(L, &data);
    assert_true(lua_isnil(L, -1));
    fli_lua_unpack(L, NULL);
    assert_true(lua_isnil(L, -1));
    data = filch_ptr(&place);
    fli_lua_unpack(L, &data); /* a full userdata: a light one would be a pid */
    same(lua_type(L, -1), LUA_TUSERDATA);
    assert_ptr_equal(*(void **)lua_touserdata(L, -1), &place);
    filch_pid pid;
    assert_false(fli_lua_to_pid(L, -1, &pid)); /* a userdata without a metatable is not a pid */
    data = filch_of_pid((filch_pid){ 0, 0 });
    fli_lua_unpack(L, &data);
    assert_true(lua_isnil(L, -1));
}

TEST(pids_of_other_schedulers_differ_from_local_pids)
{
    filch_pid near = { 7, 5 }, far = { 8, 5 }, got = { 0, 0 };
    lua_settop(L, 0);
    fli_lua_push_pid(L, near);
    fli_lua_push_pid(L, far);
    fli_lua_push_pid(L, far);
    fli_lua_push_pid(L, (filch_pid){ 8, 6 });
    fli_lua_push_pid(L, (filch_pid){ 9, 5 });
    same(lua_type(L, 1), LUA_TLIGHTUSERDATA);
    same(lua_type(L, 2), LUA_TUSERDATA);
    assert_true(fli_lua_to_pid(L, 1, &got) && got.node == 7 && got.serial == 5);
    assert_true(fli_lua_to_pid(L, 2, &got) && got.node == 8 && got.serial == 5);
    assert_true(lua_compare(L, 2, 3, LUA_OPEQ));
    assert_false(lua_compare(L, 2, 4, LUA_OPEQ));
    assert_false(lua_compare(L, 2, 5, LUA_OPEQ));
    assert_false(lua_compare(L, 1, 2, LUA_OPEQ));
    lua_newuserdatauv(L, 4, 0);
    assert_false(fli_lua_to_pid(L, -1, &got)); /* a userdata without a metatable */
    assert_false(lua_compare(L, 2, -1, LUA_OPEQ));
    assert_false(lua_compare(L, -1, 2, LUA_OPEQ));
    lua_newtable(L);
    lua_setmetatable(L, -2);
    assert_false(fli_lua_to_pid(L, -1, &got)); /* a userdata with another metatable is not a pid */
    assert_true(lua_getmetatable(L, 2));
    lua_getfield(L, -1, "__metatable"); /* the metatable is protected, so a program cannot set it for another value */
    assert_true(lua_isboolean(L, -1));
    lua_settop(L, 5);
    luaL_tolstring(L, 2, NULL);
    assert_non_null(strchr(lua_tostring(L, -1), '<'));
    lua_settop(L, 5);
    /* A pid of node 8 can be packed and encoded on node 7. When node 8 decodes it, the pid is light userdata, as all
     * pids of the own node are. */
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    fli_lua_bytes_init(&bytes, 4096);
    assert_true(fli_lua_pack(L, 2, "value", &bytes, &data, &why));
    same(filch_kind_of(&data), FILCH_KIND_PID);
    assert_true(fli_lua_encode(L, 2, "value", &bytes, &why));
    const uint8_t *at = bytes.at;
    p->self.node = 8;
    assert_true(fli_lua_decode(L, &at, bytes.at + bytes.size));
    same(lua_type(L, -1), LUA_TLIGHTUSERDATA);
    fli_lua_bytes_fini(&bytes);
    p->self.node = 7;
}

/* Writes the value at stack index 1 with a limit for the bytes, which begins at `from` and grows until writing
 * succeeds. Each limit that is too small must be refused with an error that contains `part`. */
static void is_refused_below(size_t from, const char *part)
{
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    size_t          max = from;
    for (;; max++) {
        memset(&why, 0, sizeof why);
        fli_lua_bytes_init(&bytes, max);
        bool fine = fli_lua_encode(L, 1, "message", &bytes, &why);
        if (fine) assert_true(reads(bytes.at, bytes.size));
        fli_lua_bytes_fini(&bytes);
        same(lua_gettop(L), 1);
        if (fine) break;
        if (strstr(why.text, part) == NULL || strstr(why.text, "not enough memory to send it") == NULL)
            fail_msg("%s", why.text);
    }
    assert_true(max > from);
}

TEST(a_limit_that_is_too_small_is_reported_at_every_position)
{
    push("return ('x'):rep(600)");
    is_refused_below(0, "message: ");
    push("return { ('x'):rep(600) }");
    is_refused_below(0, "message[1]: ");
    push("local t = {} for i = 1, 200 do t[i] = {} end return t");
    is_refused_below(480, "message");
    push("local t = {} for i = 1, 500 do t[i] = true end return t");
    is_refused_below(480, "message");
    push("local t = {} for i = 1, 200 do t['k' .. i] = i end return t");
    is_refused_below(480, "message");
    push("return { list = { 1, [2.5] = { ['a b'] = { [false] = ('x'):rep(600) } } } }");
    is_refused_below(480, "message.list[2.5][\"a b\"][false]: ");
    /* The encoded value fills a buffer of 960 bytes: 3 bytes for the table, 299 for the numbers, 5 + 653 for the
     * string. Then the counts need 6 more bytes, because the table has more than 255 values. */
    push("local t = {} for i = 1, 299 do t[i] = 1 end t[300] = ('x'):rep(653) return t");
    is_refused_below(480, "message");
    /* After eight numbers, pids of 17 bytes fill the buffer so that only the beginning of the last pid fits. */
    push("return { 1, 2, 3, 4, 5, 6, 7, 8 }");
    for (int i = 9; i <= 60; i++) {
        fli_lua_push_pid(L, (filch_pid){ 7, 1 });
        lua_rawseti(L, 1, i);
    }
    is_refused_below(480, "message[");
    /* These bytes have `by_name` set and no list of functions, so a function of a library can be encoded only as its
     * name. If the name does not fit into the buffer, the encoder reports that a function cannot be sent. */
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    push("return string.upper");
    fli_lua_bytes_init(&bytes, 480);
    bytes.by_name = true;
    /* after these 8 bytes and 33 names of 14 bytes, 10 bytes are free */
    assert_true(fli_lua_bytes_add(&bytes, why.text, 8));
    while (fli_lua_encode(L, 1, "upvalue", &bytes, &why)) assert_true(bytes.size <= 480);
    assert_non_null(strstr(why.text, "upvalue: "));
    fli_lua_bytes_fini(&bytes);
}

/* Fills the stack until only `left` more values fit, with a memory limit that keeps it from growing. */
static void fill_stack(int left)
{
    int top = lua_gettop(L);
    p->heap.max = p->heap.used + 400; /* enough for one or two tables, but not for a larger stack */
    while (lua_checkstack(L, 1)) lua_pushnil(L);
    assert_true(lua_gettop(L) > top + left);
    lua_pop(L, left);
    assert_false(lua_checkstack(L, left + 1));
}

static void empty_stack(void)
{
    lua_settop(L, 1);
    p->heap.max = (size_t)8 << 20;
}

typedef struct full_read {
    const uint8_t *bytes;
    size_t         size;
    int            left;
} full_read;

static int read_on_a_full_stack(lua_State *state)
{
    const full_read *read = lua_touserdata(state, 1);
    const uint8_t   *at = read->bytes;
    fill_stack(read->left);
    (void)fli_lua_decode(state, &at, at + read->size);
    return 0;
}

/* Reads `bytes` while only `left` more values fit on the stack. Returns true if reading raises a memory error. Reading
 * must not report malformed bytes instead. */
static bool reading_raises(const uint8_t *bytes, size_t size, int left)
{
    full_read read = { .bytes = bytes, .size = size, .left = left };
    lua_pushcfunction(L, read_on_a_full_stack);
    lua_pushlightuserdata(L, &read);
    int  status = lua_pcall(L, 1, 0, 0);
    bool raised = status != LUA_OK && strstr(lua_tostring(L, -1), "not enough memory") != NULL;
    empty_stack();
    return raised;
}

TEST(a_lua_stack_that_cannot_grow_is_reported)
{
    static const uint8_t table[] = { 0x0A, 1, 0, 0x0A, 1, 0, 0x41 };
    fli_lua_bytes        bytes;
    fli_lua_refusal      why;
    filch_pid            pid;
    push("return { {} }");
    fli_lua_bytes_init(&bytes, 4096);
    fill_stack(3);
    assert_false(fli_lua_encode(L, 1, "message", &bytes, &why));
    assert_string_equal(why.text, "message: there is not enough memory to send it");
    empty_stack();
    fill_stack(4);
    assert_false(fli_lua_encode(L, 1, "message", &bytes, &why));
    assert_string_equal(why.text, "message[1]: there is not enough memory to send it");
    empty_stack();
    fli_lua_bytes_fini(&bytes);
    assert_true(reading_raises(table, sizeof table, 3));
    assert_true(reading_raises(table, sizeof table, 4)); /* the stack has no space for the inner table */
    assert_true(reads(table, sizeof table));
    lua_settop(L, 0);
    fli_lua_push_pid(L, (filch_pid){ 8, 1 });
    fill_stack(1);
    assert_false(fli_lua_to_pid(L, 1, &pid));
    empty_stack();
    assert_true(fli_lua_to_pid(L, 1, &pid));
}

TEST(a_state_without_a_process_handles_pids_of_any_node)
{
    lua_State *other = luaL_newstate();
    filch_pid  pid = { 1, 1 };
    *(void **)lua_getextraspace(other) = NULL;
    same(filch_lua_self(other).serial, 0);
    assert_null(filch_lua_sched(other));
    fli_lua_push_pid(other, (filch_pid){ 7, 5 });
    assert_true(fli_lua_to_pid(other, -1, &pid) && pid.node == 7 && pid.serial == 5);
    lua_pushlightuserdata(other, (void *)5);
    assert_true(fli_lua_to_pid(other, -1, &pid) && pid.node == 0 && pid.serial == 5);
    lua_close(other);
    fli_lua_push_pid(L, (filch_pid){ 0, 5 }); /* a valid pid: only a pid of two zeros is invalid */
    assert_true(fli_lua_to_pid(L, -1, &pid) && pid.node == 0 && pid.serial == 5);
}

TEST(the_path_of_a_value_that_cannot_be_sent_is_in_the_error)
{
    static const struct {
        const char *value, *place;
    } cases[] = {
        { "return { [1] = print }", "message[1]: " },
        { "return { [-1.5] = print }", "message[-1.5]: " },
        { "return { _a9Z = print }", "message._a9Z: " },
        { "return { ['9a'] = print }", "message[\"9a\"]: " },
        { "return { ['a9'] = print }", "message.a9: " },
        { "return { ['a:'] = print }", "message[\"a:\"]: " },
        { "return { ['a@'] = print }", "message[\"a@\"]: " },
        { "return { ['a['] = print }", "message[\"a[\"]: " },
        { "return { ['a{'] = print }", "message[\"a{\"]: " },
        { "return { ['a/'] = print }", "message[\"a/\"]: " },
        { "return { [':a'] = print }", "message[\":a\"]: " },
        { "return { ['/a'] = print }", "message[\"/a\"]: " },
        { "return { [''] = print }", "message[\"\"]: " },
        { "return { [('n'):rep(41)] = print }", "message[\"nnnn" },
        { "return { [true] = print }", "message[true]: " },
        { "return { [false] = print }", "message[false]: " },
        { "return { [{}] = print }", "message[table]: " },
        { "local t = print for i = 1, 40 do t = { long_name_of_a_field = t } end return t", "long_name_of_a_field" },
        { "return coroutine.create(print)", "a coroutine cannot be sent" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fli_lua_bytes   bytes;
        fli_lua_refusal why;
        push(cases[i].value);
        fli_lua_bytes_init(&bytes, 65536);
        assert_false(fli_lua_encode(L, 1, "message", &bytes, &why));
        if (strstr(why.text, cases[i].place) == NULL) fail_msg("%s: %s", cases[i].value, why.text);
        fli_lua_bytes_fini(&bytes);
        same(lua_gettop(L), 1);
    }
}

TEST(simple_values_are_packed_as_payloads_of_their_kind)
{
    static const struct {
        const char *value;
        filch_kind  kind;
    } cases[] = {
        { "return nil", FILCH_KIND_NONE },   { "return 5", FILCH_KIND_INT },
        { "return 5.5", FILCH_KIND_NUM },    { "return 'text'", FILCH_KIND_BYTES },
        { "return true", FILCH_KIND_BYTES }, { "return '\\xF1\\x1C\\x4C\\x01A'", FILCH_KIND_BYTES },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fli_lua_bytes   bytes;
        fli_lua_refusal why;
        filch_data      data;
        push(cases[i].value);
        fli_lua_bytes_init(&bytes, 4096);
        assert_true(fli_lua_pack(L, 1, "value", &bytes, &data, &why));
        same(filch_kind_of(&data), cases[i].kind);
        fli_lua_unpack(L, &data);
        assert_true(lua_rawequal(L, 1, -1));
        fli_lua_bytes_fini(&bytes);
    }
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    lua_settop(L, 0);
    lua_newuserdatauv(L, 8, 0);
    fli_lua_bytes_init(&bytes, 4096);
    assert_false(fli_lua_pack(L, 1, "value", &bytes, &data, &why));
    assert_string_equal(why.text, "value: a userdata cannot be sent");
    fli_lua_bytes_fini(&bytes);
    fli_lua_bytes_init(&bytes, 470);
    assert_true(fli_lua_bytes_add(&bytes, NULL, 0));
    uint8_t more[471] = { 0 };
    assert_true(fli_lua_bytes_add(&bytes, more, 470));
    assert_false(fli_lua_bytes_add(&bytes, more, 471)); /* 471 bytes are more than the limit */
    assert_false(fli_lua_bytes_add(&bytes, more, 20));  /* 20 bytes are more than the limit leaves */
    assert_false(fli_lua_envelope(&bytes, FLI_LUA_REPLY, 1));
    same(bytes.size, 470);
    fli_lua_bytes_fini(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)
        T(a_value_cut_off_at_any_byte_is_refused),
        T(streams_and_requests_are_read_whole_and_only_in_a_handover),
        T(malformed_bytes_are_refused),
        T(malformed_messages_with_the_mark_are_strings),
        T(payloads_from_c_arrive_as_lua_values),
        T(pids_of_other_schedulers_differ_from_local_pids),
        T(a_limit_that_is_too_small_is_reported_at_every_position),
        T(a_lua_stack_that_cannot_grow_is_reported),
        T(a_state_without_a_process_handles_pids_of_any_node),
        T(the_path_of_a_value_that_cannot_be_sent_is_in_the_error),
        T(simple_values_are_packed_as_payloads_of_their_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
