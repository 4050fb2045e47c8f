/* describe.c - describes messages of Lua processes in words, for the charts of simulated runs: filch_lua_describe.
 *
 * Reads the format that codec.h describes, without a Lua state. A chart keeps only the beginning of a message; "..." in
 * the description stands for the part that is cut off.
 */
#include <ctype.h>
#include <filch_lua.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lua/message/codec.h"

typedef struct page {
    const uint8_t *at, *end;
    char          *text;
    size_t         used, room;
    bool           cut; /* the description is incomplete and will end with "..." */
} page;

static void put_text(page *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_text(page *out, const char *format, ...)
{
    char    piece[64];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(piece, sizeof piece, format, list);
    va_end(list);
    size_t more = size < (int)sizeof piece ? (size_t)size : sizeof piece - 1;
    if (out->cut || out->used + more + 4 > out->room) {
        out->cut = true;
        return;
    }
    memcpy(out->text + out->used, piece, more);
    out->used += more;
}

/* Takes `size` bytes of the message. Returns false and sets out->cut if fewer bytes are left. */
static bool take_bytes(page *out, void *to, size_t size)
{
    if (out->cut || (size_t)(out->end - out->at) < size) {
        out->cut = true;
        return false;
    }
    memcpy(to, out->at, size);
    out->at += size;
    return true;
}

static void put_string(page *out, size_t size)
{
    size_t shown = size < (size_t)(out->end - out->at) ? size : (size_t)(out->end - out->at);
    put_text(out, "\"");
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = out->at[i];
        if (isprint(c) && c != '"' && c != '\\') put_text(out, "%c", c);
        else put_text(out, "\\%u", c);
    }
    out->at += shown;
    if (shown < size) out->cut = true;
    put_text(out, "\"");
}

/* Reads a signed little-endian integer of `size` bytes from the message and writes it as decimal text. */
static void put_int(page *out, size_t size)
{
    uint64_t bits = 0;
    uint8_t  bytes[8];
    if (!take_bytes(out, bytes, size)) return;
    for (size_t i = size; i > 0; i--) bits = bits << 8 | bytes[i - 1];
    unsigned spare = (unsigned)(64 - 8 * size);
    put_text(out, "%lld", (long long)((int64_t)(bits << spare) >> spare));
}

static void put_value(page *out, int depth);

static void put_key(page *out)
{
    uint8_t tag = out->at < out->end ? *out->at : 0;
    size_t  size = tag >= 0x80 && tag < 0xC0 ? tag - 0x80u : 0;
    bool    name = size > 0 && (size_t)(out->end - out->at) > size;
    for (size_t i = 1; name && i <= size; i++) name = isalnum(out->at[i]) || out->at[i] == '_';
    if (!name) {
        put_text(out, "[");
        put_value(out, 0);
        put_text(out, "]");
        return;
    }
    put_text(out, "%.*s", (int)size, (const char *)out->at + 1);
    out->at += 1 + size;
}

static void put_table(page *out, size_t values, size_t pairs, int depth)
{
    if (depth == FLI_LUA_DEPTH_MAX) out->cut = true;
    put_text(out, "{");
    for (size_t i = 0; i < values + pairs && !out->cut; i++) {
        put_text(out, i > 0 ? ", " : "");
        if (i >= values) {
            put_key(out);
            put_text(out, " = ");
        }
        put_value(out, depth + 1);
    }
    put_text(out, "}");
}

static void put_counted(page *out, uint8_t tag, int depth)
{
    uint8_t  small[2];
    uint32_t large[2] = { 0, 0 };
    double   number;
    switch (tag) {
    case 0x07:
        if (take_bytes(out, &number, 8)) put_text(out, "%.14g", number);
        return;
    case 0x08:
        if (take_bytes(out, small, 1)) put_string(out, small[0]);
        return;
    case 0x09:
        if (take_bytes(out, large, 4)) put_string(out, large[0]);
        return;
    case 0x0A:
        if (take_bytes(out, small, 2)) put_table(out, small[0], small[1], depth);
        return;
    case 0x0B:
        if (take_bytes(out, large, 8)) put_table(out, large[0], large[1], depth);
        return;
    default: out->cut = true; return;
    }
}

static void put_value(page *out, int depth)
{
    static const char *const words[] = { "nil", "false", "true" };
    uint8_t                  tag, rest[16];
    if (!take_bytes(out, &tag, 1)) return;
    if (tag >= 0xC0) put_text(out, "%u", tag - 0xC0u + 64);
    else if (tag >= 0x80) put_string(out, tag - 0x80u);
    else if (tag >= 0x40) put_text(out, "%u", tag - 0x40u);
    else if (tag <= 0x02) put_text(out, "%s", words[tag]);
    else if (tag <= 0x06) put_int(out, (size_t)1 << (tag - 3));
    else if (tag <= 0x0B) put_counted(out, tag, depth);
    else if (tag == 0x0C) (void)take_bytes(out, rest, 16), put_text(out, "a pid");
    else if (tag == 0x0F) (void)take_bytes(out, rest, 4), put_text(out, "a blob");
    else if (tag == 0x14) (void)take_bytes(out, rest, 4), put_text(out, "a long string");
    else if (tag == 0x1B) put_text(out, "null");
    else if (tag == 0x1C) put_text(out, "{}");
    else out->cut = true;
}

/* Describes a message: first whether it is a request, a reply or a refusal, then its value. */
static void put_message(page *out)
{
    static const char *const sorts[] = { "a request, ", "a reply, ", "a refusal, " };
    uint8_t                  tag = out->at < out->end ? *out->at : 0, id[9];
    if (tag == FLI_LUA_TAG_BLOB) {
        put_text(out, "a blob");
        return;
    }
    if (tag >= 0x10 && tag <= 0x12 && take_bytes(out, id, sizeof id)) put_text(out, "%s", sorts[tag - 0x10]);
    put_value(out, 0);
}

size_t filch_lua_describe(void *user, const void *bytes, size_t size, size_t whole, char *text, size_t text_size)
{
    page out = { .at = bytes, .text = text, .room = text_size };
    (void)user;
    if (bytes == NULL || text == NULL) return 0;
    out.end = out.at + size;
    if (size > FLI_LUA_MARK_SIZE && memcmp(bytes, fli_lua_mark, FLI_LUA_MARK_SIZE) == 0) {
        out.at += FLI_LUA_MARK_SIZE;
        put_message(&out);
    } else {
        put_string(&out, whole);
    }
    if (out.cut && out.used + 3 <= text_size) {
        memcpy(text + out.used, "...", 3);
        out.used += 3;
    }
    return out.used;
}
