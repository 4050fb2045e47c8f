/* json.c - the library `json`: writes Lua values as JSON text, and reads them back.
 *
 *     json.encode(value) -> text             raises an error if a value in it has no JSON form
 *     json.decode(text) -> value | nil, why  why names the place: "byte 17: ..."
 *     json.decode(text, null)                the value for null, instead of json.null; nil: null fields are left out
 *
 * A table with the keys 1, 2, ..., n and no others is an array, and so is a list (null.h). Any other table, also an
 * empty one, is an object; its keys are strings or whole numbers. An array is read as a list. json.null is written as
 * null.
 * Page: docs/lua/reference.md.
 */
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/message/codec.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/fields.h"
#include "lua/value/null.h"
#include "lua/value/text.h"

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* Stack indexes while a value is written: the value, the encoder (STATE), the text written so far, and then for each
 * open table the table and its last key. All data of the call is on the Lua stack, so that a long call can be
 * suspended. */
/* FIRST_TABLE: the first open table; above each open table is its last key. */
enum { STATE = 2, TEXT = 3, FIRST_TABLE = 4, ROUNDS = 64 };

typedef struct open_table {
    lua_Integer at, length; /* `at`: number of values written so far; `length`: length of an array, -1 for an object */
    uint64_t    keys;       /* of an object: sum of the numbers (fields.h) of the keys written so far */
    bool        paused;     /* the call was suspended while the table was open, so another task may have changed it */
} open_table;

typedef struct encoder {
    int        depth;
    unsigned   rounds;
    open_table open[FLI_LUA_DEPTH_MAX + 2];
} encoder;

static void add(lua_State *L, const char *from, size_t size)
{
    fli_lua_text_add(L, TEXT, from, size);
}

static void encode_special(lua_State *L, unsigned char c)
{
    static const char from[] = "\"\\\b\n\f\r\t", into[] = "\"\\bnfrt", hex[] = "0123456789abcdef";
    const char       *found = c != 0 ? strchr(from, c) : NULL;
    const char        brief[] = { '\\', found != NULL ? into[found - from] : 0 };
    const char        full[] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
    if (found != NULL) add(L, brief, sizeof brief);
    else add(L, full, sizeof full);
}

static void encode_string(lua_State *L, const char *text, size_t size)
{
    size_t done = 0;
    add(L, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != 0x7F && c != '"' && c != '\\') continue;
        add(L, text + done, i - done);
        encode_special(L, c);
        done = i + 1;
    }
    add(L, text + done, size - done);
    add(L, "\"", 1);
}

static void encode_number(lua_State *L, int index)
{
    char text[48];
    if (lua_isinteger(L, index)) {
        snprintf(text, sizeof text, "%lld", lua_tointeger(L, index));
    } else {
        double number = lua_tonumber(L, index);
        if (!isfinite(number)) luaL_error(L, "json.encode: a number that is not finite (inf or nan) has no JSON form");
        snprintf(text, sizeof text, "%.15g", number);
        if (strtod(text, NULL) != number) snprintf(text, sizeof text, "%.17g", number);
        if (strpbrk(text, ".eE") == NULL) strcat(text, ".0");
    }
    add(L, text, strlen(text));
}

/* Returns the length of the array at `index`, or -1 if the table is not an array: it has keys other than 1 to n, or it
 * is empty and not marked as a list. */
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

static void encode_open(lua_State *L, encoder *e)
{
    lua_Integer length = array_length(L, lua_gettop(L));
    e->open[e->depth++] = (open_table){ .length = length };
    lua_pushnil(L); /* with nil as the key, lua_next begins with the first key */
    add(L, length >= 0 ? "[" : "{", 1);
}

/* Writes the value on top of the stack and pops it. A table is not popped: it is the innermost open table from then
 * on. */
static void encode_value(lua_State *L, encoder *e)
{
    size_t      size;
    const char *text;
    luaL_checkstack(L, 12, "value too deep");
    if (e->depth > FLI_LUA_DEPTH_MAX)
        luaL_error(L, "json.encode: tables nested too deep (at most %d levels), or a table contains itself",
                   FLI_LUA_DEPTH_MAX);
    switch (lua_type(L, -1)) {
    case LUA_TNIL: add(L, "null", 4); break;
    case LUA_TBOOLEAN: lua_toboolean(L, -1) ? add(L, "true", 4) : add(L, "false", 5); break;
    case LUA_TNUMBER: encode_number(L, lua_gettop(L)); break;
    case LUA_TSTRING:
        text = lua_tolstring(L, -1, &size);
        encode_string(L, text, size);
        break;
    case LUA_TTABLE: encode_open(L, e); return;
    default:
        if (!fli_lua_is_null(L, lua_gettop(L)))
            luaL_error(L, "json.encode: a %s has no JSON form; strings, numbers, booleans, tables and null have one",
                       luaL_typename(L, -1));
        add(L, "null", 4);
    }
    lua_pop(L, 1);
}

/* Writes the name of a field: the key below the value on top of the stack. */
static void encode_key(lua_State *L)
{
    size_t size;
    if (lua_type(L, -2) != LUA_TSTRING && !lua_isinteger(L, -2)) {
        luaL_error(L, "json.encode: a key must be a string or a whole number, not a %s",
                   lua_type(L, -2) == LUA_TNUMBER ? "float" : luaL_typename(L, -2));
    }
    lua_pushvalue(L, -2);
    const char *text = lua_tolstring(L, -1, &size); /* a number is converted to its digits */
    encode_string(L, text, size);
    lua_pop(L, 1);
    add(L, ":", 1);
}

/* Writes the separator and the name of the next value of the innermost table, and pushes the value. Returns false if
 * there is no next value. */
static bool encode_next(lua_State *L, open_table *open)
{
    int table = lua_gettop(L) - 1;
    if (open->length >= 0) {
        if (open->at == open->length) return false;
        if (open->at++ > 0) add(L, ",", 1);
        /* array_length() has found a value at each index, so a missing value means that the table has changed */
        if (lua_rawgeti(L, table, open->at) == LUA_TNIL) (void)fli_lua_refuse_change(L, "json.encode");
        return true;
    }
    if (lua_next(L, table) == 0) return lua_pushnil(L), false;
    if (open->at++ > 0) add(L, ",", 1);
    open->keys += fli_lua_key_number(L, table + 1);
    encode_key(L);
    return true;
}

static int go_on_encode(lua_State *L, int status, lua_KContext ctx);

static int run_encode(lua_State *L, encoder *e)
{
    while (e->depth > 0) {
        if (++e->rounds % ROUNDS == 0 && fli_lua_budget_due(L)) fli_lua_pause(L, 0, go_on_encode);
        open_table *open = &e->open[e->depth - 1];
        if (encode_next(L, open)) {
            encode_value(L, e);
        } else {
            if (open->paused && open->length < 0) {
                fli_lua_check_keys(L, lua_gettop(L) - 1, open->keys, "json.encode");
                e->rounds |= ROUNDS - 1; /* the budget is checked before the next value */
            }
            add(L, open->length >= 0 ? "]" : "}", 1);
            lua_pop(L, 2);
            e->depth--;
        }
    }
    fli_lua_text_result(L, TEXT);
    return 1;
}

static int go_on_encode(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    encoder *e = lua_touserdata(L, STATE);
    /* Another task may have changed the tables during the pause. */
    for (int i = 0; i < e->depth; i++) {
        int table = FIRST_TABLE + 2 * i;
        e->open[i].paused = true;
        if (e->open[i].length < 0) fli_lua_check_next(L, table, table + 1, "json.encode");
    }
    return run_encode(L, e);
}

static int json_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    encoder *e = lua_newuserdatauv(L, sizeof *e, 0);
    e->depth = 0;
    e->rounds = 0;
    fli_lua_text_push(L, 64);
    lua_pushvalue(L, 1);
    encode_value(L, e);
    return run_encode(L, e);
}

/* ---- decode -------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *begin, *at, *end;
    const char *why;
} reader;

/* Stack indexes of json.decode: the text, the value for null, the metatable of lists, the decoder; then the open
 * tables, each object with the key of the value being read. All data of the call is on the Lua stack, so that a long
 * call can be suspended. */
enum { NULL_AT = 2, LIST_AT = 3, DECODER_AT = 4 };

typedef struct decoder {
    size_t      at; /* position in the text when the call was suspended */
    int         depth;
    unsigned    rounds;
    lua_Integer count[FLI_LUA_DEPTH_MAX + 2]; /* per open table: number of elements of an array; -1: an object */
} decoder;

static bool fail(reader *r, const char *why)
{
    r->why = why;
    return false;
}

/* Skips the next character if it is in `set`. Returns true if it was skipped. */
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

static bool accept_char(reader *r, char c)
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
    if (r->end - r->at < 4) return fail(r, "\\u needs four hexadecimal digits");
    for (int i = 0; i < 4; i++) {
        char        c = *r->at++;
        const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c != '\0' ? strchr(digits, c) : NULL;
        if (at == NULL) return fail(r, "\\u needs four hexadecimal digits");
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
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail(r, "a \\u escape is half of a surrogate pair");
        r->at += 2;
        if (!read_hex(r, &low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return fail(r, "a \\u escape is half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return fail(r, "a \\u escape is half of a surrogate pair");
    }
    add_utf8(out, code);
    return true;
}

/* Reads a string; the opening quote has been read. */
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

/* Skips digits and returns their number. */
static size_t skip_digits(reader *r)
{
    size_t count = 0;
    while (skip_one(r, "0123456789")) count++;
    return count;
}

/* Pushes the number that is written in the `size` bytes at `from`. No zero byte follows them, so they are copied: few
 * bytes into `brief`, many bytes into a Lua string. */
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

/* Reads a number as JSON defines it, because Lua accepts more forms. The number of digits is not limited. */
static bool read_number(lua_State *L, reader *r)
{
    const char *from = r->at;
    (void)skip_one(r, "-");
    const char  *first = r->at;
    const size_t whole = skip_digits(r);
    if (whole == 0) return fail(r, "a value is expected");
    if (whole > 1 && *first == '0') return fail(r, "a number must not begin with 0");
    if (skip_one(r, ".") && skip_digits(r) == 0) return fail(r, "a number needs a digit after its point or exponent");
    if (skip_one(r, "eE")) {
        (void)skip_one(r, "+-");
        if (skip_digits(r) == 0) return fail(r, "a number needs a digit after its point or exponent");
    }
    return push_number(L, r, from, (size_t)(r->at - from));
}

static bool read_key(lua_State *L, reader *r)
{
    if (!accept_char(r, '"')) return fail(r, "a key in quotes is expected");
    if (!read_string(L, r)) return false;
    if (!accept_char(r, ':')) return fail(r, "':' is expected");
    return true;
}

/* Pushes a new table and opens it. Sets *whole if the table is empty and therefore complete. */
static bool open_read(lua_State *L, reader *r, decoder *d, bool array, bool *whole)
{
    lua_newtable(L);
    if (array) {
        lua_pushvalue(L, LIST_AT);
        lua_setmetatable(L, -2);
    }
    *whole = accept_char(r, array ? ']' : '}');
    if (*whole) return true;
    d->count[d->depth++] = array ? 0 : -1;
    return array || read_key(L, r);
}

/* Pushes a value. Sets *whole if the value is complete; otherwise a table was opened, and its first value comes
 * next. */
static bool read_value(lua_State *L, reader *r, decoder *d, bool *whole)
{
    *whole = true;
    if (d->depth > FLI_LUA_DEPTH_MAX || !lua_checkstack(L, 8)) return fail(r, "nested too deep: at most 100 levels");
    skip_space(r);
    if (r->at == r->end) return fail(r, "a value is expected");
    switch (*r->at) {
    case '{': r->at++; return open_read(L, r, d, false, whole);
    case '[': r->at++; return open_read(L, r, d, true, whole);
    case '"': r->at++; return read_string(L, r);
    case 't': lua_pushboolean(L, 1); return read_word(r, "true");
    case 'f': lua_pushboolean(L, 0); return read_word(r, "false");
    case 'n': lua_pushvalue(L, NULL_AT); return read_word(r, "null");
    default: return read_number(L, r);
    }
}

/* Puts the value on top of the stack into its table, and closes the tables that end after it. Afterwards either a value
 * comes next, or no table is open. */
static bool put_value(lua_State *L, reader *r, decoder *d)
{
    while (d->depth > 0) {
        lua_Integer *count = &d->count[d->depth - 1];
        bool         array = *count >= 0;
        if (array) lua_rawseti(L, -2, ++*count);
        else lua_rawset(L, -3);
        if (accept_char(r, ',')) return array || read_key(L, r);
        if (!accept_char(r, array ? ']' : '}'))
            return fail(r, array ? "',' or ']' is expected" : "',' or '}' is expected");
        d->depth--;
    }
    return true;
}

static int go_on_decode(lua_State *L, int status, lua_KContext ctx);

static int run_decode(lua_State *L, decoder *d)
{
    size_t      size;
    const char *text = lua_tolstring(L, 1, &size);
    reader      r = { .begin = text, .at = text + d->at, .end = text + size };
    bool        fine, whole;
    do {
        if (++d->rounds % ROUNDS == 0 && fli_lua_budget_due(L)) {
            d->at = (size_t)(r.at - text);
            fli_lua_pause(L, 0, go_on_decode);
        }
        fine = read_value(L, &r, d, &whole) && (!whole || put_value(L, &r, d));
    } while (fine && d->depth > 0);
    if (fine) skip_space(&r);
    if (fine && r.at != r.end) fine = fail(&r, "something follows the value");
    if (fine) return 1;
    lua_pushnil(L);
    lua_pushfstring(L, "byte %d: %s", (int)(r.at - r.begin) + 1, r.why);
    return 2;
}

static int go_on_decode(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    return run_decode(L, lua_touserdata(L, DECODER_AT));
}

static int json_decode(lua_State *L)
{
    luaL_checkstring(L, 1);
    if (lua_isnone(L, NULL_AT)) (void)fli_lua_push_null(L);
    lua_settop(L, NULL_AT);
    fli_lua_push_list_mark(L);
    decoder *d = lua_newuserdatauv(L, sizeof *d, 0);
    d->at = 0;
    d->depth = 0;
    d->rounds = 0;
    return run_decode(L, d);
}

const fli_lua_member fli_lua_json_members[] = {
    { .library = "json", .name = "encode", .fn = json_encode },
    { .library = "json", .name = "decode", .fn = json_decode },
    { .library = "json", .name = "list", .fn = fli_lua_list },
    { .library = "json", .name = "null", .make = fli_lua_push_null },
    { .name = NULL },
};
