/* lua_texts_test.c - a text with a zero byte is refused wherever C would cut it: as a name, a path, a host, an
 * argument, a setting. Newlines and invalid UTF-8 are accepted. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    fixture_open(&w, 1, &options);
    return 0;
}

TEST(a_zero_byte_in_a_name_is_refused_not_truncated)
{
    fixture_passes(
        &w,
        "local Z = 'a\\0b'\n"
        "process.register('a')\n"
        "local sup = assert(supervisor.start { children = {} })\n"
        "local calls = {\n"
        "  register = function() process.register(Z) end, unregister = function() process.unregister(Z) end,\n"
        "  lookup = function() process.lookup(Z) end, join = function() process.join(Z) end,\n"
        "  leave = function() process.leave(Z) end, watch = function() process.watch(Z) end,\n"
        "  unwatch = function() process.unwatch(Z) end, members = function() process.members(Z) end,\n"
        "  broadcast = function() process.broadcast(Z, 1) end, send = function() process.send(Z, 1) end,\n"
        "  request = function() process.request(Z, 1) end, alive = function() process.alive(Z) end,\n"
        "  terminate = function() process.terminate(Z) end, monitor = function() process.monitor(Z) end,\n"
        "  spawn = function() process.spawn(Z) end, named = function() process.spawn { print, name = Z } end,\n"
        "  option = function() process.spawn { 'counter', ['name\\0x'] = 'y' } end,\n"
        "  memory = function() process.spawn { function() end, memory = '1MB\\0x' } end,\n"
        "  overflow = function() process.spawn { function() end, overflow = 'fail\\0x' } end,\n"
        "  span = function() time.sleep('1ms\\0x') end, timeout = function() work.run { function() end, timeout = "
        "'1s\\0' } end,\n"
        "  work = function() work.run { function() end, ['timeout\\0x'] = 1 } end,\n"
        "  id = function() supervisor.start { children = { { id = Z, function() end } } } end,\n"
        "  supervisor = function() supervisor.start { name = Z, children = {} } end,\n"
        "  field = function() supervisor.start { ['name\\0'] = 'x', children = {} } end,\n"
        "  strategy = function() supervisor.start { strategy = 'one_for_one\\0x', children = {} } end,\n"
        "  stop_child = function() supervisor.stop_child(sup, Z) end,\n"
        "  connect = function() net.connect('127.0.0.1:1\\0x') end, listen = function() net.listen('127.0.0.1:0\\0x') "
        "end,\n"
        "  resolve = function() net.resolve('localhost\\0x', '80') end, service = function() net.resolve('localhost', "
        "'80\\0x') end,\n"
        "  open = function() fs.open('/dev/null\\0.allowed') end, mode = function() load('return 1', 'x', 't\\0b') "
        "end,\n"
        "  program = function() exec.run { 'true\\0x' } end, argument = function() exec.run { 'true', 'x\\0y' } end,\n"
        "  getenv = function() os.getenv('PATH\\0x') end, require = function() require('counter\\0x') end,\n"
        "  fail = function() sim.fail(Z) end, note = function() sim.note(Z) end,\n"
        "}\n"
        "for name, call in pairs(calls) do\n"
        "  local fine, why = pcall(call)\n"
        "  assert(not fine and (why:find('zero byte', 1, true) or name == 'require' or name:find('^span') or name == "
        "'timeout'), name .. ': ' .. tostring(why))\n"
        "end\n"
        "assert(_G['print\\0x'] == nil and string['len\\0x'] == nil and process['send\\0'] == nil)\n"
        "assert(process.lookup('a') == process.self())\n");
}

TEST(names_with_any_other_byte_are_accepted)
{
    fixture_passes(
        &w,
        "for _, name in ipairs { 'a\\nb', '\\xFF\\xFE', 'x y', '\\27[1m' } do\n"
        "  assert(process.register(name)) assert(process.lookup(name) == process.self()) "
        "assert(process.unregister(name))\n"
        "  assert(process.join(name)) assert(process.members(name)[1] == process.self()) assert(process.leave(name))\n"
        "  local path = os.getenv('TMPDIR') or '/tmp'\n"
        "  local none, why = fs.open(path .. '/no such folder/' .. name) assert(none == nil and why)\n"
        "end\n");
}

TEST(the_without_option_removes_functions)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_lua        *lua;
    static fixture    other;
    options.without = " process.terminate  process.register string.rep print";
    fixture_open(&other, 1, &options);
    fixture_passes(
        &other, "assert(process.terminate == nil and process.register == nil and string.rep == nil and print == nil)\n"
                "assert(process.spawn and process.unregister and string.len)\n"
                "for name in pairs(process) do assert(name ~= 'terminate') end\n"
                "assert(process.exec(function() return process.terminate end) == nil)\n");
    fixture_close(&other);
    for (size_t i = 0; i < 3; i++) {
        static const char *const wrong[] = { "process.none", "process", "process.spawn process.terminat" };
        options.without = wrong[i];
        same(filch_lua_create(&lua, &options), FILCH_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_zero_byte_in_a_name_is_refused_not_truncated),
        T(names_with_any_other_byte_are_accepted),
        cmocka_unit_test(the_without_option_removes_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
