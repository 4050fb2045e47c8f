/* logs.c - the library `log`: one line per call, with the time, the level, the process and fields.
 *
 *     log.info("paid", { order = 17 })   ->   12.000345 info 4.1 shop.lua: paid order=17
 */
#include <lauxlib.h>
#include <stdio.h>

#include "lua/code.h"
#include "lua/host.h"
#include "lua/libs.h"
#include "lua/proc.h"

/* Each as a text of its own on the stack. */
static void push_fields(lua_State *L, int table)
{
    lua_pushnil(L);
    while (lua_next(L, table) != 0) {
        luaL_checkstack(L, 8, "too many fields");
        lua_pushliteral(L, " ");
        luaL_tolstring(L, -3, NULL);
        lua_pushliteral(L, "=");
        luaL_tolstring(L, -4, NULL);
        lua_concat(L, 4);
        lua_remove(L, -2); /* the value */
        lua_insert(L, -2); /* the text below the key */
    }
}

static int write_log(lua_State *L, const char *level)
{
    fli_lua_proc *p = fli_lua_for(L);
    char          head[192];
    uint64_t      now = fli_lua_now(p);
    snprintf(head, sizeof head, "%llu.%06llu %s ", (unsigned long long)(now / 1000000000),
             (unsigned long long)(now / 1000 % 1000000), level);
    luaL_tolstring(L, 1, NULL);
    lua_replace(L, 1);
    bool fields = lua_istable(L, 2);
    lua_settop(L, 2);
    int below = lua_gettop(L);
    lua_pushstring(L, head);
    fli_lua_push_pid(L, p->self);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    lua_pushfstring(L, " %s: ", p->code->kind->name);
    lua_pushvalue(L, 1);
    if (fields) push_fields(L, 2);
    lua_pushliteral(L, "\n");
    lua_concat(L, lua_gettop(L) - below);
    size_t      size;
    const char *text = lua_tolstring(L, -1, &size);
    p->lua->opt.log(p->lua->opt.log_user, text, size);
    return 0;
}

static int log_debug(lua_State *L)
{
    return write_log(L, "debug");
}

static int log_info(lua_State *L)
{
    return write_log(L, "info");
}

static int log_warn(lua_State *L)
{
    return write_log(L, "warn");
}

static int log_error(lua_State *L)
{
    return write_log(L, "error");
}

const fli_lua_member fli_lua_log_members[] = {
    { .library = "log", .name = "debug", .fn = log_debug },
    { .library = "log", .name = "info", .fn = log_info },
    { .library = "log", .name = "warn", .fn = log_warn },
    { .library = "log", .name = "error", .fn = log_error },
    { .name = NULL },
};
