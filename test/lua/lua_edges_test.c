/* lua_edges_test.c - edge cases of the libraries: values of the wrong type, names and lines that are too long, and a
 * Lua that hides its internals. */
#include <filch_lua.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lua/fixture.h"
#include "lua/host/host.h"

static fixture w;

/* The logged lines. One worker writes them, and the test reads them after the process has ended. */
static char   logged[1 << 18];
static size_t logged_size;

static void keep_line(void *user, const char *text, size_t size)
{
    (void)user;
    assert_true(logged_size + size < sizeof logged);
    memcpy(logged + logged_size, text, size);
    logged_size += size;
    logged[logged_size] = '\0';
}

static int open_fixture(void **state)
{
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    lua.log = keep_line;
    logged_size = 0;
    lua.rights = FILCH_LUA_MAY_EXEC | FILCH_LUA_MAY_ENV;
    fixture_open(&w, 1, &lua);
    *state = &w;
    return 0;
}

/* A pointer sent by the host arrives as a userdata without a metatable. */
TEST(a_host_pointer_is_refused_as_channel_task_pid_or_request)
{
    static int thing;
    filch_pid  pid = fixture_start(
         &w,
         "local p = process.receive()\n"
          "local function fails(what, ...) local fine, why = pcall(...) assert(not fine, what) return why end\n"
          "assert(type(p) == 'userdata')\n"
          "assert(fails('send', channel.new().send, p, 1):find('channel', 1, true))\n"
          "assert(fails('await', task.spawn(function() end).await, p):find('task', 1, true))\n"
          "assert(fails('pid', process.send, p, 1):find('pid', 1, true))\n"
          "assert(fails('reply', process.reply, p, 1))\n"
          "assert(fails('message', process.send, process.self(), p):find('userdata', 1, true))\n"
          "assert(fails('select', channel.select, { p }))\n",
         0);
    ok(filch_send(w.sched, pid, filch_ptr(&thing)));
    until(atomic_load(&w.over));
    if (w.error != FILCH_OK) fail_msg("%s", w.text);
}

TEST(channel_room_counts_free_places_and_a_wrong_capacity_is_refused)
{
    fixture_passes(&w, "local function fails(...) local fine, why = pcall(...) assert(not fine) return why end\n"
                       "local ch = channel.new(3) assert(ch:room() == 3) ch:send(1) assert(ch:room() == 2) ch:close() "
                       "assert(ch:room() == 0)\n"
                       "for _, wrong in ipairs { '3', -1, 1.5, {} } do assert(fails(channel.new, wrong):find('whole "
                       "number', 1, true)) end\n");
}

/* Regression: ch:room() returned a negative number if a task waited to receive from a channel of the largest
 * capacity. */
TEST(room_of_a_channel_with_the_largest_capacity_is_not_negative)
{
    fixture_passes(&w, "local ch = channel.new(math.maxinteger)\n"
                       "for i = 1, 3 do task.spawn(function() ch:receive() end) end\n"
                       "while select(2, ch:waiting()) < 3 do time.sleep(0) end\n"
                       "assert(ch:room() == math.maxinteger, ch:room())\n"
                       "local small = channel.new(3)\n"
                       "for i = 1, 2 do task.spawn(function() small:receive() end) end\n"
                       "while select(2, small:waiting()) < 2 do time.sleep(0) end\n"
                       "assert(small:room() == 5)\n");
}

TEST(errors_name_wrong_strings_and_list_elements)
{
    fixture_passes(
        &w, "local function fails(...) local fine, why = pcall(...) assert(not fine) return why end\n"
            "assert(fails(table.concat, { 1, {}, 3 }):find('index 2', 1, true))\n"
            "assert(table.concat({ 1, 2, 3 }, '-', 2) == '2-3' and table.concat({ 1, 2, 3 }, '-', 1, 2) == '1-2')\n"
            "assert((''):lower() == '' and (''):upper() == '' and (''):reverse() == '' and ('aB'):reverse() == 'Ba')\n"
            "assert(fails(function() return '10x' + 1 end):find('string', 1, true))\n"
            "assert(fails(function() return '10\\0' + 1 end):find('string', 1, true))\n"
            "assert(fails(function() return 'a' + {} end))\n"
            "local r, why = json.decode('{\"a\" 1}') assert(r == nil and why:find(\"':' is expected\", 1, true))\n"
            "assert(fails(json.list, setmetatable({}, { __metatable = 'mine' })):find('protected', 1, true))\n");
}

TEST(environment_variable_names_are_checked)
{
    fixture_passes(&w,
                   "local function fails(env) local fine, why = pcall(exec.run, { 'true', env = env }) assert(not "
                   "fine) return why end\n"
                   "assert(fails({ [''] = 'x' }):find('at most 256 names', 1, true))\n"
                   "assert(fails({ ['A=B'] = 'x' }):find('at most 256 names', 1, true))\n"
                   "local many = {} for i = 1, 300 do many['N' .. i] = 'x' end assert(fails(many):find('at most 256 "
                   "names', 1, true))\n"
                   "local p = assert(exec.run { 'sh', '-c', 'exit $N7', env = { N7 = '7', PATH = os.getenv('PATH') } "
                   "}) assert(p.self:wait() == 7)\n");
}

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) n++;
    return n;
}

TEST(a_log_line_is_truncated_when_too_deep_or_with_too_many_fields)
{
    fixture_passes(&w, "local deep = {} for i = 1, 20 do deep = { inner = deep } end log.info('deep', { t = deep })\n");
    has_text(logged, "={...}}}");
    assert_true(count_of(logged, "inner") < 5);
    logged_size = 0;
    fixture_passes(&w, "local many = {} for i = 1, 300 do many['field' .. i] = i end log.info('many', many)\n");
    same(count_of(logged, "field"), 100);
    has_text(logged, " ...\n");
    logged_size = 0;
    fixture_passes(
        &w, "log.info('told', { own = setmetatable({ 1 }, { __tostring = function() return 'my words' end }) })\n");
    has_text(logged, "own=\"my words\"");
}

TEST(a_log_line_over_64_kib_is_truncated)
{
    fixture_passes(&w, "log.info('small', { a = ('x'):rep(3000) })\n");
    same(count_of(logged, "x"), 3000);
    logged_size = 0;
    fixture_passes(&w, "log.info(('long'):rep(50000))\n");
    same(logged_size, 65536);
    assert_string_equal(logged + logged_size - 4, "...\n");
    logged_size = 0;
    fixture_passes(&w, "local t = {} for i = 1, 30 do t[i] = ('y'):rep(4000) end log.info('fields', t)\n");
    same(logged_size, 65536);
    assert_string_equal(logged + logged_size - 4, "...\n");
}

TEST(a_file_longer_than_a_page_is_loaded_whole)
{
    char            path[] = "/tmp/filch-edges-XXXXXX";
    int             fd = mkstemp(path);
    FILE           *file = fdopen(fd, "w");
    filch_lua_code *code = NULL;
    char            why[256] = "";
    for (int i = 0; i < 5000; i++) assert_true(fprintf(file, "-- line %d of many\n", i) > 0);
    assert_true(fputs("return 'the end'\n", file) >= 0);
    ok(fclose(file));
    ok(filch_lua_load_file(w.lua, path, &code, why, sizeof why));
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = fixture_ended;
    spawn.on_exit_user = &w;
    how.spawn = &spawn;
    atomic_store(&w.over, 0);
    ok(filch_lua_spawn(w.lua, w.sched, code, &how, NULL));
    until(atomic_load(&w.over));
    ok(w.error);
    assert_string_equal(w.text, "the end");
    filch_lua_code_drop(w.lua, code);
    /* A buffer for the error text that has size 0, or is NULL, is allowed. */
    same(filch_lua_load(w.lua, "=", 1, "x", &code, why, 0), FILCH_LUA_ESYNTAX);
    same(filch_lua_load(w.lua, "=", 1, "x", &code, NULL, 10), FILCH_LUA_ESYNTAX);
    ok(unlink(path));
}

TEST(invalid_host_options_are_refused)
{
    filch_lua        *lua = NULL;
    filch_lua_options wrong = FILCH_LUA_OPTIONS_INIT;
    wrong.log_level = FILCH_LUA_LOG_NONE + 1;
    same(filch_lua_create(&lua, &wrong), FILCH_EINVAL);
    wrong.log_level = FILCH_LUA_LOG_NONE;
    wrong.count = UINT32_MAX;
    same(filch_lua_create(&lua, &wrong), FILCH_EINVAL);
    wrong.count = 0;
    wrong.without = "process.nothing";
    same(filch_lua_create(&lua, &wrong), FILCH_EINVAL);
    wrong.without = "process_send table.nil os.exit string.rep";
    same(filch_lua_create(&lua, &wrong), FILCH_EINVAL);
    wrong.without = NULL;
    wrong.mailbox_bytes = (size_t)1 << 28;
    same(filch_lua_create(&lua, &wrong), FILCH_EINVAL);
    assert_null(lua);
    wrong.size = offsetof(filch_lua_options, mailbox_bytes); /* an older struct without the wrong field is accepted */
    ok(filch_lua_create(&lua, &wrong));
    ok(filch_lua_destroy(lua));
    wrong.size = sizeof wrong;
    wrong.mailbox_bytes = ((size_t)1 << 28) - 1;
    ok(filch_lua_create(&lua, &wrong));
    ok(filch_lua_destroy(lua));
}

/* Filch finds the seed and the prototypes of a state by comparing states. In another version of Lua this may fail: then
 * states share nothing, and all programs must still work. */
TEST(programs_run_without_sharing_between_states)
{
    w.lua->proto_word = 0;
    w.lua->seed_offset = 0;
    for (int i = 0; i < 3; i++) {
        fixture_passes(
            &w, "local n = 5 local function add(x) return x + n end\n"
                "for i = 1, 4 do assert(process.exec(function(f, x) return f(x) + add(1) end, add, i) == i + 11) end\n"
                "local me = process.self() local function child(k) process.send(me, k) end\n"
                "for i = 1, 4 do process.spawn(child, i) end\n"
                "local sum = 0 for i = 1, 4 do sum = sum + process.receive() end assert(sum == 10)\n");
    }
}

TEST(calls_to_an_ended_supervisor_report_that_it_ended)
{
    fixture_passes(
        &w, "local function child() process.receive() end\n"
            "local top = assert(supervisor.start { children = { { id = 'a', child } } })\n"
            "assert(#supervisor.children(top) == 1)\n"
            "local again, why = supervisor.start_child(top, { id = 'a', child }) assert(again == nil and #why > 0)\n"
            "local gone, none = supervisor.stop_child(top, 'b') assert(not gone and #none > 0)\n"
            "assert(supervisor.stop(top))\n"
            "for _, ask in ipairs { supervisor.children, supervisor.start_child, supervisor.stop_child } do\n"
            "  local r, words = ask(top, ask == supervisor.start_child and { id = 'c', child } or 'a')\n"
            "  assert(not r and words:find('ended', 1, true), words)\n"
            "end\n");
}

static size_t describe(void *user, const void *bytes, size_t size, size_t whole, char *text, size_t text_size)
{
    (void)user, (void)bytes, (void)size;
    int n = snprintf(text, text_size, "a message of %zu bytes", whole);
    return n > 0 ? (size_t)n : 0;
}

TEST(a_simulation_uses_the_hosts_message_description)
{
    static const char chunk[] = "process.send(process.self(), 'twelve bytes') process.receive() sim.fail('over')";
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua_code   *code;
    ok(filch_lua_load(w.lua, chunk, sizeof chunk - 1, "test", &code, NULL, 0));
    sim.describe = describe;
    ok(filch_lua_sim(w.lua, code, NULL, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.chart, "a message of 12 bytes");
    filch_sim_report_free(&report);
    filch_lua_code_drop(w.lua, code);
}

TEST(a_host_without_a_time_limit_loads_files)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    fixture           other;
    options.runaway_ns = UINT64_MAX;
    fixture_open(&other, 1, &options);
    fixture_passes(&other, "assert(require('counter') ~= nil)");
    fixture_close(&other);
}

/* With memory limits from 40,000 to 600,000 bytes, the process runs out of memory at many different places: in blobs,
 * in long strings, and in kept messages. */
TEST(a_process_with_any_memory_limit_succeeds_or_fails_cleanly)
{
    static const char chunk[] =
        "local me, b, s = process.self(), blob.new(('b'):rep(9000)), ('s'):rep(17000)\n"
        "for i = 1, 6 do process.send(me, { b, s .. i, i }) end\n"
        /* this receive keeps the other five messages */
        "local last = process.receive(function(m) return m[3] == 6 end) assert(#last[2] == 17001)\n"
        "local copies = {} for i = 1, 5 do local m = process.receive() copies[i] = blob.new(m[2]) assert(#m[1] == "
        "9000) end\n"
        "return process.exec(function() process.upgrade(function(t) return #t end, ('u'):rep(20000)) end)";
    unsigned passed = 0, refused = 0;
    for (size_t max = 40000; max < 600000; max += 7000) {
        (void)fixture_start(&w, chunk, max);
        until(atomic_load(&w.over));
        if (w.error == FILCH_OK) passed++;
        else refused++;
        if (w.error != FILCH_OK)
            assert_true(w.error == FILCH_LUA_EMEMORY || w.error == FILCH_LUA_EERROR || w.error == FILCH_ENOMEM);
    }
    assert_true(passed > 5 && refused > 5);
}

/* ---- processes of another host of the node ---- */

static struct {
    /* lua: the Lua process; far: a process of the other host; asked: the process about which the policy was asked */
    filch_pid lua, far, asked;
} far;

static int note_target(void *user, const filch_access *access)
{
    (void)user;
    if (access->command == FILCH_CMD_UNLINK) far.asked = access->target;
    return 1;
}

static filch_err greet(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    if (count == 0) ok(filch_send(filch_out_sched(out), far.lua, filch_int(1)));
    return filch_idle(out);
}

/* For an unlink, the policy of the node is asked about the process to unlink, not about the calling process. */
TEST(the_policy_is_asked_about_the_process_to_unlink)
{
    static const filch_type greeter = { .name = "greeter", .step = greet };
    filch_node             *node;
    filch_sched            *other;
    filch_node_options      how = FILCH_NODE_OPTIONS_INIT;
    filch_lua_options       lua = FILCH_LUA_OPTIONS_INIT;
    filch_options           host = FILCH_OPTIONS_INIT;
    memset(&far, 0, sizeof far);
    memset(&w, 0, sizeof w);
    how.policy = note_target;
    host.workers = 1;
    ok(filch_node_create(&node, &how));
    host.node = 1;
    ok(filch_node_add(node, &host, &w.sched));
    host.node = 2;
    ok(filch_node_add(node, &host, &other));
    filch_node_destroy(node);
    ok(filch_lua_create(&w.lua, &lua));
    far.lua =
        fixture_start(&w, "local _, from = process.receive() assert(process.link(from) and process.unlink(from))", 0);
    ok(filch_spawn(other, &greeter, NULL, &far.far));
    until(atomic_load(&w.over));
    if (w.error != FILCH_OK) fail_msg("%s", w.text);
    assert_true(far.asked.node == 2 && far.asked.serial == far.far.serial);
    ok(filch_sched_stop(other, FILCH_SECONDS(60), NULL));
    fixture_close(&w);
}

#define IN_FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_fixture, fixture_close_shared)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FIXTURE(a_host_pointer_is_refused_as_channel_task_pid_or_request),
        IN_FIXTURE(channel_room_counts_free_places_and_a_wrong_capacity_is_refused),
        IN_FIXTURE(room_of_a_channel_with_the_largest_capacity_is_not_negative),
        IN_FIXTURE(errors_name_wrong_strings_and_list_elements),
        IN_FIXTURE(environment_variable_names_are_checked),
        IN_FIXTURE(a_log_line_is_truncated_when_too_deep_or_with_too_many_fields),
        IN_FIXTURE(a_log_line_over_64_kib_is_truncated),
        IN_FIXTURE(a_file_longer_than_a_page_is_loaded_whole),
        cmocka_unit_test(invalid_host_options_are_refused),
        IN_FIXTURE(calls_to_an_ended_supervisor_report_that_it_ended),
        IN_FIXTURE(a_simulation_uses_the_hosts_message_description),
        cmocka_unit_test(a_host_without_a_time_limit_loads_files),
        IN_FIXTURE(a_process_with_any_memory_limit_succeeds_or_fails_cleanly),
        IN_FIXTURE(programs_run_without_sharing_between_states),
        cmocka_unit_test(the_policy_is_asked_about_the_process_to_unlink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
