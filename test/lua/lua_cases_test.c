/* lua_cases_test.c - sleeps end in order however they were begun and cancelled; each mode of fs.open does what the same
 * mode of io.open does. */
#include "lua/simulated.h"

#include <unistd.h>

/* In a simulation, each task sleeps for another time, so the tasks wake in another order than they start. Some tasks
 * are cancelled. The remaining tasks must wake in the order of their wake-up times, and on time. */
TEST(tasks_wake_in_deadline_order_whichever_task_is_cancelled)
{
    simulate("local woken, tasks, n = {}, {}, 40\n"
             "local began = time.now()\n"
             "for i = 1, n do\n"
             "  local ms = 100 + (i * 7919) % 997 * 10\n"
             "  tasks[i] = { ms = ms, task = task.spawn(function()\n"
             "    time.sleep(ms / 1000)\n"
             "    woken[#woken + 1] = { ms = ms, at = time.now() - began }\n"
             "  end) }\n"
             "end\n"
             "time.sleep(0.05)\n"
             "for i = 1, n, 3 do tasks[i].task:cancel() end\n"
             "local expected = {}\n"
             "for i = 1, n do\n"
             "  if i % 3 ~= 1 then tasks[i].task:await() expected[#expected + 1] = tasks[i].ms end\n"
             "end\n"
             "table.sort(expected)\n"
             "assert(#woken == #expected, #woken)\n"
             "for i, w in ipairs(woken) do\n"
             "  assert(w.ms == expected[i], i .. ': ' .. w.ms .. ' is not ' .. expected[i])\n"
             "  assert(w.at >= w.ms / 1000 - 1e-6, 'early')\n"
             "  assert(w.at < w.ms / 1000 + 1, 'late: ' .. w.at)\n"
             "end\n",
             5);
}

/* No task is cancelled here. Each receive with a timeout cancels its timer when its message arrives. */
TEST(removed_timeouts_keep_the_order_of_later_ones)
{
    simulate("local me, out = process.self(), {}\n"
             "for round = 1, 6 do\n"
             "  local all = {}\n"
             "  for i = 1, 12 do\n"
             "    local wait = ((i * 31 + round * 7) % 13 + 1) / 10\n"
             "    all[i] = task.spawn(function()\n"
             "      local ch = channel.new()\n"
             "      local began = time.now()\n"
             "      if i % 2 == 0 then task.spawn(function() time.sleep(wait / 2) ch:send(1) end) end\n"
             "      local got = ch:receive(wait)\n"
             "      local took = time.now() - began\n"
             /* after a long stall both the send and the timeout are due, and either may come first */
             "      if got then assert(got == 1 and i % 2 == 0 and took < wait + 1.5, took)\n"
             "      else assert(took >= wait - 1e-6 and took < wait + 1.5, took) end\n"
             "    end)\n"
             "  end\n"
             "  for _, t in ipairs(all) do t:await() end\n"
             "end\n",
             3);
}

#ifdef FLI_IO
TEST(each_mode_of_fs_open_acts_as_in_io_open)
{
    fixture           w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    char              path[] = "/tmp/filch-lua-cases-XXXXXX", chunk[4096];
    int               fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    options.rights = FILCH_LUA_MAY_FILES;
    fixture_open(&w, 1, &options);
    snprintf(
        chunk, sizeof chunk,
        "local path, gone = %s%s%s, %s%s.gone%s\n"
        "local function put(text) local f = assert(fs.open(path, 'w')) if text ~= '' then f:write(text) end f:close() "
        "end\n"
        "local function got(file) local f = assert(fs.open(file or path)) local s = f:read(100) or '' f:close() return "
        "s end\n"
        "local function is(a, b, what) if a ~= b then error(what .. ': ' .. tostring(a) .. ' is not ' .. tostring(b)) "
        "end end\n"
        /* for each mode: what a file of ten bytes contains after three bytes were written in this mode */
        "for mode, expected in pairs { ['r+'] = 'abc3456789', w = 'abc', ['w+'] = 'abc', a = '0123456789abc', ['a+'] = "
        "'0123456789abc' } do\n"
        "  put '0123456789'\n"
        "  local f = assert(fs.open(path, mode)) assert(f:write 'abc' == 3) f:close()\n"
        "  is(got(), expected, mode)\n"
        "end\n"
        /* checks which modes allow reading, and which allow writing */
        "for mode, reads in pairs { r = true, ['r+'] = true, w = false, ['w+'] = true, a = false, ['a+'] = true } do\n"
        "  put 'text'\n"
        "  local f = assert(fs.open(path, mode))\n"
        "  if mode == 'w+' then f:write 'text' f:seek(0) end\n"
        "  local s, why = f:read(100)\n"
        "  is(s == 'text', reads, mode .. ' reads')\n"
        "  local n = f:write 'x'\n"
        "  is(n == 1, mode ~= 'r', mode .. ' writes')\n"
        "  f:close()\n"
        "end\n"
        /* checks which modes create a file that does not exist */
        "for mode, makes in pairs { r = false, ['r+'] = false, w = true, ['w+'] = true, a = true, ['a+'] = true } do\n"
        "  local name = gone .. mode:gsub('+', 'p')\n"
        "  local f, why = fs.open(name, mode)\n"
        "  is(f ~= nil, makes, mode .. ' makes')\n"
        "  if f then f:close() else assert(type(why) == 'string') is(fs.open(name), nil, mode .. ' has made') end\n"
        "end\n",
        "'", path, "'", "'", path, "'");
    fixture_run(&w, chunk);
    static const char *const made[] = { "w", "wp", "a", "ap", "r", "rp" };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        char name[sizeof path + 16];
        snprintf(name, sizeof name, "%s.gone%s", path, made[i]);
        (void)unlink(name);
    }
    (void)unlink(path);
    if (w.error != FILCH_OK) fail_msg("%s: %s", filch_err_name(w.error), w.text);
    fixture_close(&w);
}
#endif

/* The Lua program makes nearly every counter of the scheduler differ from the other counters, so that no two can be
 * confused. */
TEST(runtime_stats_equal_the_scheduler_statistics)
{
    fixture     w;
    filch_stats stats = FILCH_STATS_INIT;
    fixture_open(&w, 1, NULL);
    fixture_passes(
        &w, "local gone = process.spawn(function() end)\n"
            "while process.alive(gone) do time.sleep('1us') end\n"
            "for i = 1, 3 do process.spawn_monitored(function() error('on purpose') end) process.receive() end\n"
            "for i = 1, 6 do process.send(gone, i) end\n"
            "local function reader() while not process.lookup('go') do time.sleep('1us') end while process.receive(0) "
            "do end end\n"
            "local small = process.spawn { reader, mailbox = 2 }\n"
            "local lossy = process.spawn { reader, mailbox = 2, overflow = 'drop_newest' }\n"
            /* the readers may take messages at the same time, so the program counts the results of send */
            "local sent, refused, dropped = 20, 0, 0\n"
            "repeat if process.send(small, 1) then sent = sent + 1 else refused = refused + 1 end until refused == 9\n"
            "repeat if process.send(lossy, 1) then sent = sent + 1 else dropped = dropped + 1 end until dropped == 8\n"
            "for i = 1, 20 do process.send(process.self(), i) process.receive() end\n"
            "for i = 1, 100 do time.sleep('1us') end\n"
            "process.register('go')\n"
            "while process.alive(small) or process.alive(lossy) do time.sleep('1us') end\n"
            "local s, words = runtime.stats(), {}\n"
            "s.sent = s.sent - sent\n"
            "for _, name in ipairs { 'workers', 'asleep', 'alive', 'spawned', 'ended', 'failed', 'sent', "
            "'undelivered', 'refused', 'dropped',\n"
            "    'timers', 'abandoned', 'steals', 'stolen', 'steps', 'yields', 'completions', 'sleeps', 'wakes' } do\n"
            "  words[#words + 1] = ('%d'):format(s[name])\n"
            "end\n"
            "return table.concat(words, ' ')\n");
    ok(filch_sched_stats(w.sched, &stats));
    unsigned long long s[19];
    const char        *at = w.text;
    for (size_t i = 0; i < 19; i++) s[i] = strtoull(at, (char **)(uintptr_t)&at, 10);
    static const unsigned long long expected[14] = { 1, 0, 1, 7, 6, 3, 0, 6, 9, 8, 0, 0, 0, 0 };
    for (size_t i = 0; i < 14; i++) {
        if (s[i] != expected[i]) fail_msg("figure %zu is %llu in %s", i, s[i], w.text);
    }
    const uint64_t now[] = { stats.steps, stats.yields, stats.completions, stats.sleeps, stats.wakes };
    for (size_t i = 0; i < 5; i++) assert_true(s[14 + i] <= now[i] && s[14 + i] + 20 >= now[i]);
    assert_true(s[14] > s[15] && s[15] >= s[16] && s[16] >= 100);
    fixture_close(&w);
}

TEST(a_simulation_refuses_unsupported_spawn_options)
{
    filch_lua              *lua;
    filch_lua_code         *code;
    char                    why[64];
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_sim_report        report = FILCH_SIM_REPORT_INIT;
    filch_sim_options       sim = FILCH_SIM_OPTIONS_INIT;
    ok(filch_lua_create(&lua, NULL));
    ok(filch_lua_load(lua, "return 1", 8, "test", &code, why, sizeof why));
    ok(filch_lua_sim(lua, code, &how, &sim, 1, &report));
    filch_sim_report_free(&report);
    how.spawn = &spawn;
    same(filch_lua_sim(lua, code, &how, &sim, 1, &report), FILCH_EINVAL);
    how.spawn = NULL;
    how.size = sizeof how.size - 1;
    same(filch_lua_sim(lua, code, &how, &sim, 1, &report), FILCH_EINVAL);
    sim.size = sizeof sim.size - 1;
    same(filch_lua_sim(lua, code, NULL, &sim, 1, &report), FILCH_EINVAL);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

TEST(sim_fail_reports_a_violation_only_in_a_simulation)
{
    filch_lua        *lua;
    filch_lua_code   *code;
    char              why[64];
    const char       *chunk = "sim.note('it said ' .. tostring(sim.fail('broken')))";
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    sim.seed = 7;
    ok(filch_lua_create(&lua, NULL));
    ok(filch_lua_load(lua, chunk, strlen(chunk), "test", &code, why, sizeof why));
    ok(filch_lua_sim(lua, code, NULL, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_FAILED);
    has_text(report.text, "broken");
    has_text(report.chart, "it said true");
    filch_sim_report_free(&report);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
    fixture w;
    fixture_open(&w, 1, NULL);
    fixture_passes(&w, "assert(sim.fail('broken') == false and sim.active() == false)");
    fixture_close(&w);
}

TEST(the_slice_length_holds_when_instructions_are_counted)
{
    for (int is_short = 0; is_short < 2; is_short++) {
        fixture           w;
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        options.watch = FILCH_LUA_WATCH_COUNT;
        options.slice_ns = is_short ? 1 : FILCH_SECONDS(100);
        fixture_open(&w, 1, &options);
        fixture_passes(&w, "local n, steps = 0, runtime.stats().steps for i = 1, 3e6 do n = n + i end return "
                           "runtime.stats().steps - steps");
        assert_true(is_short ? w.number > 0 : w.number == 0);
        fixture_close(&w);
    }
}

/* The logged lines, without time, level and pid. */
static char   logged[4096];
static size_t logged_size;

static void keep_log(void *user, const char *text, size_t size)
{
    (void)user;
    const char *words = strchr(text, '>'); /* points to the end of the pid */
    assert_true(words != NULL && text[size - 1] == '\n' && memchr(text, '\n', size - 1) == NULL);
    size_t left = size - (size_t)(words - text) - 2;
    memcpy(logged + logged_size, words + 2, left);
    logged_size += left;
    logged[logged_size] = '\0';
}

TEST(log_fields_are_escaped_quoted_and_sorted)
{
    fixture           w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.log = keep_log;
    logged_size = 0;
    fixture_open(&w, 1, &options);
    fixture_passes(&w,
                   "log.info('plain')\n"
                   "log.info('a line\\nand\\tmore\\r\\1\\127')\n"
                   "log.info('fields', { order = 17, b = true, a = 'x', ['two words'] = 'two words', empty = '', "
                   "quote = 'a\"b', back = 'c\\\\d' })\n"
                   "log.info('edges', { space = ' ', eq = '=', open = '{', close = '}', comma = ',', dot = '.' })\n");
    assert_string_equal(
        logged,
        "test: plain\n"
        "test: a line\\nand\\tmore\\r\\x01\\x7f\n"
        "test: fields a=x b=true back=\"c\\\\d\" empty=\"\" order=17 quote=\"a\\\"b\" \"two words\"=\"two words\"\n"
        "test: edges close=\"}\" comma=\",\" dot=. eq=\"=\" open=\"{\" space=\" \"\n");
    fixture_close(&w);
}

static void keep_line(void *user, const char *text, size_t size)
{
    snprintf(user, 256, "%.*s", (int)size, text);
}

/* The log shows ten days of virtual time, to the microsecond. */
TEST(a_simulation_logs_its_virtual_time)
{
    filch_lua      *lua;
    filch_lua_code *code;
    char            why[64], line[256] = "", *words;
    const char     *chunk =
        "time.sleep('10d') local ns = time.ns() log.info(('%d.%06d'):format(ns // 1000000000, ns // 1000 % 1000000))";
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    options.log = keep_line;
    options.log_user = line;
    sim.seed = 3;
    sim.time_max_ns = FILCH_SECONDS(3600 * 24 * 20);
    ok(filch_lua_create(&lua, &options));
    ok(filch_lua_load(lua, chunk, strlen(chunk), "test", &code, why, sizeof why));
    ok(filch_lua_sim(lua, code, NULL, &sim, 1, &report));
    same(report.verdict, FILCH_SIM_OK);
    filch_sim_report_free(&report);
    words = strstr(line, "test: ");
    assert_non_null(words);
    words[strcspn(words, "\n")] = '\0';
    assert_true(strlen(words) > 12 && strncmp(line, words + 6, strcspn(line, ".")) == 0 && atoll(line) >= 864000);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

static char failed_name[64];

static void note_failure(void *user, filch_pid pid, const char *name, filch_err error, const char *text, size_t size)
{
    (void)user, (void)pid, (void)error, (void)text, (void)size;
    snprintf(failed_name, sizeof failed_name, "%s", name);
}

TEST(a_process_is_named_after_the_line_of_its_function)
{
    fixture           w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.on_failure = note_failure;
    fixture_open(&w, 1, &options);
    for (int line = 1; line <= 3; line++) {
        char chunk[256], wanted[64];
        snprintf(chunk, sizeof chunk, "%sprocess.spawn_monitored(function() error('x') end) process.receive()",
                 &"\n\n"[3 - line]);
        fixture_passes(&w, chunk);
        snprintf(wanted, sizeof wanted, "test:%d", line);
        assert_string_equal(failed_name, wanted);
    }
    fixture_close(&w);
}

TEST(errors_name_the_wrong_argument_and_the_nesting_limit)
{
    fixture           w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.rights = FILCH_LUA_MAY_EXEC;
    fixture_open(&w, 1, &options);
    fixture_passes(
        &w,
        "local function why(f, ...) local fine, text = pcall(f, ...) assert(not fine) return text end\n"
        "local function has(text, part) if not text:find(part, 1, true) then error(text, 2) end end\n"
        "has(why(exec.run, {}), \"bad argument #1 to\")\n"
        "local many = {} for i = 1, 257 do many[i] = 'x' end\n"
        "has(why(exec.run, many), 'at most 255 arguments')\n"
        "has(why(function() return 'x' + 1 end), 'arithmetic on a string value')\n"
        "has(why(function() return 1 + 'x' end), 'arithmetic on a string value')\n"
        "has(why(function() return '1' + {} end), 'arithmetic on a table value')\n"
        "local function nested(depth)\n"
        "  local spec = { children = {} }\n"
        "  for i = 2, depth do spec = { children = { { id = 'x', supervisor = spec } } } end\n"
        "  return spec\n"
        "end\n"
        "local top = assert(supervisor.start(nested(32)))\n"
        "assert(supervisor.stop(top))\n"
        "has(why(supervisor.start, nested(33)), 'too deep')\n"
        "for _, size in ipairs { '10000000', '09765K', '9M' } do\n"
        "  local pid = process.spawn { function() end, memory = size }\n"
        "  assert(pid, size)\n"
        "end\n"
        "has(why(process.spawn, { function() end, memory = '1G' }), 'at most the limit of the process that spawns')\n"
        "for _, bad in ipairs { '0', '0K', 'K', '', '-1', '/1', ':', '1Q', '8589934592G', 0, -1, 1.5 } do\n"
        "  has(why(process.spawn, { function() end, memory = bad }), 'a size must be')\n"
        "end\n");
    fixture_close(&w);
}

/* Each __tostring call runs for 0.2 s of CPU time without interruption. Only the sum of several calls exceeds the
 * limit, so the process must not be ended. */
TEST(uninterrupted_times_of_several_steps_do_not_add_up)
{
    fixture           w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    options.runaway_ns = FILCH_MILLISECONDS(500);
    options.slice_ns = FILCH_MILLISECONDS(1);
    fixture_open(&w, 1, &options);
    fixture_passes(&w, "local function burn(s) local began = os.clock() while os.clock() - began < s do end end\n"
                       "local slow = setmetatable({}, { __tostring = function() burn(0.2) return 'slow' end })\n"
                       "for i = 1, 4 do\n"
                       "  assert(tostring(slow) == 'slow')\n"
                       "  time.sleep('1us')\n"
                       "end\n");
    fixture_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_wake_in_deadline_order_whichever_task_is_cancelled),
        cmocka_unit_test(runtime_stats_equal_the_scheduler_statistics),
        cmocka_unit_test(a_simulation_refuses_unsupported_spawn_options),
        cmocka_unit_test(sim_fail_reports_a_violation_only_in_a_simulation),
        cmocka_unit_test(the_slice_length_holds_when_instructions_are_counted),
        cmocka_unit_test(a_simulation_logs_its_virtual_time),
        cmocka_unit_test(log_fields_are_escaped_quoted_and_sorted),
        cmocka_unit_test(a_process_is_named_after_the_line_of_its_function),
        cmocka_unit_test(errors_name_the_wrong_argument_and_the_nesting_limit),
        cmocka_unit_test(uninterrupted_times_of_several_steps_do_not_add_up),
        cmocka_unit_test(removed_timeouts_keep_the_order_of_later_ones),
#ifdef FLI_IO
        cmocka_unit_test(each_mode_of_fs_open_acts_as_in_io_open),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
