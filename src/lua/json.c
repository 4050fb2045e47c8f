/* json.c - the library `json`: text for Lua values, and back.
 *
 *     json.encode(value) -> text             raises an error when something in it has no JSON
 *     json.decode(text) -> value | nil, why  why names the place: "byte 17: ..."
 *
 * A table with the keys 1, 2, ..., n and no others is an array; any other one, also the empty one, an object, whose keys
 * are strings or whole numbers. null is nil: a field that is not there, a hole in an array.
 */
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/codec.h"
#include "lua/libs.h"
#include "lua/proc.h"

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* Pushes the text for the value at `index`. A buffer may keep something on the stack, so each piece is finished before it
 * is added to the one around it. */
static void encode(lua_State *L, int index, int depth);

static void encode_string(luaL_Buffer *out, const char *text, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    luaL_addchar(out, '"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        const char   *plain = strchr("\"\\", c), *escapes = "b\bn\nf\fr\rt\t";
        char          letter = 0;
        for (const char *e = escapes; *e != '\0' && letter == 0; e += 2) letter = (unsigned char)e[1] == c ? e[0] : 0;
        if (c != 0 && plain != NULL) {
            luaL_addchar(out, '\\');
            luaL_addchar(out, (char)c);
        } else if (letter != 0) {
            luaL_addchar(out, '\\');
            luaL_addchar(out, letter);
        } else if (c < 0x20 || c == 0x7F) {
            luaL_addlstring(out, "\\u00", 4);
            luaL_addchar(out, hex[c >> 4]);
            luaL_addchar(out, hex[c & 15]);
        } else {
            luaL_addchar(out, (char)c);
        }
    }
    luaL_addchar(out, '"');
}

static void encode_number(lua_State *L, luaL_Buffer *out, int index)
{
    char text[48];
    if (lua_isinteger(L, index)) {
        snprintf(text, sizeof text, "%lld", lua_tointeger(L, index));
    } else {
        double number = lua_tonumber(L, index);
        if (!isfinite(number)) luaL_error(L, "json.encode: a number that is not finite has no JSON");
        snprintf(text, sizeof text, "%.17g", number);
        double shorter = 0;
        char   brief[48];
        snprintf(brief, sizeof brief, "%.15g", number);
        if (sscanf(brief, "%lf", &shorter) == 1 && shorter == number) memcpy(text, brief, sizeof text);
        if (strpbrk(text, ".eE") == NULL) strcat(text, ".0");
    }
    luaL_addstring(out, text);
}

/* The length, if the keys are 1 to n and no others; else -1. */
static lua_Integer array_length(lua_State *L, int index)
{
    lua_Integer length = (lua_Integer)lua_rawlen(L, index), count = 0;
    if (length == 0) return -1;
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
    luaL_addchar(&out, '{');
    for (lua_Integer i = 1; i <= count; i++) {
        if (i > 1) luaL_addchar(&out, ',');
        lua_rawgeti(L, keys, i);
        encode_field(L, index, lua_gettop(L), depth);
        lua_remove(L, -2);
        luaL_addvalue(&out);
    }
    luaL_addchar(&out, '}');
    luaL_pushresult(&out);
    lua_remove(L, keys);
}

static void encode_array(lua_State *L, int index, lua_Integer length, int depth)
{
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    luaL_addchar(&out, '[');
    for (lua_Integer i = 1; i <= length; i++) {
        if (i > 1) luaL_addchar(&out, ',');
        lua_rawgeti(L, index, i);
        encode(L, lua_gettop(L), depth);
        lua_remove(L, -2);
        luaL_addvalue(&out);
    }
    luaL_addchar(&out, ']');
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
        if (length > 0) encode_array(L, index, length, depth + 1);
        else encode_object(L, index, depth + 1);
        return;
    }
    default: luaL_error(L, "json.encode: a %s has no JSON", luaL_typename(L, index));
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

static bool decode(lua_State *L, reader *r, int depth);

static bool fail(reader *r, const char *why)
{
    if (r->why == NULL) r->why = why;
    return false;
}

static void skip_space(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0') r->at++;
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
        luaL_addchar(out, (char)code);
    } else if (code < 0x800) {
        luaL_addchar(out, (char)(0xC0 | code >> 6));
        luaL_addchar(out, (char)(0x80 | (code & 63)));
    } else if (code < 0x10000) {
        luaL_addchar(out, (char)(0xE0 | code >> 12));
        luaL_addchar(out, (char)(0x80 | (code >> 6 & 63)));
        luaL_addchar(out, (char)(0x80 | (code & 63)));
    } else {
        luaL_addchar(out, (char)(0xF0 | code >> 18));
        luaL_addchar(out, (char)(0x80 | (code >> 12 & 63)));
        luaL_addchar(out, (char)(0x80 | (code >> 6 & 63)));
        luaL_addchar(out, (char)(0x80 | (code & 63)));
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
        luaL_addchar(out, meant[letter - letters]);
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

static bool read_number(lua_State *L, reader *r)
{
    char        text[64];
    const char *from = r->at;
    bool        whole = true;
    if (r->at < r->end && *r->at == '-') r->at++;
    const char *digits = r->at;
    for (; r->at < r->end && strchr("0123456789+-.eE", *r->at) != NULL && *r->at != '\0'; r->at++) {
        if (strchr(".eE+-", *r->at) != NULL) whole = false;
    }
    size_t size = (size_t)(r->at - from);
    if (digits == r->end || *digits < '0' || *digits > '9' || size >= sizeof text) return fail(r, "a value is expected");
    if (*digits == '0' && digits + 1 < r->at && digits[1] >= '0' && digits[1] <= '9') return fail(r, "a number begins with 0");
    memcpy(text, from, size);
    text[size] = '\0';
    char last = text[size - 1];
    if (last < '0' || last > '9' || lua_stringtonumber(L, text) != size + 1) return fail(r, "a number is malformed");
    if (whole && !lua_isinteger(L, -1) && lua_type(L, -1) != LUA_TNUMBER) return fail(r, "a number is malformed");
    return true;
}

static bool read_array(lua_State *L, reader *r, int depth)
{
    lua_newtable(L);
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
    case 'n': lua_pushnil(L); return read_word(r, "null");
    default: return read_number(L, r);
    }
}

static int json_decode(lua_State *L)
{
    size_t      size;
    const char *text = luaL_checklstring(L, 1, &size);
    reader      r = { .begin = text, .at = text, .end = text + size };
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
    { .name = NULL },
};
