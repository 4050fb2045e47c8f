/* lua_arguments_test.c - functions of Lua processes called with wrong arguments or in rare ways: each reports the
 * error, or does what the reference says. */
#include <lauxlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lua/fixture.h"

static fixture w;
static char    folder[] = "/tmp/filch-lua-arguments-XXXXXX";
static char    files[16][sizeof folder + 32]; /* paths of the files in `folder` */
static int     written;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    static char       path[sizeof folder + 16];
    *state = &w;
    snprintf(path, sizeof path, "%s/?.lua;./?.lua", folder);
    options.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC;
    options.path = path;
    fixture_open(&w, 2, &options);
    return 0;
}

static void write_file(const char *name, const char *text, size_t size)
{
    snprintf(files[written], sizeof files[0], "%s/%.30s", folder, name);
    FILE *out = fopen(files[written++], "wb");
    assert_non_null(out);
    same(fwrite(text, 1, size, out), size);
    ok(fclose(out));
}

/* WITH_IO(text): `text` in a library built with I/O, otherwise an empty string. */
#ifdef FLI_IO
#define WITH_IO(text) text
#else
#define WITH_IO(text) ""
#endif

TEST(a_wrong_argument_raises_an_error)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "local t, f, s = {}, function() end, 'nobody'\n"
            "local calls = {\n"
            "  { process.send }, { process.send, 5, 1 }, { process.send, t, 1 }, { process.request, true, 1 }, { "
            "process.request, me, 1, 'soon' }, { process.request, me, f },\n"
            "  { process.reply }, { process.reply, me, 1 }, { process.reply, t }, { process.receive, true, 'soon' "
            "}, { process.receive, t, 'soon' }, { process.receive, nil, 'soon' }, { process.receive, 0/0 },\n"
            "  { process.receive, nil, 1.5 .. 'x' }, { process.receive, nil, '5' }, { process.receive, nil, 'ms' "
            "}, { process.receive, nil, '1msx' }, { process.receive, nil, '1{' }, { process.receive, nil, '-1s' "
            "}, { process.receive, nil, '' }, { process.receive, nil, ':1s' },\n"
            "  { process.alive }, { process.alive, 5 }, { process.cancel, 5 }, { process.cancel, me, 'x' }, { "
            "process.terminate, t }, { process.monitor }, { process.unmonitor, 'x' },\n"
            "  { process.link, 1 }, { process.unlink, 1 }, { process.register }, { process.register, t }, { "
            "process.register, 'x', 5 }, { process.unregister, t }, { process.lookup }, { process.join }, { "
            "process.join, 'g', 5 },\n"
            "  { process.leave }, { process.watch, t }, { process.unwatch }, { process.members }, { "
            "process.broadcast }, { process.broadcast, 'g', f }, { process.exit, f },\n"
            "  { process.spawn }, { process.spawn, 5 }, { process.spawn, print }, { process.spawn, f, "
            "coroutine.create(f) }, { process.spawn, t }, { process.spawn, { 5 } }, { process.exec, 5 },\n"
            "  { process.spawn, { f, mailbox = 0 } }, { process.spawn, { f, mailbox = 1.5 } }, { process.spawn, { "
            "f, mailbox = 1 << 40 } }, { process.spawn, { f, mailbox = 'x' } }, { process.spawn, { f, "
            "mailbox_bytes = 'x' } },\n"
            "  { process.spawn, { f, name = 5 } }, { process.spawn, { f, overflow = 'burst' } }, { process.spawn, "
            "{ f, overflow = t } }, { process.spawn, { f, colour = 'red' } },\n"
            "  { time.sleep }, { time.sleep, t }, { time.sleep, 'x' }, { time.span, t }, { time.span, 0/0 }, { "
            "time.after }, { time.every, 0 }, { time.cancel, t }, { time.cancel, channel.new() },\n"
            "  { channel.new, -1 }, { channel.new, 1.5 }, { channel.select, 5 }, { channel.select, t }, { "
            "channel.select, { 5 } }, { task.spawn, 5 }, { task.all, 5 }, { task.any, t },\n"
            "  { net.connect }, { net.connect, 'x', 'soon' }, { net.listen, t }, { net.resolve, t }, { fs.open }, "
            "{ fs.open, 'x', 'rw' }, { exec.run, 5 }, { exec.run, t }, { exec.run, { t } },\n"
            "  { os.getenv }, { sim.fail }, { sim.note, t }, { require, t }, { require, '../x' }, { require, '' "
            "}, { require, '.x' }, { require, ('x'):rep(200) }, { require, 'a b' }, { require, 'a/b' }, { "
            "require, 'a{' }, { require, 'a@' },\n"
            "}\n"
            "for i, call in ipairs(calls) do\n"
            "  local fine, why = pcall(table.unpack(call, 1, 8))\n"
            "  if fine or type(why) ~= 'string' or why == '' then error(i .. ' is taken') end\n"
            "end\n"
            "local big = { f } for i = 2, 260 do big[i] = 1 end assert(not pcall(process.spawn, big))\n"
            "local words = { 'x' } for i = 2, 258 do words[i] = 'y' end assert(not pcall(exec.run, words))\n"
            "local fine, why = pcall(process.send, {}, 1) assert(why:find('pid or name expected, got table', 1, "
            "true), why)\n");
}

TEST(a_call_that_fails_returns_nil_and_an_error_text)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "local gone = process.spawn(function() end) while process.alive(gone) do time.sleep(0) end\n"
        "local function refused(what, ...) local r, why = ... if r then error(what .. ' is taken') end "
        "assert(type(why) == 'string' and #why > 0, what) end\n"
        "refused('send', process.send(gone, 1)) refused('send name', process.send('nobody', 1)) refused('request', "
        "process.request(gone, 1))\n"
        "refused('cancel', process.cancel(gone)) refused('cancel with', process.cancel(gone, '1s')) "
        "refused('terminate', process.terminate(gone)) refused('lookup', process.lookup('nobody'))\n"
        "refused('unregister', process.unregister('nobody')) refused('register', process.register('x', gone)) "
        "refused('join', process.join('g', gone)) refused('leave', process.leave('g'))\n"
        "refused('name', process.register(('n'):rep(2000))) refused('group', process.members(('g'):rep(2000))) "
        "refused('broadcast', process.broadcast(('g'):rep(2000), 1))\n"
        "refused('link', process.link(me)) refused('monitor', process.monitor(me)) refused('unmonitor', "
        "process.unmonitor(12345)) refused('unwatch', process.unwatch('g'))\n"
        "assert(process.unlink(gone) ~= nil or true) assert(process.watch('g') and process.unwatch('g')) "
        "assert(#process.members('empty') == 0)\n"
        "assert(process.trap() and process.trap(false) and process.trap(nil) and process.trap(true))\n"
        "refused('connect', net.connect('nonsense')) refused('listen', net.listen('nonsense')) refused('open', "
        "fs.open('/no/such/file'))\n"
        /* under valgrind, exec.run succeeds for a program that does not exist, and the started program fails later */
        "local program, why = exec.run{ '/no/such/program' } assert(program == nil and why or program.self:wait('60s') "
        "~= 0)\n"
        "refused('resolve', net.resolve('127.0.0.1', 'no such service'))\n" WITH_IO(
            "assert(net.resolve('127.0.0.1', '80'):find('127.0.0.1:80', 1, true))\n") "assert(os.getenv('FILCH_NO_SUCH_"
                                                                                      "VARIABLE') == nil and "
                                                                                      "type(runtime.version()) == "
                                                                                      "'string')\n"
                                                                                      "assert(process.send(me, 1) and "
                                                                                      "process.receive() == 1)\n");
}

#ifdef FLI_IO
TEST(every_stream_method_works_and_checks_its_arguments)
{
    fixture_passes(
        &w,
        "local listener <close> = assert(net.listen('127.0.0.1:0'))\n"
        "local server = task.spawn(function() return assert(listener:accept('10s')) end)\n"
        "local client = assert(net.connect(listener:address(), '10s')) local served = server:await()\n"
        "assert(client:peer() == listener:address() and served:peer() == client:address())\n"
        "assert(client:write('12345678') == 8 and served:read_exactly(3) == '123' and served:read(2) == '45' and "
        "served:read_exactly(3, '10s') == '678')\n"
        "assert(client:write('a;b;') == 4 and served:read_until(';') == 'a;' and served:read_until(';', 10, '10s') == "
        "'b;')\n"
        "local none, why = served:read(10, '2ms') assert(none == nil and type(why) == 'string') none = "
        "listener:accept('2ms') assert(none == nil)\n"
        "assert(client:write('tail')) assert(client:shutdown()) local _, ended, rest = served:read_exactly(100) "
        "assert(ended == 'end' and rest == 'tail')\n"
        "assert(client:close() and served:close()) assert(client:address() == nil and client:read() == nil and "
        "client:peer() == nil)\n"
        "local read = client.read\n"
        "for _, bad in ipairs { 5, {}, 'x', blob.new('x') } do assert(not pcall(read, bad)) end assert(not "
        "pcall(read))\n"
        "assert(not pcall(client.read, client, -1) and not pcall(client.read, client, 'x') and not pcall(client.write, "
        "client, {}) and not pcall(client.seek, client, 0, 'middle') and not pcall(client.read_until, client))\n"
        "assert(not pcall(process.alive, client) and not pcall(process.reply, client, 1) and not pcall(process.send, "
        "client, 1))\n"
        "assert(getmetatable(client) == false and not pcall(process.send, process.self(), client))\n"
        "local waits = task.spawn(function() return listener:accept() end) time.sleep(0) waits:cancel() assert(not "
        "pcall(waits.await, waits))\n");
}
#endif

TEST(a_request_carries_the_pid_of_its_sender)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "local server = process.spawn(function()\n"
            "  local m, from = process.receive()\n"
            "  assert(from.pid == m and from.other == nil and tostring(from) == tostring(m) and process.alive(from) "
            "and getmetatable(from) == false)\n"
            "  assert(not pcall(function() return from[5].x end))\n"
            "  assert(process.send(from, 'beside the answer')) process.reply(from, 'answer')\n"
            "  _, from = process.receive() assert(not pcall(process.reply, from, print)) process.reply(from, nil, { "
            "'refused', 2 })\n"
            "end)\n"
            "assert(process.request(server, me) == 'answer' and process.receive() == 'beside the answer')\n"
            "local a, why = process.request(server, 1) assert(a == nil and why[1] == 'refused')\n"
            "assert(tostring(server):find('^<%d+%.%d+>$') and getmetatable(server) == false)\n"
            /* two tasks are cancelled: one while it waits for a reply, the other while it waits for the end of a
             * process */
            "local mute = process.spawn(function() process.receive() process.receive() end)\n"
            "local asks = task.spawn(function() return process.request(mute, 1, 3600) end) time.sleep('1ms') "
            "asks:cancel()\n"
            "local fine, said = pcall(asks.await, asks) assert(not fine and said == 'cancelled', said)\n"
            "local runs = task.spawn(function() return process.exec(function() process.send(me, process.self()) "
            "process.receive() end) end)\n"
            "local slow = process.receive() runs:cancel()\n"
            "fine, said = pcall(runs.await, runs) assert(not fine and said == 'cancelled', said)\n"
            "process.send(slow, 'end') while process.alive(slow) do time.sleep('1ms') end time.sleep('1ms')\n"
            "process.terminate(mute) assert(select(2, process.receive(0)) == 'timeout')\n");
}

TEST(every_spawn_option_has_its_effect)
{
    fixture_passes(
        &w,
        "local me = process.self()\n"
        "for _, how in ipairs { 'fail', 'wait', 'drop_newest', 'drop_oldest', 'stop' } do\n"
        "  local pid = process.spawn{ function() time.sleep('1h') end, mailbox = 2, overflow = how, monitor = true }\n"
        "  local taken = 0\n"
        "  if how ~= 'wait' then for i = 1, 5 do if process.send(pid, i) then taken = taken + 1 end end end\n"
        "  assert(how ~= 'fail' or taken < 5, how)\n"
        "  process.terminate(pid) assert(process.receive({ event = 'exit', pid = pid }).error)\n"
        "end\n"
        "process.trap(true) local weak = process.spawn{ function() error('x', 0) end, link = true, monitor = false, "
        "trap = true, name = 'weak' }\n"
        "local m = process.receive() assert(m.event == 'link_down' and m.pid == weak)\n"
        "local lossy = process.spawn{ function() time.sleep('5ms') local m = process.receive({ event = 'dropped' }, "
        "'10s') process.send(me, m and m.count) end, mailbox = 2, overflow = 'drop_oldest' }\n"
        "for i = 1, 6 do process.send(lossy, i) end local count = process.receive('10s') assert(count == nil or count "
        ">= 1, count)\n"
        "local pid = process.spawn{ function(a, b) process.send(me, { a, b }) end, 1, 'two', mailbox_bytes = '1MB' } m "
        "= process.receive() assert(m[1] == 1 and m[2] == 'two')\n"
        "process.cancel(process.spawn(function() process.receive() end), '1s')\n");
}

TEST(files_and_modules_are_loaded_or_the_error_is_reported)
{
    static char large[40000], long_name[200];
    memset(large, ' ', sizeof large);
    memcpy(large, "return { size = 40000 } --", 26);
    write_file("large.lua", large, sizeof large);
    write_file("nothing.lua", "local x = 1", 11);
    write_file("method.lua", "return { main = function(a) return a end }", 42);
    write_file("plain.lua", "return ...", 10);
    write_file("table.lua", "return { 5 }", 12);
    write_file("hash.lua", "#!only this line", 16);
    write_file("bad.lua", "x = = 1", 7);
    write_file("A-b_9.lua", "return 'odd name'", 17);
    setenv("FILCH_LUA_FOLDER", folder, 1);
    memset(long_name, 'n', 127);
    fixture_passes(
        &w,
        "local here = os.getenv('FILCH_LUA_FOLDER')\n"
        "assert(require('large').size == 40000 and require('nothing') == true and require('nothing') == true and "
        "require('A-b_9') == 'odd name' and require('hash') == true)\n"
        "assert(require('string') == string and require('_G') == _G and require('task') == task)\n"
        "local fine, why = pcall(require, 'bad') assert(not fine and why:find('bad.lua:1:', 1, true), why)\n"
        "fine, why = pcall(require, ('n'):rep(120) .. '.' .. 'x') assert(not fine and why:find('not found', 1, true))\n"
        "assert(process.exec('method', 5) == 5 and process.exec('plain', 6) == 6 and process.exec('table')[1] == 5 and "
        "process.exec(here .. '/plain.lua', 7) == 7)\n"
        "assert(not pcall(process.spawn, here)) assert(not pcall(process.spawn, here .. '/none.lua')) assert(not "
        "pcall(process.spawn, 'bad')) assert(not pcall(process.spawn, 'x.lua'))\n"
        "assert(process.exec(here .. '/hash.lua') == nil)\n");
    filch_lua_code *code = NULL;
    char            text[64];
    same(filch_lua_load_file(w.lua, folder, &code, text, sizeof text), FILCH_LUA_EFILE);
    assert_memory_equal(text, "cannot read ", 12); /* the path follows */
    same(filch_lua_load_file(w.lua, "/none.lua", &code, text, sizeof text), FILCH_LUA_EFILE);
    assert_string_equal(text, "cannot open /none.lua: No such file or directory");
    same(filch_lua_load_file(w.lua, folder, &code, text, 0), FILCH_LUA_EFILE);
    static const struct {
        const char *chunk, *method, *why;
    } cases[] = {
        { "return 5", "run", "the chunk returned no table with a function 'run'" },
        { "return { walk = print }", "run", "the chunk has no function 'run'" },
        { "return { run = function() error('inside', 0) end }", "run", "inside" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
        filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
        ok(filch_lua_load(w.lua, cases[i].chunk, strlen(cases[i].chunk), "test", &code, NULL, 0));
        spawn.on_exit = fixture_ended;
        spawn.on_exit_user = &w;
        how.spawn = &spawn;
        how.method = cases[i].method;
        atomic_store(&w.over, 0);
        ok(filch_lua_spawn(w.lua, w.sched, code, &how, NULL));
        filch_lua_code_drop(w.lua, code);
        until(atomic_load(&w.over));
        same(w.error, FILCH_LUA_EERROR);
        has_text(w.text, cases[i].why);
    }
}

TEST(string_arithmetic_and_library_tables_work_as_documented)
{
    fixture_passes(
        &w,
        "assert('10' + 5 == 15 and '10' - 1 == 9 and '3' * '4' == 12 and '7' % 4 == 3 and '2' ^ 3 == 8.0 and '7' / 2 "
        "== 3.5 and '7' // 2 == 3 and -'3' == -3 and 1 + '0x10' == 17)\n"
        "for _, bad in ipairs { function() return 'x' + 1 end, function() return 1 + 'x' end, function() return '1' + "
        "{} end, function() return -'x' end, function() return 'x' * 'y' end, function() return '5' + nil end } do\n"
        "  local fine, why = pcall(bad) assert(not fine and why:find('attempt to perform arithmetic', 1, true), why)\n"
        "end\n"
        "local takes = setmetatable({}, { __add = function(a, b) return 'added' end, __sub = function() return 'taken' "
        "end })\n"
        "assert('x' + takes == 'added' and '5' - takes == 'taken' and takes + 'x' == 'added')\n"
        "assert(_G[5] == nil and string[5] == nil and string.nothing == nil and nothing == nil and _G._G == _G and "
        "#utf8.charpattern == 14)\n"
        "for _, fields in ipairs { string, math, process, time } do local n = 0 for name, value in pairs(fields) do "
        "assert(value ~= nil) n = n + 1 end assert(n > 3) end\n"
        "local mine = setmetatable({}, { __pairs = function(t) return function(_, k) if not k then return 1, 'one' end "
        "end, t, nil end }) for k, v in pairs(mine) do assert(k == 1 and v == 'one') end\n"
        "local slow = setmetatable({}, { __pairs = function(t) time.sleep(0) return next, { 5 }, nil end }) for k, v "
        "in pairs(slow) do assert(v == 5) end\n"
        "assert(not pcall(pairs) and not pcall(function() for _ in pairs(5) do end end)) for k in pairs(setmetatable({ "
        "1 }, {})) do assert(k == 1) end\n"
        /* a function that is sent to a process may use library tables and library functions, which are sent by name;
         * other values, such as a wrapped coroutine, are refused */
        "local lib, fn, everything, wrapped = table, string.upper, _G, coroutine.wrap(function() end)\n"
        "assert(process.exec(function() return lib.concat({ fn('a'), everything.tostring(5) }) end) == 'A5')\n"
        "assert(not pcall(process.spawn, function() return wrapped end)) local own = {} assert(process.exec(function() "
        "own.x = 1 return own.x end) == 1 and own.x == nil)\n"
        "local f = function() return 1 end for i = 1, 150 do local g = f f = function() return g() end end local fine, "
        "why = pcall(process.spawn, f) assert(not fine and why:find('nested too deep', 1, true), why)\n"
        "local global = tostring assert(process.exec(function() return global(7) end) == '7')\n");
}

TEST(a_time_span_is_parsed_in_every_unit)
{
    fixture_passes(
        &w,
        "local function is(a, b) if math.abs(a - b) > 1e-9 * b then error(a .. ' is not ' .. b, 2) end end\n"
        "is(time.span('1ns'), 1e-9) is(time.span('1us'), 1e-6) is(time.span('200ms'), 0.2) is(time.span('1.5s'), 1.5) "
        "is(time.span('2m'), 120) is(time.span('1h30m'), 5400) is(time.span('1d'), 86400)\n"
        "assert(time.span(-5) == 0 and time.span(0) == 0 and time.span(math.huge) == math.huge and "
        "time.span('999999999999d') == math.huge and time.span(3) == 3)\n"
        "local began = time.now() time.sleep('1ms') assert(time.now() >= began + 0.001 and time.ns() > began * 1e9)\n"
        "assert(os.time() > 1500000000 and os.time({ year = 2020, month = 1, day = 1 }) > 1577000000 and os.clock() >= "
        "0 and #os.date() > 5 and os.date('!%Y', 0) == '1970')\n"
        "assert(not sim.active() and not sim.fail('nothing') and not sim.note('nothing'))\n"
        "local sleeper = task.spawn(function() time.sleep('1h') end) time.sleep(0) assert(sleeper:cancel() and not "
        "pcall(sleeper.await, sleeper) and not sleeper:cancel())\n"
        "assert(time.after('1ms'):receive())\n");
    fixture_passes(&w, "for _, level in ipairs { 'debug', 'info', 'warn', 'error' } do log[level]('a line', { n = 1 }) "
                       "log[level]({}) log[level]('plain', 5) end\n"
                       "assert(not pcall(log.info, setmetatable({}, { __tostring = function() return {} end })))");
}

/* ---- from C ---- */

static int what_is_pushed(lua_State *L)
{
    char       text[64] = "";
    filch_data data = filch_num(1.5), packed = filch_none();
    filch_lua_push(L, &data);
    assert_true(lua_tonumber(L, -1) == 1.5);
    filch_lua_push(L, NULL);
    assert_true(lua_isnil(L, -1));
    assert_int_not_equal(filch_lua_self(L).serial, 0);
    assert_ptr_equal(filch_lua_sched(L), w.sched);
    same(filch_lua_pack(NULL, 1, &packed, text, sizeof text), FILCH_EINVAL);
    same(filch_lua_pack(L, 1, NULL, text, sizeof text), FILCH_EINVAL);
    data = filch_of_pid(filch_lua_self(L));
    filch_lua_push(L, &data);
    assert_int_equal(luaL_getmetafield(L, -1, "__tostring"), LUA_TFUNCTION);
    lua_pushinteger(L, 5);
    assert_int_equal(lua_pcall(L, 1, 1, 0), LUA_ERRRUN);
    has_text(lua_tostring(L, -1), "pid expected");
    lua_pushcfunction(L, what_is_pushed);
    same(filch_lua_pack(L, -1, &packed, text, sizeof text), FILCH_EINVAL);
    assert_string_equal(text, "value: a function cannot be sent");
    same(filch_lua_pack(L, -1, &packed, NULL, 0), FILCH_EINVAL);
    same(filch_lua_pack(L, -1, &packed, text, 0), FILCH_EINVAL);
    lua_pushliteral(L, "a text");
    ok(filch_lua_pack(L, -1, &packed, NULL, 0));
    same(filch_size(&packed), 6);
    filch_drop(&packed);
    return 0;
}

/* The option `open`: adds functions of the host program to a new state. It runs before the process exists, so functions
 * that need a process are refused. */
static void open_own(lua_State *L, void *user)
{
    atomic_int *opened = user;
    lua_pushcfunction(L, what_is_pushed);
    lua_setfield(L, -2, "what_is_pushed");
    if (luaL_dostring(L, "for _, call in ipairs { process.self, time.now, coroutine.yield, log.info } do assert(not "
                         "pcall(call, 'x')) end") != LUA_OK) {
        fail_msg("%s", lua_tostring(L, -1));
    }
    if (atomic_fetch_add(opened, 1) < 100) return;
    if (atomic_load(opened) % 2 == 0) lua_newtable(L); /* every second error value is a table, not a text */
    else lua_pushliteral(L, "will not open");
    lua_error(L);
}

TEST(host_functions_get_the_process_and_its_values)
{
    static fixture    own;
    static atomic_int opened;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.open = open_own;
    options.open_user = &opened;
    fixture_open(&own, 1, &options);
    fixture kept = w;
    w.sched = own.sched;
    fixture_passes(&own, "what_is_pushed()");
    fixture_passes(&own, "assert(process.exec(function() what_is_pushed() return 1 end) == 1)");
    w = kept;
    atomic_store(&opened, 1000); /* from now on open_own() fails */
    filch_lua_code *code = NULL;
    for (int i = 0; i < 4; i++) {
        ok(filch_lua_load(own.lua, "return 2", 8, NULL, &code, NULL, 0));
        same(filch_lua_spawn(own.lua, own.sched, code, NULL, NULL), FILCH_LUA_EERROR);
        filch_lua_code_drop(own.lua, code);
    }
    atomic_store(&opened, 0);
    filch_pid pid =
        fixture_start(&own,
                      "local texts = {} process.receive() for i = 1, 4 do local fine, why = pcall(process.spawn, "
                      "function() end) texts[i] = tostring(why) end return table.concat(texts, '|')",
                      0);
    atomic_store(&opened, 1000);
    ok(filch_send(own.sched, pid, filch_none()));
    until(atomic_load(&own.over));
    ok(own.error);
    has_text(own.text, "will not open");
    has_text(own.text, "an error object without a text");
    fixture_close(&own);
}

/* The option structs of a newer header, each with a field that this version does not know. */
typedef struct newer_structs {
    struct {
        filch_lua_options known;
        uint64_t          later;
    } lua;
    struct {
        filch_lua_spawn_options known;
        uint64_t                later;
    } how;
    struct {
        filch_spawn_options known;
        uint64_t            later;
    } spawn;
    struct {
        filch_sim_options known;
        uint64_t          later;
    } sim;
} newer_structs;

/* Calls `call`. It must be refused because the field `later` of the struct `which` is not 0. */
#define KNOWS_NOT(which, call, name)                                                                       \
    do {                                                                                                   \
        newer.which.later = UINT64_C(1) << 63;                                                             \
        same(call, FILCH_EINVAL);                                                                          \
        has_text(filch_err_detail(), name " sets a field that this version of the library does not know"); \
        newer.which.later = 0;                                                                             \
    } while (0)

TEST(option_structs_of_a_newer_header_are_accepted_if_their_new_fields_are_zero)
{
    filch_lua       *lua = NULL;
    filch_lua_code  *code = NULL;
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    filch_pid        pid;
    newer_structs    newer = { { FILCH_LUA_OPTIONS_INIT, 0 },
                               { FILCH_LUA_SPAWN_OPTIONS_INIT, 0 },
                               { FILCH_SPAWN_OPTIONS_INIT, 0 },
                               { FILCH_SIM_OPTIONS_INIT, 0 } };
    newer.lua.known.size = sizeof newer.lua;
    newer.how.known.size = sizeof newer.how;
    newer.spawn.known.size = sizeof newer.spawn;
    newer.sim.known.size = sizeof newer.sim;
    KNOWS_NOT(lua, filch_lua_create(&lua, &newer.lua.known), "options");
    ok(filch_lua_create(&lua, &newer.lua.known));
    ok(filch_lua_destroy(lua));
    ok(filch_lua_load(w.lua, NULL, 0, NULL, &code, NULL, 0));
    KNOWS_NOT(how, filch_lua_sim(w.lua, code, &newer.how.known, NULL, 1, &report), "options");
    KNOWS_NOT(sim, filch_lua_sim(w.lua, code, NULL, &newer.sim.known, 1, &report), "sim");
    ok(filch_lua_sim(w.lua, code, &newer.how.known, &newer.sim.known, 1, &report));
    same(report.verdict, FILCH_SIM_OK);
    filch_sim_report_free(&report);
    newer.how.known.spawn = &newer.spawn.known;
    KNOWS_NOT(how, filch_lua_spawn(w.lua, w.sched, code, &newer.how.known, &pid), "options");
    KNOWS_NOT(spawn, filch_lua_spawn(w.lua, w.sched, code, &newer.how.known, &pid), "options.spawn");
    ok(filch_lua_spawn(w.lua, w.sched, code, &newer.how.known, &pid));
    filch_lua_code_drop(w.lua, code);
    until(fixture_alive(&w) == 0);
}

TEST(option_structs_of_a_wrong_size_are_refused)
{
    filch_lua              *lua = NULL;
    filch_lua_code         *code = NULL;
    filch_lua_options       opt = FILCH_LUA_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_sim_options       sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report        report = FILCH_SIM_REPORT_INIT;
    filch_pid               pid;
    opt.size = 0;
    same(filch_lua_create(&lua, &opt), FILCH_EINVAL);
    assert_string_equal(filch_err_detail(), "options.size is not set: begin with FILCH_LUA_OPTIONS_INIT");
    opt.size = sizeof opt;
    opt.signal = -5;
    same(filch_lua_create(&lua, &opt), FILCH_EINVAL);
    same(filch_lua_load(NULL, "x", 1, NULL, &code, NULL, 0), FILCH_EINVAL);
    same(filch_lua_load(w.lua, "x", 1, NULL, NULL, NULL, 0), FILCH_EINVAL);
    assert_string_equal(filch_err_detail(), "out is NULL");
    same(filch_lua_load_file(NULL, "x", &code, NULL, 0), FILCH_EINVAL);
    same(filch_lua_load_file(w.lua, "x", NULL, NULL, 0), FILCH_EINVAL);
    ok(filch_lua_load(w.lua, NULL, 0, NULL, &code, NULL, 0)); /* an empty text is a valid program */
    same(filch_lua_spawn(NULL, w.sched, code, NULL, &pid), FILCH_EINVAL);
    for (int i = 0; i < 2; i++) {
        how.size = i == 0 ? 0 : sizeof how.size - 1;
        same(filch_lua_spawn(w.lua, w.sched, code, &how, &pid), FILCH_EINVAL);
        same(filch_lua_sim(w.lua, code, &how, NULL, 1, &report), FILCH_EINVAL);
        sim.size = i == 0 ? 0 : sizeof sim.size - 1;
        same(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report), FILCH_EINVAL);
        how.size = sizeof how;
        how.spawn = &spawn;
        spawn.size = i == 0 ? 0 : sizeof spawn.size - 1;
        same(filch_lua_spawn(w.lua, w.sched, code, &how, &pid), FILCH_EINVAL);
        spawn.size = sizeof spawn;
        how.spawn = NULL;
    }
    how.spawn = &spawn;
    spawn.args = filch_int(1);
    same(filch_lua_spawn(w.lua, w.sched, code, &how, &pid), FILCH_EINVAL);
    same(filch_lua_sim(w.lua, NULL, NULL, NULL, 1, &report), FILCH_EINVAL);
    same(filch_lua_sim(w.lua, code, NULL, NULL, 1, NULL), FILCH_EINVAL);
    how.spawn = NULL;
    how.size = sizeof(size_t); /* size of the oldest version of the struct, which has only the field `size` */
    sim.size = sizeof(size_t);
    ok(filch_lua_sim(w.lua, code, &how, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_OK);
    filch_sim_report_free(&report);
    ok(filch_lua_spawn(w.lua, w.sched, code, &how, &pid));
    filch_lua_code_drop(w.lua, code);
    until(fixture_alive(&w) == 0);
}

static filch_err no_check(filch_sched *sched, void *user)
{
    (void)sched;
    (void)user;
    return FILCH_OK;
}

TEST(a_simulation_refuses_a_check_and_reports_long_errors)
{
    static const char chunk[] = "assert(os.time() >= 946684800 and os.date('%Y') == '2000' and os.time({ year = 2020, "
                                "month = 1, day = 1 }) > 1577000000)\n"
                                "assert(#os.date('%c', 0) > 5 and os.date() ~= nil and os.clock() >= 0) sim.note('a "
                                "note') error(('long '):rep(100))";
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua_code   *code = NULL;
    ok(filch_lua_load(w.lua, chunk, sizeof chunk - 1, "test", &code, NULL, 0));
    sim.check = no_check;
    same(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report), FILCH_EINVAL);
    sim.check = NULL;
    ok(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "test:2: long long long");
    filch_sim_report_free(&report);
    filch_lua_code_drop(w.lua, code);
    /* A process that was killed leaves no error text. */
    static const char killed[] =
        "local me = process.self() process.spawn(function() process.terminate(me) end) time.sleep(1)";
    ok(filch_lua_load(w.lua, killed, sizeof killed - 1, "test", &code, NULL, 0));
    ok(filch_lua_sim(w.lua, code, NULL, NULL, 1, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, filch_err_text(FILCH_EKILLED));
    filch_sim_report_free(&report);
    filch_lua_code_drop(w.lua, code);
}

/* Loads thousands of pieces of code, most of them unused. The test holds a reference to one piece, which must be
 * kept. */
TEST(unused_code_is_evicted_and_held_code_is_kept)
{
    filch_lua_code *held = NULL, *code = NULL;
    char            chunk[64];
    ok(filch_lua_load(w.lua, "return 'held'", 13, "held", &held, NULL, 0));
    for (int i = 0; i < 9000; i++) {
        char name[32];
        int  size = snprintf(chunk, sizeof chunk, "return %d", i);
        snprintf(name, sizeof name, "code%d", i);
        ok(filch_lua_load(w.lua, chunk, (size_t)size, name, &code, NULL, 0));
        filch_lua_code_drop(w.lua, code);
    }
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = fixture_ended;
    spawn.on_exit_user = &w;
    how.spawn = &spawn;
    atomic_store(&w.over, 0);
    ok(filch_lua_spawn(w.lua, w.sched, held, &how, NULL));
    filch_lua_code_drop(w.lua, held);
    until(atomic_load(&w.over));
    assert_string_equal(w.text, "held");
    fixture_passes(&w, "return 1");
}

/* A process that starts many different functions keeps some of them in its cache. Two functions with equal code and
 * equal upvalues have one entry. */
TEST(equal_functions_are_recognised_in_the_code_cache)
{
    fixture_passes(&w,
                   "local x, out = 1, {}\n"
                   "for round = 1, 3 do\n"
                   "  for i = 1, 12 do local f = load('local n = ... return n + ' .. i) out[#out + 1] = "
                   "process.exec(f, round) end\n"
                   "  assert(process.exec(function() return x end) == 1 and process.exec(function() return "
                   "tostring(x) end) == '1')\n"
                   "end\n"
                   "assert(#out == 36 and out[1] == 2 and out[36] == 15)\n"
                   "local function make(env) local _ENV = env return function() return 5 end end "
                   "assert(process.exec(make({})) == 5)\n"
                   "local pids = {} for i = 1, 600 do pids[i] = process.spawn(function() process.receive() end) end "
                   "for i = 1, 600 do process.send(pids[i], 1) end\n"
                   "while runtime.stats().alive > 1 do time.sleep('1ms') end\n");
}

TEST(a_task_that_wakes_spuriously_waits_again)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            /* tasks a and c stop waiting for task b after 1 ms. When b ends, a sleeps and c has ended: neither may be
             * woken */
            "local b = task.spawn(function() time.sleep('8ms') end)\n"
            "local a = task.spawn(function() b:await('1ms') local began = time.now() time.sleep('15ms') return "
            "time.now() - began end)\n"
            "local c = task.spawn(function() b:await('1ms') end) c:await() b:await() assert(a:await() >= 0.015)\n"
            /* a task other than the main task may receive messages too */
            "local t = task.spawn(function() local m, from = process.receive('10s') return m, from end) "
            "time.sleep(0) process.send(me, 'for a task')\n"
            "local m, from = t:await() assert(m == 'for a task' and from == me)\n"
            /* p: a pattern with more levels than a message can have */
            "local p, q = {}, 1 for i = 1, 101 do p = { p } end for i = 1, 100 do q = { q } end\n"
            "process.send(me, q) assert(process.receive(p, '5ms') == nil and process.receive() ~= nil)\n");
}

TEST(blobs_and_truncated_messagepack_are_handled)
{
    fixture_passes(
        &w, "local me = process.self()\n"
            "local a, b, c, d = blob.new('same'), blob.new('same'), blob.new('diff'), blob.new('longer') assert(a == a "
            "and a == b and a ~= c and a ~= d)\n"
            "local many = {} for i = 1, 60 do many[i] = blob.new(('x'):rep(20000) .. i) end process.send(me, many) "
            "local got = process.receive() for i = 1, 60 do assert(got[i] == many[i]) end\n"
            "local listener <close> = assert(net.listen('127.0.0.1:0')) assert(a ~= listener and listener ~= a)\n"
            "local server = task.spawn(function() return assert(listener:accept()) end) local client = "
            "assert(net.connect(listener:address())) local served = server:await()\n"
            "assert(client:write(blob.new('from a blob')) == 11 and served:read_exactly(11) == 'from a blob') local r, "
            "why = client:read_until('') assert(r == nil and type(why) == 'string')\n"
            "for _, bytes in ipairs { '\\xc4\\2ab', '\\xc5\\0\\2ab', '\\xc6\\0\\0\\0\\2ab', '\\xd9\\2ab', "
            "'\\xda\\0\\2ab', '\\xdb\\0\\0\\0\\2ab', '\\xdc\\0\\1\\1', '\\xdd\\0\\0\\0\\1\\1',\n"
            "    '\\xde\\0\\1\\xa1a\\1', '\\xdf\\0\\0\\0\\1\\xa1a\\1', '\\xca\\0\\0\\0\\0', "
            "'\\xcb\\0\\0\\0\\0\\0\\0\\0\\0', '\\x81\\xa1a\\1', '\\x91\\x91\\1', '\\xcf\\0\\0\\0\\0\\0\\0\\0\\1' } do\n"
            "  assert(msgpack.decode(bytes) ~= nil)\n"
            "  for n = 0, #bytes - 1 do local value, why = msgpack.decode(bytes:sub(1, n)) assert(value == nil and "
            "type(why) == 'string', n) end\n"
            "end\n");
}

TEST(wrong_supervisor_specs_and_upgrades_report_an_error)
{
    fixture_passes(
        &w,
        "local f = function() process.receive() end\n"
        "local specs = { 5, {}, { children = 5 }, { children = { 5 } }, { children = { {} } }, { children = { { id = "
        "'a' } } }, { children = { { id = 5, f } } }, { children = { { id = '', f } } },\n"
        "  { children = { { id = ('x'):rep(64), f } } }, { children = { { id = 'a', f, link = true } } }, { children = "
        "{ { id = 'a', f, monitor = true } } }, { children = { { id = 'a', f, colour = 1 } } },\n"
        "  { children = { { id = 'a', f } }, strategy = 'sometimes' }, { children = { { id = 'a', f } }, intensity = "
        "'x' }, { children = { { id = 'a', f } }, colour = 1 }, { children = { { id = 'a', print } } },\n"
        "  { children = { { id = 'n', children = { { id = 'a', f } }, link = true } } }, { children = { { id = 'n', "
        "children = { { id = 'a', f } }, colour = 1 } } } }\n"
        "for i, spec in ipairs(specs) do\n"
        "  local fine, r, why = pcall(supervisor.start, spec)\n"
        "  if i ~= 2 and fine and r then error(i .. ' is taken') end\n"
        "end\n"
        "local up = assert(supervisor.start{ children = { { id = 'a', f } } })\n"
        "assert(not pcall(supervisor.stop_child, up, ('x'):rep(64)) and not pcall(supervisor.stop_child, up, '') and "
        "not pcall(supervisor.children) and not pcall(supervisor.start_child, up, 5))\n"
        "local none, why = supervisor.stop_child(up, 'z') assert(none == nil and why) none, why = "
        "supervisor.start_child(up, { id = 'a', f }) assert(none == nil and why)\n"
        "assert(supervisor.stop(up))\n"
        "none, why = supervisor.children(up) assert(none == nil and why) none, why = supervisor.start_child(up, { id = "
        "'q', f }) assert(none == nil and why) none, why = supervisor.stop_child(up, 'a') assert(none == nil and why)\n"
        "none, why = supervisor.stop(up)\n"
        "assert(not pcall(supervisor.children, process.self()))\n"
        /* an upgrade to code that cannot be used returns an error and changes nothing */
        "for _, bad in ipairs { 'plain', 'table', 'nothing', 'bad', 'none' } do local r, said = process.upgrade(bad) "
        "assert(r == nil and type(said) == 'string' and #said > 0, bad) end\n"
        "assert(not pcall(process.upgrade, 5) and not pcall(process.upgrade, print) and not pcall(process.upgradable, "
        "5))\n"
        "assert(not pcall(process.upgrade, nil))\n");
}

TEST(the_error_for_a_long_module_path_is_truncated)
{
    static fixture    far;
    static char       path[4000];
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    memset(path, 'p', sizeof path - 1);
    memcpy(path + 1500, "/?.lua;", 7);
    memcpy(path + 1600, "?;", 2);
    for (size_t i = 2000; i < sizeof path - 20; i += 20) memcpy(path + i, "/?/init.lua;", 12);
    options.path = path;
    fixture_open(&far, 1, &options);
    fixture_passes(&far, "local fine, why = pcall(require, ('n'):rep(100)) assert(not fine and why:find(\"module "
                         "'nnnn\", 1, true) and #why < 600, why)\n"
                         "assert(not pcall(require, ('a.'):rep(50) .. 'b'))");
    fixture_close(&far);
}

TEST(a_request_from_a_full_mailbox_still_sees_the_server_end)
{
    fixture_passes(
        &w, "local parent = process.self()\n"
            "local asker = process.spawn{ function()\n"
            "  local server = process.spawn(function() local _, from = process.receive() process.receive() end)\n"
            "  process.send(parent, server)\n"
            "  local a, why = process.request(server, 'x', 3600)\n"
            "  process.send(parent, { a, why })\n"
            "end, mailbox = 1 }\n"
            "local server = process.receive()\n"
            "for i = 1, 3 do process.send(asker, i) end process.terminate(server)\n"
            "local m = process.receive('10s') assert(m and m[1] == nil and type(m[2]) == 'string', m)\n");
}

int main(void)
{
    if (mkdtemp(folder) == NULL) return 1;
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(a_wrong_argument_raises_an_error),
        T(a_call_that_fails_returns_nil_and_an_error_text),
#ifdef FLI_IO
        T(every_stream_method_works_and_checks_its_arguments),
#endif
        T(a_request_carries_the_pid_of_its_sender),
        T(every_spawn_option_has_its_effect),
        T(files_and_modules_are_loaded_or_the_error_is_reported),
        T(string_arithmetic_and_library_tables_work_as_documented),
        T(a_time_span_is_parsed_in_every_unit),
        T(host_functions_get_the_process_and_its_values),
        T(option_structs_of_a_newer_header_are_accepted_if_their_new_fields_are_zero),
        T(option_structs_of_a_wrong_size_are_refused),
        T(a_simulation_refuses_a_check_and_reports_long_errors),
        T(unused_code_is_evicted_and_held_code_is_kept),
        T(equal_functions_are_recognised_in_the_code_cache),
        T(a_task_that_wakes_spuriously_waits_again),
        T(blobs_and_truncated_messagepack_are_handled),
        T(wrong_supervisor_specs_and_upgrades_report_an_error),
        T(the_error_for_a_long_module_path_is_truncated),
        T(a_request_from_a_full_mailbox_still_sees_the_server_end),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < written; i++) unlink(files[i]);
    rmdir(folder);
    return failed;
}
