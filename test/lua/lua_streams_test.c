/* lua_streams_test.c - sockets, files and programs from Lua, where the host allows them. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    fixture_open(&w, 2, &options);
    return 0;
}

#ifdef FLI_IO
TEST(a_server_answers_several_tcp_clients)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "process.spawn(function()\n"
            "  local listener = assert(net.listen('127.0.0.1:0'))\n"
            "  process.send(me, listener:address())\n"
            "  for i = 1, 3 do\n"
            "    local client = assert(listener:accept())\n"
            "    task.spawn(function() while true do\n"
            "      local line, why = client:read_until('\\n')\n"
            "      if not line then assert(why == 'end', why) client:close() return end\n"
            "      client:write('you said ' .. line)\n"
            "    end end)\n"
            "  end\n"
            "  time.sleep(3600)\n"
            "end)\n"
            "local address = process.receive()\n"
            "local function talk(n) return function()\n"
            "  local stream = assert(net.connect(address, '5s'))\n"
            "  assert(stream:read(0) == '' and stream:read_exactly(0) == '')\n"
            "  for i = 1, 5 do assert(stream:write(n .. ' ' .. i .. '\\n')) assert(stream:read_until('\\n') == "
            "'you said ' .. n .. ' ' .. i .. '\\n') end\n"
            "  stream:shutdown() assert(select(2, stream:read()) == 'end') stream:close() return n\n"
            "end end\n"
            "local done = task.all { talk('a'), talk('b'), talk('c') } assert(done[1] == 'a' and done[3] == 'c')\n"
            "local none, why = net.connect('127.0.0.1:1') assert(none == nil and type(why) == 'string')\n"
            "assert(net.connect('not an address') == nil)\n");
}
#endif

#ifdef FLI_IO
TEST(files_are_synced_and_renamed_and_directories_listed)
{
    fixture_passes(
        &w, "local here = '/tmp/filch-lua-fs-' .. tostring(process.self()):gsub('%W', '') .. '-' .. time.now()\n"
            "assert(fs.mkdir(here)) assert(select(2, fs.mkdir(here)) == 'this name or id already exists')\n"
            "local f = assert(fs.open(here .. '/new', 'w')) assert(f:write('state') == 5) assert(f:sync()) "
            "assert(f:sync('data'))\n"
            "assert(f:truncate(4)) assert(f:close()) assert(fs.rename(here .. '/new', here .. '/old', 'sync'))\n"
            "assert(fs.rename(here .. '/old', here .. '/older'))\n"
            "assert(fs.mkdir(here .. '/a'))\n"
            "local info = assert(fs.stat(here .. '/older')) assert(info.kind == 'file' and info.size == 4 and "
            "info.mode > 0)\n"
            "assert(math.abs(info.modified - os.time()) < 3600)\n"
            "assert(fs.stat(here).kind == 'directory' and fs.stat('/dev/null').kind == 'other')\n"
            "local names = assert(fs.list(here)) assert(#names == 2 and names[1] == 'a' and names[2] == 'older')\n"
            "assert(#fs.list(here .. '/a') == 0)\n"
            "local none, why = fs.rmdir(here) assert(none == nil and why:find('not empty'))\n"
            "assert(fs.remove(here .. '/older')) assert(fs.rmdir(here .. '/a')) assert(fs.rmdir(here))\n"
            "none, why = fs.list(here) assert(none == nil and why:find('no such file'))\n"
            "none, why = fs.stat(here) assert(none == nil and why:find('no such file'))\n"
            "assert(not pcall(fs.stat, 'a\\0b') and not pcall(fs.rename, 'a', 'b\\0', 'sync') and not "
            "pcall(fs.rename, 'a', 'b', 'x'))\n"
            "assert(not pcall(f.truncate, f, -1) and not pcall(f.sync, 1))\n");
}
#endif

#ifdef FLI_IO
TEST(a_stream_can_be_handed_to_another_process)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "local listener = assert(net.listen('127.0.0.1:0'))\n"
            "local function serve()\n"
            "  local client, from = process.receive()\n"
            "  assert(from == me)\n"
            "  while true do\n"
            "    local line = client:read_until('\\n')\n"
            "    if not line then return 'served' end\n"
            "    client:write('you said ' .. line)\n"
            "  end\n"
            "end\n"
            "local caller = assert(net.connect(listener:address()))\n"
            "local client = assert(listener:accept())\n"
            "local server = process.spawn_monitored(serve)\n"
            "assert(client:give(server))\n"
            /* the stream `client` belongs to the process `server` now, so this process can neither read nor give it */
            "assert(client:read() == nil and client:give(server) == nil)\n"
            "assert(caller:write('one\\n') and caller:read_until('\\n') == 'you said one\\n')\n"
            "caller:close()\n"
            "assert(process.receive({ event = 'exit', pid = server }).result == 'served')\n"
            /* The stream is put into the mailbox before two messages, but the program receives the messages first. */
            "caller = assert(net.connect(listener:address())) client = assert(listener:accept())\n"
            "assert(client:give(me)) process.send(me, 'x') process.send(me, ('y'):rep(40))\n"
            "assert(process.receive(function(m) return m == 'x' end) == 'x')\n"
            "time.sleep('1ms')\n"
            "assert(process.receive(function(m) return m == ('y'):rep(40) end))\n"
            "local mine = process.receive() assert(mine:write('still there\\n'))\n"
            "assert(caller:read_until('\\n') == 'still there\\n')\n"
            /* If the new owner of a stream ends before it has received the stream, the stream is closed. */
            "local deaf = process.spawn(function() time.sleep('1h') end)\n"
            "assert(mine:give(deaf)) process.terminate(deaf)\n"
            "assert(select(2, caller:read()) == 'end')\n"
            /* giving a stream to an ended process fails, so the stream still belongs to this process */
            "assert(caller:give(deaf) == nil and caller:address())\n");
}
#endif

#ifdef FLI_IO
TEST(files_and_programs_are_used_as_streams)
{
    fixture_passes(
        &w,
        "local path = os.getenv('FILCH_LUA_TEST_FILE')\n"
        "local file = assert(fs.open(path, 'w+')) assert(file:write('hello file') == 10) assert(file:seek(6) == 6)\n"
        "assert(file:read() == 'file' and select(2, file:read()) == 'end') file:close()\n"
        "assert(file:read() == nil and fs.open('/no/such/file') == nil)\n"
        "local cat = assert(exec.run{ 'cat', input = true, output = true })\n"
        "cat.input:write('through a program\\n') assert(cat.output:read_until('\\n') == 'through a program\\n')\n"
        "cat.input:close() assert(select(2, cat.output:read()) == 'end') assert(cat.self:wait() == 0)\n"
        "local slow = assert(exec.run{ 'sleep', '1000' }) slow.self:kill() assert(slow.self:wait('10s') == -15)\n"
        "assert(not pcall(exec.run, {}) and not pcall(fs.open, path, 'x'))\n");
}
#endif

#ifdef FLI_IO
#define SAYS                                                                                                        \
    "local function says(how) how[1], how[2], how[3], how.output = 'sh', '-c', 'echo ${FILCH_LUA_TEST_FILE-none} "  \
    "${ONE-none}; pwd', true "                                                                                      \
    "local p = assert(exec.run(how)) local all = '' repeat local more = p.output:read() all = all .. (more or '') " \
    "until not more return all end\n"

TEST(a_program_inherits_the_environment_only_with_the_env_right)
{
    static fixture    restricted;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.rights = FILCH_LUA_MAY_EXEC;
    fixture_open(&restricted, 1, &options);
    fixture_passes(&restricted, SAYS
                   "assert(says { directory = '/' } == 'none none\\n/\\n')\n"
                   "assert(says { env = { ONE = '1', PATH = '/bin:/usr/bin' }, directory = '/' } == 'none 1\\n/\\n')");
    fixture_close(&restricted);
}

TEST(a_program_gets_the_whole_environment_or_the_given_one)
{
    fixture_passes(
        &w, SAYS "assert(says { directory = '/' } == os.getenv('FILCH_LUA_TEST_FILE') .. ' none\\n/\\n')\n"
                 "assert(says { env = { ONE = '1', PATH = '/bin:/usr/bin' }, directory = '/' } == 'none 1\\n/\\n')\n"
                 "for _, bad in ipairs { { env = 5 }, { env = { ['a=b'] = 'c' } }, { env = { a = 'b\\0c' } }, { env = "
                 "{ a = 5 } },\n"
                 "                       { env = { [''] = 'x' } }, { directory = 5 }, { directory = 'a\\0b' } } do\n"
                 "  bad[1] = 'true' assert(not pcall(exec.run, bad))\n"
                 "end\n");
}
#endif

#ifndef FLI_IO
TEST(without_io_every_call_reports_unsupported)
{
    fixture_passes(
        &w, "local function is(value, why) assert(value == nil and why:find('built without I/O', 1, true), why) end\n"
            "is(net.connect('127.0.0.1:1')) is(net.listen('127.0.0.1:0')) is(net.resolve('localhost', '80'))\n"
            "is(fs.open('/dev/null')) is(exec.run { 'true' })\n");
}
#endif

TEST(without_its_right_a_library_is_missing)
{
    static fixture restricted;
    fixture_open(&restricted, 1, NULL);
    fixture_passes(&restricted, "assert(net == nil and fs == nil and exec == nil and os.getenv == nil)");
    fixture_close(&restricted);
}

int main(void)
{
    char path[] = "/tmp/filch-lua-test-XXXXXX";
    int  fd = mkstemp(path);
    if (fd < 0 || setenv("FILCH_LUA_TEST_FILE", path, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
#ifdef FLI_IO
        cmocka_unit_test_setup_teardown(a_server_answers_several_tcp_clients, open_fixture, fixture_close_shared),
#endif
#ifdef FLI_IO
        cmocka_unit_test_setup_teardown(a_stream_can_be_handed_to_another_process, open_fixture, fixture_close_shared),
        cmocka_unit_test_setup_teardown(files_are_synced_and_renamed_and_directories_listed, open_fixture,
                                        fixture_close_shared),
#endif
#ifdef FLI_IO
        cmocka_unit_test_setup_teardown(files_and_programs_are_used_as_streams, open_fixture, fixture_close_shared),
        cmocka_unit_test(a_program_inherits_the_environment_only_with_the_env_right),
        cmocka_unit_test_setup_teardown(a_program_gets_the_whole_environment_or_the_given_one, open_fixture,
                                        fixture_close_shared),
#endif
#ifndef FLI_IO
        cmocka_unit_test_setup_teardown(without_io_every_call_reports_unsupported, open_fixture, fixture_close_shared),
#endif
        cmocka_unit_test(without_its_right_a_library_is_missing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)remove(path);
    return failed;
}
