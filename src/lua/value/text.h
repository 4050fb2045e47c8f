/* text.h - a text that a C function writes piece by piece. It is stored in the Lua state, so that it survives a yield,
 * unlike luaL_Buffer. */
#ifndef FLI_LUA_TEXT_H
#define FLI_LUA_TEXT_H

#include <lua.h>
#include <stddef.h>
#include <string.h>

/* The text: a userdata at a fixed index of the Lua stack. When the text must grow, a larger userdata replaces it there.
 * So a pointer to the text is not valid after bytes were added. */
typedef struct fli_lua_text {
    size_t size, room;
    char   at[];
} fli_lua_text;

/* Pushes an empty text with capacity for `room` bytes. */
fli_lua_text *fli_lua_text_push(lua_State *L, size_t room);
/* Slow path of fli_lua_text_room(): enlarges the text at `index` so that `more` bytes can be added. */
fli_lua_text *fli_lua_text_grow(lua_State *L, int index, size_t more);

/* Returns the text at `index`, enlarged if needed so that `more` bytes can be added. */
static inline fli_lua_text *fli_lua_text_room(lua_State *L, int index, size_t more)
{
    fli_lua_text *text = lua_touserdata(L, index);
    return text->room - text->size >= more ? text : fli_lua_text_grow(L, index, more);
}

static inline void fli_lua_text_add(lua_State *L, int index, const char *from, size_t size)
{
    fli_lua_text *text = fli_lua_text_room(L, index, size);
    if (size > 0) memcpy(text->at + text->size, from, size);
    text->size += size;
}

/* Pushes the text as a string. */
static inline void fli_lua_text_result(lua_State *L, int index)
{
    const fli_lua_text *text = lua_touserdata(L, index);
    lua_pushlstring(L, text->at, text->size);
}

#endif
