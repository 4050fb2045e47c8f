/* path.c - see path.h. */
#include "lua/value/path.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_name(const char *text, size_t size)
{
    if (size == 0 || size > 40 || (text[0] >= '0' && text[0] <= '9')) return false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return false;
    }
    return true;
}

static void write_key(lua_State *L, const fli_lua_frame *at, char *text, size_t room)
{
    size_t      size;
    const char *name;
    if (at->name != NULL) {
        snprintf(text, room, ".%s", at->name);
        return;
    }
    switch (at->key != 0 ? lua_type(L, at->key) : LUA_TNONE) {
    case LUA_TSTRING:
        name = lua_tolstring(L, at->key, &size);
        if (is_name(name, size)) snprintf(text, room, ".%s", name);
        else snprintf(text, room, "[\"%.40s\"]", name);
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, at->key)) snprintf(text, room, "[%lld]", lua_tointeger(L, at->key));
        else snprintf(text, room, "[%.14g]", lua_tonumber(L, at->key));
        return;
    case LUA_TBOOLEAN: snprintf(text, room, "[%s]", lua_toboolean(L, at->key) ? "true" : "false"); return;
    case LUA_TNONE: snprintf(text, room, "[%lld]", at->number); return;
    default: snprintf(text, room, "[%s]", lua_typename(L, lua_type(L, at->key)));
    }
}

static void write_way(lua_State *L, const fli_lua_frame *at, char *text, size_t room)
{
    if (at == NULL || room < 2) return;
    write_way(L, at->up, text, room);
    size_t used = strlen(text);
    write_key(L, at, text + used, room - used);
}

void fli_lua_path(lua_State *L, const char *root, const fli_lua_frame *at, char *text, size_t room)
{
    snprintf(text, room, "%s", root);
    write_way(L, at, text, room);
}
