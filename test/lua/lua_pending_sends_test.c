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

/* slow: a process that takes its messages while the name "go" is registered. It answers when "go" has been
 * unregistered, so no round begins before it waits for "go" again. fill(): see sends.lua. */
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

/* A task that is cancelled leaves its message behind: the message still arrives. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_cancelled_sends_count_until_they_arrive),
        cmocka_unit_test(an_upgraded_process_stays_charged_for_its_messages),
    };
    return cmocka_run_group_tests(tests, open_fixture, fixture_close_shared);
}
