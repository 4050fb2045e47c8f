/* json.c - the library `json`: text for Lua values, and back.
 *
 *     json.encode(value) -> text             raises an error when something in it has no JSON
 *     json.decode(text) -> value | nil, why  why names the place: "byte 17: ..."
 *     json.decode(text, null)                what null becomes instead of json.null; nil: it is left out
 *
 * A table with the keys 1, 2, ..., n and no others is an array, and so is a list (nothing.h); any other one, also the empty one, an
 * object, whose keys are strings or whole numbers. What was read from an array is a list. json.null is null.
 */
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/checks.h"
#include "lua/codec.h"
#include "lua/libs.h"
#include "lua/nothing.h"
#include "lua/proc.h"

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* Pushes the text for the value at `index`. A buffer may keep something on the stack, so each piece is finished before it
 * is added to the one around it. */
static void encode(lua_State *L, int index, int depth);

static void encode_string(luaL_Buffer *out, const char *text, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    fli_lua_add_char(out, '"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        const char   *plain = strchr("\"\\", c), *escapes = "b\bn\nf\fr\rt\t";
        char          letter = 0;
        for (const char *e = escapes; *e != '\0' && letter == 0; e += 2) letter = (unsigned char)e[1] == c ? e[0] : 0;
        if (c != 0 && plain != NULL) {
            fli_lua_add_char(out, '\\');
            fli_lua_add_char(out, (char)c);
        } else if (letter != 0) {
            fli_lua_add_char(out, '\\');
            fli_lua_add_char(out, letter);
        } else if (c < 0x20 || c == 0x7F) {
            luaL_addlstring(out, "\\u00", 4);
            fli_lua_add_char(out, hex[c >> 4]);
            fli_lua_add_char(out, hex[c & 15]);
        } else {
            fli_lua_add_char(out, (char)c);
        }
    }
    fli_lua_add_char(out, '"');
}

static void encode_number(lua_State *L, luaL_Buffer *out, int index)
{
    char text[48];
    if (lua_isinteger(L, index)) {
        snprintf(text, sizeof text, "%lld", lua_tointeger(L, index));
    } else {
        double number = lua_tonumber(L, index);
        if (!isfinite(number)) luaL_error(L, "json.encode: a number that is not finite has no JSON");
        snprintf(text, sizeof text, "%.15g", number);
        if (strtod(text, NULL) != number) snprintf(text, sizeof text, "%.17g", number);
        if (strpbrk(text, ".eE") == NULL) strcat(text, ".0");
    }
    luaL_addstring(out, text);
}

/* The length, if the keys are 1 to n and no others; else -1. An empty table is an array if it is a list. */
static lua_Integer array_length(lua_State *L, int index)
{
    lua_Integer length = (lua_Integer)lua_rawlen(L, index), count = 0;
    if (length == 0 && !fli_lua_is_list(L, index)) return -1;
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        lua_pop(L, 1);
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 || lua_tointeger(L, -1) > length) {
            lua_pop(L, 1);
            return -1;
        }
        count++;
    }
    return count == length ? length : -1;
}

/* Pushes a list of the keys. */
static lua_Integer collect_keys(lua_State *L, int index)
{
    lua_newtable(L);
    int         keys = lua_gettop(L);
    lua_Integer count = 0;
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING && !lua_isinteger(L, -1)) {
            luaL_error(L, "json.encode: a key must be a string or a whole number");
        }
        lua_pushvalue(L, -1);
        lua_rawseti(L, keys, ++count);
    }
    return count;
}

/* Pushes the text of one field. */
static void encode_field(lua_State *L, int index, int key, int depth)
{
    lua_pushvalue(L, key);
    lua_tostring(L, -1); /* a number becomes its digits */
    encode(L, lua_gettop(L), depth);
    lua_pushliteral(L, ":");
    lua_pushvalue(L, key);
    lua_rawget(L, index);
    encode(L, lua_gettop(L), depth);
    lua_remove(L, -2);
    lua_concat(L, 3);
    lua_remove(L, -2);
}

static void encode_object(lua_State *L, int index, int depth)
{
    lua_Integer count = collect_keys(L, index);
    int         keys = lua_gettop(L);
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    fli_lua_add_char(&out, '{');
    for (lua_Integer i = 1; i <= count; i++) {
        if (i > 1) fli_lua_add_char(&out, ',');
        lua_rawgeti(L, keys, i);
        encode_field(L, index, lua_gettop(L), depth);
        lua_remove(L, -2);
        luaL_addvalue(&out);
    }
    fli_lua_add_char(&out, '}');
    luaL_pushresult(&out);
    lua_remove(L, keys);
}

static void encode_array(lua_State *L, int index, lua_Integer length, int depth)
{
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    fli_lua_add_char(&out, '[');
    for (lua_Integer i = 1; i <= length; i++) {
        if (i > 1) fli_lua_add_char(&out, ',');
        lua_rawgeti(L, index, i);
        encode(L, lua_gettop(L), depth);
        lua_remove(L, -2);
        luaL_addvalue(&out);
    }
    fli_lua_add_char(&out, ']');
    luaL_pushresult(&out);
}

static void encode(lua_State *L, int index, int depth)
{
    luaL_Buffer out;
    luaL_checkstack(L, 12, "value too deep");
    if (depth > FLI_LUA_DEPTH_MAX) luaL_error(L, "json.encode: nested too deep, or a table that contains itself");
    switch (lua_type(L, index)) {
    case LUA_TNIL: lua_pushliteral(L, "null"); return;
    case LUA_TBOOLEAN: lua_pushstring(L, lua_toboolean(L, index) ? "true" : "false"); return;
    case LUA_TNUMBER:
        luaL_buffinit(L, &out);
        encode_number(L, &out, index);
        luaL_pushresult(&out);
        return;
    case LUA_TSTRING: {
        size_t      size;
        const char *text = lua_tolstring(L, index, &size);
        luaL_buffinit(L, &out);
        encode_string(&out, text, size);
        luaL_pushresult(&out);
        return;
    }
    case LUA_TTABLE: {
        lua_Integer length = array_length(L, index);
        if (length >= 0) encode_array(L, index, length, depth + 1);
        else encode_object(L, index, depth + 1);
        return;
    }
    default:
        if (!fli_lua_is_null(L, index)) luaL_error(L, "json.encode: a %s has no JSON", luaL_typename(L, index));
        lua_pushliteral(L, "null");
    }
}

static int json_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    encode(L, 1, 0);
    return 1;
}

/* ---- decode -------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *begin, *at, *end;
    const char *why;
} reader;

/* On the stack of json.decode: what null becomes, and the metatable of lists. */
enum { NULL_AT = 2, LIST_AT = 3 };

static bool decode(lua_State *L, reader *r, int depth);

static bool fail(reader *r, const char *why)
{
    r->why = why;
    return false;
}

/* Whether one of `set` is next; then it is taken. */
static bool skip_one(reader *r, const char *set)
{
    if (r->at == r->end || *r->at == '\0' || strchr(set, *r->at) == NULL) return false;
    r->at++;
    return true;
}

static void skip_space(reader *r)
{
    while (skip_one(r, " \t\r\n")) continue;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool read_word(reader *r, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(r->end - r->at) < size || memcmp(r->at, word, size) != 0) return fail(r, "a value is expected");
    r->at += size;
    return true;
}

static bool read_hex(reader *r, unsigned *code)
{
    *code = 0;
    if (r->end - r->at < 4) return fail(r, "\\u wants four digits");
    for (int i = 0; i < 4; i++) {
        char        c = *r->at++;
        const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c != '\0' ? strchr(digits, c) : NULL;
        if (at == NULL) return fail(r, "\\u wants four digits");
        *code = *code * 16 + (unsigned)(at - digits) % 16;
    }
    return true;
}

static void add_utf8(luaL_Buffer *out, unsigned code)
{
    if (code < 0x80) {
        fli_lua_add_char(out, (char)code);
    } else if (code < 0x800) {
        fli_lua_add_char(out, (char)(0xC0 | code >> 6));
        fli_lua_add_char(out, (char)(0x80 | (code & 63)));
    } else if (code < 0x10000) {
        fli_lua_add_char(out, (char)(0xE0 | code >> 12));
        fli_lua_add_char(out, (char)(0x80 | (code >> 6 & 63)));
        fli_lua_add_char(out, (char)(0x80 | (code & 63)));
    } else {
        fli_lua_add_char(out, (char)(0xF0 | code >> 18));
        fli_lua_add_char(out, (char)(0x80 | (code >> 12 & 63)));
        fli_lua_add_char(out, (char)(0x80 | (code >> 6 & 63)));
        fli_lua_add_char(out, (char)(0x80 | (code & 63)));
    }
}

static bool read_escape(reader *r, luaL_Buffer *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end) return fail(r, "the string has no end");
    char        c = *r->at++;
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    unsigned    code, low;
    if (letter != NULL) {
        fli_lua_add_char(out, meant[letter - letters]);
        return true;
    }
    if (c != 'u') return fail(r, "an escape that JSON does not have");
    if (!read_hex(r, &code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') return fail(r, "half a character");
        r->at += 2;
        if (!read_hex(r, &low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return fail(r, "half a character");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return fail(r, "half a character");
    }
    add_utf8(out, code);
    return true;
}

/* Behind the first quote. */
static bool read_string(lua_State *L, reader *r)
{
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    bool fine = true;
    while (fine) {
        const char *from = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20) r->at++;
        luaL_addlstring(&out, from, (size_t)(r->at - from));
        if (r->at == r->end) fine = fail(r, "the string has no end");
        else if (*r->at == '"') break;
        else if (*r->at != '\\') fine = fail(r, "a control character in a string");
        else r->at++, fine = read_escape(r, &out);
    }
    luaL_pushresult(&out);
    if (fine) r->at++;
    return fine;
}

/* How many digits are next; they are taken. */
static size_t skip_digits(reader *r)
{
    size_t count = 0;
    while (skip_one(r, "0123456789")) count++;
    return count;
}

/* The text is no string that ends with a zero yet; a long one becomes a string of Lua's for a while. */
static bool push_number(lua_State *L, reader *r, const char *from, size_t size)
{
    char        brief[64];
    const bool  is_long = size >= sizeof brief;
    const char *text = is_long ? lua_pushlstring(L, from, size) : memcpy(brief, from, size);
    if (!is_long) brief[size] = '\0';
    if (lua_stringtonumber(L, text) == 0 || !isfinite(lua_tonumber(L, -1))) return fail(r, "a number is too large");
    if (is_long) lua_remove(L, -2);
    return true;
}

/* What JSON calls a number; Lua takes these and more. Its digits may be any number. */
static bool read_number(lua_State *L, reader *r)
{
    const char *from = r->at;
    (void)skip_one(r, "-");
    const char  *first = r->at;
    const size_t whole = skip_digits(r);
    if (whole == 0) return fail(r, "a value is expected");
    if (whole > 1 && *first == '0') return fail(r, "a number begins with 0");
    if (skip_one(r, ".") && skip_digits(r) == 0) return fail(r, "a number is malformed");
    if (skip_one(r, "eE")) {
        (void)skip_one(r, "+-");
        if (skip_digits(r) == 0) return fail(r, "a number is malformed");
    }
    return push_number(L, r, from, (size_t)(r->at - from));
}

static bool read_array(lua_State *L, reader *r, int depth)
{
    lua_newtable(L);
    lua_pushvalue(L, LIST_AT);
    lua_setmetatable(L, -2);
    if (take(r, ']')) return true;
    for (lua_Integer i = 1;; i++) {
        if (!decode(L, r, depth)) return false;
        lua_rawseti(L, -2, i);
        if (take(r, ']')) return true;
        if (!take(r, ',')) return fail(r, "',' or ']' is expected");
    }
}

static bool read_object(lua_State *L, reader *r, int depth)
{
    lua_newtable(L);
    if (take(r, '}')) return true;
    for (;;) {
        if (!take(r, '"')) return fail(r, "a key in quotes is expected");
        if (!read_string(L, r)) return false;
        if (!take(r, ':')) return fail(r, "':' is expected");
        if (!decode(L, r, depth)) return false;
        lua_rawset(L, -3);
        if (take(r, '}')) return true;
        if (!take(r, ',')) return fail(r, "',' or '}' is expected");
    }
}

/* Pushes one value; or leaves anything on the stack, and says why. */
static bool decode(lua_State *L, reader *r, int depth)
{
    if (depth > FLI_LUA_DEPTH_MAX || !lua_checkstack(L, 8)) return fail(r, "nested too deep");
    skip_space(r);
    if (r->at == r->end) return fail(r, "a value is expected");
    switch (*r->at) {
    case '{': r->at++; return read_object(L, r, depth + 1);
    case '[': r->at++; return read_array(L, r, depth + 1);
    case '"': r->at++; return read_string(L, r);
    case 't': lua_pushboolean(L, 1); return read_word(r, "true");
    case 'f': lua_pushboolean(L, 0); return read_word(r, "false");
    case 'n': lua_pushvalue(L, NULL_AT); return read_word(r, "null");
    default: return read_number(L, r);
    }
}

static int json_decode(lua_State *L)
{
    size_t      size;
    const char *text = luaL_checklstring(L, 1, &size);
    reader      r = { .begin = text, .at = text, .end = text + size };
    if (lua_isnone(L, NULL_AT)) (void)fli_lua_push_null(L);
    lua_settop(L, NULL_AT);
    fli_lua_push_list_mark(L);
    bool        fine = decode(L, &r, 0);
    if (fine) skip_space(&r);
    if (fine && r.at != r.end) fine = fail(&r, "something follows the value");
    if (fine) return 1;
    lua_pushnil(L);
    lua_pushfstring(L, "byte %d: %s", (int)(r.at - r.begin) + 1, r.why);
    return 2;
}

const fli_lua_member fli_lua_json_members[] = {
    { .library = "json", .name = "encode", .fn = json_encode },
    { .library = "json", .name = "decode", .fn = json_decode },
    { .library = "json", .name = "list", .fn = fli_lua_list },
    { .library = "json", .name = "null", .make = fli_lua_push_null },
    { .name = NULL },
};
