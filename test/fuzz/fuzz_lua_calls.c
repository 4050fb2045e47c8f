/* fuzz_lua_calls.c - calls every function of the environment of a Lua process with any arguments. Each call returns or
 * raises an error; the process ends with its result, an error, or at its limits, and all memory is freed. Some
 * arguments loop when C code calls them. */
#include <lauxlib.h>
#include <lua.h>
#include <unistd.h>

#include "fuzz/bytes.h"
#include "lua/host/host.h"
#include "lua/process/proc.h"

enum { CALLS = 24, ARGS = 5, TICKS = 400 };

static fuzz_bytes in;
static uint64_t   ended;

/* Pushes a value that tries to occupy its worker: a function that loops, an object whose metamethods loop, or a long
 * text. */
static void push_hostile(lua_State *L)
{
    static const char *const events[] = { "__tostring", "__index", "__newindex", "__len",
                                          "__lt",       "__close", "__call",     "__pairs" };
    switch (fuzz_below(&in, 3)) {
    case 0: (void)luaL_loadstring(L, "while true do end"); return;
    case 1:
        lua_newtable(L);
        lua_newtable(L);
        (void)luaL_loadstring(L, "while true do end");
        lua_setfield(L, -2, events[fuzz_byte(&in) % (sizeof events / sizeof events[0])]);
        lua_setmetatable(L, -2);
        return;
    default: (void)luaL_loadstring(L, "return ('x'):rep(100000)"); lua_call(L, 0, 1);
    }
}

/* Pushes any value. */
static void push_any(lua_State *L, unsigned depth)
{
    static const char *const texts[] = { "",     "x",  "10ms", "main", "counter", "%d%s", "(.-)%1", "\xF1\x1C\x4C\x01",
                                         "name", "4MB" };
    luaL_checkstack(L, 8, NULL);
    if (fuzz_below(&in, 32) == 31) {
        push_hostile(L);
        return;
    }
    switch (fuzz_below(&in, 16)) {
    case 0: lua_pushnil(L); return;
    case 1: lua_pushboolean(L, fuzz_byte(&in) & 1); return;
    case 2: lua_pushinteger(L, (int8_t)fuzz_byte(&in)); return;
    case 3: lua_pushinteger(L, (lua_Integer)fuzz_u64(&in)); return;
    case 4: lua_pushnumber(L, (lua_Number)(int8_t)fuzz_byte(&in) / 16); return;
    case 5: {
        double number;
        fuzz_fill(&in, &number, sizeof number);
        lua_pushnumber(L, number);
        return;
    }
    case 6: lua_pushstring(L, texts[fuzz_below(&in, sizeof texts / sizeof texts[0])]); return;
    case 7: {
        char   bytes[32];
        size_t size = fuzz_below(&in, sizeof bytes);
        fuzz_fill(&in, bytes, size);
        lua_pushlstring(L, bytes, size);
        return;
    }
    case 8: fli_lua_push_pid(L, fli_lua_self(L)->self); return;
    case 9: fli_lua_push_pid(L, (filch_pid){ fuzz_byte(&in), fuzz_u64(&in) }); return;
    case 10: lua_pushcfunction(L, lua_error); return;
    case 11: (void)luaL_loadstring(L, "return ..."); return;
    case 12: lua_newthread(L); return;
    case 13: lua_newuserdatauv(L, 16, 0); return;
    default:
        lua_newtable(L);
        for (uint32_t n = depth < 3 ? fuzz_below(&in, 4) : 0; n > 0; n--) {
            push_any(L, depth + 1);
            if (lua_isnil(L, -1) || (lua_type(L, -1) == LUA_TNUMBER && lua_tonumber(L, -1) != lua_tonumber(L, -1))) {
                lua_pop(L, 1);
                lua_pushinteger(L, n);
            }
            push_any(L, depth + 1);
            lua_rawset(L, -3);
        }
    }
}

/* Lua function pick(): returns a function and its arguments, or nothing when the input is used up. */
static int pick(lua_State *L)
{
    const fli_lua_names *names = &fli_lua_self(L)->lua->names;
    if (in.left == 0) return 0;
    const fli_lua_member *member = &names->members[fuzz_byte(&in) % names->count];
    if (!fli_lua_push_named(L, member->library != NULL ? member->library : "", member->name)) return 0;
    for (uint32_t n = fuzz_below(&in, ARGS); n > 0; n--) push_any(L, 0);
    return lua_gettop(L);
}

static void add_pick(lua_State *L, void *user)
{
    (void)user;
    lua_pushcfunction(L, pick);
    lua_setfield(L, -2, "pick");
}

static void nothing(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
}

static void on_exit_of(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid;
    MUST(error == FILCH_OK || error == FILCH_ECANCELLED || error == FILCH_EKILLED || error == FILCH_ELINK ||
             filch_size(result) > 0,
         "an end without words");
    ended++;
}

/* Stops the scheduler. Repeats the stop if it returns FILCH_EBUSY because a thread of the pool did not run in time. */
static bool is_stopped(filch_sched *sched)
{
    filch_err err = FILCH_EBUSY;
    for (int i = 0; i < 50 && err == FILCH_EBUSY; i++) err = filch_sched_stop(sched, FILCH_MILLISECONDS(20), NULL);
    return err == FILCH_OK || err == FILCH_EDEADLINE;
}

/* A Lua program that makes the calls that pick() returns, until pick() returns nothing. Keeps up to eight results. */
static const char chunk[] = "local kept = {}\n"
                            "while true do\n"
                            "  local call = table.pack(pick())\n"
                            "  if call.n == 0 then break end\n"
                            "  kept[#kept % 8 + 1] = select(2, pcall(table.unpack(call, 1, call.n)))\n"
                            "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    /* No call may occupy its worker. An input normally takes a few milliseconds: one that takes five minutes is
     * reported as a failure. */
    (void)alarm(300);
    static filch_lua      *lua;
    static filch_lua_code *code;
    filch_sched           *sched;
    in = (fuzz_bytes){ at, size < 512 ? size : 512 };
    if (lua == NULL) {
        filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
        options.watch = FILCH_LUA_WATCH_COUNT;
        options.count = 200;
        options.slice_ns = options.runaway_ns = 20000;
        options.memory_max = 1 << 20;
        options.open = add_pick;
        options.print = options.log = nothing;
        options.path = "/nowhere/?.lua";
        MUST(filch_lua_create(&lua, &options) == FILCH_OK, "no host");
        MUST(filch_lua_load(lua, chunk, sizeof chunk - 1, NULL, &code, NULL, 0) == FILCH_OK, "no code");
    }
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = FILCH_NO_WORKERS;
    MUST(filch_sched_create(&sched, &options) == FILCH_OK, "no scheduler");
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    spawn.on_exit = on_exit_of;
    how.spawn = &spawn;
    ended = 0;
    MUST(filch_lua_spawn(lua, sched, code, &how, NULL) == FILCH_OK, "not started");
    uint32_t ran;
    MUST(filch_tick(sched, TICKS, &ran) == FILCH_OK, "no tick");
    MUST(is_stopped(sched), "not stopped");
    MUST(ended == 1, "the first process ended once");
    MUST(fli_load_acq(&lua->alive) == 0, "something is left");
    return 0;
}
