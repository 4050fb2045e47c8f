/* numbers.c - math.max, math.min, string.char and utf8.char: stock Lua's functions, with a limit for the length of
 * texts.
 *
 * These functions take any number of values, and stock Lua converts each text to a number in time proportional to its
 * length. So one call, which cannot be interrupted, could convert a text of megabytes a hundred thousand times.
 * Therefore a text that is used as a number is limited to FLI_LUA_DIGITS_MAX bytes.
 */
#include <lauxlib.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

static const fli_lua_names *stock_of(lua_State *L)
{
    return &fli_lua_self(L)->lua->names;
}

#define SHORT_NUMBERS(library, name)                                    \
    static int library##_##name(lua_State *L)                           \
    {                                                                   \
        int count = lua_gettop(L);                                      \
        for (int i = 1; i <= count; i++) fli_lua_check_digits(L, i, i); \
        return stock_of(L)->stock_##library##_##name(L);                \
    }
SHORT_NUMBERS(math, max)
SHORT_NUMBERS(math, min)
SHORT_NUMBERS(string, char)
SHORT_NUMBERS(utf8, char)

const fli_lua_member fli_lua_number_members[] = {
    { .library = "math", .name = "max", .fn = math_max },
    { .library = "math", .name = "min", .fn = math_min },
    { .library = "string", .name = "char", .fn = string_char },
    { .library = "utf8", .name = "char", .fn = utf8_char },
    { .name = NULL },
};
