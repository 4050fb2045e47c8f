/* lua_blobs_test.c - the bytes of a blob, or of a long string that is sent on, are stored once for all processes that
 * hold them. */
#include <lauxlib.h>
#include <lua.h>

#include "lua/fixture.h"

static fixture w;

/* Lua function where(value): returns the address of the bytes that a send of the value would use. */
static int where(lua_State *L)
{
    filch_data data;
    char       why[128];
    if (filch_lua_pack(L, 1, &data, why, sizeof why) != FILCH_OK) return luaL_error(L, "%s", why);
    lua_pushinteger(L, (lua_Integer)(intptr_t)filch_raw(&data));
    filch_drop(&data);
    return 1;
}

static void add_where(lua_State *L, void *user)
{
    (void)user;
    lua_pushcfunction(L, where);
    lua_setfield(L, -2, "where");
}

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.open = add_where;
    options.memory_max = 8 << 20;
    /* the slice is long, so that no step is interrupted: an interruption ends the step, and the cache of long strings
     * is cleared after each step */
    options.slice_ns = FILCH_SECONDS(60);
    fixture_open(&w, 2, &options);
    return 0;
}

TEST(a_blob_has_the_bytes_of_its_string)
{
    fixture_passes(&w,
                   "local text = ('0123456789'):rep(10000)\n"
                   "local b = blob.new(text)\n"
                   "assert(#b == #text and b:len() == #text and tostring(b) == text)\n"
                   "for _, at in ipairs { { 1, 10 }, { -5 }, { 0, 3 }, { 99999, 200000 }, { 5, 4 }, { -200000, 2 }, "
                   "{ 7, -99990 },\n"
                   "    { math.mininteger, math.maxinteger }, { 2, -200000 } } do\n"
                   "  assert(b:sub(at[1], at[2]) == text:sub(at[1], at[2] or -1), at[1])\n"
                   "end\n"
                   "assert(b == blob.new(text) and b ~= blob.new('other') and b ~= text)\n"
                   "assert(blob.is(b) and not blob.is(text) and not blob.is(nil))\n"
                   "assert(#blob.new('') == 0 and tostring(blob.new('')) == '')\n"
                   "assert(not pcall(blob.new, {}) and not pcall(blob.new) and not pcall(b.sub, 'x', 1))\n"
                   "assert(getmetatable(b) == false)\n"
                   "assert(select(2, pcall(setmetatable, b, {})):find('table expected', 1, true))\n");
}

/* A program that sends values to other processes in every possible way. */
static const char ways[] =
    "local me, text = process.self(), ('x'):rep(100000)\n"
    "local b = blob.new(text)\n"
    "local at = where(b)\n"
    "local function check(value, way) assert(blob.is(value) and value == b and where(value) == at, way) end\n"
    "process.send(me, b) check(process.receive(), 'alone')\n"
    "process.send(me, { 1, { body = b, again = b } })\n"
    "local m = process.receive() check(m[2].body, 'inside') check(m[2].again, 'twice')\n"
    "local echo = process.spawn(function() while true do\n"
    "  local m, from = process.receive()\n"
    "  if blob.is(m.ask) then process.reply(from, { m.ask, where(m.ask) }) end\n"
    "end end)\n"
    "local got = process.request(echo, { ask = b })\n"
    "check(got[1], 'reply') assert(got[2] == at, 'request')\n"
    "check(process.exec(function(arg) assert(where(arg) == where(b)) return arg end, b), 'argument, upvalue, result')\n"
    "check(process.exec(function(arg) process.exit({ arg }) end, b)[1], 'exit')\n"
    "process.join('g') process.broadcast('g', { b }) check(process.receive()[1], 'broadcast')\n"
    "local pid = process.spawn_monitored(function() return b end)\n"
    "check(process.receive({ event = 'exit', pid = pid }).result, 'notice')\n"
    "process.send(me, { later = b }) process.send(me, 'now')\n"
    "assert(process.receive(function(m) return m == 'now' end))\n"
    "time.sleep('1ms')\n"
    "check(process.receive().later, 'kept')\n"
    "process.terminate(echo)\n";

TEST(a_blob_is_shared_by_all_its_holders)
{
    fixture_passes(&w, ways);
}

TEST(a_long_string_sent_to_many_processes_is_copied_once)
{
    fixture_passes(&w, "local me, text = process.self(), ('y'):rep(50000)\n"
                       "local readers = {}\n"
                       "for i = 1, 4 do readers[i] = process.spawn(function()\n"
                       "  local m = process.receive()\n"
                       "  if type(m) == 'table' then m = m.body end\n"
                       "  process.send(me, { where(m), m == ('y'):rep(50000) })\n"
                       "end) end\n"
                       "process.send(me, { text }) process.receive()\n"
                       "for i = 1, 4 do process.send(readers[i], i % 2 == 0 and text or { body = text }) end\n"
                       "local at = where(text)\n"
                       "for i = 1, 4 do local m = process.receive() assert(m[2] and m[1] == at, i) end\n"
                       "time.sleep('1ms')\n"
                       "assert(where(text) ~= nil)\n");
}

TEST(a_forwarded_long_string_is_not_copied)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "local last = process.spawn(function() local m, from = process.receive() process.send(me, where(m.text)) end)\n"
        "local middle = process.spawn(function()\n"
        "  local m = process.receive() process.send(last, { text = m }) process.send(me, where(m)) end)\n"
        "process.send(middle, ('z'):rep(1000000))\n"
        "assert(process.receive() == process.receive())\n");
}

TEST(each_holder_of_a_blob_is_charged_its_full_size)
{
    fixture_passes(
        &w,
        "local before = collectgarbage('count')\n"
        "local b = blob.new(('x'):rep(1 << 20)) collectgarbage()\n"
        "assert(collectgarbage('count') - before > 1000)\n"
        "b = nil collectgarbage()\n"
        "assert(collectgarbage('count') - before < 100)\n"
        "local big = blob.new(('x'):rep(2 << 20))\n"
        "local hold = process.spawn { function() local kept = {}\n"
        "  for i = 1, 2 do kept[i] = process.receive() end process.receive() end, memory = '4MB', monitor = true }\n"
        "process.send(hold, big) process.send(hold, { big })\n"
        "assert(process.receive({ event = 'exit', pid = hold }).error:find('not enough memory'))\n");
}

TEST(held_blobs_count_against_memory_and_garbage_does_not)
{
    fixture_run(&w, "local kept = {} for i = 1, 100 do kept[i] = blob.new(('x'):rep(1 << 20)) end");
    same(w.error, FILCH_LUA_EMEMORY);
    fixture_passes(&w, "local text = ('x'):rep(1 << 20) for i = 1, 200 do local b = blob.new(text) end");
    fixture_passes(&w, "local me, b = process.self(), blob.new(('x'):rep(1 << 20))\n"
                       "for i = 1, 200 do process.send(me, { b }) process.receive() end");
    /* The memory of a process includes the blobs to which its kept messages refer. */
    fixture_run(&w, "local me, b = process.self(), blob.new(('x'):rep(1 << 20))\n"
                    "for i = 1, 20 do process.send(me, { b, i }) end\n"
                    "process.receive(function() return false end, '1s')");
    same(w.error, FILCH_LUA_EMEMORY);
}

/* Regression: in a collection while 199 C calls were nested, Lua could not call the finalizers of blobs, so freed blobs
 * stayed in the list of blobs. After that the program crashed, or wrote to an address that the script could choose. In
 * this test tables and strings take the memory of the freed blobs. */
TEST(blobs_collected_where_no_finalizer_can_be_called_are_not_used_again)
{
    fixture_passes(&w,
                   "local level, object = 0, nil\n"
                   "object = setmetatable({}, { __tostring = function()\n"
                   "  level = level + 1\n"
                   "  if level >= 98 then for i = 1, 3000 do local t = { i } end end\n"
                   "  pcall(tostring, object)\n"
                   "  return 'x'\n"
                   "end })\n"
                   "local function nested(n) if n == 0 then pcall(tostring, object) else pcall(nested, n - 1) end end\n"
                   "local spray, deepest, held = {}, 0, nil\n"
                   "for round = 1, 40 do\n"
                   "  for i = 1, 100 do blob.new('blob ' .. i) end\n"
                   "  level = 0 nested(round % 4)\n"
                   "  if level > deepest then deepest = level end\n"
                   "  collectgarbage() collectgarbage()\n"
                   "  for i = 1, 3000 do spray[i] = ('A'):rep(i % 60 + 20) .. i end\n"
                   "  for i = 1, 10 do blob.new('new') end\n"
                   "end\n"
                   "assert(deepest > 90, deepest)\n");
}

/* Regression: a table with weak keys had a blob for a moment after the blob was finalized. The length of this blob was
 * -5, and reading its text was a memory error. */
TEST(a_finalized_blob_in_a_table_with_weak_keys_is_no_blob)
{
    fixture_passes(
        &w, "local found = 0\n"
            "for round = 1, 20 do\n"
            "  local weak = setmetatable({}, { __mode = 'k' })\n"
            "  for i = 1, 50 do weak[blob.new(('x'):rep(50))] = true end\n"
            "  while next(weak) do\n"
            "    collectgarbage('step')\n"
            "    for b in pairs(weak) do\n"
            "      if blob.is(b) then assert(#b == 50 and #tostring(b) == 50)\n"
            "      else\n"
            "        found = found + 1\n"
            "        for _, f in ipairs { function() return #b end, tostring, function() return b:sub(1) end } do\n"
            "          local fine, why = pcall(f, b)\n"
            "          assert(not fine and why:find('blob expected', 1, true), why)\n"
            "        end\n"
            "        assert(b ~= blob.new('') and not pcall(process.send, process.self(), b))\n"
            "      end\n"
            "    end\n"
            "  end\n"
            "end\n"
            "assert(found > 0)\n");
}

TEST(unread_blobs_are_freed)
{
    fixture_passes(
        &w, "local b = blob.new(('x'):rep(100000))\n"
            "local text = ('y'):rep(100000)\n"
            "local deaf = process.spawn { function() time.sleep('1h') end, mailbox = 5 }\n"
            "for i = 1, 10 do process.send(deaf, { b, text }) process.send(deaf, b) process.send(deaf, text) end\n"
            "process.terminate(deaf)\n"
            "assert(process.send(deaf, { b }) == nil)\n"
            "assert(not pcall(process.send, deaf, { b, print }))\n"
            "assert(not pcall(process.spawn, function() return b end, coroutine.create(print)))\n"
            "for i = 1, 3 do process.spawn(function() local mine = b error('with a blob') end) end\n");
    until(fixture_alive(&w) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_blob_has_the_bytes_of_its_string),
        T(a_blob_is_shared_by_all_its_holders),
        T(a_long_string_sent_to_many_processes_is_copied_once),
        T(a_forwarded_long_string_is_not_copied),
        T(each_holder_of_a_blob_is_charged_its_full_size),
        T(held_blobs_count_against_memory_and_garbage_does_not),
        T(unread_blobs_are_freed),
        T(blobs_collected_where_no_finalizer_can_be_called_are_not_used_again),
        T(a_finalized_blob_in_a_table_with_weak_keys_is_no_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
