/* simulate.c - runs Lua programs under a seed: filch_lua_sim, and the library `sim` for the program itself.
 *
 * Besides the schedule, which filch_sim_sweep draws, the seed determines the numbers of math.random and the seed of
 * Lua's hash tables. So `pairs` visits string keys in the same order in each run of a seed. The clocks of `os` are
 * virtual. Addresses are not reproduced: keys that are tables or functions are visited in an order that depends on
 * their addresses, and tostring shows addresses.
 */
#include <lauxlib.h>
#include <string.h>

#include "base/versioned.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

/* ---- for C -------------------------------------------------------------------------------------------------- */

typedef struct trial {
    filch_lua                     *lua;
    filch_lua_code                *code;
    const filch_lua_spawn_options *options;
    filch_sched                   *sched;
    filch_sim_fn                   check; /* not used */
    bool                           ended;
} trial;

/* Called when the process that begin_run() started has ended. If the process failed, the simulated run has failed. */
static void first_ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    trial *t = user;
    char   text[196];
    size_t size = filch_size(result);
    (void)pid;
    t->ended = true;
    if (error == FILCH_OK) return;
    if (size >= sizeof text) size = sizeof text - 1;
    if (size > 0) memcpy(text, filch_raw(result), size);
    text[size] = '\0';
    (void)filch_sim_fail(t->sched, size > 0 ? text : filch_err_text(error));
}

static filch_err begin_run(filch_sched *sched, void *user)
{
    trial                  *t = user;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = *t->options;
    t->sched = sched;
    t->ended = false;
    spawn.on_exit = first_ended;
    spawn.on_exit_user = t;
    how.spawn = &spawn;
    return filch_lua_spawn(t->lua, sched, t->code, &how, NULL);
}

static filch_err check(filch_sched *sched, void *user)
{
    trial *t = user;
    if (!t->ended)
        (void)filch_sim_fail(sched, "the first process waits for ever: no message, timer or completion is outstanding");
    return FILCH_OK;
}

filch_err filch_lua_sim(filch_lua *lua, filch_lua_code *code, const filch_lua_spawn_options *options,
                        const filch_sim_options *sim, uint64_t count, filch_sim_report *report)
{
    filch_lua_spawn_options how;
    filch_sim_options       settings;
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (code == NULL) return filch_invalid("code is NULL");
    if (report == NULL) return filch_invalid("report is NULL");
    filch_err err = FLI_VERSIONED_READ(&how, options, "options", FILCH_LUA_SPAWN_OPTIONS_INIT);
    if (err == FILCH_OK) err = FLI_VERSIONED_READ(&settings, sim, "sim", FILCH_SIM_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if (how.spawn != NULL) return filch_invalid("options.spawn is set: a simulated run has no spawn options");
    if (settings.check != NULL) return filch_invalid("sim.check is set: filch_lua_sim has its own check");
    trial t = { .lua = lua, .code = code, .options = &how };
    settings.check = check;
    if (settings.describe == NULL) settings.describe = filch_lua_describe;
    return filch_sim_sweep(&settings, settings.seed, count, begin_run, &t, report);
}

/* ---- for Lua ------------------------------------------------------------------------------------------------ */

/* sim.active() -> true in a simulation. */
static int sim_active(lua_State *L)
{
    lua_pushboolean(L, fli_lua_for(L)->simulated);
    return 1;
}

/* sim.fail(text): reports a violated property: the run ends, and its seed is reported. Does nothing outside a
 * simulation. */
static int sim_fail(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *text = fli_lua_check_text(L, 1);
    lua_pushboolean(L, p->simulated && filch_sim_fail(p->sched, text) == FILCH_OK);
    return 1;
}

/* sim.note(text): adds a line to the chart of the run. */
static int sim_note(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *text = fli_lua_check_text(L, 1);
    lua_pushboolean(L, p->simulated && filch_sim_note(p->sched, text) == FILCH_OK);
    return 1;
}

/* In a simulation os.time and os.date (without a time) and os.clock use virtual time, which begins with the year
 * 2000. */
#define SIM_EPOCH 946684800

/* os.time of stock Lua reads six numbers from the table, each of which may be a text. If the table has a metatable, the
 * numbers are read from a copy, because an __index could return another value each time. */
static int time_of_table(lua_State *L)
{
    static const char *const fields[] = { "year", "month", "day", "hour", "min", "sec", "isdst", "yday", "wday" };
    enum { COUNT = sizeof fields / sizeof fields[0] };
    lua_settop(L, 1);
    lua_createtable(L, 0, COUNT);
    for (int i = 0; i < COUNT; i++) {
        lua_getfield(L, 1, fields[i]);
        fli_lua_check_digits(L, 3, 1);
        lua_setfield(L, 2, fields[i]);
    }
    if (!lua_getmetatable(L, 1)) return lua_settop(L, 1), fli_lua_self(L)->lua->names.stock_time(L);
    lua_settop(L, 2);
    lua_pushcfunction(L, fli_lua_self(L)->lua->names.stock_time);
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    for (int i = 0; i < COUNT; i++) { /* copies back into the program's table the fields that os.time has normalized */
        if (lua_getfield(L, 2, fields[i]) != LUA_TNIL) lua_setfield(L, 1, fields[i]);
        lua_settop(L, 3);
    }
    return 1;
}

static int os_time(lua_State *L)
{
    const fli_lua_proc *p = fli_lua_self(L);
    if (lua_istable(L, 1)) return time_of_table(L);
    if (!p->simulated || !lua_isnoneornil(L, 1)) return p->lua->names.stock_time(L);
    lua_pushinteger(L, SIM_EPOCH + (lua_Integer)(fli_lua_now(p) / 1000000000));
    return 1;
}

static int os_date(lua_State *L)
{
    const fli_lua_proc *p = fli_lua_self(L);
    size_t              size;
    const char         *format = luaL_optlstring(L, 1, "%c", &size);
    /* The format is limited, because the call cannot be suspended and each item of the format takes about 1 us. */
    fli_lua_check_arg(L, size <= 4096, 1, "the format is longer than 4096 bytes");
    /* Refuses "*t" with a zero byte behind it, because stock Lua would take such a format for "*t" alone. */
    fli_lua_check_arg(L, strlen(format) == size || strstr(format, "*t") == NULL, 1, "the text has a zero byte in it");
    if (p->simulated && lua_isnoneornil(L, 2)) {
        lua_pushlstring(L, format, size);
        lua_insert(L, 1);
        lua_settop(L, 1);
        lua_pushinteger(L, SIM_EPOCH + (lua_Integer)(fli_lua_now(p) / 1000000000));
    }
    return p->lua->names.stock_date(L);
}

static int os_clock(lua_State *L)
{
    const fli_lua_proc *p = fli_lua_self(L);
    if (!p->simulated) return p->lua->names.stock_clock(L);
    lua_pushnumber(L, (lua_Number)fli_lua_now(p) / 1e9);
    return 1;
}

const fli_lua_member fli_lua_sim_members[] = {
    { .library = "sim", .name = "active", .fn = sim_active },
    { .library = "sim", .name = "fail", .fn = sim_fail },
    { .library = "sim", .name = "note", .fn = sim_note },
    { .library = "os", .name = "time", .fn = os_time },
    { .library = "os", .name = "date", .fn = os_date },
    { .library = "os", .name = "clock", .fn = os_clock },
    { .name = NULL },
};
