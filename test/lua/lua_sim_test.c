/* lua_sim_test.c - Lua programs in simulation: the same seed gives the same run, time is virtual, a failing seed can be
 * replayed. */
#include "lua/fixture.h"

/* The text that a simulated run prints. */
typedef struct output {
    char   text[FIXTURE_TEXT];
    size_t size;
} output;

static void write_down(void *user, const char *text, size_t size)
{
    output *p = user;
    if (p->size + size >= sizeof p->text) return;
    memcpy(p->text + p->size, text, size);
    p->size += size;
    p->text[p->size] = '\0';
}

static filch_sim_report simulate(const char *chunk, uint64_t seed, uint64_t count, output *printed)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    char              why[256] = "";
    *printed = (output){ .size = 0 };
    options.print = write_down;
    options.print_user = printed;
    sim.seed = seed;
    sim.steps_max = 20000;
    ok(filch_lua_create(&lua, &options));
    if (filch_lua_load(lua, chunk, strlen(chunk), "test", &code, why, sizeof why) != FILCH_OK) fail_msg("%s", why);
    ok(filch_lua_sim(lua, code, NULL, &sim, count, &report));
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
    return report;
}

static const char busy[] = "local me = process.self()\n"
                           "for i = 1, 4 do process.spawn(function(i)\n"
                           "  for j = 1, 5 do\n"
                           "    time.sleep(math.random() / 10)\n"
                           "    process.send(me, { who = i, what = j, [('k' .. math.random(100))] = true, a = 1, b = "
                           "2, c = 3, d = 4, e = 5 })\n"
                           "    local n = 0 for k = 1, 20000 do n = n + k end\n"
                           "  end\n"
                           "end, i) end\n"
                           "for i = 1, 20 do\n"
                           "  local m, from = process.receive()\n"
                           "  local keys = {} for k in pairs(m) do keys[#keys + 1] = k end\n"
                           "  print(time.ns(), from, m.who, m.what, table.concat(keys, ' '), os.time(), os.clock())\n"
                           "end\n"
                           "local x = task.any { function() time.sleep(math.random()) return 'a' end, function() "
                           "time.sleep(math.random()) return 'b' end }\n"
                           "print(x, os.date('!%Y-%m-%d'))\n";

TEST(the_same_seed_gives_the_same_output)
{
    static output a, b, other;
    unsigned      differ = 0;
    for (uint64_t seed = 1; seed <= scaled(40); seed++) {
        filch_sim_report first = simulate(busy, seed, 1, &a), second = simulate(busy, seed, 1, &b);
        filch_sim_report third = simulate(busy, seed + 1000, 1, &other);
        if (first.verdict != FILCH_SIM_OK) fail_msg("%s", first.text);
        assert_string_equal(a.text, b.text);
        same(first.hash, second.hash);
        same(first.time_ns, second.time_ns);
        differ += strcmp(a.text, other.text) != 0;
        has_text(a.text, "2000-01-01");
        filch_sim_report_free(&first);
        filch_sim_report_free(&second);
        filch_sim_report_free(&third);
    }
    same(differ, scaled(40));
}

TEST(simulated_time_takes_no_real_time)
{
    static output    printed;
    filch_sim_report report = simulate(
        "local t = time.now() for i = 1, 30 do time.sleep('1m') end assert(time.now() - t >= 1800)", 1, 1, &printed);
    same(report.verdict, FILCH_SIM_OK);
    assert_true(report.time_ns >= FILCH_SECONDS(1800));
    filch_sim_report_free(&report);
}

/* Two processes read a number, wait, and write it back increased. In some orders of the steps one update is lost. */
static const char racy[] =
    "local store = process.spawn(function() local n = 0 while true do local m, from = process.receive()\n"
    "  if m == 'get' then process.reply(from, n) else n = m process.reply(from, true) end end end)\n"
    "local me = process.self()\n"
    "for i = 1, 2 do process.spawn(function() process.request(store, process.request(store, 'get', 60) + 1, 60) "
    "process.send(me, 'done') end) end\n"
    "process.receive() process.receive()\n"
    "local n = process.request(store, 'get', 60)\n"
    "process.terminate(store)\n"
    "assert(n == 2, 'an update was lost')\n";

TEST(a_lost_update_is_found_and_replayed)
{
    static output    printed;
    filch_sim_report found = simulate(racy, 1, 1000, &printed);
    same(found.verdict, FILCH_SIM_FAILED);
    has_text(found.text, "an update was lost");
    for (int i = 0; i < 3; i++) {
        filch_sim_report again = simulate(racy, found.seed, 1, &printed);
        same(again.verdict, FILCH_SIM_FAILED);
        same(again.hash, found.hash);
        filch_sim_report_free(&again);
    }
    filch_sim_report_free(&found);
}

TEST(endless_loops_endless_waits_and_sim_fail_are_violations)
{
    static output    printed;
    filch_sim_report report = simulate("process.receive()", 1, 1, &printed);
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "waits for ever");
    filch_sim_report_free(&report);
    report = simulate(
        "process.spawn(function() assert(sim.active()) sim.note('here') sim.fail('said so') end) time.sleep(1)", 1, 1,
        &printed);
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "said so");
    has_text(report.chart, "here");
    filch_sim_report_free(&report);
    report = simulate("tostring(setmetatable({}, { __tostring = function() while true do end end }))", 1, 1, &printed);
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "ran for too long");
    filch_sim_report_free(&report);
    report = simulate("local t = {} setmetatable(t, { __call = t }) pcall(t)", 1, 1, &printed);
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "ran for too long");
    filch_sim_report_free(&report);
    report = simulate("process.spawn(function() while true do end end) time.sleep(1)", 1, 1, &printed);
    same(report.verdict, FILCH_SIM_ENDLESS);
    filch_sim_report_free(&report);
}

TEST(large_stacks_are_allowed)
{
    static output    printed;
    filch_sim_report report =
        simulate("local function f(n) return n == 0 and 0 or 1 + f(n - 1) end\n"
                 "assert(f(100000) == 100000)\n"
                 "tostring(setmetatable({}, { __tostring = function() f(100000) return '' end }))\n"
                 "local s = ('b'):rep(65000)\n"
                 "assert(select('#', string.unpack(s, s)) == 65001)\n"
                 "assert(select('#', table.unpack({}, 1, 200000)) == 200000)\n",
                 1, 20, &printed);
    if (report.verdict != FILCH_SIM_OK) fail_msg("%s", report.text);
    filch_sim_report_free(&report);
}

TEST(unknown_rights_are_refused)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_lua        *lua;
    options.rights = 15;
    ok(filch_lua_create(&lua, &options));
    ok(filch_lua_destroy(lua));
    options.rights = 16;
    same(filch_lua_create(&lua, &options), FILCH_EINVAL);
    options.rights = UINT32_MAX;
    same(filch_lua_create(&lua, &options), FILCH_EINVAL);
}

TEST(simulations_with_wrong_arguments_are_refused)
{
    filch_lua              *lua;
    filch_lua_code         *code;
    filch_sim_report        report = FILCH_SIM_REPORT_INIT;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_lua_options       bad = { .size = 3 };
    filch_pid               pid;
    filch_sched            *sched;
    char                    text[64];
    same(filch_lua_create(NULL, NULL), FILCH_EINVAL);
    same(filch_lua_create(&lua, &bad), FILCH_EINVAL);
    bad = (filch_lua_options){ .size = sizeof bad, .signal = 999 };
    same(filch_lua_create(&lua, &bad), FILCH_EINVAL);
    ok(filch_lua_create(&lua, NULL));
    same(filch_lua_load(lua, "x = = 1", 7, NULL, &code, text, sizeof text), FILCH_LUA_ESYNTAX);
    has_text(text, "chunk:1:");
    same(filch_lua_load(lua, "\033Lua", 4, NULL, &code, NULL, 0), FILCH_LUA_ESYNTAX);
    same(filch_lua_load(lua, NULL, 4, NULL, &code, NULL, 0), FILCH_EINVAL);
    same(filch_lua_load_file(lua, "/no/such/file.lua", &code, text, sizeof text), FILCH_LUA_EFILE);
    same(filch_lua_load_file(lua, NULL, &code, NULL, 0), FILCH_EINVAL);
    ok(filch_lua_load(lua, "return 1", 8, NULL, &code, NULL, 0));
    same(filch_lua_sim(NULL, code, NULL, NULL, 1, &report), FILCH_EINVAL);
    same(filch_lua_sim(lua, code, NULL, NULL, 0, &report), FILCH_EINVAL);
    how.spawn = &spawn;
    same(filch_lua_sim(lua, code, &how, NULL, 1, &report), FILCH_EINVAL);
    ok(filch_sched_create(&sched, NULL));
    same(filch_lua_spawn(lua, NULL, code, NULL, &pid), FILCH_EINVAL);
    same(filch_lua_spawn(lua, sched, NULL, NULL, &pid), FILCH_EINVAL);
    how.arg_count = 1;
    same(filch_lua_spawn(lua, sched, code, &how, &pid), FILCH_EINVAL);
    how.arg_count = 0;
    spawn.method = "x";
    same(filch_lua_spawn(lua, sched, code, &how, &pid), FILCH_EINVAL);
    same(filch_lua_destroy(NULL), FILCH_EINVAL);
    filch_lua_code *endless;
    ok(filch_lua_load(lua, "process.receive()", 17, NULL, &endless, NULL, 0));
    ok(filch_lua_spawn(lua, sched, endless, NULL, &pid));
    same(filch_lua_destroy(lua), FILCH_EBUSY);
    (void)filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
    filch_lua_code_drop(lua, code);
    filch_lua_code_drop(lua, endless);
    filch_lua_code_drop(lua, NULL);
    same(filch_lua_self(NULL).serial, 0);
    assert_null(filch_lua_sched(NULL));
    ok(filch_lua_destroy(lua));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_output),
        cmocka_unit_test(simulated_time_takes_no_real_time),
        cmocka_unit_test(a_lost_update_is_found_and_replayed),
        cmocka_unit_test(endless_loops_endless_waits_and_sim_fail_are_violations),
        cmocka_unit_test(large_stacks_are_allowed),
        cmocka_unit_test(unknown_rights_are_refused),
        cmocka_unit_test(simulations_with_wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
