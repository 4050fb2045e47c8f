/* codec.c - see codec.h. Writing recurses over tables. A chain of frames on the C stack holds the path to the current
 * value. The path names the value in errors, and shows whether a table contains itself. */
#include "lua/message/codec.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/message/blob.h"
#include "lua/message/functions.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/null.h"
#include "lua/value/path.h"
#include "port/thread.h"

const uint8_t fli_lua_mark[FLI_LUA_MARK_SIZE] = { 0xF1, 0x1C, 0x4C, 0x01 };
const uint8_t fli_lua_outdated[FLI_LUA_MARK_SIZE + 10] = { 0xF1, 0x1C, 0x4C, 0x01, 0x15 };

enum {
    NIL,
    NO,
    YES,
    INT8,
    INT16,
    INT32,
    INT64,
    NUM,
    STR8,
    STR32,
    TABLE8,
    TABLE32,
    PID,
    LIBRARY,
    MEMBER,
    BLOB_REF,
    REQUEST = 0x10,
    REPLY,
    FAILURE,
    STRING_REF = FLI_LUA_TAG_BLOB + 1,
    OUTDATED,
    WAITER,
    STREAM,
    FUNCTION,
    FUNCTION_AGAIN,
    VARIABLE_AGAIN,
    NOTHING,
    EMPTY_LIST,
    SMALL = 0x40,
    SHORT = 0x80,
    MIDDLE = 0xC0
};

/* Buffers of at least this many bytes are moved into the payload instead of being copied. */
enum { MOVE_SIZE = 16384 };

/* Payloads of at least this many bytes count in the total of all processes when fli_lua_bytes_keep() copies them. A
 * smaller payload takes less memory than the task or the exit event that it is kept for. */
enum { COUNTED_SIZE = 512 };

/* Number of values between two checks of the budget; a check is due every few microseconds. PAIR_LOOKS, for the keys of
 * a table, is smaller, because a program can choose keys with equal hashes: then one insertion may take as long as all
 * earlier insertions together. VARIABLE_LOOKS: for the variables of a function. */
enum { LOOKS = 128, PAIR_LOOKS = 4, VARIABLE_LOOKS = 16 };

/* ---- bytes -------------------------------------------------------------------------------------------------- */

void fli_lua_bytes_init(fli_lua_bytes *bytes, size_t max)
{
    bytes->at = bytes->first;
    bytes->size = 0;
    bytes->room = sizeof bytes->first;
    bytes->max = max;
    bytes->by_name = false;
    bytes->hand_over = false;
    bytes->functions = NULL;
    bytes->joined = false;
    bytes->lent = false;
    bytes->total = NULL;
    bytes->refs = (fli_lua_refs){ .at = NULL };
}

void fli_lua_bytes_fini(fli_lua_bytes *bytes)
{
    if (bytes->at != bytes->first) free(bytes->at);
    if (bytes->joined) filch_drop(&bytes->payload);
    if (bytes->refs.at != NULL) fli_lua_refs_fini(&bytes->refs);
}

size_t fli_lua_bytes_allocated(const fli_lua_bytes *bytes)
{
    return (bytes->at != bytes->first ? bytes->room : 0) + fli_lua_refs_allocated(&bytes->refs);
}

static bool grow(fli_lua_bytes *bytes, size_t more)
{
    if (more > bytes->max || bytes->size > bytes->max - more) return false;
    size_t room = bytes->room * 2;
    while (room < bytes->size + more) room *= 2;
    uint8_t *at = realloc(bytes->at != bytes->first ? bytes->at : NULL, room);
    if (at == NULL) return false;
    if (bytes->at == bytes->first) memcpy(at, bytes->first, bytes->size);
    bytes->at = at;
    bytes->room = room;
    return true;
}

static inline bool make_room(fli_lua_bytes *bytes, size_t more)
{
    return bytes->room - bytes->size >= more || grow(bytes, more);
}

bool fli_lua_bytes_add(fli_lua_bytes *bytes, const void *from, size_t size)
{
    if (!make_room(bytes, size)) return false;
    if (size > 0) memcpy(bytes->at + bytes->size, from, size);
    bytes->size += size;
    return true;
}

/* Moves the bytes and the blocks that they refer to into one payload. */
static bool join_refs(fli_lua_bytes *bytes)
{
    if (bytes->at == bytes->first) {
        uint8_t *at = malloc(bytes->size);
        if (at == NULL) return false;
        memcpy(at, bytes->first, bytes->size);
        bytes->at = at;
    }
    if (!fli_lua_message_join_refs(bytes->at, bytes->size, &bytes->refs, bytes->total, &bytes->payload)) return false;
    bytes->at = bytes->first;
    bytes->joined = true;
    return true;
}

bool fli_lua_bytes_data(fli_lua_bytes *bytes, filch_data *out)
{
    if (bytes->refs.count > 0) {
        if (!join_refs(bytes)) return false;
        *out = bytes->payload;
        return true;
    }
    if (bytes->size >= MOVE_SIZE && bytes->total != NULL) {
        if (!fli_lua_total_share(bytes->total, bytes->at, bytes->size, &bytes->payload)) return false;
        bytes->at = bytes->first;
        bytes->joined = true;
        *out = bytes->payload;
        return true;
    }
    bytes->lent = bytes->size < MOVE_SIZE;
    *out = bytes->size < MOVE_SIZE ? filch_bytes(bytes->at, bytes->size) : filch_move(bytes->at, bytes->size, NULL);
    return true;
}

void fli_lua_bytes_sent(fli_lua_bytes *bytes, bool taken)
{
    if (taken && bytes->size >= MOVE_SIZE) bytes->at = bytes->first;
}

filch_err fli_lua_bytes_keep(fli_lua_bytes *bytes, const filch_data *data, filch_data *out)
{
    if (bytes->lent && bytes->total != NULL && filch_size(data) >= COUNTED_SIZE) {
        bool copied = fli_lua_total_copy(bytes->total, filch_raw(data), filch_size(data), out);
        return copied ? FILCH_OK : FILCH_ENOMEM;
    }
    filch_err err = filch_keep(data, out);
    if (!bytes->lent) fli_lua_bytes_sent(bytes, err == FILCH_OK);
    return err;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

typedef fli_lua_frame frame;

typedef struct writer {
    lua_State       *L;
    fli_lua_bytes   *bytes;
    const char      *root;
    fli_lua_refusal *why;
} writer;

/* Writes to w's refusal the path of the value and the reason `what`. Always returns false. */
static bool refuse(const writer *w, const frame *at, const char *what)
{
    char path[160];
    fli_lua_path(w->L, w->root, at, path, sizeof path);
    snprintf(w->why->text, sizeof w->why->text, "%s: %s", path, what);
    return false;
}

static bool refuse_size(const writer *w, const frame *at)
{
    return refuse(w, at, "there is not enough memory to send it");
}

static bool refuse_time(const writer *w, const frame *at)
{
    return refuse(w, at, "it takes too long to send it: send less, or send it in parts");
}

static inline void put_bytes(fli_lua_bytes *bytes, const void *from, size_t size)
{
    memcpy(bytes->at + bytes->size, from, size);
    bytes->size += size;
}

static inline void put_tag(fli_lua_bytes *bytes, unsigned tag)
{
    bytes->at[bytes->size++] = (uint8_t)tag;
}

/* Copies up to 64 bytes in pieces of fixed sizes, for which the compiler makes no call of memcpy. The last piece may
 * overlap the piece before it. */
static inline void put_short(fli_lua_bytes *bytes, const char *from, size_t size)
{
    uint8_t *to = bytes->at + bytes->size;
    bytes->size += size;
    if (size >= 8) {
        for (size_t i = 0; i + 8 <= size; i += 8) memcpy(to + i, from + i, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else if (size > 0) {
        to[0] = (uint8_t)from[0];
        to[size / 2] = (uint8_t)from[size / 2];
        to[size - 1] = (uint8_t)from[size - 1];
    }
}

/* Precondition: the buffer has space for 9 more bytes. */
static inline void put_int(fli_lua_bytes *bytes, int64_t value)
{
    if (value >= 0 && value < 128) {
        put_tag(bytes, value < 64 ? SMALL + (unsigned)value : MIDDLE + (unsigned)value - 64);
    } else if (value == (int8_t)value) {
        put_tag(bytes, INT8);
        put_tag(bytes, (unsigned)value & 0xFF);
    } else if (value == (int16_t)value) {
        int16_t v = (int16_t)value;
        put_tag(bytes, INT16);
        put_bytes(bytes, &v, sizeof v);
    } else if (value == (int32_t)value) {
        int32_t v = (int32_t)value;
        put_tag(bytes, INT32);
        put_bytes(bytes, &v, sizeof v);
    } else {
        put_tag(bytes, INT64);
        put_bytes(bytes, &value, sizeof value);
    }
}

/* Attaches `block` to the message, unless it is attached already, and writes `tag` and the number of the attached
 * block. */
static bool write_ref(const writer *w, unsigned tag, const filch_data *block, const frame *at)
{
    uint32_t number;
    if (!make_room(w->bytes, 5) || !fli_lua_refs_add(&w->bytes->refs, block, &number)) return refuse_size(w, at);
    put_tag(w->bytes, tag);
    put_bytes(w->bytes, &number, sizeof number);
    return true;
}

static bool write_long_string(const writer *w, int index, const char *text, size_t size, const frame *at)
{
    fli_lua_bytes *bytes = w->bytes;
    if (size >= FLI_LUA_LONG) {
        const filch_data *block = fli_lua_long_block(w->L, index);
        if (block != NULL) return write_ref(w, STRING_REF, block, at);
    }
    if (size > UINT32_MAX || !make_room(bytes, size + 5)) return refuse_size(w, at);
    if (size < 256) {
        put_tag(bytes, STR8);
        put_tag(bytes, (unsigned)size);
    } else {
        uint32_t n = (uint32_t)size;
        put_tag(bytes, STR32);
        put_bytes(bytes, &n, sizeof n);
    }
    put_bytes(bytes, text, size);
    return true;
}

static inline bool write_string(const writer *w, int index, const frame *at)
{
    size_t         size;
    const char    *text = lua_tolstring(w->L, index, &size);
    fli_lua_bytes *bytes = w->bytes;
    if (size >= 64) return write_long_string(w, index, text, size, at);
    if (!make_room(bytes, 64)) return refuse_size(w, at);
    put_tag(bytes, SHORT + (unsigned)size);
    put_short(bytes, text, size);
    return true;
}

static bool write_pid(const writer *w, filch_pid pid, const frame *at)
{
    if (!make_room(w->bytes, 17)) return refuse_size(w, at);
    put_tag(w->bytes, PID);
    put_bytes(w->bytes, &pid.node, 8);
    put_bytes(w->bytes, &pid.serial, 8);
    return true;
}

/* Writes a library, or a function of a library, by its name. Returns false, with nothing written, if the value is
 * neither of them, if `by_name` is not set for these bytes, or if memory is short. */
static bool write_by_name(const writer *w, int index)
{
    const char *library, *field;
    if (!w->bytes->by_name || !fli_lua_name_of(w->L, index, &library, &field)) return false;
    size_t size = strlen(library), field_size = field != NULL ? strlen(field) : 0;
    if (!make_room(w->bytes, size + field_size + 3)) return false;
    put_tag(w->bytes, field != NULL ? MEMBER : LIBRARY);
    put_tag(w->bytes, (unsigned)size);
    put_bytes(w->bytes, library, size);
    if (field == NULL) return true;
    put_tag(w->bytes, (unsigned)field_size);
    put_bytes(w->bytes, field, field_size);
    return true;
}

/* Writes a stream or a request; both can only be handed over to upgraded code. Returns false, with nothing written, if
 * the value is neither of them, if the bytes are not for upgraded code (`hand_over`), or if memory is short. */
static bool write_own(const writer *w, int index)
{
    filch_stream stream;
    filch_pid    from;
    uint64_t     id;
    if (!w->bytes->hand_over || !make_room(w->bytes, 25)) return false;
    if (fli_lua_to_stream(w->L, index, &stream)) {
        put_tag(w->bytes, STREAM);
        put_bytes(w->bytes, &stream.id, 8);
        return true;
    }
    if (!fli_lua_to_request(w->L, index, &from, &id)) return false;
    put_tag(w->bytes, WAITER);
    put_bytes(w->bytes, &from.node, 8);
    put_bytes(w->bytes, &from.serial, 8);
    put_bytes(w->bytes, &id, 8);
    return true;
}

static bool write_typed(const writer *w, int index, int type, const frame *at, unsigned depth);

/* Writes the tag and the counts of a table at `start`, in front of its contents. Three bytes have been left free there,
 * enough for counts below 256. For larger counts the contents are moved by 6 bytes. */
static bool write_counts(const writer *w, size_t start, size_t values, size_t pairs, const frame *at)
{
    fli_lua_bytes *bytes = w->bytes;
    if (values < 256 && pairs < 256) {
        bytes->at[start] = TABLE8;
        bytes->at[start + 1] = (uint8_t)values;
        bytes->at[start + 2] = (uint8_t)pairs;
        return true;
    }
    uint32_t counts[2] = { (uint32_t)values, (uint32_t)pairs };
    if (values > UINT32_MAX || pairs > UINT32_MAX || !make_room(bytes, 6)) return refuse_size(w, at);
    memmove(bytes->at + start + 9, bytes->at + start + 3, bytes->size - start - 3);
    bytes->at[start] = TABLE32;
    memcpy(bytes->at + start + 1, counts, sizeof counts);
    bytes->size += 6;
    return true;
}

/* Writes a table in one pass. The keys 1, 2, ... come first and in order if they are in Lua's array part; from the
 * first other key on, the rest is written as pairs. Precondition: the buffer has space for 9 more bytes. */
static bool write_table(const writer *w, int index, const frame *up, unsigned depth)
{
    lua_State  *L = w->L;
    const void *table = lua_topointer(L, index);
    for (const frame *at = up; at != NULL; at = at->up) {
        if (at->table == table) return refuse(w, up, "the table contains itself and cannot be sent");
    }
    if (depth >= FLI_LUA_DEPTH_MAX) return refuse(w, up, "nested too deep to be sent: at most 100 levels");
    if (!lua_checkstack(L, 4)) return refuse_size(w, up);
    size_t start = w->bytes->size, values = 0, pairs = 0;
    w->bytes->size += 3;
    lua_pushnil(L);
    frame this_frame = { .up = up, .table = table, .key = lua_gettop(L) };
    /* The budget is checked for each table, because walking over a large table that was emptied takes long. */
    if (fli_lua_budget_over(L)) return refuse_time(w, up);
    while (lua_next(L, index) != 0) {
        if ((values + pairs) % LOOKS == LOOKS - 1 && fli_lua_budget_over(L)) return refuse_time(w, &this_frame);
        int  type = lua_type(L, this_frame.key);
        bool in_order = pairs == 0 && type == LUA_TNUMBER && lua_isinteger(L, this_frame.key) &&
                        lua_tointeger(L, this_frame.key) == (lua_Integer)values + 1;
        bool fine = type == LUA_TSTRING ? write_string(w, this_frame.key, &this_frame)
                                        : in_order || write_typed(w, this_frame.key, type, &this_frame, depth + 1);
        if (!fine) return false;
        type = lua_type(L, this_frame.key + 1);
        fine = type == LUA_TSTRING ? write_string(w, this_frame.key + 1, &this_frame)
                                   : write_typed(w, this_frame.key + 1, type, &this_frame, depth + 1);
        if (!fine) return false;
        if (in_order) values++;
        else pairs++;
        lua_settop(L, this_frame.key);
    }
    if (values == 0 && pairs == 0 && fli_lua_is_list(L, index)) {
        w->bytes->size = start;
        put_tag(w->bytes, EMPTY_LIST);
        return true;
    }
    return write_counts(w, start, values, pairs, up);
}

static bool write_other(const writer *w, int index, int type, const frame *at, unsigned depth);

static bool write_typed(const writer *w, int index, int type, const frame *at, unsigned depth)
{
    lua_State *L = w->L;
    if (!make_room(w->bytes, 9)) return refuse_size(w, at);
    switch (type) {
    case LUA_TNIL: put_tag(w->bytes, NIL); return true;
    case LUA_TBOOLEAN: put_tag(w->bytes, lua_toboolean(L, index) ? YES : NO); return true;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) {
            put_int(w->bytes, lua_tointeger(L, index));
        } else {
            double number = lua_tonumber(L, index);
            put_tag(w->bytes, NUM);
            put_bytes(w->bytes, &number, sizeof number);
        }
        return true;
    case LUA_TSTRING: return write_string(w, index, at);
    case LUA_TTABLE: return write_by_name(w, index) || write_table(w, index, at, depth);
    default: return write_other(w, index, type, at, depth);
    }
}

static void put_u32(fli_lua_bytes *bytes, unsigned tag, uint32_t number)
{
    put_tag(bytes, tag);
    put_bytes(bytes, &number, sizeof number);
}

/* Writes upvalue `i` of the function at stack index `index`. `number` is the number of this function in
 * w->bytes->functions. */
static bool write_variable(const writer *w, int index, int i, uint32_t number, const frame *at, unsigned depth)
{
    lua_State              *L = w->L;
    const void             *id = lua_upvalueid(L, index, i);
    const fli_lua_variable *known = fli_lua_variable_find(w->bytes->functions, id);
    if (!make_room(w->bytes, 9) || !lua_checkstack(L, 4)) return refuse_size(w, at);
    if (known != NULL) {
        put_u32(w->bytes, VARIABLE_AGAIN, known->function);
        put_tag(w->bytes, known->index);
        w->bytes->functions->used = true;
        return true;
    }
    /* The variable is added before its value is written, because the value may be a function that refers to the
     * variable. */
    if (!fli_lua_variable_add(w->bytes->functions, id, number, i)) return refuse_size(w, at);
    (void)lua_getupvalue(L, index, i);
    int  top = lua_gettop(L);
    bool fine = write_typed(w, top, lua_type(L, top), at, depth);
    lua_settop(L, top - 1);
    return fine;
}

/* Attaches the code of the function at `index` to the message. Sets *number to the number of the attached block, and
 * *variables to the number of upvalues. */
static bool attach_code(const writer *w, int index, int env, uint32_t *number, int *variables)
{
    fli_lua_code *code;
    filch_data    block;
    lua_pushvalue(w->L, index);
    filch_err err = fli_lua_code_known(fli_lua_self(w->L), w->L, env, &code);
    lua_pop(w->L, 1);
    if (err != FILCH_OK) return false;
    *variables = code->upvalues;
    if (fli_lua_code_wrap(code, &block) != FILCH_OK) return false;
    bool added = fli_lua_refs_add(&w->bytes->refs, &block, number);
    filch_drop(&block);
    return added;
}

static bool write_function(const writer *w, int index, const frame *up, unsigned depth)
{
    fli_lua_functions *functions = w->bytes->functions;
    uint32_t           number, code;
    int                variables;
    functions->used = true;
    if (!make_room(w->bytes, 9) || !lua_checkstack(w->L, 4)) return refuse_size(w, up);
    if (fli_lua_function_find(functions, lua_topointer(w->L, index), &number)) {
        put_u32(w->bytes, FUNCTION_AGAIN, number);
        return true;
    }
    if (depth >= FLI_LUA_DEPTH_MAX) return refuse(w, up, "nested too deep to be sent: at most 100 levels");
    if (fli_lua_budget_over(w->L)) return refuse_time(w, up); /* checked, because the code may have to be dumped */
    int env = fli_lua_env_of(w->L, index);
    if (!fli_lua_function_add(functions, lua_topointer(w->L, index), &number)) return refuse_size(w, up);
    if (!attach_code(w, index, env, &code, &variables)) return refuse_size(w, up);
    put_u32(w->bytes, FUNCTION, code);
    for (int i = 1; i <= variables; i++) {
        frame this_frame = { .up = up, .name = lua_getupvalue(w->L, index, i) };
        lua_pop(w->L, 1);
        /* The budget is checked, because the time to find a variable grows with the number of variables written so
         * far. */
        if (i % VARIABLE_LOOKS == 0 && fli_lua_budget_over(w->L)) return refuse_time(w, &this_frame);
        if (i != env && !write_variable(w, index, i, number, &this_frame, depth + 1)) return false;
    }
    return true;
}

bool fli_lua_encode_variable(lua_State *L, int index, int i, const char *root, fli_lua_bytes *bytes,
                             fli_lua_refusal *why)
{
    writer w = { .L = L, .bytes = bytes, .root = root, .why = why };
    int    top = lua_gettop(L);
    bool   fine = write_variable(&w, index, i, 0, NULL, 0);
    lua_settop(L, top);
    return fine;
}

static bool write_other(const writer *w, int index, int type, const frame *at, unsigned depth)
{
    const filch_data *blob;
    filch_pid         pid;
    char              text[64];
    if (fli_lua_to_pid(w->L, index, &pid)) return write_pid(w, pid, at);
    if (type == LUA_TUSERDATA && (blob = fli_lua_to_blob(w->L, index)) != NULL) return write_ref(w, BLOB_REF, blob, at);
    if (type == LUA_TFUNCTION && write_by_name(w, index)) return true;
    if (type == LUA_TFUNCTION && w->bytes->functions != NULL && !lua_iscfunction(w->L, index))
        return write_function(w, index, at, depth);
    if (type == LUA_TUSERDATA && write_own(w, index)) return true;
    if (fli_lua_is_null(w->L, index)) return put_tag(w->bytes, NOTHING), true;
    snprintf(text, sizeof text, "a %s cannot be sent", type == LUA_TTHREAD ? "coroutine" : lua_typename(w->L, type));
    return refuse(w, at, text);
}

/* Sets the total to which the bytes are charged, if L belongs to a process or a job. */
static void set_total(lua_State *L, fli_lua_bytes *bytes)
{
    const fli_lua_proc *p = fli_lua_self(L);
    if (p != NULL && p->lua != NULL) bytes->total = &p->lua->total;
}

bool fli_lua_encode(lua_State *L, int index, const char *root, fli_lua_bytes *bytes, fli_lua_refusal *why)
{
    writer w = { .L = L, .bytes = bytes, .root = root, .why = why };
    int    top = lua_gettop(L);
    int    at = lua_absindex(L, index);
    set_total(L, bytes);
    bool fine = write_typed(&w, at, lua_type(L, at), NULL, 0);
    lua_settop(L, top);
    return fine;
}

static bool has_mark(const void *bytes, size_t size)
{
    return size > FLI_LUA_MARK_SIZE && memcmp(bytes, fli_lua_mark, FLI_LUA_MARK_SIZE) == 0;
}

bool fli_lua_pack(lua_State *L, int index, const char *root, fli_lua_bytes *bytes, filch_data *out,
                  fli_lua_refusal *why)
{
    filch_pid         pid;
    size_t            size;
    const char       *text;
    const filch_data *block;
    switch (lua_type(L, index)) {
    case LUA_TNIL: *out = filch_none(); return true;
    case LUA_TNUMBER:
        *out = lua_isinteger(L, index) ? filch_int(lua_tointeger(L, index)) : filch_num(lua_tonumber(L, index));
        return true;
    case LUA_TSTRING:
        text = lua_tolstring(L, index, &size);
        if (has_mark(text, size)) break;
        block = size >= FLI_LUA_LONG ? fli_lua_long_block(L, index) : NULL;
        *out = block != NULL ? *block : filch_bytes(text, size);
        bytes->lent = block == NULL;
        set_total(L, bytes);
        return true;
    case LUA_TLIGHTUSERDATA:
    case LUA_TUSERDATA:
        if (fli_lua_to_pid(L, index, &pid)) {
            *out = filch_of_pid(pid);
            return true;
        }
        if ((block = fli_lua_to_blob(L, index)) == NULL) break;
        *out = *block;
        return true;
    default: break;
    }
    put_bytes(bytes, fli_lua_mark, FLI_LUA_MARK_SIZE);
    if (!fli_lua_encode(L, index, root, bytes, why)) return false;
    if (fli_lua_bytes_data(bytes, out)) return true;
    snprintf(why->text, sizeof why->text, "%s: there is not enough memory to send it", root);
    return false;
}

bool fli_lua_envelope(fli_lua_bytes *bytes, fli_lua_sort sort, uint64_t id)
{
    uint8_t head[FLI_LUA_MARK_SIZE + 9];
    memcpy(head, fli_lua_mark, FLI_LUA_MARK_SIZE);
    head[FLI_LUA_MARK_SIZE] = (uint8_t)(REQUEST + sort - FLI_LUA_REQUEST);
    memcpy(head + FLI_LUA_MARK_SIZE + 1, &id, sizeof id);
    return fli_lua_bytes_add(bytes, head, sizeof head);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static bool take_bytes(const uint8_t **at, const uint8_t *end, void *into, size_t size)
{
    if ((size_t)(end - *at) < size) return false;
    memcpy(into, *at, size);
    *at += size;
    return true;
}

static bool read_string(lua_State *L, const uint8_t **at, const uint8_t *end, size_t size)
{
    if ((size_t)(end - *at) < size) return false;
    lua_pushlstring(L, (const char *)*at, size);
    *at += size;
    return true;
}

static bool read_value(lua_State *L, const uint8_t **at, const uint8_t *end, unsigned depth);

static bool is_key(lua_State *L, int index)
{
    if (lua_isnil(L, index)) return false;
    return lua_type(L, index) != LUA_TNUMBER || lua_isinteger(L, index) ||
           lua_tonumber(L, index) == lua_tonumber(L, index);
}

/* Reads a key. Usually the key is a short string, which is always a valid key. */
static inline bool read_key(lua_State *L, const uint8_t **at, const uint8_t *end, unsigned depth)
{
    if (*at < end && **at >= SHORT && **at < MIDDLE) {
        size_t size = *(*at)++ - (size_t)SHORT;
        return read_string(L, at, end, size);
    }
    return read_value(L, at, end, depth) && is_key(L, -1);
}

/* Makes space for four values on the stack. Raises an error if the stack cannot grow, because the result false would
 * mean that the bytes are not a value, and the receiver would get the bytes as a string. */
static void need_stack(lua_State *L)
{
    if (!lua_checkstack(L, 4)) luaL_error(L, "not enough memory to read a message");
}

static bool read_table(lua_State *L, const uint8_t **at, const uint8_t *end, size_t values, size_t pairs,
                       unsigned depth)
{
    size_t left = (size_t)(end - *at);
    /* Each value takes at least one byte, so counts that are too large are detected before memory is allocated. */
    if (depth >= FLI_LUA_DEPTH_MAX || values > left || pairs > (left - values) / 2) return false;
    need_stack(L);
    if (values > INT32_MAX || pairs > INT32_MAX) return false;
    lua_createtable(L, (int)values, (int)pairs);
    for (size_t i = 1; i <= values; i++) {
        if (i % LOOKS == 0) fli_lua_budget_walk(L);
        if (!read_value(L, at, end, depth + 1)) return false;
        lua_rawseti(L, -2, (lua_Integer)i);
    }
    for (size_t i = 0; i < pairs; i++) {
        /* Checks the budget after every PAIR_LOOKS pairs; while a spawn reads its values (`runner` is NULL), only after
         * every LOOKS pairs, because each of these checks reads the clock. */
        if (i % PAIR_LOOKS == PAIR_LOOKS - 1 && (i % LOOKS == LOOKS - 1 || fli_lua_self(L)->runner != NULL))
            fli_lua_budget_walk(L);
        if (!read_key(L, at, end, depth + 1)) return false;
        if (!read_value(L, at, end, depth + 1)) return false;
        lua_rawset(L, -3);
    }
    return true;
}

static bool read_name(const uint8_t **at, const uint8_t *end, char name[256])
{
    uint8_t size;
    if (!take_bytes(at, end, &size, 1) || !take_bytes(at, end, name, size)) return false;
    name[size] = '\0';
    return true;
}

static bool read_by_name(lua_State *L, const uint8_t **at, const uint8_t *end, bool member)
{
    char library[256], field[256];
    if (!read_name(at, end, library) || (member && !read_name(at, end, field))) return false;
    return fli_lua_push_named(L, library, member ? field : NULL);
}

/* The blocks to which the values that this thread reads may refer: the blocks attached to `payload`, which contains the
 * bytes of the values, or, if `payload` is NULL, the blocks `refs`. */
static __thread struct {
    const filch_data   *payload;
    const fli_lua_refs *refs;
    int                 functions; /* stack index of the list of functions read so far; 0: there is no list */
} reading FLI_TLS_DIRECT;

void fli_lua_attach(const fli_lua_refs *refs)
{
    reading.payload = NULL;
    reading.refs = refs;
    reading.functions = 0;
}

void fli_lua_attach_functions(int list)
{
    reading.functions = list;
}

static bool read_ref(lua_State *L, const uint8_t **at, const uint8_t *end, bool blob)
{
    const fli_lua_refs *refs = reading.payload != NULL ? fli_lua_message_refs(reading.payload) : reading.refs;
    uint32_t            number;
    if (!take_bytes(at, end, &number, sizeof number) || refs == NULL || number >= refs->count) return false;
    const filch_data *block = &refs->at[number];
    if (blob) {
        if (filch_size(block) <= FLI_LUA_MARK_SIZE) return false;
        fli_lua_push_blob(L, block);
        return true;
    }
    lua_pushlstring(L, filch_raw(block), filch_size(block));
    fli_lua_long_made(L, block);
    return true;
}

static bool read_own(lua_State *L, const uint8_t **at, const uint8_t *end, uint8_t tag)
{
    filch_stream stream;
    filch_pid    from;
    uint64_t     id;
    if (tag == STREAM) {
        if (!take_bytes(at, end, &stream.id, 8)) return false;
        fli_lua_push_stream(L, stream);
        return true;
    }
    if (!take_bytes(at, end, &from.node, 8) || !take_bytes(at, end, &from.serial, 8) || !take_bytes(at, end, &id, 8))
        return false;
    fli_lua_push_request(L, from, id);
    return true;
}

/* Pushes the function with number `number` from the list of functions read so far. Returns false if the list has no
 * such function. */
static bool push_function(lua_State *L, uint32_t number)
{
    if (reading.functions == 0 || number >= lua_rawlen(L, reading.functions)) return false;
    lua_rawgeti(L, reading.functions, (lua_Integer)number + 1);
    return true;
}

static bool read_again(lua_State *L, const uint8_t **at, const uint8_t *end)
{
    uint32_t number;
    return take_bytes(at, end, &number, sizeof number) && push_function(L, number) && lua_isfunction(L, -1);
}

static bool read_variable(lua_State *L, int function, int i, const uint8_t **at, const uint8_t *end, unsigned depth)
{
    uint32_t number;
    uint8_t  index;
    if (*at == end) return false;
    need_stack(L);
    if (**at != VARIABLE_AGAIN) return read_value(L, at, end, depth) && lua_setupvalue(L, function, i) != NULL;
    ++*at;
    if (!take_bytes(at, end, &number, sizeof number) || !take_bytes(at, end, &index, 1) || !push_function(L, number))
        return false;
    if (!lua_isfunction(L, -1) || lua_iscfunction(L, -1) || lua_upvalueid(L, -1, index) == NULL) return false;
    lua_upvaluejoin(L, function, i, -1, index);
    lua_pop(L, 1);
    return true;
}

static bool read_function(lua_State *L, const uint8_t **at, const uint8_t *end, unsigned depth)
{
    const fli_lua_refs *refs = reading.refs;
    uint32_t            number;
    if (depth >= FLI_LUA_DEPTH_MAX || reading.functions == 0) return false;
    need_stack(L);
    if (!take_bytes(at, end, &number, sizeof number) || refs == NULL || number >= refs->count) return false;
    const fli_lua_code *code = fli_lua_code_unwrap(&refs->at[number]);
    if (code == NULL) return false;
    if (fli_lua_code_push(L, code) != LUA_OK) lua_error(L);
    int function = lua_gettop(L);
    lua_pushvalue(L, function);
    lua_rawseti(L, reading.functions, (lua_Integer)lua_rawlen(L, reading.functions) + 1);
    for (int i = 1; i <= code->upvalues; i++) {
        if (i != code->env && !read_variable(L, function, i, at, end, depth + 1)) return false;
    }
    return true;
}

bool fli_lua_decode_variable(lua_State *L, int index, int i, const uint8_t **at, const uint8_t *end)
{
    int top = lua_gettop(L);
    if (read_variable(L, index, i, at, end, 0)) return true;
    lua_settop(L, top);
    return false;
}

static bool read_value(lua_State *L, const uint8_t **at, const uint8_t *end, unsigned depth)
{
    if (*at == end) return false;
    uint8_t tag = *(*at)++;
    if (tag >= MIDDLE) return lua_pushinteger(L, tag - MIDDLE + 64), true;
    if (tag >= SHORT) return read_string(L, at, end, tag - SHORT);
    if (tag >= SMALL) return lua_pushinteger(L, tag - SMALL), true;
    switch (tag) {
    case NIL: lua_pushnil(L); return true;
    case NO: lua_pushboolean(L, 0); return true;
    case YES: lua_pushboolean(L, 1); return true;
#define READ_NUMBER(tag_name, type, push)                      \
    case tag_name: {                                           \
        type value;                                            \
        if (!take_bytes(at, end, &value, sizeof value)) break; \
        push(L, value);                                        \
        return true;                                           \
    }
        READ_NUMBER(INT8, int8_t, lua_pushinteger)
        READ_NUMBER(INT16, int16_t, lua_pushinteger)
        READ_NUMBER(INT32, int32_t, lua_pushinteger)
        READ_NUMBER(INT64, int64_t, lua_pushinteger)
        READ_NUMBER(NUM, double, lua_pushnumber)
#undef READ_NUMBER
    case STR8: {
        uint8_t size;
        return take_bytes(at, end, &size, 1) && read_string(L, at, end, size);
    }
    case STR32: {
        uint32_t size;
        return take_bytes(at, end, &size, 4) && read_string(L, at, end, size);
    }
    case TABLE8: {
        uint8_t counts[2];
        return take_bytes(at, end, counts, 2) && read_table(L, at, end, counts[0], counts[1], depth);
    }
    case TABLE32: {
        uint32_t counts[2];
        return take_bytes(at, end, counts, 8) && read_table(L, at, end, counts[0], counts[1], depth);
    }
    case PID: {
        filch_pid pid;
        if (!take_bytes(at, end, &pid.node, 8) || !take_bytes(at, end, &pid.serial, 8)) return false;
        fli_lua_push_pid(L, pid);
        return true;
    }
    case LIBRARY: return read_by_name(L, at, end, false);
    case MEMBER: return read_by_name(L, at, end, true);
    case BLOB_REF: return read_ref(L, at, end, true);
    case STRING_REF: return read_ref(L, at, end, false);
    case WAITER:
    case STREAM: return fli_lua_self(L)->handing_over && read_own(L, at, end, tag);
    case FUNCTION: return read_function(L, at, end, depth);
    case FUNCTION_AGAIN: return read_again(L, at, end);
    case NOTHING: return fli_lua_push_null(L) == 1;
    case EMPTY_LIST:
        lua_newtable(L);
        fli_lua_push_list_mark(L);
        lua_setmetatable(L, -2);
        return true;
    default: break;
    }
    return false;
}

bool fli_lua_decode(lua_State *L, const uint8_t **at, const uint8_t *end)
{
    int top = lua_gettop(L);
    need_stack(L);
    if (read_value(L, at, end, 0)) return true;
    lua_settop(L, top);
    return false;
}

/* Returns the sort of a message (value, request, reply, refusal, or changed file) from its bytes, which begin with the
 * mark. */
static inline fli_lua_sort marked_sort(const uint8_t *bytes, size_t size, uint64_t *id)
{
    uint8_t tag = bytes[FLI_LUA_MARK_SIZE];
    if (size < FLI_LUA_MARK_SIZE + 10) return FLI_LUA_VALUE;
    if (tag == OUTDATED) return FLI_LUA_OUTDATED;
    if (tag < REQUEST || tag > FAILURE) return FLI_LUA_VALUE;
    memcpy(id, bytes + FLI_LUA_MARK_SIZE + 1, sizeof *id);
    return FLI_LUA_REQUEST + (tag - REQUEST);
}

fli_lua_sort fli_lua_sort_of(const filch_data *data, uint64_t *id)
{
    if (filch_kind_of(data) != FILCH_KIND_BYTES) return FLI_LUA_VALUE;
    const uint8_t *bytes = filch_raw(data);
    size_t         size = filch_size(data);
    return size > 0 && has_mark(bytes, size) ? marked_sort(bytes, size, id) : FLI_LUA_VALUE;
}

/* Pushes the string in a payload. If the string is long and the payload can be shared, puts its block into the cache of
 * long strings, so that the string can be sent again without a copy. */
static void push_text(lua_State *L, const filch_data *data, size_t size)
{
    filch_data kept;
    lua_pushlstring(L, size > 0 ? filch_raw(data) : "", size);
    if (size < FLI_LUA_LONG || filch_keep(data, &kept) != FILCH_OK) return;
    bool is_block = filch_raw(&kept) == filch_raw(data);
    /* drops `kept` before fli_lua_long_made(), which may raise an error and would then leak `kept` */
    filch_drop(&kept);
    if (is_block) fli_lua_long_made(L, data);
}

static fli_lua_sort unpack_bytes(lua_State *L, const filch_data *data, uint64_t *id)
{
    const uint8_t *bytes = filch_raw(data);
    size_t         size = filch_size(data);
    fli_lua_sort   sort = FLI_LUA_VALUE;
    if (size > 0 && has_mark(bytes, size)) {
        const uint8_t *at = bytes + FLI_LUA_MARK_SIZE, *end = bytes + size;
        if (*at == FLI_LUA_TAG_BLOB) {
            fli_lua_push_blob(L, data);
            return FLI_LUA_VALUE;
        }
        if (filch_kind_of(data) == FILCH_KIND_BYTES) sort = marked_sort(bytes, size, id);
        if (sort != FLI_LUA_VALUE) at += 9;
        reading.payload = data;
        reading.functions = 0;
        bool fine = fli_lua_decode(L, &at, end);
        reading.payload = NULL;
        if (fine) {
            if (at == end) return sort;
            lua_pop(L, 1);
        }
    }
    filch_stream stream;
    if (fli_lua_take_stream(fli_lua_self(L), data, &stream)) fli_lua_push_stream(L, stream);
    else push_text(L, data, size);
    return sort;
}

fli_lua_sort fli_lua_unpack_message(lua_State *L, const filch_data *data, uint64_t *id)
{
    filch_kind kind = filch_kind_of(data);
    if (kind == FILCH_KIND_TEXT || kind == FILCH_KIND_BYTES) return unpack_bytes(L, data, id);
    switch (kind) {
    case FILCH_KIND_INT: lua_pushinteger(L, filch_as_int(data)); break;
    case FILCH_KIND_NUM: lua_pushnumber(L, filch_as_num(data)); break;
    case FILCH_KIND_PID: fli_lua_push_pid(L, filch_as_pid(data)); break;
    case FILCH_KIND_PTR: {
        void **box = lua_newuserdatauv(L, sizeof *box, 0);
        *box = filch_as_ptr(data);
        break;
    }
    default: lua_pushnil(L); break;
    }
    return FLI_LUA_VALUE;
}

void fli_lua_unpack(lua_State *L, const filch_data *data)
{
    uint64_t id;
    (void)fli_lua_unpack_message(L, data, &id);
}

/* ---- pids ---------------------------------------------------------------------------------------------------- */

/* The address of this variable is the registry key of the metatable for pids of other schedulers. */
static const char far_key;

static int far_equal(lua_State *L)
{
    filch_pid a, b;
    bool      both = fli_lua_to_pid(L, 1, &a) && fli_lua_to_pid(L, 2, &b);
    lua_pushboolean(L, both && a.node == b.node && a.serial == b.serial);
    return 1;
}

static void push_far(lua_State *L, filch_pid pid)
{
    *(filch_pid *)lua_newuserdatauv(L, sizeof pid, 0) = pid;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &far_key) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_createtable(L, 0, 3);
        lua_pushcfunction(L, far_equal);
        lua_setfield(L, -2, "__eq");
        lua_pushcfunction(L, fli_lua_pid_text);
        lua_setfield(L, -2, "__tostring");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &far_key);
    }
    lua_setmetatable(L, -2);
}

/* Returns true if the value is a pid of another scheduler. Raises no error. */
static bool is_far(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_checkstack(L, 2) || !lua_getmetatable(L, index)) return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &far_key);
    bool far = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return far;
}

void fli_lua_push_pid(lua_State *L, filch_pid pid)
{
    const fli_lua_proc *p = fli_lua_self(L);
    if (pid.node == 0 && pid.serial == 0) lua_pushnil(L);
    else if (p != NULL && pid.node == p->self.node) lua_pushlightuserdata(L, (void *)(uintptr_t)pid.serial);
    else push_far(L, pid);
}

bool fli_lua_to_pid(lua_State *L, int index, filch_pid *pid)
{
    if (lua_islightuserdata(L, index)) {
        const fli_lua_proc *p = fli_lua_self(L);
        *pid = (filch_pid){ p != NULL ? p->self.node : 0, (uint64_t)(uintptr_t)lua_touserdata(L, index) };
        return true;
    }
    if (!is_far(L, index)) return false;
    *pid = *(const filch_pid *)lua_touserdata(L, index);
    return true;
}
