/* simulated.h - for the tests of Lua processes: runs a Lua program under many seeds; it must pass under each. */
#ifndef FILCH_TEST_LUA_SIMULATED_H
#define FILCH_TEST_LUA_SIMULATED_H

#include "lua/fixture.h"

/* Runs `chunk` under `seeds` seeds. `stall` is the option filch_sim_options.stall; if it is 0, no wait is longer than
 * requested. */
static inline void simulate_with(const char *chunk, uint64_t seeds, uint32_t stall)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    char              why[256] = "";
    options.path = LUA_TEST_FOLDER "/?.lua";
    options.memory_max = (size_t)64 << 20;
    sim.seed = 1;
    sim.stall = stall;
    sim.time_max_ns = FILCH_SECONDS(36000);
    ok(filch_lua_create(&lua, &options));
    if (filch_lua_load(lua, chunk, strlen(chunk), "test", &code, why, sizeof why) != FILCH_OK) fail_msg("%s", why);
    ok(filch_lua_sim(lua, code, NULL, &sim, seeds, &report));
    if (report.verdict != FILCH_SIM_OK) {
        fail_msg("seed %llu: %s\n%s", (unsigned long long)report.seed, report.text,
                 report.chart != NULL ? report.chart : "");
    }
    filch_sim_report_free(&report);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

static inline void simulate(const char *chunk, uint64_t seeds)
{
    simulate_with(chunk, seeds, 20);
}

#endif
