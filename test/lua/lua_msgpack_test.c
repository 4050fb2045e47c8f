/* lua_msgpack_test.c - MessagePack from Lua: the bytes follow the format, every value is read back, and errors are
 * reported with their position. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.memory_max = (size_t)64 << 20;
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(messagepack_values_have_their_shortest_encoding)
{
    fixture_passes(
        &w,
        "local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end\n"
        "local cases = {\n"
        "  { 0, '00' }, { 127, '7f' }, { 128, 'cc80' }, { 255, 'ccff' }, { 256, 'cd0100' }, { 65535, 'cdffff' },\n"
        "  { 65536, 'ce00010000' }, { 0xffffffff, 'ceffffffff' }, { 1 << 32, 'cf0000000100000000' },\n"
        "  { math.maxinteger, 'cf7fffffffffffffff' }, { -1, 'ff' }, { -32, 'e0' }, { -33, 'd0df' }, { -128, 'd080' },\n"
        "  { -129, 'd1ff7f' }, { -32768, 'd18000' }, { -32769, 'd2ffff7fff' }, { -(1 << 31), 'd280000000' },\n"
        "  { -(1 << 31) - 1, 'd3ffffffff7fffffff' }, { math.mininteger, 'd38000000000000000' },\n"
        "  { 1.5, 'cb3ff8000000000000' }, { 1.0, 'cb3ff0000000000000' }, { true, 'c3' }, { false, 'c2' },\n"
        "  { '', 'a0' }, { 'abc', 'a3616263' }, { ('x'):rep(31), 'bf' .. ('78'):rep(31) },\n"
        "  { ('x'):rep(32), 'd920' .. ('78'):rep(32) },\n"
        "}\n"
        "for i, case in ipairs(cases) do\n"
        "  local bytes = msgpack.encode(case[1])\n"
        "  assert(hex(bytes) == case[2], hex(bytes))\n"
        "  local back = msgpack.decode(bytes)\n"
        "  assert(back == case[1] and math.type(back) == math.type(case[1]), i)\n"
        "end\n"
        "assert(hex(msgpack.encode(nil)) == 'c0' and select('#', msgpack.decode('\\xc0')) == 1)\n"
        "assert(hex(msgpack.encode({})) == '80' and hex(msgpack.encode({ 1, 2 })) == '920102')\n"
        "assert(hex(msgpack.encode({ a = 1 })) == '81a16101' and hex(msgpack.encode(blob.new('hi'))) == 'c4026869')\n"
        "for _, n in ipairs { 255, 256, 65535, 65536 } do\n"
        "  assert(msgpack.decode(msgpack.encode(('s'):rep(n))) == ('s'):rep(n))\n"
        "  assert(msgpack.decode(msgpack.encode(blob.new(('s'):rep(n)))) == ('s'):rep(n))\n"
        "end\n");
}

TEST(tables_survive_a_messagepack_round_trip)
{
    fixture_passes(
        &w, "local function same(a, b)\n"
            "  if type(a) ~= 'table' then return a == b and math.type(a) == math.type(b) end\n"
            "  for k, v in pairs(a) do if not same(v, b[k]) then return false end end\n"
            "  for k in pairs(b) do if a[k] == nil then return false end end\n"
            "  return true\n"
            "end\n"
            "local long, wide = {}, {}\n"
            "for i = 1, 70000 do long[i] = i wide['k' .. i] = { i } end\n"
            "for i, v in ipairs { { 1, { 2, { 3 } } }, { x = { y = { z = {} } } }, { 1, 2, nil, 4 }, { [1] = 1, "
            "[3] = 3 },\n"
            "    { 1, 2, n = 2 }, { [true] = 1, [false] = 2, [1.5] = 3, [-7] = 4 }, long, wide } do\n"
            "  assert(same(v, msgpack.decode(msgpack.encode(v))), i)\n"
            "end\n"
            "local deep = 1 for i = 1, 100 do deep = { deep } end\n"
            "assert(same(deep, msgpack.decode(msgpack.encode(deep))))\n"
            "local stream, at, got = msgpack.encode(1) .. msgpack.encode('two') .. msgpack.encode({ 3 }), 1, {}\n"
            "while at <= #stream do got[#got + 1], at = msgpack.decode(stream, at) end\n"
            "assert(#got == 3 and got[2] == 'two' and got[3][1] == 3)\n"
            "assert(msgpack.decode(blob.new('\\x93\\x01\\x02\\x03'))[3] == 3)\n"
            "assert(msgpack.decode('\\xca\\x40\\x20\\x00\\x00') == 2.5)\n"
            "assert(msgpack.decode('\\xcf\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff') == 2.0 ^ 64)\n");
}

TEST(messagepack_errors_name_the_position)
{
    fixture_passes(
        &w,
        "local function refused(value, why)\n"
        "  local fine, got = pcall(msgpack.encode, value)\n"
        "  assert(not fine and got:find(why, 1, true), got)\n"
        "end\n"
        "refused({ users = { {}, { callback = print } } }, 'value.users[2].callback: a function has no MessagePack')\n"
        "refused({ ['a b'] = { coroutine.create(print) } }, 'value[\"a b\"][1]: a thread has no MessagePack')\n"
        "refused({ [{}] = 1 }, 'a table cannot be a key')\n"
        "local circle = { x = {} } circle.x.y = circle\n"
        "refused(circle, 'value.x.y: the table contains itself')\n"
        "local deep = 1 for i = 1, 101 do deep = { deep } end\n"
        "refused(deep, 'nested too deep')\n"
        "refused(process.self(), 'has no MessagePack')\n"
        "local function wrong(bytes, why)\n"
        "  local value, got = msgpack.decode(bytes)\n"
        "  assert(value == nil and got == why, got)\n"
        "end\n"
        "wrong('', 'byte 1: a value is expected')\n"
        "wrong('\\x01\\x02', 'byte 2: something follows the value')\n"
        "wrong('\\x82\\xa1a\\x01\\xa5users\\x92\\x01\\xc1', 'byte 13, at .users[2]: a byte that MessagePack does not "
        "use')\n"
        "wrong('\\xd4\\x05x', 'byte 1: an extension type, which Lua has nothing for')\n"
        "wrong('\\x91\\xcd\\x01', 'byte 3, at [1]: the bytes end inside a value')\n"
        "wrong('\\xdd\\xff\\xff\\xff\\xff\\x01', 'byte 6: the bytes end inside a value')\n"
        "wrong('\\xdf\\xff\\xff\\xff\\xff\\x01', 'byte 6: the bytes end inside a value')\n"
        "wrong('\\xa5abc', 'byte 2: the bytes end inside a value')\n"
        "wrong('\\x81\\xc0\\x01', 'byte 3: a key must be a string, a boolean or a number other than nan')\n"
        "wrong('\\x81\\xcb\\x7f\\xf8\\0\\0\\0\\0\\0\\0\\x01', 'byte 11: a key must be a string, a boolean or a number "
        "other than nan')\n"
        "wrong('\\x81\\x90\\x01', 'byte 3: a key must be a string, a boolean or a number other than nan')\n"
        "assert(msgpack.decode(('\\x91'):rep(100) .. '\\x01') and not msgpack.decode(('\\x91'):rep(101) .. '\\x01'))\n"
        "for _, bad in ipairs { 0, 4, -1 } do assert(not pcall(msgpack.decode, '\\1\\2', bad)) end\n"
        "assert(not pcall(msgpack.decode) and not pcall(msgpack.decode, {}) and not pcall(msgpack.encode))\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(messagepack_values_have_their_shortest_encoding),
        T(tables_survive_a_messagepack_round_trip),
        T(messagepack_errors_name_the_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
