/* relations.c - the part of the library `process` for relations: monitors, links, names, groups, and ending other
 * processes.
 *
 * The memory of relations is charged to the process that makes them. Most relations end without a call of that process,
 * for example when the monitored process ends. So the charge is not reduced when a relation ends, but when the memory
 * limit refuses a request: then the process asks the scheduler how much its relations take (relieve).
 *
 * INVARIANT  relation_bytes is at least what the relations take that the process has made. It never grows because
 *            another process makes relations: they are limited for each process, but charged to none.
 *
 * Monitors and links that a spawn makes are not charged, because the child itself takes more memory. Design:
 * docs/design/lua/budgets.md.
 */
#include <lauxlib.h>
#include <stdlib.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

/* Up to this many bytes, a name is read without a check of the budget, because that takes less than a microsecond. */
enum { BRIEF_NAME = 255 };

/* Bytes charged for a monitor, a link, or the deadline of a cancel: at least as many as filch_info.relation_bytes grows
 * by. */
enum { RELATION_BYTES = 160 };

/* ---- the memory of relations ------------------------------------------------------------------------------------ */

/* Returns how many bytes are taken by the relations that this process has made. */
static uint64_t made_bytes(const fli_lua_proc *p)
{
    filch_info info = { .size = sizeof info };
    return filch_inspect(p->sched, p->self, &info) == FILCH_OK ? info.relation_bytes : 0;
}

/* Discharges relations that have ended. Called by the heap. */
static bool relieve(fli_lua_heap *heap)
{
    fli_lua_proc *p = (fli_lua_proc *)(void *)heap; /* the heap is the first field */
    uint64_t      real = made_bytes(p);
    if (real >= p->relation_bytes) return false;
    fli_lua_heap_discharge(heap, p->relation_bytes - real);
    p->relation_bytes = real;
    return true;
}

/* Charges the process for a relation. Refuses to use the last sixteenth of the memory limit, so that the process still
 * has memory to handle the error. */
static bool charge(fli_lua_proc *p, uint64_t size)
{
    size_t rest = p->heap.max / 16;
    if (!fli_lua_charge(p, size + rest)) return false;
    fli_lua_heap_discharge(&p->heap, rest);
    p->relation_bytes += size;
    p->heap.relieve = relieve;
    return true;
}

static void discharge(fli_lua_proc *p, uint64_t size)
{
    fli_lua_heap_discharge(&p->heap, size);
    p->relation_bytes -= size;
}

bool fli_lua_relations_move(fli_lua_proc *from, fli_lua_proc *to)
{
    (void)relieve(&from->heap);
    to->relation_bytes = from->relation_bytes;
    to->heap.relieve = from->heap.relieve;
    return fli_lua_charge(to, from->relation_bytes);
}

static int return_limit(lua_State *L, const fli_lua_proc *p)
{
    lua_pushnil(L);
    lua_pushfstring(L, "not enough memory: the process may hold %I bytes", (LUAI_UACINT)p->heap.max);
    return 2;
}

static bool is_self(const fli_lua_proc *p, filch_pid pid)
{
    return pid.node == p->self.node && pid.serial == p->self.serial;
}

/* Returns true if other processes have given `pid` so many relations that this process may not give `pid` another name,
 * membership or deadline. The limit is needed because such relations are not charged to `pid`: a charge could end `pid`
 * because of what other processes do. */
static bool is_full(const fli_lua_proc *p, filch_pid pid)
{
    filch_info info = { .size = sizeof info };
    if (is_self(p, pid) || filch_inspect(p->sched, pid, &info) != FILCH_OK) return false;
    return info.given_bytes >= p->lua->opt.memory_max;
}

static int return_full(lua_State *L)
{
    lua_pushnil(L);
    lua_pushliteral(L, "not enough memory: the other process has too many relations");
    return 2;
}

/* Charges the process for the growth of its relations: `before` is how many bytes they took before the call that made a
 * relation. */
static bool charge_growth(fli_lua_proc *p, uint64_t before)
{
    uint64_t now = made_bytes(p);
    return now <= before || charge(p, now - before);
}

/* ---- ending processes ------------------------------------------------------------------------------------------- */

static int process_alive(lua_State *L)
{
    filch_info info = { .size = sizeof info };
    lua_pushboolean(L, filch_inspect(fli_lua_need_process(L)->sched, fli_lua_check_pid(L, 1), &info) == FILCH_OK);
    return 1;
}

/* process.cancel(pid [, deadline]): asks the process to end. The process is killed if it still exists after the
 * deadline. */
static int process_cancel(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_pid     pid = fli_lua_check_pid(L, 1);
    if (lua_isnoneornil(L, 2)) return fli_lua_return(L, filch_cancel(p->sched, pid));
    uint64_t span = fli_lua_check_span(L, 2);
    if (is_full(p, pid)) return return_full(L);
    if (is_self(p, pid) && !charge(p, RELATION_BYTES)) return return_limit(L, p);
    return fli_lua_return(L, filch_cancel_with(p->sched, pid, FILCH_ECANCELLED, span));
}

static int go_on_terminate(lua_State *L, int status, lua_KContext unused)
{
    (void)status, (void)unused;
    return fli_lua_return(L, filch_terminate(fli_lua_need_process(L)->sched, fli_lua_check_pid(L, 1)));
}

/* The entry of process.terminate() does not check the budget (fli_lua_brief() in host/entries.h), because such a check
 * could pause the caller. A program that starts processes with endless loops, and terminates each at once, must not be
 * paused before it terminates the process that it has just started: otherwise the loops pile up. So this function
 * checks the budget itself, but only if reading the name may take long. */
static int process_terminate(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING && lua_rawlen(L, 1) > BRIEF_NAME) fli_lua_budget_enter(L, 0, go_on_terminate);
    return go_on_terminate(L, LUA_OK, 0);
}

/* ---- monitors and links --------------------------------------------------------------------------------------- */

/* process.monitor(pid) -> a number for unmonitor. The end of the process arrives as a message { event = "exit", pid
 * = pid, ... }. */
static int process_monitor(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      ref = 0;
    filch_pid     pid = fli_lua_check_pid(L, 1);
    if (!charge(p, RELATION_BYTES)) return return_limit(L, p);
    filch_err err = filch_monitor(p->sched, p->self, pid, 0, &ref);
    if (ref == 0) discharge(p, RELATION_BYTES); /* the process has ended */
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    lua_pushinteger(L, (lua_Integer)ref);
    return 1;
}

/* Pushes true, or nil and the reason. `stale` is the reason if the relation that should be ended does not exist. */
static int return_ended(lua_State *L, filch_err err, const char *stale)
{
    if (err != FILCH_ESTALE) return fli_lua_return(L, err);
    lua_pushnil(L);
    lua_pushstring(L, stale);
    return 2;
}

static int process_unmonitor(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_err     err = filch_unmonitor(p->sched, p->self, (uint64_t)luaL_checkinteger(L, 1));
    return return_ended(L, err, "there is no such monitor, or its process has ended");
}

static int process_link(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_pid     pid = fli_lua_check_pid(L, 1);
    if (!charge(p, RELATION_BYTES)) return return_limit(L, p);
    filch_err err = filch_link(p->sched, p->self, pid);
    if (err != FILCH_OK) discharge(p, RELATION_BYTES);
    return fli_lua_return(L, err);
}

static int process_unlink(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    return return_ended(L, filch_unlink(p->sched, p->self, fli_lua_check_pid(L, 1)), "there is no such link");
}

/* process.trap(on): when a linked process fails, this process gets a message { event = "link_down", ... } instead of
 * ending. */
static int process_trap(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    return fli_lua_return(L, filch_trap_links(p->out, lua_isnone(L, 1) || lua_toboolean(L, 1)));
}

/* ---- names and groups ------------------------------------------------------------------------------------------- */

/* Returns the pid at `index`, or the pid of this process if there is no argument. */
static filch_pid pid_or_self(lua_State *L, int index, const fli_lua_proc *p)
{
    return lua_isnoneornil(L, index) ? p->self : fli_lua_check_pid(L, index);
}

static int process_register(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *name = fli_lua_check_text(L, 1);
    filch_pid     pid = pid_or_self(L, 2, p);
    if (is_full(p, pid)) return return_full(L);
    uint64_t  before = made_bytes(p);
    filch_err err = filch_register(p->sched, name, pid);
    if (err == FILCH_OK && is_self(p, pid) && !charge_growth(p, before)) {
        (void)!filch_unregister(p->sched, name);
        return return_limit(L, p);
    }
    return fli_lua_return(L, err);
}

static int process_unregister(lua_State *L)
{
    return fli_lua_return(L, filch_unregister(fli_lua_need_process(L)->sched, fli_lua_check_text(L, 1)));
}

static int process_lookup(lua_State *L)
{
    filch_pid pid;
    filch_err err = filch_whereis(fli_lua_need_process(L)->sched, fli_lua_check_text(L, 1), &pid);
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    fli_lua_push_pid(L, pid);
    return 1;
}

static int process_join(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *group = fli_lua_check_text(L, 1);
    filch_pid     pid = pid_or_self(L, 2, p);
    if (is_full(p, pid)) return return_full(L);
    uint64_t  before = made_bytes(p);
    filch_err err = filch_join(p->sched, group, pid);
    if (err == FILCH_OK && is_self(p, pid) && !charge_growth(p, before)) {
        (void)!filch_leave(p->sched, group, pid);
        return return_limit(L, p);
    }
    return fli_lua_return(L, err);
}

static int process_leave(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_err     err = filch_leave(p->sched, fli_lua_check_text(L, 1), pid_or_self(L, 2, p));
    return return_ended(L, err, "the process is not in this group");
}

static int process_watch(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *group = fli_lua_check_text(L, 1);
    uint64_t      before = made_bytes(p);
    filch_err     err = filch_watch(p->sched, group, p->self, 0);
    if (err == FILCH_OK && !charge_growth(p, before)) {
        (void)!filch_unwatch(p->sched, group, p->self);
        return return_limit(L, p);
    }
    return fli_lua_return(L, err);
}

static int process_unwatch(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    return return_ended(L, filch_unwatch(p->sched, fli_lua_check_text(L, 1), p->self),
                        "the process does not watch this group");
}

/* process.members(group) -> a list of pids, in the order in which the processes joined. */
static int process_members(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    const char   *group = fli_lua_check_text(L, 1);
    size_t        room = 0, count = 0;
    filch_err     err = filch_members(p->sched, group, NULL, 0, &count);
    filch_pid    *pids = NULL;
    /* Repeats the call if there are more members than `room`: processes may have joined since the members were
     * counted. */
    while (err == FILCH_OK && count > room) {
        room = count + count / 4 + 4;
        pids = lua_newuserdatauv(L, room * sizeof *pids, 0);
        err = filch_members(p->sched, group, pids, room, &count);
    }
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        fli_lua_push_pid(L, pids[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* process.broadcast(group, message) -> the number of processes to which the message was sent. */
static int process_broadcast(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_need_process(L);
    const char     *group = fli_lua_check_text(L, 1);
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    uint64_t        sent = 0;
    lua_settop(L, 2);
    fli_lua_bytes_init(&bytes, p->heap.max);
    if (!fli_lua_pack(L, 2, "message", &bytes, &data, &why)) {
        fli_lua_bytes_fini(&bytes);
        return luaL_error(L, "%s", why.text);
    }
    filch_err err = filch_broadcast(p->sched, group, data, &sent);
    fli_lua_bytes_sent(&bytes, err == FILCH_OK);
    fli_lua_bytes_fini(&bytes);
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    lua_pushinteger(L, (lua_Integer)sent);
    return 1;
}

const fli_lua_member fli_lua_relation_members[] = {
    { .library = "process", .name = "alive", .fn = process_alive },
    { .library = "process", .name = "cancel", .fn = process_cancel },
    { .library = "process", .name = "terminate", .fn = process_terminate },
    { .library = "process", .name = "monitor", .fn = process_monitor },
    { .library = "process", .name = "unmonitor", .fn = process_unmonitor },
    { .library = "process", .name = "link", .fn = process_link },
    { .library = "process", .name = "unlink", .fn = process_unlink },
    { .library = "process", .name = "trap", .fn = process_trap },
    { .library = "process", .name = "register", .fn = process_register },
    { .library = "process", .name = "unregister", .fn = process_unregister },
    { .library = "process", .name = "lookup", .fn = process_lookup },
    { .library = "process", .name = "join", .fn = process_join },
    { .library = "process", .name = "leave", .fn = process_leave },
    { .library = "process", .name = "watch", .fn = process_watch },
    { .library = "process", .name = "unwatch", .fn = process_unwatch },
    { .library = "process", .name = "members", .fn = process_members },
    { .library = "process", .name = "broadcast", .fn = process_broadcast },
    { .name = NULL },
};
