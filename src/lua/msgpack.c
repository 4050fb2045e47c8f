/* msgpack.c - the library `msgpack`: MessagePack bytes for Lua values, and back.
 *
 *     msgpack.encode(value) -> bytes                 raises an error when something in it has no MessagePack: which, and where
 *     msgpack.decode(bytes) -> value | nil, why      why names the place: "byte 17, at .users[2]: ..."
 *     msgpack.decode(bytes, from) -> value, next     one value of several; `next` is where the following one begins
 *     msgpack.decode(bytes, from, null)              what nil becomes instead of msgpack.null; nil: it is left out
 *
 * A table with the keys 1, 2, ..., n and no others is an array, and so is a list (nothing.h); any other one, also the empty one, a map. Strings are str,
 * blobs are bin; both are read as strings. Integers beyond 63 bits are read as floats. Extension types are not read.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "lua/blob.h"
#include "lua/checks.h"
#include "lua/codec.h"
#include "lua/libs.h"
#include "lua/nothing.h"
#include "lua/path.h"

/* The first byte of each form; below and between them are small integers, lengths of short strings and containers. */
enum {
    FIXMAP = 0x80,
    FIXARRAY = 0x90,
    FIXSTR = 0xA0,
    NIL = 0xC0,
    NEVER_USED,
    NO,
    YES,
    BIN8,
    BIN16,
    BIN32,
    EXT8,
    EXT16,
    EXT32,
    FLOAT32,
    FLOAT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    INT8,
    INT16,
    INT32,
    INT64,
    FIXEXT1,
    FIXEXT16 = 0xD8,
    STR8,
    STR16,
    STR32,
    ARRAY16,
    ARRAY32,
    MAP16,
    MAP32,
    NEGATIVE
};

/* ---- encode -------------------------------------------------------------------------------------------------- */

/* What has been written, in a userdata at 2 on the stack: errors may be raised at any time. */
typedef struct writer {
    lua_State *L;
    uint8_t   *at;
    size_t     size, room;
} writer;

enum { BUFFER = 2, ROOM_FIRST = 256 };

static void make_room(writer *w, size_t more)
{
    if (w->room - w->size >= more) return;
    size_t room = w->room * 2;
    if (more > SIZE_MAX / 4 || w->size > SIZE_MAX / 4) luaL_error(w->L, "msgpack.encode: too large");
    while (room < w->size + more) room *= 2;
    uint8_t *at = lua_newuserdatauv(w->L, room, 0);
    memcpy(at, w->at, w->size);
    lua_replace(w->L, BUFFER);
    w->at = at;
    w->room = room;
}

/* One byte, and the low `count` bytes of a number, highest first. */
static void put(writer *w, unsigned first, uint64_t number, unsigned count)
{
    make_room(w, 9);
    w->at[w->size++] = (uint8_t)first;
    while (count-- > 0) w->at[w->size++] = (uint8_t)(number >> 8 * count);
}

static void put_bytes(writer *w, const void *bytes, size_t size)
{
    make_room(w, size);
    memcpy(w->at + w->size, bytes, size);
    w->size += size;
}

static void put_int(writer *w, lua_Integer value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= 0) {
        if (value < 0x80) put(w, (unsigned)value, 0, 0);
        else if (value <= UINT8_MAX) put(w, UINT8, bits, 1);
        else if (value <= UINT16_MAX) put(w, UINT16, bits, 2);
        else if (value <= UINT32_MAX) put(w, UINT32, bits, 4);
        else put(w, UINT64, bits, 8);
    } else {
        if (value >= -32) put(w, (unsigned)bits & 0xFF, 0, 0);
        else if (value >= INT8_MIN) put(w, INT8, bits, 1);
        else if (value >= INT16_MIN) put(w, INT16, bits, 2);
        else if (value >= INT32_MIN) put(w, INT32, bits, 4);
        else put(w, INT64, bits, 8);
    }
}

static void put_number(writer *w, int index)
{
    if (lua_isinteger(w->L, index)) {
        put_int(w, lua_tointeger(w->L, index));
        return;
    }
    double   number = lua_tonumber(w->L, index);
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    put(w, FLOAT64, bits, 8);
}

static void refuse(writer *w, const fli_lua_frame *at, const char *what)
{
    char path[160];
    fli_lua_path(w->L, "value", at, path, sizeof path);
    luaL_error(w->L, "msgpack.encode: %s: %s", path, what);
}

/* A length of up to 32 bits: `fix` with it in its low bits while it is below `fix_max`, else behind one of three forms. */
static void put_length(writer *w, size_t length, unsigned fix, size_t fix_max, unsigned of8, unsigned of16,
                       const fli_lua_frame *at)
{
    if (length > UINT32_MAX) refuse(w, at, "too long for MessagePack");
    if (length < fix_max) put(w, fix + (unsigned)length, 0, 0);
    else if (of8 != 0 && length <= UINT8_MAX) put(w, of8, length, 1);
    else if (length <= UINT16_MAX) put(w, of16, length, 2);
    else put(w, of16 + 1, length, 4);
}

/* How many fields; *is_array: their keys are 1 to that. */
static size_t count_fields(lua_State *L, int index, bool *is_array)
{
    size_t count = 0, length = lua_rawlen(L, index);
    bool   in_range = true;
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
        count++;
        lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        if (key < 1 || (size_t)key > length) in_range = false;
    }
    *is_array = in_range && count == length && (count > 0 || fli_lua_is_list(L, index));
    return count;
}

static void encode(writer *w, int index, const fli_lua_frame *at, int depth);

static void encode_table(writer *w, int index, const fli_lua_frame *up, int depth)
{
    lua_State *L = w->L;
    bool       is_array;
    fli_lua_frame here = { .up = up, .table = lua_topointer(L, index) };
    for (const fli_lua_frame *at = up; at != NULL; at = at->up) {
        if (at->table == here.table) refuse(w, up, "the table contains itself");
    }
    if (depth > FLI_LUA_DEPTH_MAX) refuse(w, up, "nested too deep");
    luaL_checkstack(L, 8, "value too deep");
    size_t count = count_fields(L, index, &is_array);
    if (is_array) {
        put_length(w, count, FIXARRAY, 16, 0, ARRAY16, up);
        for (size_t i = 1; i <= count; i++) {
            here.number = (lua_Integer)i;
            lua_rawgeti(L, index, here.number);
            encode(w, lua_gettop(L), &here, depth);
            lua_pop(L, 1);
        }
        return;
    }
    put_length(w, count, FIXMAP, 16, 0, MAP16, up);
    lua_pushnil(L);
    here.key = lua_gettop(L);
    while (lua_next(L, index) != 0) {
        if (lua_istable(L, here.key)) refuse(w, &here, "a table cannot be a key");
        encode(w, here.key, &here, depth);
        encode(w, here.key + 1, &here, depth);
        lua_pop(L, 1);
    }
}

static void encode(writer *w, int index, const fli_lua_frame *at, int depth)
{
    lua_State        *L = w->L;
    const filch_data *blob;
    const char       *bytes;
    size_t            size;
    char              text[64];
    switch (lua_type(L, index)) {
    case LUA_TNIL: put(w, NIL, 0, 0); return;
    case LUA_TBOOLEAN: put(w, lua_toboolean(L, index) ? YES : NO, 0, 0); return;
    case LUA_TNUMBER: put_number(w, index); return;
    case LUA_TSTRING:
        bytes = lua_tolstring(L, index, &size);
        put_length(w, size, FIXSTR, 32, STR8, STR16, at);
        put_bytes(w, bytes, size);
        return;
    case LUA_TTABLE: encode_table(w, index, at, depth + 1); return;
    default: break;
    }
    if (fli_lua_is_null(L, index)) {
        put(w, NIL, 0, 0);
        return;
    }
    blob = fli_lua_to_blob(L, index);
    if (blob != NULL) {
        bytes = fli_lua_blob_bytes(blob, &size);
        put_length(w, size, 0, 0, BIN8, BIN16, at);
        put_bytes(w, bytes, size);
        return;
    }
    snprintf(text, sizeof text, "a %s has no MessagePack", luaL_typename(L, index));
    refuse(w, at, text);
}

static int msgpack_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    writer w = { .L = L, .at = lua_newuserdatauv(L, ROOM_FIRST, 0), .room = ROOM_FIRST };
    encode(&w, 1, NULL, 0);
    lua_pushlstring(L, (const char *)w.at, w.size);
    return 1;
}

/* ---- decode -------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *begin, *at, *end;
    char           why[256]; /* what is wrong, with the place */
} reader;

/* On the stack of msgpack.decode: what nil becomes, and the metatable of lists. */
enum { NULL_AT = 2, LIST_AT = 3 };

static bool decode(lua_State *L, reader *r, const fli_lua_frame *at, int depth);

/* Always false. Only the first one counts. */
static bool fail(lua_State *L, reader *r, const fli_lua_frame *at, const char *what)
{
    char path[160];
    fli_lua_path(L, "", at, path, sizeof path);
    snprintf(r->why, sizeof r->why, "byte %zu%s%s: %s", (size_t)(r->at - r->begin) + 1, path[0] != '\0' ? ", at " : "",
             path, what);
    return false;
}

static bool read_number(lua_State *L, reader *r, const fli_lua_frame *at, unsigned count, uint64_t *number)
{
    if ((size_t)(r->end - r->at) < count) return fail(L, r, at, "the bytes end inside a value");
    *number = 0;
    while (count-- > 0) *number = *number << 8 | *r->at++;
    return true;
}

static bool read_text(lua_State *L, reader *r, const fli_lua_frame *at, uint64_t size)
{
    if ((uint64_t)(r->end - r->at) < size) return fail(L, r, at, "the bytes end inside a value");
    lua_pushlstring(L, (const char *)r->at, (size_t)size);
    r->at += size;
    return true;
}

/* Each element takes a byte at least: a count that lies is found before memory is asked for. */
static bool can_hold(lua_State *L, reader *r, const fli_lua_frame *at, uint64_t count, int depth)
{
    if (depth > FLI_LUA_DEPTH_MAX || !lua_checkstack(L, 8)) return fail(L, r, at, "nested too deep");
    if (count > (uint64_t)(r->end - r->at) || count > INT32_MAX) return fail(L, r, at, "the bytes end inside a value");
    return true;
}

static bool read_array(lua_State *L, reader *r, const fli_lua_frame *up, uint64_t count, int depth)
{
    fli_lua_frame here = { .up = up };
    if (!can_hold(L, r, up, count, depth)) return false;
    lua_createtable(L, (int)count, 0);
    lua_pushvalue(L, LIST_AT);
    lua_setmetatable(L, -2);
    for (uint64_t i = 1; i <= count; i++) {
        here.number = (lua_Integer)i;
        if (!decode(L, r, &here, depth)) return false;
        lua_rawseti(L, -2, here.number);
    }
    return true;
}

static bool is_key(lua_State *L, int index)
{
    int type = lua_type(L, index);
    if (type == LUA_TNUMBER) return lua_isinteger(L, index) || lua_tonumber(L, index) == lua_tonumber(L, index);
    return type == LUA_TSTRING || type == LUA_TBOOLEAN;
}

static bool read_map(lua_State *L, reader *r, const fli_lua_frame *up, uint64_t count, int depth)
{
    if (!can_hold(L, r, up, count * 2, depth)) return false;
    lua_createtable(L, 0, (int)count);
    fli_lua_frame here = { .up = up, .key = lua_gettop(L) + 1 };
    for (; count > 0; count--) {
        if (!decode(L, r, up, depth)) return false;
        if (!is_key(L, here.key)) return fail(L, r, up, "a key that Lua cannot have");
        if (!decode(L, r, &here, depth)) return false;
        lua_rawset(L, -3);
    }
    return true;
}

static void push_float(lua_State *L, uint64_t bits, bool wide)
{
    if (wide) {
        double number;
        memcpy(&number, &bits, sizeof number);
        lua_pushnumber(L, number);
    } else {
        uint32_t low = (uint32_t)bits;
        float    number;
        memcpy(&number, &low, sizeof number);
        lua_pushnumber(L, (lua_Number)number);
    }
}

/* `tag` is UINT8 to INT64: the low two bits say how many bytes, 1, 2, 4 or 8. */
static bool read_int(lua_State *L, reader *r, const fli_lua_frame *at, unsigned tag)
{
    bool     is_signed = tag >= INT8;
    unsigned count = 1u << (tag - (is_signed ? INT8 : UINT8)), spare = 64 - 8 * count;
    uint64_t bits;
    if (!read_number(L, r, at, count, &bits)) return false;
    if (is_signed) lua_pushinteger(L, (int64_t)(bits << spare) >> spare);
    else if (bits > INT64_MAX) lua_pushnumber(L, (lua_Number)bits);
    else lua_pushinteger(L, (lua_Integer)bits);
    return true;
}

/* Those with a length of their own behind the tag. */
static bool read_long(lua_State *L, reader *r, const fli_lua_frame *at, unsigned tag, int depth)
{
    uint64_t size;
    switch (tag) {
    case BIN8:
    case BIN16:
    case BIN32: return read_number(L, r, at, 1u << (tag - BIN8), &size) && read_text(L, r, at, size);
    case STR8:
    case STR16:
    case STR32: return read_number(L, r, at, 1u << (tag - STR8), &size) && read_text(L, r, at, size);
    case ARRAY16:
    case ARRAY32: return read_number(L, r, at, 2u << (tag - ARRAY16), &size) && read_array(L, r, at, size, depth + 1);
    case MAP16:
    case MAP32: return read_number(L, r, at, 2u << (tag - MAP16), &size) && read_map(L, r, at, size, depth + 1);
    default: break;
    }
    r->at--;
    return fail(L, r, at, tag == NEVER_USED ? "a byte that MessagePack does not use" : "an extension type, which Lua has nothing for");
}

/* Pushes one value; or leaves anything on the stack, and says why. */
static bool decode(lua_State *L, reader *r, const fli_lua_frame *at, int depth)
{
    uint64_t bits;
    if (r->at == r->end) return fail(L, r, at, depth == 0 ? "a value is expected" : "the bytes end inside a value");
    unsigned tag = *r->at++;
    if (tag < FIXMAP) return lua_pushinteger(L, tag), true;
    if (tag < FIXARRAY) return read_map(L, r, at, tag - FIXMAP, depth + 1);
    if (tag < FIXSTR) return read_array(L, r, at, tag - FIXARRAY, depth + 1);
    if (tag < NIL) return read_text(L, r, at, tag - FIXSTR);
    if (tag >= NEGATIVE) return lua_pushinteger(L, (int8_t)tag), true;
    switch (tag) {
    case NIL: lua_pushvalue(L, NULL_AT); return true;
    case NO:
    case YES: lua_pushboolean(L, tag == YES); return true;
    case FLOAT32:
    case FLOAT64:
        if (!read_number(L, r, at, tag == FLOAT32 ? 4 : 8, &bits)) return false;
        push_float(L, bits, tag == FLOAT64);
        return true;
    case UINT8:
    case UINT16:
    case UINT32:
    case UINT64:
    case INT8:
    case INT16:
    case INT32:
    case INT64: return read_int(L, r, at, tag);
    default: return read_long(L, r, at, tag, depth);
    }
}

static int msgpack_decode(lua_State *L)
{
    size_t            size;
    const filch_data *blob = fli_lua_to_blob(L, 1);
    const char       *bytes = blob != NULL ? fli_lua_blob_bytes(blob, &size) : luaL_checklstring(L, 1, &size);
    bool              one_of_several = !lua_isnoneornil(L, 2);
    lua_Integer       from = luaL_optinteger(L, 2, 1);
    fli_lua_check_arg(L, from >= 1 && (lua_Unsigned)from <= size + 1, 2, "a place in the bytes, from 1");
    if (lua_isnone(L, 3)) lua_settop(L, 2), (void)fli_lua_push_null(L);
    lua_settop(L, 3);
    lua_remove(L, 2);
    fli_lua_push_list_mark(L);
    reader r = { .begin = (const uint8_t *)bytes, .at = (const uint8_t *)bytes + from - 1, .end = (const uint8_t *)bytes + size };
    bool   fine = decode(L, &r, NULL, 0);
    if (fine && !one_of_several && r.at != r.end) fine = fail(L, &r, NULL, "something follows the value");
    if (!fine) {
        lua_pushnil(L);
        lua_pushstring(L, r.why);
        return 2;
    }
    if (!one_of_several) return 1;
    lua_pushinteger(L, (lua_Integer)(r.at - r.begin) + 1);
    return 2;
}

const fli_lua_member fli_lua_msgpack_members[] = {
    { .library = "msgpack", .name = "encode", .fn = msgpack_encode },
    { .library = "msgpack", .name = "decode", .fn = msgpack_decode },
    { .library = "msgpack", .name = "list", .fn = fli_lua_list },
    { .library = "msgpack", .name = "null", .make = fli_lua_push_null },
    { .name = NULL },
};
