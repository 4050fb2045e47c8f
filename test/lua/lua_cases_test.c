/* lua_cases_test.c - sleeps end in order however they were begun and cancelled, each mode of fs.open does what io.open's does. */
#include "lua/simulated.h"

#include <unistd.h>

/* In virtual time: tasks sleep for times in no order, some of them are cancelled meanwhile; the others wake in order, in time. */
TEST(tasks_wake_in_the_order_of_their_times_whoever_is_cancelled)
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

/* The same without tasks that are cancelled by hand: each receive with a timeout takes its alarm back when its message comes. */
TEST(timeouts_that_were_not_needed_do_not_keep_later_ones_from_their_order)
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
             "      if i % 2 == 0 then assert(got == 1 and took < wait + 0.5, took)\n"
             "      else assert(got == nil and took >= wait - 1e-6 and took < wait + 0.5, took) end\n"
             "    end)\n"
             "  end\n"
             "  for _, t in ipairs(all) do t:await() end\n"
             "end\n",
             3);
}

#ifdef FLI_IO
TEST(each_mode_of_open_is_that_of_io_open)
{
    world             w;
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    char              path[] = "/tmp/filch-lua-cases-XXXXXX", chunk[4096];
    int               fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    options.rights = FILCH_LUA_MAY_FILES;
    world_open(&w, 1, &options);
    snprintf(chunk, sizeof chunk,
             "local path, gone = %s%s%s, %s%s.gone%s\n"
             "local function put(text) local f = assert(fs.open(path, 'w')) if text ~= '' then f:write(text) end f:close() end\n"
             "local function got(file) local f = assert(fs.open(file or path)) local s = f:read(100) or '' f:close() return s end\n"
             "local function is(a, b, what) if a ~= b then error(what .. ': ' .. tostring(a) .. ' is not ' .. tostring(b)) end end\n"
             /* what a mode makes of the ten bytes that were there after three are written */
             "for mode, expected in pairs { ['r+'] = 'abc3456789', w = 'abc', ['w+'] = 'abc', a = '0123456789abc', ['a+'] = '0123456789abc' } do\n"
             "  put '0123456789'\n"
             "  local f = assert(fs.open(path, mode)) assert(f:write 'abc' == 3) f:close()\n"
             "  is(got(), expected, mode)\n"
             "end\n"
             /* which may read, and which write */
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
             /* and which of them make a file that is not there */
             "for mode, makes in pairs { r = false, ['r+'] = false, w = true, ['w+'] = true, a = true, ['a+'] = true } do\n"
             "  local name = gone .. mode:gsub('+', 'p')\n"
             "  local f, why = fs.open(name, mode)\n"
             "  is(f ~= nil, makes, mode .. ' makes')\n"
             "  if f then f:close() else assert(type(why) == 'string') is(fs.open(name), nil, mode .. ' has made') end\n"
             "end\n",
             "'", path, "'", "'", path, "'");
    world_run(&w, chunk);
    static const char *const made[] = { "w", "wp", "a", "ap", "r", "rp" };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        char name[sizeof path + 16];
        snprintf(name, sizeof name, "%s.gone%s", path, made[i]);
        (void)unlink(name);
    }
    (void)unlink(path);
    if (w.error != FILCH_OK) fail_msg("%s: %s", filch_err_name(w.error), w.text);
    world_close(&w);
}
#endif

/* Each figure has a number that no other has. */
TEST(runtime_stats_are_those_of_the_scheduler)
{
    world       w;
    filch_stats stats = FILCH_STATS_INIT;
    world_open(&w, 1, NULL);
    world_passes(&w, "local gone = process.spawn(function() end)\n"
                     "while process.alive(gone) do time.sleep('1us') end\n"
                     "for i = 1, 3 do process.spawn_monitored(function() error('on purpose') end) process.receive() end\n"
                     "for i = 1, 6 do process.send(gone, i) end\n"
                     "local small = process.spawn { function() time.sleep('1h') end, mailbox = 2 }\n"
                     "local lossy = process.spawn { function() time.sleep('1h') end, mailbox = 2, overflow = 'drop_newest' }\n"
                     "for i = 1, 11 do process.send(small, i) end\n"
                     "for i = 1, 10 do process.send(lossy, i) end\n"
                     "for i = 1, 20 do process.send(process.self(), i) process.receive() end\n"
                     "for i = 1, 100 do time.sleep('1us') end\n"
                     "process.terminate(small)\n"
                     "while process.alive(small) do time.sleep('1us') end\n"
                     "local s, words = runtime.stats(), {}\n"
                     "for _, name in ipairs { 'workers', 'asleep', 'alive', 'spawned', 'ended', 'failed', 'sent', 'undelivered', 'refused', 'dropped',\n"
                     "    'timers', 'abandoned', 'steals', 'stolen', 'steps', 'yields', 'completions', 'sleeps', 'wakes' } do\n"
                     "  words[#words + 1] = ('%d'):format(s[name])\n"
                     "end\n"
                     "return table.concat(words, ' ')\n");
    ok(filch_sched_stats(w.sched, &stats));
    unsigned long long s[19];
    const char        *at = w.text;
    for (size_t i = 0; i < 19; i++) s[i] = strtoull(at, (char **)(uintptr_t)&at, 10);
    same(s[0], 1);
    same(s[1], 0);
    same(s[2], 2); /* itself and the lossy one */
    same(s[3], 7);
    same(s[4], 5);
    same(s[5], 4);
    same(s[6], 24);
    same(s[7], 6);
    same(s[8], 9);
    same(s[9], 8);
    same(s[10], 1); /* of the lossy one */
    same(s[11], 1); /* of the small one */
    same(s[12], 0);
    same(s[13], 0);
    const uint64_t now[] = { stats.steps, stats.yields, stats.completions, stats.sleeps, stats.wakes };
    for (size_t i = 0; i < 5; i++) assert_true(s[14 + i] <= now[i] && s[14 + i] + 20 >= now[i]);
    assert_true(s[14] > s[15] && s[15] > s[16] && s[16] >= 100);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_wake_in_the_order_of_their_times_whoever_is_cancelled),
        cmocka_unit_test(runtime_stats_are_those_of_the_scheduler),
        cmocka_unit_test(timeouts_that_were_not_needed_do_not_keep_later_ones_from_their_order),
#ifdef FLI_IO
        cmocka_unit_test(each_mode_of_open_is_that_of_io_open),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
