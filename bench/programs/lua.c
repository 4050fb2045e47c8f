/* lua.c - programs in Lua.
 *
 * lua_table: two processes pass a table of five fields there and back, --size times; the partner changes a field.
 * lua_spawn: --size processes are started, 50 at a time; each sends a number to the first one and ends.
 */
#include "programs.h"

#include <filch_lua.h>
#include <stdio.h>
#include <string.h>

static const char tables[] = "local n = ...\n"
                             "local partner = process.spawn(function()\n"
                             "  while true do\n"
                             "    local message, from = process.receive()\n"
                             "    message.id = message.id + 1\n"
                             "    process.send(from, message)\n"
                             "  end\n"
                             "end)\n"
                             "local message = { id = 0, name = 'abc', price = 1.5, ok = true, tag = 'xyz' }\n"
                             "for i = 1, n do\n"
                             "  process.send(partner, message)\n"
                             "  message = process.receive()\n"
                             "end\n"
                             "process.terminate(partner)\n"
                             "return message.id\n";

static const char spawns[] = "local n, me, sum = ..., process.self(), 0\n"
                             "for first = 1, n, 50 do\n"
                             "  local last = math.min(first + 49, n)\n"
                             "  for i = first, last do process.spawn(function() process.send(me, i) end) end\n"
                             "  for i = first, last do sum = sum + process.receive() end\n"
                             "end\n"
                             "return sum\n";

static void ended(void *user, filch_pid pid, filch_err error, const filch_data *data)
{
    (void)user;
    (void)pid;
    bench_must(error, filch_kind_of(data) == FILCH_KIND_TEXT ? filch_text(data) : "Lua");
    report(filch_as_int(data));
}

/* Runs a Lua script; its argument is the value of --size. Returns the result of the script. */
static int64_t run_script(const char *script)
{
    filch_lua              *lua;
    filch_lua_code         *code;
    char                    why[256] = "";
    filch_data              args[1] = { filch_int((int64_t)run.size) };
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_lua_options       options = FILCH_LUA_OPTIONS_INIT;
    bench_must(filch_lua_create(&lua, &options), "Lua");
    bench_start(&run, NULL);
    bench_must(filch_lua_load(lua, script, strlen(script), "script", &code, why, sizeof why), why);
    spawn.on_exit = ended;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = 1;
    expect_results(1);
    bench_begin(&run);
    bench_must(filch_lua_spawn(lua, run.sched, code, &how, NULL), "spawn");
    int64_t result = wait_for_results();
    bench_end(&run, run.size);
    filch_lua_code_drop(lua, code);
    (void)filch_sched_stop(run.sched, FILCH_SECONDS(60), NULL);
    run.sched = NULL;
    bench_must(filch_lua_destroy(lua), "destroy");
    return result;
}

bool lua_table(uint64_t variant)
{
    (void)variant;
    return run_script(tables) == (int64_t)run.size;
}

bool lua_spawn(uint64_t variant)
{
    (void)variant;
    return run_script(spawns) == (int64_t)(run.size * (run.size + 1) / 2);
}
