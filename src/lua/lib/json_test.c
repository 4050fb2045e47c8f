/* json_test.c - json.encode and json.decode: every value is written and read back, and a text that is not JSON is
 * refused with the position of the wrong byte. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "lua/host/libs.h"
#include "support/check.h"
#include "support/until.h"

static lua_State *L;

static int open_state(void **state)
{
    (void)state;
    L = luaL_newstate();
    *(void **)lua_getextraspace(L) = NULL; /* the state belongs to no Lua process, so budgets are not checked */
    luaL_openlibs(L);
    lua_newtable(L);
    for (const fli_lua_member *m = fli_lua_json_members; m->name != NULL; m++) {
        lua_pushcfunction(L, m->fn);
        lua_setfield(L, -2, m->name);
    }
    lua_setglobal(L, "json");
    return 0;
}

static int close_state(void **state)
{
    (void)state;
    lua_close(L);
    return 0;
}

static void passes(const char *chunk)
{
    if (luaL_loadbuffer(L, chunk, strlen(chunk), "=test") != LUA_OK || lua_pcall(L, 0, 0, 0) != LUA_OK) {
        fail_msg("%s", lua_tostring(L, -1));
    }
}

/* Pushes the results of json.decode. */
static void decodes(const char *text, size_t size)
{
    lua_settop(L, 0);
    lua_getglobal(L, "json");
    lua_getfield(L, -1, "decode");
    lua_pushlstring(L, text, size);
    lua_call(L, 1, LUA_MULTRET);
}

static void is_refused(const char *text, size_t size, const char *why)
{
    decodes(text, size);
    if (lua_gettop(L) != 3 || !lua_isnil(L, 2)) fail_msg("%s is accepted as JSON", text);
    if (strcmp(lua_tostring(L, 3), why) != 0) fail_msg("%s: %s", text, lua_tostring(L, 3));
}

TEST(text_that_is_not_json_is_refused_with_the_position_of_the_byte)
{
    static const char *const cases[][2] = {
        { "", "byte 1: a value is expected" },
        { "  ", "byte 3: a value is expected" },
        { "x", "byte 1: a value is expected" },
        { "tru", "byte 1: a value is expected" },
        { "trug", "byte 1: a value is expected" },
        { "falsy", "byte 1: a value is expected" },
        { "nul", "byte 1: a value is expected" },
        { "-", "byte 2: a value is expected" },
        { "+1", "byte 1: a value is expected" },
        { ".5", "byte 1: a value is expected" },
        { "/", "byte 1: a value is expected" },
        { ":", "byte 1: a value is expected" },
        { "-01", "byte 4: a number must not begin with 0" },
        { "007", "byte 4: a number must not begin with 0" },
        { "1.", "byte 3: a number needs a digit after its point or exponent" },
        { "1.e5", "byte 3: a number needs a digit after its point or exponent" },
        { "1e", "byte 3: a number needs a digit after its point or exponent" },
        { "1e+", "byte 4: a number needs a digit after its point or exponent" },
        { "1E-x", "byte 4: a number needs a digit after its point or exponent" },
        { "1e999", "byte 6: a number is too large" },
        { "-1e999", "byte 7: a number is too large" },
        { "1-2", "byte 2: something follows the value" },
        { "0x10", "byte 2: something follows the value" },
        { "1 2", "byte 3: something follows the value" },
        { "[", "byte 2: a value is expected" },
        { "[1", "byte 3: ',' or ']' is expected" },
        { "[1,]", "byte 4: a value is expected" },
        { "[1 2]", "byte 4: ',' or ']' is expected" },
        { "{", "byte 2: a key in quotes is expected" },
        { "{a:1}", "byte 2: a key in quotes is expected" },
        { "{\"a", "byte 4: the string has no end" },
        { "{\"a\"}", "byte 5: ':' is expected" },
        { "{\"a\":}", "byte 6: a value is expected" },
        { "{\"a\":1", "byte 7: ',' or '}' is expected" },
        { "{\"a\":1,}", "byte 8: a key in quotes is expected" },
        { "{\"a\":1 \"b\":2}", "byte 8: ',' or '}' is expected" },
        { "\"a", "byte 3: the string has no end" },
        { "\"a\\", "byte 4: the string has no end" },
        { "\"\\x\"", "byte 4: an escape that JSON does not have" },
        { "\"\n\"", "byte 2: a control character in a string" },
        { "\"\\u12", "byte 4: \\u needs four hexadecimal digits" },
        { "\"\\u12g4\"", "byte 7: \\u needs four hexadecimal digits" },
        { "\"\\ud800", "byte 8: a \\u escape is half of a surrogate pair" },
        { "\"\\ud800x\"", "byte 8: a \\u escape is half of a surrogate pair" },
        { "\"\\ud800\\n\"", "byte 8: a \\u escape is half of a surrogate pair" },
        { "\"\\ud800\\u12\"", "byte 10: \\u needs four hexadecimal digits" },
        { "\"\\ud800\\u0041\"", "byte 14: a \\u escape is half of a surrogate pair" },
        { "\"\\ud800\\ue000\"", "byte 14: a \\u escape is half of a surrogate pair" },
        { "\"\\udc00\"", "byte 8: a \\u escape is half of a surrogate pair" },
        { "\"\\udfff\"", "byte 8: a \\u escape is half of a surrogate pair" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        is_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    is_refused("1\0", 2, "byte 2: something follows the value");
    is_refused("\"\\\0\"", 4, "byte 4: an escape that JSON does not have");
    is_refused("\"\\u00\000"
               "41\"",
               9, "byte 7: \\u needs four hexadecimal digits");
    char deep[400];
    memset(deep, '[', sizeof deep);
    is_refused(deep, sizeof deep, "byte 102: nested too deep: at most 100 levels");
}

TEST(every_value_is_written_as_json_and_read_back)
{
    passes("local function is(a, b) if a ~= b then error(tostring(a) .. ' is not ' .. tostring(b), 2) end end\n"
           "is(json.encode(true), 'true') is(json.encode(false), 'false') is(json.encode(nil), 'null')\n"
           "is(json.decode('true'), true) is(json.decode(' false '), false) is(json.decode('null', nil), nil) "
           "is(json.decode('null', 7), 7)\n"
           "is(select('#', json.decode('null', nil)), 1)\n"
           "is(json.encode('a\\0\\1\\31\\127b'), '\"a\\\\u0000\\\\u0001\\\\u001f\\\\u007fb\"')\n"
           "is(json.encode('\\b\\f\\n\\r\\t\"\\\\/'), '\"\\\\b\\\\f\\\\n\\\\r\\\\t\\\\\"\\\\\\\\/\"')\n"
           "is(json.decode('\"\\\\b\\\\f\\\\n\\\\r\\\\t\\\\\"\\\\\\\\\\\\/\"'), '\\b\\f\\n\\r\\t\"\\\\/')\n"
           /* characters of one, two, three and four bytes of UTF-8: the lowest and the highest of each */
           "is(json.decode('\"\\\\u0041\\\\u007F\\\\u0080\\\\u07ff\\\\u0800\\\\uD7FF\\\\ue000\\\\uffff\"'), "
           "utf8.char(0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF))\n"
           "is(json.decode('\"\\\\ud800\\\\udc00\\\\uDBFF\\\\uDFFF\"'), utf8.char(0x10000, 0x10FFFF))\n"
           /* arrays, and tables that only look like arrays */
           "is(json.encode({ 1, 2, 3 }), '[1,2,3]') is(json.encode({ { 1 } }), '[[1]]') is(json.encode({}), '{}')\n"
           "is(json.encode({ 1, nil, 3 }), '{\"1\":1,\"3\":3}')\n"
           "is(json.encode({ 'a', x = 1 }), '{\"1\":\"a\",\"x\":1}')\n"
           "is(json.encode({ 'a', [0] = 'z' }), '{\"1\":\"a\",\"0\":\"z\"}')\n"
           "is(json.encode({ 'a', [9] = 'z' }), '{\"1\":\"a\",\"9\":\"z\"}')\n"
           "is(json.encode({ [-3] = {} }), '{\"-3\":{}}')\n"
           "is(#json.decode(' [ ] '), 0) is(#json.decode('[1, 2 ,3]'), 3) is(next(json.decode('{ }')), nil)\n"
           "local o = json.decode('{\"a\":{\"b\":[{}, [], \"\"]}, \"a b\":2}') is(#o.a.b, 3) is(o.a.b[3], '') is(o['a "
           "b'], 2)\n"
           /* texts longer than a buffer */
           "for _, size in ipairs { 1020, 1023, 1024, 1025, 5000, 100000 } do\n"
           "  local s = ('x'):rep(size) is(json.decode(json.encode(s)), s)\n"
           "  local t = {} for i = 1, size do t[i] = 1 end is(#json.encode(t), 2 * size + 1) "
           "is(#json.decode(json.encode(t)), size)\n"
           "end\n");
}

TEST(numbers_keep_their_value_and_their_type)
{
    passes("local function is(a, b) if a ~= b or math.type(a) ~= math.type(b) then error(tostring(a) .. ' is not ' .. "
           "tostring(b), 2) end end\n"
           "is(json.decode('-0'), 0) is(json.decode('0'), 0) is(json.decode('10'), 10) is(json.decode('1e3'), 1e3) "
           "is(json.decode('-1.5E-1'), -0.15)\n"
           "is(json.decode('1E+2'), 100.0) is(json.decode('0.25'), 0.25)\n"
           "is(json.decode('9223372036854775807'), math.maxinteger) is(json.decode('9223372036854775808'), 2.0 ^ 63)\n"
           "is(json.decode(json.encode(math.mininteger)), math.mininteger)\n"
           "is(json.encode(2.0), '2.0') is(json.encode(1e300), '1e+300') is(json.encode(0.1), '0.1') "
           "is(json.encode(1/3), '0.33333333333333331')\n"
           "is(json.decode('1.' .. ('0'):rep(500) .. '1'), 1.0) is(json.decode('[' .. ('9'):rep(70) .. ',2]')[2], 2)\n"
           "is(json.decode(('0'):rep(1) .. '.' .. ('5'):rep(62)), tonumber('0.' .. ('5'):rep(62)))\n"
           "for i = 1, 2000 do local x = string.unpack('d', string.pack('I4I4', (i * 2654435761) % 2^32 // 1 | 0, (i * "
           "40503) % 0x7fe00000))\n"
           "  if x == x and x ~= 1/0 then is(json.decode(json.encode(x)), x) end end\n"
           "for _, bad in ipairs { 1/0, -1/0, 0/0 } do local fine, why = pcall(json.encode, bad) assert(not fine and "
           "why:find('not finite'), why) end\n");
}

TEST(values_without_a_json_form_are_named_in_the_error)
{
    passes("local function why(value) local fine, text = pcall(json.encode, value) assert(not fine) return text end\n"
           "local function has(text, part) if not text:find(part, 1, true) then error(text, 2) end end\n"
           "has(why(print), 'a function has no JSON') has(why(coroutine.create(print)), 'a thread has no JSON') "
           "has(why({ io.stdout }), 'a userdata has no JSON')\n"
           "has(why({ [1.5] = 1 }), 'a key must be a string or a whole number') has(why({ [true] = 1 }), 'a key must "
           "be')\n"
           "local loop = {} loop[1] = loop has(why(loop), 'contains itself')\n"
           "assert(not pcall(json.encode)) assert(not pcall(json.decode)) assert(not pcall(json.decode, {}))\n"
           "local deep = 1 for i = 1, 100 do deep = { deep } end assert(json.encode(deep) == ('['):rep(100) .. 1 .. "
           "(']'):rep(100))\n"
           "has(why({ deep }), 'nested too deep')\n"
           "assert(json.decode(json.encode(deep)))\n");
}

/* Random texts that are nearly JSON: json.decode returns either a value that can be written again, or an error with its
 * position. */
TEST(random_text_gives_a_value_or_an_error_with_its_position)
{
    static const char *const pieces[] = {
        "[",       "]",       "{", "}",  ",", ":",      "\"",    "\"a\"", "1",
        "-",       "0",       ".", "e",  "+", "true",   "null",  "\\",    "\\u00e4",
        "\\ud800", "\\udc00", " ", "\n", "x", "\"k\":", "1.5e3", "[1,2]", "{\"a\":1}"
    };
    fli_prng prng;
    unsigned taken = 0;
    fli_prng_init(&prng, 11);
    for (uint64_t i = scaled(100000); i > 0; i--) {
        char text[128] = "";
        for (uint32_t n = fli_prng_below(&prng, 8); n > 0; n--) {
            strcat(text, pieces[fli_prng_below(&prng, sizeof pieces / sizeof pieces[0])]);
        }
        decodes(text, strlen(text));
        if (lua_gettop(L) == 3 && lua_isnil(L, 2)) {
            int at = 0;
            same(sscanf(lua_tostring(L, 3), "byte %d: ", &at), 1);
            assert_true(at >= 1 && (size_t)at <= strlen(text) + 1);
        } else {
            same(lua_gettop(L), 2);
            taken++;
            lua_getfield(L, 1, "encode");
            lua_insert(L, -2);
            lua_call(L, 1, 1);
            assert_true(lua_type(L, -1) == LUA_TSTRING);
        }
    }
    assert_true(taken > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)
        T(text_that_is_not_json_is_refused_with_the_position_of_the_byte),
        T(every_value_is_written_as_json_and_read_back),
        T(numbers_keep_their_value_and_their_type),
        T(values_without_a_json_form_are_named_in_the_error),
        T(random_text_gives_a_value_or_an_error_with_its_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
