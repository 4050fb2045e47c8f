/* upgrade.c - the part of the library `process` that replaces the code of a process: process.upgrade and
 * process.upgradable.
 *
 * The new code gets a state of its own. The state is made, the file is run and its function `upgrade` is called while
 * the old state still exists: if any of this fails, the old code gets the error and continues. After that the upgrade
 * can fail only if memory for the kept messages and the relations is missing. filch_upgrade keeps pid, mailbox, links,
 * monitors and names.
 *
 * INVARIANT  a step in which p->next is set ends by fli_lua_upgrade_end(), and no other task of the old code runs in
 * it: after filch_upgrade the scheduler accepts neither a result nor a wait.
 *
 * At the end of the step the Lua process hands over its kept messages, a pending cancel, and the number of outstanding
 * completions. The tasks of the old code and their requests are dropped.
 *
 * Design: docs/design/lua/upgrade.md.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/host/print.h"
#include "lua/preempt/budget.h"
#include "lua/process/spawn.h"

/* ---- starting the new code, in its new state -------------------------------------------------------------------- */

static void push_main(lua_State *L, const fli_lua_start *start)
{
    const char *path = start->origin.file != NULL ? start->origin.file->path : start->code->kind->name;
    if (!lua_istable(L, -1) || lua_getfield(L, -1, start->method) != LUA_TFUNCTION) {
        luaL_error(L, "%s returns no table with a function '%s' to continue with", path, start->method);
    }
}

int fli_lua_upgrade_begin(lua_State *L)
{
    const fli_lua_start *start = lua_touserdata(L, 2);
    lua_settop(L, 1);
    if (!fli_lua_push_start(L, start)) return luaL_error(L, "the state handed over is damaged and cannot be read");
    int count = lua_gettop(L) - 1;
    luaL_checkstack(L, count + 8, "too many values");
    for (int i = 1; i <= count + 1; i++) lua_pushvalue(L, i);
    lua_call(L, count, 1); /* runs the file */
    push_main(L, start);
    lua_replace(L, 1); /* stack: the function main, the values handed over, the table that the file returned */
    if (lua_getfield(L, -1, "upgrade") != LUA_TFUNCTION) {
        lua_settop(L, 1 + count);
        return lua_gettop(L);
    }
    lua_insert(L, 2);
    lua_settop(L, 2 + count); /* stack: the function main, the function upgrade, the values handed over */
    lua_call(L, count, LUA_MULTRET);
    return lua_gettop(L);
}

/* ---- replacing the code, in the old state ---------------------------------------------------------------------- */

static void unmonitor(const fli_lua_proc *p, const fli_lua_task *task)
{
    if (task->ref != 0) (void)!filch_unmonitor(p->sched, p->self, task->ref);
}

filch_err fli_lua_upgrade_end(fli_lua_proc *p)
{
    fli_lua_proc *next = p->next;
    filch_err     err = fli_lua_inbox_end(p);
    if (err == FILCH_OK) err = fli_lua_inbox_move(p, next);
    if (err == FILCH_OK && !fli_lua_relations_move(p, next)) err = FILCH_ENOMEM;
    if (err == FILCH_OK && !fli_lua_pending_move(p, next)) err = FILCH_ENOMEM;
    if (err != FILCH_OK) {
        static const char text[] = "not enough memory to keep messages and relations";
        return fli_lua_fail(p, FILCH_LUA_EMEMORY, text, sizeof text - 1);
    }
    next->outdated = p->outdated;
    next->main.cancelled = p->main.cancelled;
    next->yields = p->yields;
    next->next_tag = p->next_tag;
    memcpy(next->sleeps, p->sleeps, sizeof next->sleeps);
    unmonitor(p, &p->main);
    for (const fli_lua_task *task = p->tasks; task != NULL; task = task->next) unmonitor(p, task);
    return FILCH_OK;
}

/* Replaces the code of the process by the code at stack index plan->target (nil: the newest code of its own file). The
 * values above it, up to plan->last, are handed over to the new code. On success raises an error that cannot be caught,
 * which ends the old code; returns only on failure. */
static filch_err go_over(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan, fli_lua_refusal *why)
{
    fli_lua_bytes bytes;
    fli_lua_start start;
    fli_lua_bytes_init(&bytes, p->heap.max);
    bytes.hand_over = true;
    filch_err err = fli_lua_plan_start(L, p, plan, &bytes, &start, why);
    if (err == FILCH_OK) {
        start.old = p;
        start.text = why->text;
        start.text_size = sizeof why->text;
        err = filch_upgrade(p->out, &start.code->kind->type, NULL, filch_ptr(&start));
        if (err != FILCH_OK && why->text[0] == '\0') snprintf(why->text, sizeof why->text, "%s", filch_err_text(err));
    }
    fli_lua_code_drop(start.code);
    fli_lua_bytes_fini(&bytes);
    if (err != FILCH_OK) return err;
    p->next = start.made;
    p->current->exiting = true;
    p->no_yield++; /* never decremented: the old code ends in this step, so its __close handlers cannot wait */
    lua_pushliteral(L, "upgrade");
    return (filch_err)lua_error(L);
}

/* process.upgrade([what [, state...]]): replaces the code of the process by `what`. Returns only on failure: nil,
 * reason. */
static int process_upgrade(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_need_process(L);
    fli_lua_refusal why = { "" };
    if (lua_isnone(L, 1)) lua_pushnil(L);
    fli_lua_plan plan = { .target = 1, .last = lua_gettop(L), .memory_max = p->heap.max };
    if (!lua_isnil(L, 1)) fli_lua_plan_check(L, 1);
    else if (p->file == NULL)
        luaL_argerror(L, 1, "this process was not started from a module or file: name the code to upgrade to");
    luaL_checkstack(L, 8, NULL);
    if (p->current != &p->main && fli_lua_main_has_failed(p)) {
        lua_pushnil(L);
        lua_pushliteral(L, "the main task has failed, and the process ends");
        return 2;
    }
    filch_err err = go_over(L, p, &plan, &why);
    /* FILCH_EINVAL: a value cannot be handed over */
    if (err == FILCH_EINVAL) return luaL_error(L, "%s", why.text);
    lua_pushnil(L);
    lua_pushstring(L, why.text);
    return 2;
}

/* ---- when a file has changed ----------------------------------------------------------------------------------- */

/* The address of this variable is the registry key of the program's function `hand_over`, which returns the values to
 * hand over. */
static const char hand_over_key;

/* process.upgradable(hand_over): when a file that this process uses has changed and was read again (filch run --watch),
 * calls hand_over() and passes its results to the function `main` of the new code. process.upgradable(nil) turns this
 * off. */
static int process_upgradable(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    bool          on = !lua_isnoneornil(L, 1);
    if (on) luaL_checktype(L, 1, LUA_TFUNCTION);
    if (on && p->file == NULL) {
        luaL_error(L,
                   "only a process that was started by the name of a module or file can be upgraded to its newer code");
    }
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &hand_over_key);
    fli_lua_file_subscribe(p, on);
    if (on && fli_lua_file_outdated(p, false) != NULL) p->outdated = true;
    lua_pushboolean(L, 1);
    return 1;
}

/* Logs that a process could not be upgraded to the newest version of the file. Logs only one line per version, for the
 * first process whose upgrade fails. `why` contains words of the script, and the path may contain any characters, so
 * both are escaped. */
static void log_failure(const fli_lua_proc *p, fli_lua_file *file, const char *why)
{
    char     line[640], path[200], reason[300];
    uint64_t version = fli_load_rlx(&file->version);
    if (fli_load_rlx(&file->logged_version) == version) return;
    fli_store_rlx(&file->logged_version, version);
    (void)fli_escape(path, sizeof path, file->path, strlen(file->path));
    (void)fli_escape(reason, sizeof reason, why, strlen(why));
    int size =
        snprintf(line, sizeof line, "%s has changed, and its processes go on with the old code: %s\n", path, reason);
    fli_lua_log_line(p->lua, line, (size_t)size);
}

void fli_lua_upgrade_look(lua_State *L, fli_lua_proc *p)
{
    /* Does nothing in a task other than the main task: `outdated` stays set, and the main task checks for new code
     * later. Also does nothing if process.receive was called by a __close handler after the main task has failed,
     * because an upgrade would hide the failure. */
    if (p->current != &p->main || fli_lua_main_has_failed(p)) return;
    p->outdated = false;
    fli_lua_file *file = p->subscribed ? fli_lua_file_outdated(p, true) : NULL;
    if (file == NULL) return;
    int             top = lua_gettop(L);
    fli_lua_refusal why = { "" };
    luaL_checkstack(L, 12, NULL);
    lua_pushnil(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &hand_over_key);
    int status = lua_pcall(L, 0, LUA_MULTRET, 0);
    if (fli_lua_ends_with(p, status)) (void)fli_lua_raise_final(L, p);
    if (status == LUA_OK) {
        fli_lua_plan plan = { .target = top + 1, .last = lua_gettop(L), .memory_max = p->heap.max };
        luaL_checkstack(L, 8, NULL);
        (void)go_over(L, p, &plan, &why);
    } else {
        snprintf(why.text, sizeof why.text, "%s",
                 lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is no text");
    }
    log_failure(p, file, why.text);
    lua_settop(L, top);
}

const fli_lua_member fli_lua_upgrade_members[] = {
    { .library = "process", .name = "upgrade", .fn = process_upgrade },
    { .library = "process", .name = "upgradable", .fn = process_upgradable },
    { .name = NULL },
};
