/* spans.c - see spans.h. */
#include "lua/value/spans.h"

#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lua/value/checks.h"

static const struct {
    const char *unit;
    double      ns;
} units[] = {
    { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "m", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 }
};

static uint64_t span_of(double ns)
{
    if (!(ns > 0)) return 0;
    return ns >= 9.2e18 ? FLI_LUA_NEVER : (uint64_t)llround(ns);
}

/* Reads one or more numbers, each with a unit: "1m30s". Returns false if the text is something else. This loop cannot
 * be interrupted, so the callers limit the size of the text to FLI_LUA_DIGITS_MAX: 15 us on an AMD EPYC. */
static bool read_span(const char *text, uint64_t *span)
{
    double total = 0;
    if (*text == '\0') return false;
    while (*text != '\0') {
        char  *end;
        double number = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
        size_t i = 0, size = 0;
        if (number < 0) return false;
        while (end[size] >= 'a' && end[size] <= 'z') size++;
        while (i < 7 && !(strlen(units[i].unit) == size && memcmp(units[i].unit, end, size) == 0)) i++;
        if (i == 7) return false;
        total += number * units[i].ns;
        text = end + size;
    }
    *span = span_of(total);
    return true;
}

bool fli_lua_to_span(lua_State *L, int index, uint64_t *span_ns)
{
    if (lua_type(L, index) == LUA_TNUMBER) {
        double seconds = lua_tonumber(L, index);
        *span_ns = span_of(seconds * 1e9);
        return seconds == seconds;
    }
    size_t      size;
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tolstring(L, index, &size) : NULL;
    return text != NULL && size <= FLI_LUA_DIGITS_MAX && strlen(text) == size && read_span(text, span_ns);
}

uint64_t fli_lua_check_span(lua_State *L, int index)
{
    uint64_t span = 0;
    if (!fli_lua_to_span(L, index, &span)) {
        if (lua_type(L, index) == LUA_TSTRING && lua_rawlen(L, index) > FLI_LUA_DIGITS_MAX)
            luaL_argerror(L, index, "the text is too long for a time: at most 1000 bytes");
        luaL_argerror(L, index, "a time must be a number of seconds, or a text such as \"1.5s\" or \"200ms\"");
    }
    return span;
}
