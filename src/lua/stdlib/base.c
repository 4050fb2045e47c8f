/* base.c - replacements for global functions of stock Lua: functions that load code, catch errors, or could exceed the
 * limits.
 *
 * A process that has used up its memory or its budget ends: pcall and similar functions pass that error on instead of
 * catching it.
 * Design: docs/design/lua/budgets.md.
 */
#include <lauxlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/compile.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/host/print.h"
#include "lua/host/sources.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/null.h"

/* ---- errors ------------------------------------------------------------------------------------------------- */

static int finish_pcall(lua_State *L, int status, lua_KContext extra)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (status == LUA_OK || status == LUA_YIELD) return lua_gettop(L) - (int)extra;
    if (fli_lua_ends_with(p, status)) return fli_lua_raise_final(L, p);
    lua_pushboolean(L, 0);
    lua_pushvalue(L, -2);
    return 2;
}

static int base_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    fli_lua_preempt_settle(fli_lua_self(L));
    return finish_pcall(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, 0, finish_pcall), 0);
}

/* Message handler of xpcall. Calls the program's handler, which is upvalue 1, except for a final error, which ends the
 * process (budget.h). */
static int handle(lua_State *L)
{
    if (fli_lua_is_final(fli_lua_self(L))) return 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

int fli_lua_xpcall(lua_State *L)
{
    int n = lua_gettop(L);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushboolean(L, 1);
    lua_pushvalue(L, 1);
    lua_rotate(L, 3, 2);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, handle, 1);
    lua_replace(L, 2);
    fli_lua_preempt_settle(fli_lua_self(L));
    return finish_pcall(L, lua_pcallk(L, n - 2, LUA_MULTRET, 2, 2, finish_pcall), 2);
}

/* ---- metatables --------------------------------------------------------------------------------------------- */

static int base_setmetatable(lua_State *L)
{
    int type = lua_type(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    fli_lua_expect(L, type == LUA_TNIL || type == LUA_TTABLE, 2, "nil or table");
    /* The metatable of a list made by json.decode is protected, but may be replaced: to the program the list must look
     * like an ordinary table. */
    if (!fli_lua_is_list(L, 1) && luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) {
        return luaL_error(L, "cannot change a protected metatable");
    }
    if (type == LUA_TTABLE) {
        /* The collector would run a finalizer at any time, also where it cannot be interrupted. */
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL) return luaL_error(L, "a metatable cannot have __gc here: use <close>");
    }
    lua_pushglobaltable(L);
    if (lua_rawequal(L, 1, -1)) fli_lua_libs_fill(L);
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* ---- code --------------------------------------------------------------------------------------------------- */

/* Concatenates the pieces that a reader function returns, and pushes the result. */
static void read_pieces(lua_State *L)
{
    luaL_Buffer all;
    luaL_buffinit(L, &all);
    for (;;) {
        /* checks the budget, because a reader that is a C function executes no Lua instruction, at which a hook would
         * check it */
        (void)fli_lua_budget_due(L);
        lua_pushvalue(L, 1);
        lua_call(L, 0, 1);
        size_t size = 0;
        if (lua_isnil(L, -1)) break;
        if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "reader function must return a string");
        lua_tolstring(L, -1, &size);
        if (size == 0) break;
        luaL_addvalue(&all);
    }
    lua_pop(L, 1);
    luaL_pushresult(&all);
}

/* Compiles the text on top of the stack and pushes the function. Returns false, with the reason pushed, if that fails.
 * The time limit is the budget of code that cannot be interrupted; in a simulation and on the work pool there is no
 * limit. */
static bool compile_top(lua_State *L, const char *name)
{
    const fli_lua_proc *p = fli_lua_self(L);
    size_t              size;
    const char         *text = lua_tolstring(L, -1, &size);
    if (size > p->lua->opt.code_max) {
        lua_pushfstring(L, "the text is larger than the %d bytes that can be loaded", (int)p->lua->opt.code_max);
        return false;
    }
    bool limited = !p->simulated && fli_lua_job_of(p) == NULL;
    return fli_lua_compile(L, text, size, name, limited ? p->lua->opt.runaway_ns : 0) == LUA_OK;
}

/* Works like stock Lua's load, but accepts text only, because bytecode from outside could damage the state. */
static int base_load(lua_State *L)
{
    const char *mode = fli_lua_opt_text(L, 3, "t");
    bool        has_env = !lua_isnone(L, 4);
    const char *given = lua_tostring(L, 1); /* lua_tostring converts a number to a text, too */
    const char *name = luaL_optstring(L, 2, given != NULL ? given : "=(load)");
    if (strchr(mode, 't') == NULL) {
        lua_pushnil(L);
        lua_pushliteral(L, "the mode must contain 't': only text can be loaded, not bytecode");
        return 2;
    }
    if (given != NULL) {
        lua_pushvalue(L, 1);
    } else {
        luaL_checktype(L, 1, LUA_TFUNCTION);
        read_pieces(L);
    }
    if (!compile_top(L, name)) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (has_env) {
        lua_pushvalue(L, 4);
        if (lua_setupvalue(L, -2, 1) == NULL) lua_pop(L, 1);
    }
    return 1;
}

static const char modules_key;

/* Bounds the search for a cycle of require. LEVELS: active calls that are examined; 200 nested calls of require, which
 * is more than Lua allows, take 400 active calls if each module calls require in its main function. NAMES: modules that
 * the error names, besides the first one of the cycle. */
enum { LEVELS = 512, NAMES = 8 };

/* If the active call `ar` of the coroutine `co` is a call of require, that is of the function on top of L's stack,
 * pushes the name of the module and returns true. */
static bool push_required(lua_State *L, lua_State *co, lua_Debug *ar)
{
    lua_getinfo(co, "f", ar);
    lua_xmove(co, L, 1);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 1);
    if (!is || lua_getlocal(co, ar, 1) == NULL) return false;
    lua_xmove(co, L, 1);
    return true;
}

/* Called by require, with the name of the module at index 1. Raises an error if an active call of require, which runs
 * in this coroutine or in one that has resumed this coroutine, is loading this module. Without this function a cycle
 * would end with the error "C stack overflow". A call in another task is no cycle. */
static void refuse_cycle(lua_State *L, const fli_lua_proc *p)
{
    const fli_lua_outer *outer = p->outer;
    lua_State           *co = L;
    lua_Debug            ar;
    int                  level = 0, names = 0;
    if (lua_getstack(L, 0, &ar) == 0) return;
    lua_pushvalue(L, 1);
    lua_getinfo(L, "f", &ar); /* stack: the names from the innermost module on, then the function require */
    for (int i = 0; i < LEVELS; i++) {
        if (lua_getstack(co, ++level, &ar) == 0) {
            if (outer == NULL) break;
            co = outer->L;
            outer = outer->next;
            level = -1;
            continue;
        }
        if (!push_required(L, co, &ar)) continue;
        bool same = lua_rawequal(L, -1, 1);
        if (same || names++ < NAMES) {
            lua_pushfstring(L, names <= NAMES ? "%s -> %s" : "%s -> ... -> %s", lua_tostring(L, -1),
                            lua_tostring(L, -3));
            lua_replace(L, -4);
        }
        lua_pop(L, 1);
        if (same) luaL_error(L, "module '%s' requires itself: %s", lua_tostring(L, 1), lua_tostring(L, -2));
    }
    lua_pop(L, 2);
}

static int finish_require(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    /* stack: 1 the name, 2 the table of modules, 3 the value that the module returned */
    if (lua_isnil(L, 3)) {
        lua_pushboolean(L, 1);
        lua_replace(L, 3);
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_rawset(L, 2);
    return 1;
}

static int base_require(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    size_t        size;
    const char   *name = luaL_checklstring(L, 1, &size);
    lua_settop(L, 1);
    if (!fli_lua_is_module(name, size))
        luaL_error(L, "'%s' is not the name of a module: a module's name has letters, digits, '_', '-' and single dots",
                   name);
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &modules_key) != LUA_TTABLE) {
        lua_settop(L, 1);
        lua_createtable(L, 0, 2);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &modules_key);
    }
    lua_pushvalue(L, 1);
    if (lua_rawget(L, 2) != LUA_TNIL) return 1;
    lua_pop(L, 1);
    if (fli_lua_push_named(L, name, NULL)) return 1;
    refuse_cycle(L, p);
    fli_lua_code  *code = NULL;
    char           text[512] = "";
    fli_lua_origin origin;
    filch_err      err = fli_lua_file_named(p->lua, name, &code, &origin, text, sizeof text);
    if (err != FILCH_OK) return luaL_error(L, "%s", text[0] != '\0' ? text : filch_err_text(err));
    bool noted = fli_lua_file_used(p, &origin);
    int  status = fli_lua_code_push(L, code);
    fli_lua_code_drop(code);
    if (status != LUA_OK) return lua_error(L);
    if (!noted) return luaL_error(L, "not enough memory");
    lua_pushvalue(L, 1);
    lua_callk(L, 1, 1, 0, finish_require);
    return finish_require(L, LUA_OK, 0);
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* Runs `left` cycles of the collector, in steps between which the process can be interrupted. A full collection needs
 * two cycles, because the first may have begun before the garbage existed. */
static int go_on_collect(lua_State *L, int status, lua_KContext left)
{
    (void)status;
    while (left > 0) {
        if (lua_gc(L, LUA_GCSTEP, 0)) left--;
        if (fli_lua_budget_due(L)) fli_lua_pause(L, left, go_on_collect);
    }
    lua_pushinteger(L, 0);
    return 1;
}

/* collectgarbage: returns the memory in use, or runs a collection. Only the host can change the settings of the
 * collector. */
static int base_collectgarbage(lua_State *L)
{
    static const char *const names[] = { "collect", "count", "step", NULL };
    switch (fli_lua_check_word(L, 1, "collect", names)) {
    case 1: lua_pushnumber(L, (lua_Number)fli_lua_heap_used(&fli_lua_self(L)->heap) / 1024); return 1;
    case 2: lua_pushboolean(L, lua_gc(L, LUA_GCSTEP, 0)); return 1;
    default: return go_on_collect(L, LUA_OK, 2);
    }
}

const fli_lua_member fli_lua_base_members[] = {
    { .name = "print", .fn = fli_lua_print },
    { .name = "pcall", .fn = base_pcall },
    { .name = "xpcall", .fn = fli_lua_xpcall },
    { .name = "setmetatable", .fn = base_setmetatable },
    { .name = "load", .fn = base_load },
    { .name = "require", .fn = base_require },
    { .name = "collectgarbage", .fn = base_collectgarbage },
    { .name = NULL },
};
