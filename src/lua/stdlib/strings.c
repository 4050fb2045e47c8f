/* strings.c - string.upper, lower, reverse, format, pack, packsize and unpack, and table.concat.
 *
 * These functions work like the functions of stock Lua with these names, but other processes run while a long text is
 * processed. Where no other process can run meanwhile, the length of the text is limited.
 * Design: docs/design/lua/budgets.md.
 */
#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/value/checks.h"
#include "lua/value/text.h"

enum {
    CHUNK = 16384,       /* bytes between two checks of the budget */
    FORMAT_MAX = 65536,  /* limit for the size of a format string in bytes */
    VALUES_MAX = 1000,   /* limit for the values of one string.format, because each may take some microseconds */
    QUOTED_MAX = 1 << 17 /* limit for the bytes of all texts for %q together: each byte may take 0.1 us */
};

/* ---- byte by byte ---------------------------------------------------------------------------------------------- */

static char lower(char c)
{
    return (char)tolower((unsigned char)c);
}

static char upper(char c)
{
    return (char)toupper((unsigned char)c);
}

/* Applies `map` to the string at stack index 1, in chunks; the result so far is at index 2. Returns the position to
 * continue at. If the process should yield, sets *pause; otherwise the position is the size of the string. */
static size_t map_chunks(lua_State *L, size_t at, char (*map)(char c), bool *pause)
{
    size_t        size;
    const char   *from = lua_tolstring(L, 1, &size);
    fli_lua_text *text = lua_touserdata(L, 2);
    for (*pause = false; at < size && !*pause;) {
        size_t end = size - at < CHUNK ? size : at + CHUNK;
        for (; at < end; at++) text->at[at] = map != NULL ? map(from[at]) : from[size - 1 - at];
        *pause = at < size && fli_lua_budget_due(L);
    }
    text->size = at;
    return at;
}

#define MAPPED(name, map)                                              \
    static int go_on_##name(lua_State *L, int status, lua_KContext at) \
    {                                                                  \
        bool   pause = true;                                           \
        size_t done = map_chunks(L, (size_t)at, map, &pause);          \
        (void)status;                                                  \
        if (pause) fli_lua_pause(L, (lua_KContext)done, go_on_##name); \
        fli_lua_text_result(L, 2);                                     \
        return 1;                                                      \
    }                                                                  \
    static int string_##name(lua_State *L)                             \
    {                                                                  \
        size_t size;                                                   \
        luaL_checklstring(L, 1, &size);                                \
        lua_settop(L, 1);                                              \
        fli_lua_text_push(L, size);                                    \
        return go_on_##name(L, LUA_OK, 0);                             \
    }
MAPPED(lower, lower)
MAPPED(upper, upper)
MAPPED(reverse, NULL)

/* ---- concat ---------------------------------------------------------------------------------------------------- */

/* Stack of table.concat: table, separator, first index, last index, text so far. */
static int go_on_concat(lua_State *L, int status, lua_KContext at)
{
    lua_Integer first = lua_tointeger(L, 3), last = lua_tointeger(L, 4);
    size_t      between, size;
    const char *separator = lua_tolstring(L, 2, &between);
    (void)status;
    for (lua_Integer i = (lua_Integer)at; i <= last; i++) {
        if (i != first) fli_lua_text_add(L, 5, separator, between);
        lua_geti(L, 1, i);
        if (!lua_isstring(L, -1)) {
            return luaL_error(L, "invalid value (at index %I) in table for 'concat'", (LUAI_UACINT)i);
        }
        const char *piece = lua_tolstring(L, -1, &size);
        fli_lua_text_add(L, 5, piece, size);
        lua_settop(L, 5);
        if (i == last) break; /* ends the loop before i + 1 can overflow */
        if ((i & 63) == 0 && fli_lua_budget_due(L)) fli_lua_pause(L, (lua_KContext)(i + 1), go_on_concat);
    }
    fli_lua_text_result(L, 5);
    return 1;
}

static int table_concat(lua_State *L)
{
    fli_lua_check_table(L, 1);
    size_t between;
    luaL_optlstring(L, 2, "", &between);
    lua_Integer first = luaL_optinteger(L, 3, 1),
                last = lua_isnoneornil(L, 4) ? luaL_len(L, 1) : luaL_checkinteger(L, 4);
    lua_settop(L, 2);
    if (lua_isnil(L, 2)) lua_pushliteral(L, ""), lua_replace(L, 2);
    lua_tostring(L, 2); /* a number is converted to its digits */
    lua_pushinteger(L, first);
    lua_pushinteger(L, last);
    fli_lua_text_push(L, 64);
    return go_on_concat(L, LUA_OK, (lua_KContext)first);
}

/* ---- functions with limits ------------------------------------------------------------------------------------- */

static const fli_lua_names *stock_of(lua_State *L)
{
    return &fli_lua_self(L)->lua->names;
}

static void check_format(lua_State *L)
{
    size_t size;
    luaL_checklstring(L, 1, &size);
    fli_lua_check_arg(L, size <= FORMAT_MAX, 1, "the format is longer than 65536 bytes");
}

static int go_on_format(lua_State *L, int status, lua_KContext ctx);

/* Prepares argument `arg` for %s. Stock Lua would convert one value after the other without a check of the budget. A
 * string or number is left to stock Lua: if the program has set __tostring for strings, that metamethod checks the
 * budget. */
static void prepare_text(lua_State *L, int arg)
{
    int type = lua_type(L, arg);
    if (type != LUA_TTABLE && type != LUA_TUSERDATA && type != LUA_TLIGHTUSERDATA) return;
    if (fli_lua_budget_due(L)) fli_lua_pause(L, 0, go_on_format); /* a pause keeps the values converted so far */
    luaL_tolstring(L, arg, NULL);
    lua_replace(L, arg);
}

static void limit_bytes(lua_State *L, int arg, size_t *sum, size_t most, const char *words)
{
    if (lua_type(L, arg) == LUA_TSTRING) *sum += lua_rawlen(L, arg);
    fli_lua_check_arg(L, *sum <= most, arg, words);
}

/* Prepares all arguments, and raises an error if texts are too long: a text that is converted to a number, all texts
 * for %q together, and all texts for %s with a width or a precision together, whose bytes stock Lua counts. */
static void check_values(lua_State *L)
{
    size_t      size, quoted = 0, cut = 0, most = fli_lua_self(L)->heap.max;
    const char *format = lua_tolstring(L, 1, &size), *end = format + size;
    for (int arg = 2; (format = memchr(format, '%', (size_t)(end - format))) != NULL; format++) {
        const char *mark = format;
        do format++;
        while (format < end &&
               (isdigit((unsigned char)*format) || (*format != '\0' && strchr("-+ #.", *format) != NULL)));
        if (format >= end) return; /* the format ends after a '%': stock Lua raises the error */
        if (*format == '%') continue;
        if (*format == 's') {
            prepare_text(L, arg);
            if (format > mark + 1)
                limit_bytes(L, arg, &cut, most, "the values are too large for the memory of the process");
        } else if (*format == 'q') {
            limit_bytes(L, arg, &quoted, QUOTED_MAX, "the texts for %q are longer than 131072 bytes");
        } else if (*format != 'p') {
            fli_lua_check_digits(L, arg, arg);
        }
        arg++;
    }
}

static int go_on_format(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    check_values(L);
    return stock_of(L)->stock_format(L);
}

static int string_format(lua_State *L)
{
    check_format(L);
    fli_lua_check_arg(L, lua_gettop(L) <= VALUES_MAX, VALUES_MAX, "too many values for one format: at most 999");
    return go_on_format(L, LUA_OK, 0);
}

static int string_pack(lua_State *L)
{
    check_format(L);
    /* Only the format says which values are converted to numbers, and the format is not parsed here. So the size of all
     * strings together is limited to the largest size of a result. */
    size_t bytes = 0, most = fli_lua_self(L)->heap.max / 2;
    for (int i = 2, count = lua_gettop(L); i <= count; i++) {
        if (lua_type(L, i) == LUA_TSTRING) bytes += lua_rawlen(L, i);
        fli_lua_check_arg(L, bytes <= most, i, "the values are too large for the memory of the process");
    }
    return stock_of(L)->stock_pack(L);
}

static int string_packsize(lua_State *L)
{
    check_format(L);
    return stock_of(L)->stock_packsize(L);
}

static int string_unpack(lua_State *L)
{
    check_format(L);
    return stock_of(L)->stock_unpack(L);
}

const fli_lua_member fli_lua_string_members[] = {
    { .library = "string", .name = "lower", .fn = string_lower },
    { .library = "string", .name = "upper", .fn = string_upper },
    { .library = "string", .name = "reverse", .fn = string_reverse },
    { .library = "string", .name = "format", .fn = string_format },
    { .library = "string", .name = "pack", .fn = string_pack },
    { .library = "string", .name = "packsize", .fn = string_packsize },
    { .library = "string", .name = "unpack", .fn = string_unpack },
    { .library = "table", .name = "concat", .fn = table_concat },
    { .name = NULL },
};
