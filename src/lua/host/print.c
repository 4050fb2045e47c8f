/* print.c - see print.h.
 *
 * If the reader of the output is slower than the program, `print` waits by an ordinary yield, so that no line is lost
 * and no other process is delayed. Where Lua cannot yield (in a comparison of table.sort, in a job of work.run) `print`
 * does not wait, and a line for which the output buffer has no space is dropped. `log` never waits: it drops lines.
 * Dropped lines are counted; the count is written to the log, and filch_lua_flush returns it.
 */
#include "lua/host/print.h"

#include <lauxlib.h>
#include <stdio.h>
#include <unistd.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "port/clock.h"

/* Interval in nanoseconds at which a process that waits in `print` checks whether the output buffer has space again. */
enum { LOOK_NS = 5000000 };

filch_err fli_lua_print_init(struct filch_lua *lua)
{
    filch_err err = fli_output_init(&lua->out, STDOUT_FILENO);
    if (err != FILCH_OK) return err;
    err = fli_output_init(&lua->err, STDERR_FILENO);
    if (err != FILCH_OK) fli_output_fini(&lua->out);
    return err;
}

void fli_lua_print_fini(struct filch_lua *lua)
{
    fli_output_fini(&lua->err);
    fli_output_fini(&lua->out);
}

/* ---- log ---------------------------------------------------------------------------------------------------- */

/* Writes to the log how many lines of output were dropped since the last report. Returns false if the log cannot take
 * this report either. */
static bool report_dropped(struct filch_lua *lua)
{
    uint64_t dropped = fli_output_dropped(&lua->err) + fli_output_dropped(&lua->out);
    /* The number is not exact, because two threads may report the same dropped lines. */
    uint64_t reported = fli_load_rlx(&lua->dropped_reported);
    char     line[96];
    if (dropped == reported) return true;
    int size = snprintf(line, sizeof line, "filch: %llu lines were dropped: their reader is too slow, or gone\n",
                        (unsigned long long)(dropped - reported));
    if (!fli_output_write(&lua->err, line, (size_t)size)) return false;
    fli_store_rlx(&lua->dropped_reported, dropped);
    return true;
}

void fli_lua_log_line(struct filch_lua *lua, const char *text, size_t size)
{
    if (lua->opt.log != NULL) {
        lua->opt.log(lua->opt.log_user, text, size);
        return;
    }
    if (!report_dropped(lua) || !fli_output_write(&lua->err, text, size)) fli_output_drop(&lua->err);
}

/* ---- print -------------------------------------------------------------------------------------------------- */

/* Pushes the line to be printed, made from all arguments, and returns it. */
static const char *push_line(lua_State *L, size_t *size)
{
    int         n = lua_gettop(L);
    luaL_Buffer line;
    luaL_buffinit(L, &line);
    for (int i = 1; i <= n; i++) {
        if (i > 1) fli_lua_add_char(&line, '\t');
        fli_lua_budget_walk(L);
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&line);
    }
    fli_lua_add_char(&line, '\n');
    luaL_pushresult(&line);
    return lua_tolstring(L, -1, size);
}

/* Ends a call of print. Raises an error if the reader of standard output has ended (`| head -1`). Without the error a
 * program that prints for ever would never end, because SIGPIPE is not raised. */
static int print_result(lua_State *L, struct filch_lua *lua)
{
    return fli_output_is_closed(&lua->out) ? luaL_error(L, "print: standard output is closed: its reader has ended")
                                           : 0;
}

enum { TO_WRITE, TO_FLUSH };

/* Puts the line on top of the stack into the output buffer (TO_WRITE), then waits until the whole buffer has been
 * written to the system (TO_FLUSH). It must wait, because bytes left in the buffer are written only by a later call of
 * print, which may never come. */
static int write_on(lua_State *L, int status, lua_KContext phase)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    size_t        size;
    const char   *text = lua_tolstring(L, -1, &size);
    (void)status;
    if (phase == TO_WRITE && fli_output_write(&p->lua->out, text, size)) phase = TO_FLUSH;
    if (phase == TO_FLUSH && fli_output_flush(&p->lua->out)) return print_result(L, p->lua);
    fli_lua_wait_begin(L, p); /* raises a pending cancel */
    return fli_lua_park(L, fli_lua_until(p, LOOK_NS), phase, write_on);
}

/* Slow path of print: the reader of standard output is slower than this process. `taken`: the line is already in the
 * output buffer. */
static int wait_for_room(lua_State *L, fli_lua_proc *p, bool taken)
{
    if (!fli_lua_can_wait(L, p)) {
        if (!taken) fli_output_drop(&p->lua->out);
        return 0;
    }
    fli_lua_wait_begin(L, p);
    return fli_lua_park(L, fli_lua_until(p, LOOK_NS), taken ? TO_FLUSH : TO_WRITE, write_on);
}

int fli_lua_print(lua_State *L)
{
    fli_lua_proc     *p = fli_lua_self(L);
    struct filch_lua *lua = p->lua;
    size_t            size;
    const char       *text = push_line(L, &size);
    if (lua->opt.print != NULL) {
        lua->opt.print(lua->opt.print_user, text, size);
        return 0;
    }
    bool taken = fli_output_write(&lua->out, text, size);
    if (taken && fli_output_flush(&lua->out)) return print_result(L, lua);
    return wait_for_room(L, p, taken);
}

/* ---- for the host ------------------------------------------------------------------------------------------- */

filch_err filch_lua_log(filch_lua *lua, const char *text, size_t size)
{
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (text == NULL && size > 0) return filch_invalid("text is NULL although size is not 0");
    if (size > 0) fli_lua_log_line(lua, text, size);
    return FILCH_OK;
}

filch_err filch_lua_flush(filch_lua *lua, uint64_t timeout_ns, uint64_t *dropped)
{
    if (lua == NULL) return filch_invalid("lua is NULL");
    uint64_t until = fli_clock_after(fli_clock_ns(), timeout_ns);
    bool     out = fli_output_finish(&lua->out, until);
    (void)report_dropped(lua);
    bool err = fli_output_finish(&lua->err, until);
    if (dropped != NULL) *dropped = fli_output_dropped(&lua->out) + fli_output_dropped(&lua->err);
    return out && err ? FILCH_OK : FILCH_EDEADLINE;
}
