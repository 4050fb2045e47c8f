/* text.c - see text.h. */
#include "lua/value/text.h"

#include <lauxlib.h>
#include <stdint.h>

fli_lua_text *fli_lua_text_push(lua_State *L, size_t room)
{
    if (room > SIZE_MAX / 4) luaL_error(L, "resulting string too large");
    fli_lua_text *text = lua_newuserdatauv(L, sizeof *text + room, 0);
    *text = (fli_lua_text){ .room = room };
    return text;
}

fli_lua_text *fli_lua_text_grow(lua_State *L, int index, size_t more)
{
    const fli_lua_text *old = lua_touserdata(L, index);
    if (more > SIZE_MAX / 4 - old->size) luaL_error(L, "resulting string too large");
    size_t room = old->size + more;
    luaL_checkstack(L, 1, NULL);
    fli_lua_text *text = fli_lua_text_push(L, room + room / 2 + 64);
    memcpy(text->at, old->at, old->size);
    text->size = old->size;
    lua_replace(L, index);
    return text;
}
