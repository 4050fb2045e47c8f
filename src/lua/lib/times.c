/* times.c - the library `time`: the clock, sleeping, and spans of time.
 * Page: docs/lua/reference.md. */
#include <lauxlib.h>
#include <math.h>

#include "lua/host/libs.h"
#include "lua/process/proc.h"
#include "lua/value/spans.h"

/* time.now(): seconds on the scheduler's clock, which is monotonic, and virtual in a simulation. */
static int time_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)fli_lua_now(fli_lua_for(L)) / 1e9);
    return 1;
}

static int time_ns(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)fli_lua_now(fli_lua_for(L)));
    return 1;
}

/* time.span(span): the span in seconds. */
static int time_span(lua_State *L)
{
    uint64_t span = fli_lua_check_span(L, 1);
    lua_pushnumber(L, span == FLI_LUA_NEVER ? (lua_Number)HUGE_VAL : (lua_Number)span / 1e9);
    return 1;
}

static int go_on_sleep(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_check_cancel(L, p);
    return p->current->late ? 0 : fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_sleep);
}

static int time_sleep(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_until(p, fli_lua_check_span(L, 1));
    fli_lua_wait_begin(L, p);
    return fli_lua_park(L, until, (lua_KContext)until, go_on_sleep);
}

const fli_lua_member fli_lua_time_members[] = {
    { .library = "time", .name = "now", .fn = time_now },
    { .library = "time", .name = "ns", .fn = time_ns },
    { .library = "time", .name = "span", .fn = time_span },
    { .library = "time", .name = "sleep", .fn = time_sleep },
    { .name = NULL },
};
