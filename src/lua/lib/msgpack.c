/* msgpack.c - the library `msgpack`: writes Lua values as MessagePack bytes, and reads them back.
 *
 *     msgpack.encode(value) -> bytes                raises an error that names a value without MessagePack form
 *     msgpack.decode(bytes) -> value | nil, why     why names the place: "byte 17, at .users[2]: ..."
 *     msgpack.decode(bytes, from) -> value, next    one value of several; `next` is where the following one begins
 *     msgpack.decode(bytes, from, null)             the value for nil, instead of msgpack.null; nil: it is left out
 *
 * A table with the keys 1, 2, ..., n and no others is an array, and so is a list (null.h). Any other table, also an
 * empty one, is a map. Strings are written as str, blobs as bin; both are read as strings. Integers beyond 63 bits are
 * read as floats. Extension types are refused.
 * Page: docs/lua/reference.md.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/message/blob.h"
#include "lua/message/codec.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/fields.h"
#include "lua/value/null.h"
#include "lua/value/path.h"

/* The first byte of each form of MessagePack. Bytes between these values encode small integers, and lengths of short
 * strings, arrays and maps. */
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

/* Stack indexes while a value is written: the value, the writer, the bytes written so far, and then for each open table
 * the table and its last key. All data of the call is on the Lua stack, so that a long call can be suspended, and an
 * error leaks nothing. */
enum { WRITER = 2, BUFFER = 3, FIRST_TABLE = 4, ROOM_FIRST = 256 };
/* Number of values between two checks of the budget. An open table counts as TABLE_ROUNDS values, because walking over
 * a large table from which most fields were removed takes long. */
enum { ROUNDS = 64, TABLE_ROUNDS = 8 };

typedef struct open_table {
    size_t   at, count; /* number of values written so far, and in total */
    uint64_t keys;      /* of a map: sum of the numbers (fields.h) of the keys written so far */
    bool     is_array;
    bool     paused; /* the call was suspended while the table was open, so another task may have changed it */
} open_table;

typedef struct writer {
    lua_State *L; /* the Lua state of the call; the same before and after a suspension */
    uint8_t   *at;
    size_t     size, room;
    int        depth;
    unsigned   rounds;
    open_table open[FLI_LUA_DEPTH_MAX];
} writer;

static void make_room(writer *w, size_t more)
{
    if (w->room - w->size >= more) return;
    size_t room = w->room * 2;
    if (more > SIZE_MAX / 4 || w->size > SIZE_MAX / 4)
        luaL_error(w->L, "msgpack.encode: the result is too large for memory");
    while (room < w->size + more) room *= 2;
    uint8_t *at = lua_newuserdatauv(w->L, room, 0);
    memcpy(at, w->at, w->size);
    lua_replace(w->L, BUFFER);
    w->at = at;
    w->room = room;
}

/* Writes the byte `first`, then the low `count` bytes of `number`, most significant byte first. */
static void put_tagged(writer *w, unsigned first, uint64_t number, unsigned count)
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
        if (value < 0x80) put_tagged(w, (unsigned)value, 0, 0);
        else if (value <= UINT8_MAX) put_tagged(w, UINT8, bits, 1);
        else if (value <= UINT16_MAX) put_tagged(w, UINT16, bits, 2);
        else if (value <= UINT32_MAX) put_tagged(w, UINT32, bits, 4);
        else put_tagged(w, UINT64, bits, 8);
    } else {
        if (value >= -32) put_tagged(w, (unsigned)bits & 0xFF, 0, 0);
        else if (value >= INT8_MIN) put_tagged(w, INT8, bits, 1);
        else if (value >= INT16_MIN) put_tagged(w, INT16, bits, 2);
        else if (value >= INT32_MIN) put_tagged(w, INT32, bits, 4);
        else put_tagged(w, INT64, bits, 8);
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
    put_tagged(w, FLOAT64, bits, 8);
}

/* Returns the path to the value being written: one frame for each open table up to `depth`, the innermost last. */
static const fli_lua_frame *frames_of(const writer *w, fli_lua_frame *frames)
{
    for (int i = 0; i < w->depth; i++) {
        int key = w->open[i].is_array ? 0 : FIRST_TABLE + 2 * i + 1;
        frames[i] =
            (fli_lua_frame){ .up = i > 0 ? &frames[i - 1] : NULL, .key = key, .number = (lua_Integer)w->open[i].at };
    }
    return w->depth > 0 ? &frames[w->depth - 1] : NULL;
}

static void refuse(const writer *w, const char *what)
{
    fli_lua_frame frames[FLI_LUA_DEPTH_MAX];
    char          path[160];
    fli_lua_path(w->L, "value", frames_of(w, frames), path, sizeof path);
    luaL_error(w->L, "msgpack.encode: %s: %s", path, what);
}

/* Writes a length of up to 32 bits: in the low bits of `fix` if the length is below `fix_max`, otherwise after a tag
 * for 8, 16 or 32 bits. */
static void put_length(writer *w, size_t length, unsigned fix, size_t fix_max, unsigned of8, unsigned of16)
{
    if (length > UINT32_MAX) refuse(w, "longer than MessagePack allows (2^32 - 1)");
    if (length < fix_max) put_tagged(w, fix + (unsigned)length, 0, 0);
    else if (of8 != 0 && length <= UINT8_MAX) put_tagged(w, of8, length, 1);
    else if (length <= UINT16_MAX) put_tagged(w, of16, length, 2);
    else put_tagged(w, of16 + 1, length, 4);
}

/* Returns the number of fields of the table at `index`. Sets *is_array if their keys are 1 to that number. */
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

/* Writes the header of the table on top of the stack: its kind (array or map) and its size. The writer writes the
 * members of this table next, then continues with the table around it. The table stays on the stack. */
static void open_written(writer *w)
{
    lua_State  *L = w->L;
    int         index = lua_gettop(L);
    const void *table = lua_topointer(L, index);
    for (int i = 0; i < w->depth; i++) {
        if (lua_topointer(L, FIRST_TABLE + 2 * i) == table) refuse(w, "the table contains itself");
    }
    if (w->depth == FLI_LUA_DEPTH_MAX) refuse(w, "nested too deep: at most 100 levels");
    luaL_checkstack(L, 8, "value too deep");
    open_table open = { .at = 0 };
    open.count = count_fields(L, index, &open.is_array);
    if (open.is_array) put_length(w, open.count, FIXARRAY, 16, 0, ARRAY16);
    else put_length(w, open.count, FIXMAP, 16, 0, MAP16);
    w->open[w->depth++] = open;
    w->rounds += TABLE_ROUNDS;
    lua_pushnil(L); /* with nil as the key, lua_next begins with the first key */
}

/* Writes the value at `index`, which is not a table. */
static void put_value(writer *w, int index)
{
    lua_State        *L = w->L;
    const filch_data *blob;
    const char       *bytes;
    size_t            size;
    char              text[64];
    switch (lua_type(L, index)) {
    case LUA_TNIL: put_tagged(w, NIL, 0, 0); return;
    case LUA_TBOOLEAN: put_tagged(w, lua_toboolean(L, index) ? YES : NO, 0, 0); return;
    case LUA_TNUMBER: put_number(w, index); return;
    case LUA_TSTRING:
        bytes = lua_tolstring(L, index, &size);
        put_length(w, size, FIXSTR, 32, STR8, STR16);
        put_bytes(w, bytes, size);
        return;
    default: break;
    }
    if (fli_lua_is_null(L, index)) {
        put_tagged(w, NIL, 0, 0);
        return;
    }
    blob = fli_lua_to_blob(L, index);
    if (blob != NULL) {
        bytes = fli_lua_blob_bytes(blob, &size);
        put_length(w, size, 0, 0, BIN8, BIN16);
        put_bytes(w, bytes, size);
        return;
    }
    snprintf(text, sizeof text, "a %s has no MessagePack form", luaL_typename(L, index));
    refuse(w, text);
}

/* Writes the key of the next value of the innermost table, and pushes the value. Returns false if there is no next
 * value. */
static bool push_next(writer *w)
{
    lua_State  *L = w->L;
    open_table *open = &w->open[w->depth - 1];
    int         key = lua_gettop(L);
    bool        more = open->is_array ? open->at < open->count : lua_next(L, key - 1) != 0;
    if (!more) {
        if (!open->is_array) lua_pushnil(L);
        if (open->at != open->count) (void)fli_lua_refuse_change(L, "msgpack.encode");
        if (open->paused && !open->is_array) {
            fli_lua_check_keys(L, key - 1, open->keys, "msgpack.encode");
            w->rounds = ROUNDS; /* the budget is checked before the next value */
        }
        return false;
    }
    open->at++;
    if (open->is_array) {
        /* count_fields() has found a value at each index, so a missing value means that the table has changed */
        if (lua_rawgeti(L, key - 1, (lua_Integer)open->at) == LUA_TNIL)
            (void)fli_lua_refuse_change(L, "msgpack.encode");
        return true;
    }
    if (lua_istable(L, key)) refuse(w, "a table cannot be a key");
    open->keys += fli_lua_key_number(L, key);
    put_value(w, key);
    return true;
}

static void write_top(writer *w)
{
    if (lua_istable(w->L, -1)) {
        open_written(w);
        return;
    }
    put_value(w, lua_gettop(w->L));
    lua_pop(w->L, 1);
}

static int go_on_encode(lua_State *L, int status, lua_KContext ctx);

static int run_encode(lua_State *L, writer *w)
{
    while (w->depth > 0) {
        if (++w->rounds >= ROUNDS) {
            w->rounds = 0;
            if (fli_lua_budget_due(L)) fli_lua_pause(L, 0, go_on_encode);
        }
        if (push_next(w)) {
            write_top(w);
        } else {
            lua_pop(L, 2);
            w->depth--;
        }
    }
    lua_pushlstring(L, (const char *)w->at, w->size);
    return 1;
}

static int go_on_encode(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    writer *w = lua_touserdata(L, WRITER);
    /* Another task may have changed the tables during the pause. */
    for (int i = 0; i < w->depth; i++) {
        int table = FIRST_TABLE + 2 * i;
        w->open[i].paused = true;
        if (!w->open[i].is_array) fli_lua_check_next(L, table, table + 1, "msgpack.encode");
    }
    return run_encode(L, w);
}

static int msgpack_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    writer *w = lua_newuserdatauv(L, sizeof *w, 0);
    w->L = L;
    w->at = lua_newuserdatauv(L, ROOM_FIRST, 0);
    w->room = ROOM_FIRST;
    w->size = 0;
    w->depth = 0;
    w->rounds = 0;
    lua_pushvalue(L, 1);
    write_top(w);
    return run_encode(L, w);
}

/* ---- decode -------------------------------------------------------------------------------------------------- */

/* A table that is being read and is not complete. If the table is a map and `keyed` is set, the key is above the table
 * on the stack while the value for this key is read. */
typedef struct open_read {
    uint32_t at, left; /* number of elements (of a map: pairs) read so far, and number left */
    bool     is_map, keyed;
} open_read;

/* Stack indexes of msgpack.decode: the bytes, the value for nil, the metatable of lists, the reader; then the open
 * tables. All data of the call is on the Lua stack, so that a long call can be suspended. */
enum { NULL_AT = 2, LIST_AT = 3, READER = 4, FIRST_READ = 5 };

typedef struct reader {
    const uint8_t *begin, *at, *end;
    bool           one_of_several;
    int            depth;
    unsigned       rounds;
    open_read      open[FLI_LUA_DEPTH_MAX];
    char           why[256]; /* text of the error, with its position in the bytes and its path */
} reader;

/* Returns the path to the value being read. */
static const fli_lua_frame *way_read(const reader *r, fli_lua_frame *frames)
{
    const fli_lua_frame *up = NULL;
    for (int i = 0, index = FIRST_READ; i < r->depth; i++, index++) {
        const open_read *open = &r->open[i];
        if (open->is_map && !open->keyed) continue; /* the key itself is being read: it has no path */
        if (open->is_map) index++;
        frames[i] = (fli_lua_frame){ .up = up, .key = open->is_map ? index : 0, .number = (lua_Integer)open->at + 1 };
        up = &frames[i];
    }
    return up;
}

/* Writes the text of the error to r->why: the position in the bytes, the path to the value, and `what`. Always returns
 * false. */
static bool fail(lua_State *L, reader *r, const char *what)
{
    fli_lua_frame frames[FLI_LUA_DEPTH_MAX];
    char          path[160];
    fli_lua_path(L, "", way_read(r, frames), path, sizeof path);
    snprintf(r->why, sizeof r->why, "byte %zu%s%s: %s", (size_t)(r->at - r->begin) + 1, path[0] != '\0' ? ", at " : "",
             path, what);
    return false;
}

static bool read_number(lua_State *L, reader *r, unsigned count, uint64_t *number)
{
    *number = 0;
    if ((size_t)(r->end - r->at) < count) return fail(L, r, "the bytes end inside a value");
    while (count-- > 0) *number = *number << 8 | *r->at++;
    return true;
}

static bool read_text(lua_State *L, reader *r, uint64_t size)
{
    if ((uint64_t)(r->end - r->at) < size) return fail(L, r, "the bytes end inside a value");
    lua_pushlstring(L, (const char *)r->at, (size_t)size);
    r->at += size;
    return true;
}

static bool is_key(lua_State *L, int index)
{
    int type = lua_type(L, index);
    if (type == LUA_TNUMBER) return lua_isinteger(L, index) || lua_tonumber(L, index) == lua_tonumber(L, index);
    return type == LUA_TSTRING || type == LUA_TBOOLEAN;
}

/* Pushes a new table for `count` elements and opens it. Each element takes at least one byte, so a count that is too
 * large is detected before memory is allocated. */
static bool read_table(lua_State *L, reader *r, uint64_t count, bool is_map)
{
    if (r->depth == FLI_LUA_DEPTH_MAX || !lua_checkstack(L, 8))
        return fail(L, r, "nested too deep: at most 100 levels");
    if (count > (uint64_t)(r->end - r->at) / (is_map ? 2 : 1) || count > INT32_MAX)
        return fail(L, r, "the bytes end inside a value");
    lua_createtable(L, is_map ? 0 : (int)count, is_map ? (int)count : 0);
    if (!is_map) {
        lua_pushvalue(L, LIST_AT);
        lua_setmetatable(L, -2);
    }
    if (count > 0) r->open[r->depth++] = (open_read){ .left = (uint32_t)count, .is_map = is_map };
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

/* Reads an integer. `tag` is UINT8 to INT64: its low two bits encode the number of bytes, 1, 2, 4 or 8. */
static bool read_int(lua_State *L, reader *r, unsigned tag)
{
    bool     is_signed = tag >= INT8;
    unsigned count = 1u << (tag - (is_signed ? INT8 : UINT8)), spare = 64 - 8 * count;
    uint64_t bits;
    if (!read_number(L, r, count, &bits)) return false;
    if (is_signed) lua_pushinteger(L, (int64_t)(bits << spare) >> spare);
    else if (bits > INT64_MAX) lua_pushnumber(L, (lua_Number)bits);
    else lua_pushinteger(L, (lua_Integer)bits);
    return true;
}

/* Reads a value that has its length after the tag. */
static bool read_long(lua_State *L, reader *r, unsigned tag)
{
    uint64_t size;
    switch (tag) {
    case BIN8:
    case BIN16:
    case BIN32: return read_number(L, r, 1u << (tag - BIN8), &size) && read_text(L, r, size);
    case STR8:
    case STR16:
    case STR32: return read_number(L, r, 1u << (tag - STR8), &size) && read_text(L, r, size);
    case ARRAY16:
    case ARRAY32: return read_number(L, r, 2u << (tag - ARRAY16), &size) && read_table(L, r, size, false);
    case MAP16:
    case MAP32: return read_number(L, r, 2u << (tag - MAP16), &size) && read_table(L, r, size, true);
    default: break;
    }
    r->at--;
    return fail(L, r,
                tag == NEVER_USED ? "a byte that MessagePack does not use"
                                  : "an extension type, which Lua has nothing for");
}

/* Pushes one value, or opens a table; its elements follow. Returns false if the bytes are not valid MessagePack: then
 * r->why is set, and the values on the stack are undefined. */
static bool read_value(lua_State *L, reader *r)
{
    uint64_t bits;
    if (r->at == r->end) return fail(L, r, r->depth == 0 ? "a value is expected" : "the bytes end inside a value");
    unsigned tag = *r->at++;
    if (tag < FIXMAP) return lua_pushinteger(L, tag), true;
    if (tag < FIXARRAY) return read_table(L, r, tag - FIXMAP, true);
    if (tag < FIXSTR) return read_table(L, r, tag - FIXARRAY, false);
    if (tag < NIL) return read_text(L, r, tag - FIXSTR);
    if (tag >= NEGATIVE) return lua_pushinteger(L, (int8_t)tag), true;
    switch (tag) {
    case NIL: lua_pushvalue(L, NULL_AT); return true;
    case NO:
    case YES: lua_pushboolean(L, tag == YES); return true;
    case FLOAT32:
    case FLOAT64:
        if (!read_number(L, r, tag == FLOAT32 ? 4 : 8, &bits)) return false;
        push_float(L, bits, tag == FLOAT64);
        return true;
    case UINT8:
    case UINT16:
    case UINT32:
    case UINT64:
    case INT8:
    case INT16:
    case INT32:
    case INT64: return read_int(L, r, tag);
    default: return read_long(L, r, tag);
    }
}

/* Puts the value on top of the stack into its table, and closes the tables that are now complete. The key of a map
 * stays on the stack until its value has been read. */
static bool put_read(lua_State *L, reader *r)
{
    while (r->depth > 0) {
        open_read *open = &r->open[r->depth - 1];
        if (open->is_map && !open->keyed) {
            if (!is_key(L, -1)) return fail(L, r, "a key must be a string, a boolean or a number other than nan");
            open->keyed = true;
            return true;
        }
        open->at++;
        open->keyed = false;
        if (open->is_map) lua_rawset(L, -3);
        else lua_rawseti(L, -2, (lua_Integer)open->at);
        if (--open->left > 0) return true;
        r->depth--;
    }
    return true;
}

/* Sets the reader to byte `at` of the string or blob at stack index 1. */
static void find_bytes(lua_State *L, reader *r, size_t at)
{
    size_t            size;
    const filch_data *blob = fli_lua_to_blob(L, 1);
    const char       *bytes = blob != NULL ? fli_lua_blob_bytes(blob, &size) : lua_tolstring(L, 1, &size);
    r->begin = (const uint8_t *)bytes;
    r->at = r->begin + at;
    r->end = r->begin + size;
}

static int go_on_decode(lua_State *L, int status, lua_KContext ctx);

static int run_decode(lua_State *L, reader *r)
{
    bool fine;
    do {
        /* Inside a map the budget is checked before each key and value, because integer keys can be chosen to have
         * equal hashes: one insertion may then take as long as a hundred thousand ordinary ones. */
        if ((++r->rounds % ROUNDS == 0 || (r->depth > 0 && r->open[r->depth - 1].is_map)) && fli_lua_budget_due(L)) {
            fli_lua_pause(L, r->at - r->begin, go_on_decode);
        }
        int depth = r->depth;
        fine = read_value(L, r) && (r->depth > depth || put_read(L, r));
    } while (fine && r->depth > 0);
    if (fine && !r->one_of_several && r->at != r->end) fine = fail(L, r, "something follows the value");
    if (!fine) {
        lua_pushnil(L);
        lua_pushstring(L, r->why);
        return 2;
    }
    if (!r->one_of_several) return 1;
    lua_pushinteger(L, (lua_Integer)(r->at - r->begin) + 1);
    return 2;
}

static int go_on_decode(lua_State *L, int status, lua_KContext at)
{
    (void)status;
    reader *r = lua_touserdata(L, READER);
    find_bytes(L, r, (size_t)at);
    return run_decode(L, r);
}

static int msgpack_decode(lua_State *L)
{
    if (fli_lua_to_blob(L, 1) == NULL) luaL_checkstring(L, 1);
    bool        one_of_several = !lua_isnoneornil(L, 2);
    lua_Integer from = luaL_optinteger(L, 2, 1);
    if (lua_isnone(L, 3)) lua_settop(L, 2), (void)fli_lua_push_null(L);
    lua_settop(L, 3);
    lua_remove(L, 2);
    fli_lua_push_list_mark(L);
    reader *r = lua_newuserdatauv(L, sizeof *r, 0);
    r->depth = 0;
    r->rounds = 0;
    r->one_of_several = one_of_several;
    find_bytes(L, r, 0);
    fli_lua_check_arg(L, from >= 1 && (size_t)from <= (size_t)(r->end - r->begin) + 1, 2,
                      "must be a place in the bytes, from 1");
    r->at += from - 1;
    return run_decode(L, r);
}

const fli_lua_member fli_lua_msgpack_members[] = {
    { .library = "msgpack", .name = "encode", .fn = msgpack_encode },
    { .library = "msgpack", .name = "decode", .fn = msgpack_decode },
    { .library = "msgpack", .name = "list", .fn = fli_lua_list },
    { .library = "msgpack", .name = "null", .make = fli_lua_push_null },
    { .name = NULL },
};
