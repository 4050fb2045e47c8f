/* lua_pending_sends_test.c - messages that wait for space in a full mailbox count in the memory of their sender. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.memory_max = 1 << 20;
    options.slice_ns = FILCH_SECONDS(10); /* an interrupted receiver would take messages out of its mailbox */
    fixture_open(&w, 1, &options);
    return 0;
}

/* The process `slow` takes its messages while the name "go" is registered. When "go" has been unregistered, `slow`
 * answers; so each round of a test begins when `slow` waits for "go" again. fill(): see sends.lua. */
#define START                                                                  \
    "local fill, me = require('sends').fill, process.self()\n"                 \
    "local slow = process.spawn { function(me)\n"                              \
    "  local function until_go(is)\n"                                          \
    "    while (process.lookup('go') ~= nil) ~= is do time.sleep('1ms') end\n" \
    "  end\n"                                                                  \
    "  while true do\n"                                                        \
    "    until_go(true)\n"                                                     \
    "    repeat until process.receive() == 'last'\n"                           \
    "    until_go(false)\n"                                                    \
    "    process.send(me, 'read')\n"                                           \
    "  end\n"                                                                  \
    "end, me, mailbox = 1, overflow = 'wait' }\n"

/* If a task is cancelled while its send waits for space, the message still arrives. */
TEST(messages_of_cancelled_sends_count_until_they_arrive)
{
    fixture_passes(&w, START "for round = 1, 3 do\n"
                             "  local n, why = fill(slow)\n"
                             "  assert(why == 'out of memory', why)\n"
                             "  assert(n > 3 and n < 21, n)\n"
                             "  assert(process.register('go'))\n"
                             "  assert(process.send(slow, 'last'))\n"
                             "  process.unregister('go')\n"
                             "  assert(process.receive() == 'read')\n"
                             "end\n"
                             "process.terminate(slow)\n");
}

TEST(an_upgraded_process_stays_charged_for_its_messages)
{
    fixture_passes(&w, START "local n = assert(process.exec('sends', slow))\n"
                             "assert(n[1] > 3 and n[1] < 21, n[1])\n"
                             "assert(n[2] <= 2 and n[3] == 'out of memory', n[2])\n"
                             "process.terminate(slow)\n");
}

/* crowd(to, n): makes sends that wait for space in the mailbox of `to`, and cancels the tasks that made them, until n
 * messages wait or the memory limit is reached. Returns the number of messages, and the reason if a send failed. */
#define CROWD                                                                                          \
    "local function crowd(to, n)\n"                                                                    \
    "  local left, why = 0, nil\n"                                                                     \
    "  while left < n and not why do\n"                                                                \
    "    local tasks = {}\n"                                                                           \
    "    for i = 1, 50 do tasks[i] = task.spawn(function()\n"                                          \
    "      local fine, sent, reason = pcall(process.send, to, i)\n"                                    \
    "      if fine and not sent then why = reason else left = left + 1 end\n"                          \
    "    end) end\n"                                                                                   \
    "    time.sleep(0)\n"                                                                              \
    "    for i = 1, 50 do tasks[i]:cancel() end\n"                                                     \
    "    time.sleep(0)\n"                                                                              \
    "  end\n"                                                                                          \
    "  return left, why\n"                                                                             \
    "end\n"                                                                                            \
    "local full = process.spawn { function() time.sleep('1h') end, mailbox = 1, overflow = 'wait' }\n" \
    "process.send(full, 0)\n"

/* Regression: a number that waited for space counted as 24 bytes, although the scheduler held 134 bytes more for it. */
TEST(small_messages_that_wait_count_with_what_the_scheduler_holds)
{
    fixture_passes(&w, CROWD "crowd(full, 100)\n"
                             "collectgarbage()\n"
                             "local before = collectgarbage('count')\n"
                             "local n = crowd(full, 1000)\n"
                             "collectgarbage()\n"
                             "local each = (collectgarbage('count') - before) * 1024 / n\n"
                             "assert(n >= 1000 and each > 24 + 134 and each < 400, each)\n"
                             "process.terminate(full)\n"
                             "for _ = 1, 5000 do\n"
                             "  if collectgarbage('count') < before then return end\n"
                             "  time.sleep('1ms') collectgarbage()\n"
                             "end\n"
                             "error('the messages still count')\n");
}

/* Regression: each completion of a yield compared its tag with those of all messages that waited. */
TEST(other_sends_take_no_longer_while_many_messages_wait)
{
    (void)fixture_start(&w,
                        CROWD "local open = process.spawn { function() while true do process.receive() end end, "
                              "mailbox = 1, overflow = 'wait' }\n"
                              "local function cost()\n"
                              "  local best = math.huge\n"
                              "  for _ = 1, 5 do\n"
                              "    local before = os.clock()\n"
                              "    for i = 1, 1000 do process.send(open, i) end\n"
                              "    best = math.min(best, os.clock() - before)\n"
                              "  end\n"
                              "  return best\n"
                              "end\n"
                              "local alone = cost()\n"
                              "local n = crowd(full, 40000)\n"
                              "assert(n >= 40000, n)\n"
                              "local crowded = cost()\n"
                              "process.terminate(full)\n"
                              "process.terminate(open)\n"
                              "assert(crowded < 8 * alone + 0.002, crowded / alone)\n",
                        (size_t)16 << 20);
    until(atomic_load(&w.over));
    if (w.error != FILCH_OK) fail_msg("%s", w.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_cancelled_sends_count_until_they_arrive),
        cmocka_unit_test(an_upgraded_process_stays_charged_for_its_messages),
        cmocka_unit_test(small_messages_that_wait_count_with_what_the_scheduler_holds),
        cmocka_unit_test(other_sends_take_no_longer_while_many_messages_wait),
    };
    return cmocka_run_group_tests(tests, open_fixture, fixture_close_shared);
}
