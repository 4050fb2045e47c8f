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
        "  open_mode = function() fs.open('/dev/null', 'r\\0+') end, rename = function() fs.rename('a', 'b', "
        "'sync\\0') "
        "end,\n"
        "  sync = function() local s <close> = fs.open('/dev/null') s:sync('data\\0') end,\n"
        "  seek = function() local s <close> = fs.open('/dev/null') s:seek(0, 'set\\0x') end,\n"
        "  count = function() collectgarbage('count\\0x') end, date = function() os.date('*t\\0x') end,\n"
        "  utc = function() os.date('!*t\\0x') end,\n"
        "  fail = function() sim.fail(Z) end, note = function() sim.note(Z) end,\n"
        "}\n"
        "for name, call in pairs(calls) do\n"
        "  local fine, why = pcall(call)\n"
        "  assert(not fine and (why:find('zero byte', 1, true) or name == 'require' or name:find('^span') or name == "
        "'timeout'), name .. ': ' .. tostring(why))\n"
        "end\n"
        "assert(_G['print\\0x'] == nil and string['len\\0x'] == nil and process['send\\0'] == nil)\n"
        "assert(process.lookup('a') == process.self())\n"
        "local _, exit = process.spawn_monitored(function() error('cancelled\\0x', 0) end), process.receive()\n"
        "assert(exit.error:find('cancelled\\0x', 1, true), exit.error)\n");
    fixture_run(&w, "error('cancelled\\0x', 0)");
    same(w.error, FILCH_LUA_EERROR);
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

/* Calls every function of the libraries with the pid of a victim, with the pid of a supervisor, and with a free name,
 * each in a process that then fails. If the function has made a process, lets that process run first: the failure may
 * end it through a link. Returns the functions after which a victim has ended or a name is taken. Does not call
 * functions that wait for messages. */
static const char attack[] =
    "local waits, found = { ['process.receive'] = true, ['process.request'] = true }, {}\n"
    "local function victim() while true do pcall(process.send, process.receive(), 'alive') end end\n"
    "local function lives(pid)\n"
    "  process.send(pid, process.self())\n"
    "  while process.alive(pid) do if process.receive('alive', '10ms') then return true end end\n"
    "end\n"
    "local main, names = process.self(), {}\n"
    "local function holder() if process.lookup('bank') == process.self() then process.send(main, 'taken') end end\n"
    "for library, members in pairs { process = process, supervisor = supervisor, task = task, work = work, runtime = "
    "runtime } do\n"
    "  for name in pairs(members) do\n"
    "    if not waits[library .. '.' .. name] then names[#names + 1] = { library, name } end\n"
    "  end\n"
    "end\n"
    "table.sort(names, function(a, b) return a[1] .. a[2] < b[1] .. b[2] end)\n"
    "for _, name in ipairs(names) do\n"
    "  local pid = process.spawn { victim }\n"
    "  local sup = assert(supervisor.start { intensity = 0, link = false, children = { { id = 'child', victim } } })\n"
    "  local child = supervisor.children(sup)[1].pid\n"
    "  local function try(...)\n"
    "    local arguments = table.pack(...)\n"
    "    local function attempt(library, name)\n"
    "      local _, made = pcall(_G[library][name], table.unpack(arguments, 1, arguments.n))\n"
    "      for i = 1, 50 do if type(made) ~= 'userdata' or not process.alive(made) then break end process.receive(0) "
    "end\n"
    "      error('the end of an attempt')\n"
    "    end\n"
    "    process.exec(attempt, name[1], name[2])\n"
    "    if not lives(pid) or not lives(child) or process.lookup('bank') or process.receive('taken', 0) then\n"
    "      found[#found + 1] = name[1] .. '.' .. name[2]\n"
    "      return true\n"
    "    end\n"
    "  end\n"
    "  local function fails() error('a child fails', 0) end\n"
    "  local _ = try(pid) or try(child) or try(sup) or try(sup, 'child') or try('bank') or try('bank', pid) or\n"
    "    try(sup, { id = 'other', fails }) or try { holder, name = 'bank' } or\n"
    "    try { name = 'bank', children = {} } or try { children = { { id = 'x', holder, name = 'bank' } } }\n"
    "  if process.lookup('bank') and process.terminate then\n"
    "    process.terminate(process.lookup('bank'))\n"
    "    while process.lookup('bank') do time.sleep('1ms') end\n"
    "  end\n"
    "end\n"
    "return table.concat(found, ' ')\n";

/* docs/lua/reference.md must show the list FILCH_LUA_WITHOUT_HARM as the option --without of the program `filch`. */
TEST(the_reference_shows_the_list)
{
    static char page[1 << 18];
    FILE       *file = fopen(LUA_TEST_FOLDER "/../../docs/lua/reference.md", "r");
    assert_true(file != NULL);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    has_text(page, "--without \"" FILCH_LUA_WITHOUT_HARM "\"");
}

TEST(the_documented_list_keeps_processes_from_ending_others_and_taking_names)
{
    static fixture    other;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    fixture_open(&other, 1, &options);
    fixture_passes(&other, attack);
    assert_string_equal(other.text, "process.cancel process.exec process.link process.register process.spawn "
                                    "process.spawn_linked process.spawn_monitored process.terminate supervisor.start "
                                    "supervisor.start_child supervisor.stop supervisor.stop_child");
    fixture_close(&other);
    options.without = FILCH_LUA_WITHOUT_HARM;
    fixture_open(&other, 1, &options);
    fixture_passes(&other, attack);
    assert_string_equal(other.text, "");
    fixture_passes(&other, "local fine, why = pcall(process.spawn, { print, name = 'bank' })\n"
                           "assert(not fine and why:find('no process.register', 1, true), why)\n");
    fixture_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_zero_byte_in_a_name_is_refused_not_truncated),
        T(names_with_any_other_byte_are_accepted),
        cmocka_unit_test(the_without_option_removes_functions),
        cmocka_unit_test(the_reference_shows_the_list),
        cmocka_unit_test(the_documented_list_keeps_processes_from_ending_others_and_taking_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
