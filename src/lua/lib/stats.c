/* stats.c - the library `runtime`: the counters of the scheduler of this process, and reloading its files. */
#include <lauxlib.h>
#include <stdio.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/process/proc.h"

static void set_count(lua_State *L, const char *name, uint64_t count)
{
    lua_pushinteger(L, (lua_Integer)count);
    lua_setfield(L, -2, name);
}

/* runtime.stats() -> a table of numbers as in filch_sched_stats; `interrupted`: the number of steps that were
 * interrupted. */
static int runtime_stats(lua_State *L)
{
    fli_lua_proc *p = fli_lua_for(L);
    filch_stats   stats = FILCH_STATS_INIT;
    filch_err     err = filch_sched_stats(p->sched, &stats);
    if (err != FILCH_OK) return fli_lua_return_error(L, err);
    lua_createtable(L, 0, 20);
    set_count(L, "workers", stats.workers);
    set_count(L, "asleep", stats.asleep);
    set_count(L, "alive", stats.alive);
    set_count(L, "spawned", stats.spawned);
    set_count(L, "ended", stats.ended);
    set_count(L, "failed", stats.failed);
    set_count(L, "steps", stats.steps);
    set_count(L, "sent", stats.sent);
    set_count(L, "undelivered", stats.undelivered);
    set_count(L, "refused", stats.refused);
    set_count(L, "dropped", stats.dropped);
    set_count(L, "yields", stats.yields);
    set_count(L, "completions", stats.completions);
    set_count(L, "abandoned", stats.abandoned);
    set_count(L, "steals", stats.steals);
    set_count(L, "stolen", stats.stolen);
    set_count(L, "sleeps", stats.sleeps);
    set_count(L, "wakes", stats.wakes);
    set_count(L, "timers", stats.timers);
    set_count(L, "interrupted", fli_load_rlx(&p->lua->interrupted));
    return 1;
}

/* Result of a reload: how many changed files were compiled, and the error of the last file that could not be
 * compiled. */
typedef struct reloaded {
    lua_Integer taken;
    char        why[512];
} reloaded;

static void note_reload(void *user, const char *path, filch_err error, const char *text, uint64_t notified)
{
    reloaded *r = user;
    (void)notified;
    if (error == FILCH_OK) r->taken++;
    else snprintf(r->why, sizeof r->why, "%s", text[0] != '\0' ? text : path);
}

/* runtime.reload() -> the number of changed files that were compiled | nil, the error of a file that could not be
 * compiled. */
static int runtime_reload(lua_State *L)
{
    reloaded r = { .taken = 0 };
    (void)!filch_lua_reload(fli_lua_need_process(L)->lua, note_reload, &r);
    if (r.why[0] != '\0') {
        lua_pushnil(L);
        lua_pushstring(L, r.why);
        return 2;
    }
    lua_pushinteger(L, r.taken);
    return 1;
}

static int runtime_version(lua_State *L)
{
    lua_pushstring(L, filch_version());
    return 1;
}

const fli_lua_member fli_lua_stats_members[] = {
    { .library = "runtime", .name = "stats", .fn = runtime_stats },
    { .library = "runtime", .name = "version", .fn = runtime_version },
    { .library = "runtime", .name = "reload", .fn = runtime_reload },
    { .name = NULL },
};
