/* timers.c - time.after, time.every and time.cancel: channels into which a timer sends the time.
 *
 * A timer is a task that runs a C function: it sleeps, and offers the time to its channel. A cancel ends the task while
 * it sleeps.
 */
#include <lauxlib.h>

#include "lua/host/libs.h"
#include "lua/task/channels.h"
#include "lua/task/task.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

enum { CHANNEL = 1, PERIOD = 2 }; /* stack indexes of the arguments of run_timer(); PERIOD 0: the timer fires once */

/* Returns the time of the first tick after both `due` and `now`. Missed ticks are skipped; the other ticks keep their
 * times. */
static uint64_t next_tick(uint64_t due, uint64_t period, uint64_t now)
{
    due += period;
    return due > now ? due : due + ((now - due) / period + 1) * period;
}

/* Sleeps until `due_ns`, puts the time into the channel, and sleeps again if the timer is periodic. */
static int go_on_timer(lua_State *L, int status, lua_KContext due_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      period = (uint64_t)lua_tointeger(L, PERIOD), due = (uint64_t)due_ns;
    fli_lua_check_cancel(L, p);
    if (p->current->late) {
        if (fli_lua_channel_is_closed(L, CHANNEL)) return 0;
        lua_pushnumber(L, (lua_Number)fli_lua_now(p) / 1e9);
        fli_lua_channel_offer(L, CHANNEL, lua_gettop(L));
        lua_settop(L, PERIOD);
        if (period == 0) return 0;
        due = next_tick(due, period, fli_lua_now(p));
        p->current->late = false;
    }
    return fli_lua_park(L, due, (lua_KContext)due, go_on_timer);
}

/* Function that a timer's task runs. Arguments: the channel, the period, and the time of the first tick. */
static int run_timer(lua_State *L)
{
    uint64_t due = (uint64_t)lua_tointeger(L, 3);
    lua_settop(L, PERIOD);
    fli_lua_wait_begin(L, fli_lua_need_process(L));
    return go_on_timer(L, LUA_OK, (lua_KContext)due);
}

static int start_timer(lua_State *L, fli_lua_proc *p, uint64_t span, uint64_t period)
{
    fli_lua_channel_push(L);
    int at = lua_gettop(L);
    lua_pushcfunction(L, run_timer);
    lua_pushvalue(L, at);
    lua_pushinteger(L, (lua_Integer)period);
    lua_pushinteger(L, (lua_Integer)fli_lua_until(p, span));
    (void)fli_lua_task_start(L, p, at + 1);
    fli_lua_channel_set_timer(L, at);
    return 1;
}

/* time.after(span) -> a channel that gets the time once, after `span`. */
static int time_after(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    return start_timer(L, p, fli_lua_check_span(L, 1), 0);
}

/* time.every(period) -> a channel that gets the time every `period`. While a tick has not been received, further ticks
 * are dropped. */
static int time_every(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      period = fli_lua_check_span(L, 1);
    if (period == 0) return luaL_error(L, "time.every: the period must be above zero");
    return start_timer(L, p, period, period);
}

/* time.cancel(channel): stops the timer of a channel, and closes the channel. */
static int time_cancel(lua_State *L)
{
    if (!fli_lua_is_channel(L, 1)) lua_settop(L, 0), lua_pushnil(L);
    else fli_lua_channel_push_timer(L, 1);
    fli_lua_task *task = fli_lua_to_task(L, -1);
    if (task == NULL) return luaL_error(L, "time.cancel: the argument must be a channel from time.after or time.every");
    lua_pushboolean(L, fli_lua_task_cancel(fli_lua_self(L), task));
    fli_lua_channel_close(L, 1);
    return 1;
}

const fli_lua_member fli_lua_timer_members[] = {
    { .library = "time", .name = "after", .fn = time_after },
    { .library = "time", .name = "every", .fn = time_every },
    { .library = "time", .name = "cancel", .fn = time_cancel },
    { .name = NULL },
};
