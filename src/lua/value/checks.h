/* checks.h - checks of arguments: texts for C, and luaL_argcheck, luaL_argexpected and luaL_addchar as functions. The
 * macros of Lua use the value of a call that never returns, or that is never NULL, which makes two branches at each use
 * that no test can take. */
#ifndef FLI_LUA_CHECKS_H
#define FLI_LUA_CHECKS_H

#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

/* Raises "bad argument #arg to 'function' (message)" if `fine` is false. */
static inline void fli_lua_check_arg(lua_State *L, bool fine, int arg, const char *message)
{
    if (!fine) luaL_argerror(L, arg, message);
}

/* Raises an error with the expected and the actual type if `fine` is false. */
static inline void fli_lua_expect(lua_State *L, bool fine, int arg, const char *expected)
{
    if (!fine) luaL_typeerror(L, arg, expected);
}

/* Limit for the bytes of a text used as a number, because stock Lua converts it in time proportional to its length. */
enum { FLI_LUA_DIGITS_MAX = 1000 };
static inline void fli_lua_check_digits(lua_State *L, int index, int arg)
{
    if (lua_type(L, index) == LUA_TSTRING && lua_rawlen(L, index) > FLI_LUA_DIGITS_MAX)
        luaL_argerror(L, arg, "the text is too long for a number: at most 1000 bytes");
}

/* Returns the string at `index` for C, where a text ends at the first zero byte. Raises an error if the string contains
 * a zero byte. */
static inline const char *fli_lua_whole_text(lua_State *L, int index)
{
    size_t      size;
    const char *text = lua_tolstring(L, index, &size);
    if (strlen(text) != size) luaL_error(L, "a text with a zero byte in it cannot be a name, a path or a setting");
    return text;
}

/* fli_lua_check_text() works like luaL_checkstring, fli_lua_opt_text() like luaL_optstring. Both raise an error if the
 * text contains a zero byte. */
static inline const char *fli_lua_check_text(lua_State *L, int arg)
{
    size_t      size;
    const char *text = luaL_checklstring(L, arg, &size);
    if (strlen(text) != size) luaL_argerror(L, arg, "the text has a zero byte in it");
    return text;
}

static inline const char *fli_lua_opt_text(lua_State *L, int arg, const char *otherwise)
{
    return lua_isnoneornil(L, arg) ? otherwise : fli_lua_check_text(L, arg);
}

/* Works like luaL_checkoption, but compares the whole text: luaL_checkoption accepts "r\0+" as "r". Returns the index
 * of the text in `words`, which ends with NULL. If the argument is missing, looks for the text `otherwise`. */
static inline int fli_lua_check_word(lua_State *L, int arg, const char *otherwise, const char *const words[])
{
    (void)fli_lua_opt_text(L, arg, otherwise); /* refuses a zero byte */
    return luaL_checkoption(L, arg, otherwise, words);
}

static inline void fli_lua_add_char(luaL_Buffer *out, char c)
{
    if (out->n == out->size) (void)luaL_prepbuffsize(out, 1);
    out->b[out->n++] = c;
}

#endif
