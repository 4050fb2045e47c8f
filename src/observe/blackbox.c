/* blackbox.c - the bytes of a recording. See blackbox.h. */
#include "observe/blackbox.h"

#include <stdio.h>
#include <string.h>

#define MAGIC "FILCHBOX"
#define MAGIC_SIZE 8
#define SIZE_AT (MAGIC_SIZE + 8) /* offset of the field with the total size */
#define HEAD_MIN (SIZE_AT + 8)
#define CHECKSUM_SIZE 8
#define ROOM_FIRST 256 /* initial size of the buffer: enough for a step with one or two small messages */
/* A digest covers at most this many bytes of a payload, so that a long payload does not slow the step down. */
#define HASHED_MAX 4096
#define LIBRARY ((FILCH_VERSION_MAJOR << 16) | (FILCH_VERSION_MINOR << 8) | FILCH_VERSION_PATCH)

/* Writes the lowest byte first. The loop is correct on every machine; on little-endian machines memcpy does the same in
 * one instruction. */
static inline void write_number(uint8_t *at, uint64_t value, size_t size)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(at, &value, size);
#else
    for (size_t i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * i));
#endif
}

static uint64_t read_number(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* FNV-1a. Each round is a bijection of the hash, so two inputs that differ in one byte have different hashes. */
#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static bool has_bytes(uint8_t kind)
{
    return kind == FILCH_KIND_TEXT || kind == FILCH_KIND_BYTES;
}

/* Hashes a number as its eight bytes, the lowest byte first, so that the hash is the same on every machine. */
static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    uint8_t bytes[8];
    write_number(bytes, number, sizeof bytes);
    return hash_bytes(hash, bytes, sizeof bytes);
}

static uint64_t bits_of(double real)
{
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

fli_box_digest fli_box_digest_of(const filch_data *data)
{
    fli_box_digest digest = { .kind = (uint8_t)filch_kind_of(data), .size = filch_size(data), .hash = HASH_BEGIN };
    filch_pid      pid = filch_as_pid(data);
    switch (digest.kind) {
    case FILCH_KIND_INT: digest.hash = hash_number(digest.hash, (uint64_t)filch_as_int(data)); break;
    case FILCH_KIND_NUM: digest.hash = hash_number(digest.hash, bits_of(filch_as_num(data))); break;
    case FILCH_KIND_PID: digest.hash = hash_number(hash_number(digest.hash, pid.node), pid.serial); break;
    default:
        if (!has_bytes(digest.kind)) break;
        digest.hash = hash_bytes(digest.hash, filch_raw(data), digest.size < HASHED_MAX ? digest.size : HASHED_MAX);
        break;
    }
    return digest;
}

/* ---- writing ---- */

void fli_box_writer_init(fli_box_writer *w, const fli_mem *mem)
{
    *w = (fli_box_writer){ .mem = mem };
}

void fli_box_writer_fini(fli_box_writer *w)
{
    if (w->bytes != NULL) fli_free(w->mem, w->bytes, w->room);
    *w = (fli_box_writer){ .mem = w->mem };
}

static bool grow(fli_box_writer *w, size_t size)
{
    if (w->failed) return false;
    size_t wanted = w->size + size, room = w->room < ROOM_FIRST ? ROOM_FIRST : w->room;
    while (room < wanted) room *= 2;
    uint8_t *bytes = w->bytes == NULL ? fli_alloc(w->mem, room) : fli_resize(w->mem, w->bytes, w->room, room);
    w->failed = bytes == NULL;
    if (w->failed) return false;
    w->bytes = bytes;
    w->room = room;
    return true;
}

static inline bool make_room(fli_box_writer *w, size_t size)
{
    return (!w->failed && size <= w->room - w->size) || grow(w, size);
}

void fli_box_put(fli_box_writer *w, const void *bytes, size_t size)
{
    if (size == 0 || !make_room(w, size)) return;
    if (bytes != NULL) memcpy(w->bytes + w->size, bytes, size);
    else memset(w->bytes + w->size, 0, size);
    w->size += size;
}

static inline void put_number(fli_box_writer *w, uint64_t value, size_t size)
{
    if (!make_room(w, size)) return;
    write_number(w->bytes + w->size, value, size);
    w->size += size;
}

static void put_u8(fli_box_writer *w, unsigned value)
{
    put_number(w, value, 1);
}

static void put_u32(fli_box_writer *w, uint32_t value)
{
    put_number(w, value, 4);
}

static void put_u64(fli_box_writer *w, uint64_t value)
{
    put_number(w, value, 8);
}

static void put_pid(fli_box_writer *w, filch_pid pid)
{
    put_u64(w, pid.node);
    put_u64(w, pid.serial);
}

static void put_text(fli_box_writer *w, const char *text)
{
    size_t size = strlen(text);
    put_u32(w, (uint32_t)size);
    fli_box_put(w, text, size + 1);
}

/* Format: kind:u8, then the fields of this kind of payload. For bytes: size, number of stored bytes, the stored bytes,
 * a NUL. */
static void put_data(fli_box_writer *w, const filch_data *data, size_t bytes_max)
{
    uint8_t kind = (uint8_t)filch_kind_of(data);
    put_u8(w, kind);
    if (kind == FILCH_KIND_INT) put_u64(w, (uint64_t)filch_as_int(data));
    if (kind == FILCH_KIND_NUM) put_u64(w, bits_of(filch_as_num(data)));
    if (kind == FILCH_KIND_PID) put_pid(w, filch_as_pid(data));
    if (kind == FILCH_KIND_PTR) put_u64(w, (uintptr_t)filch_as_ptr(data));
    if (!has_bytes(kind)) return;
    size_t size = filch_size(data), kept = size < bytes_max ? size : bytes_max;
    put_u64(w, size);
    put_u64(w, kept);
    if (kept > 0) fli_box_put(w, filch_raw(data), kept);
    put_u8(w, 0);
}

static void put_digest(fli_box_writer *w, const fli_box_digest *digest)
{
    put_u8(w, digest->kind);
    put_u64(w, digest->size);
    put_u64(w, digest->hash);
}

void fli_box_put_birth(fli_box_writer *w, const char *method, const filch_data *args, size_t bytes_max)
{
    put_u8(w, method != NULL);
    if (method != NULL) put_text(w, method);
    put_data(w, args, bytes_max);
}

void fli_box_put_value(fli_box_writer *w, const char *key, const filch_data *data, size_t bytes_max)
{
    put_u8(w, FLI_BOX_VALUE);
    put_text(w, key);
    put_data(w, data, bytes_max);
}

void fli_box_put_born(fli_box_writer *w)
{
    put_u8(w, FLI_BOX_BORN);
}

void fli_box_put_step(fli_box_writer *w, uint32_t waiting)
{
    put_u8(w, FLI_BOX_STEP);
    put_u32(w, waiting);
}

void fli_box_put_event(fli_box_writer *w, const filch_event *event, size_t bytes_max)
{
    put_u8(w, FLI_BOX_EVENT);
    put_u32(w, (uint32_t)event->type);
    put_u32(w, (uint32_t)event->error);
    put_u64(w, event->tag);
    put_pid(w, event->from);
    put_data(w, &event->data, bytes_max);
}

void fli_box_put_call(fli_box_writer *w, const fli_rec_call *call)
{
    put_u8(w, FLI_BOX_CALL);
    put_u8(w, call->kind);
    put_u32(w, call->command);
    put_u64(w, call->tag);
    put_pid(w, call->pid);
    put_digest(w, &call->data);
    put_text(w, call->name != NULL ? call->name : "");
    put_u32(w, (uint32_t)call->answer);
    if (call->kind == FLI_REC_RELATE) put_u64(w, call->given);
}

void fli_box_put_result(fli_box_writer *w, const fli_rec_result *result)
{
    put_u8(w, FLI_BOX_RESULT);
    put_u32(w, (uint32_t)result->error);
    put_u8(w, result->status);
    put_u64(w, result->calls);
    put_digest(w, &result->value);
    put_text(w, result->name != NULL ? result->name : "");
}

void fli_box_put_head(fli_box_writer *w, const fli_box_head *head)
{
    fli_box_put(w, MAGIC, MAGIC_SIZE);
    put_u32(w, FLI_BOX_FORMAT);
    put_u32(w, LIBRARY);
    put_u64(w, 0); /* space for the total size, which fli_box_put_end() writes */
    put_text(w, head->type_name);
    put_u64(w, head->state_size);
    put_pid(w, head->pid);
    put_u32(w, (uint32_t)head->error);
    put_u8(w, head->lost);
    put_u64(w, head->missing);
    put_u64(w, head->steps);
    put_u64(w, head->payload_max);
    put_u32(w, head->send_budget);
}

void fli_box_put_end(fli_box_writer *w)
{
    put_u8(w, FLI_BOX_END);
    if (!make_room(w, CHECKSUM_SIZE)) return;
    write_number(w->bytes + SIZE_AT, w->size + CHECKSUM_SIZE, 8);
    put_u64(w, hash_bytes(HASH_BEGIN, w->bytes, w->size));
}

/* ---- reading ---- */

/* Returns the next `size` bytes. If fewer are left, returns NULL and sets r->bad. */
static const uint8_t *take_raw(fli_box_reader *r, uint64_t size)
{
    if (r->bad || size > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += size;
    return at;
}

static uint64_t take_number(fli_box_reader *r, size_t size)
{
    const uint8_t *at = take_raw(r, size);
    return at != NULL ? read_number(at, size) : 0;
}

static uint8_t take_u8(fli_box_reader *r)
{
    return (uint8_t)take_number(r, 1);
}

static uint32_t take_u32(fli_box_reader *r)
{
    return (uint32_t)take_number(r, 4);
}

static uint64_t take_u64(fli_box_reader *r)
{
    return take_number(r, 8);
}

static filch_err take_err(fli_box_reader *r)
{
    return (filch_err)(int32_t)take_u32(r);
}

static filch_pid take_pid(fli_box_reader *r)
{
    filch_pid pid;
    pid.node = take_u64(r);
    pid.serial = take_u64(r);
    return pid;
}

/* Returns the next `size` bytes if a NUL follows them. Otherwise returns "" and sets r->bad. */
static const char *take_terminated(fli_box_reader *r, uint64_t size)
{
    const uint8_t *at = take_raw(r, size);
    if (at == NULL || take_u8(r) != 0 || r->bad) {
        r->bad = true;
        return "";
    }
    return (const char *)at;
}

static const char *take_text(fli_box_reader *r)
{
    uint32_t size = take_u32(r);
    return take_terminated(r, size);
}

static filch_data take_bytes(fli_box_reader *r, uint8_t kind, uint64_t *cut)
{
    uint64_t    size = take_u64(r), kept = take_u64(r);
    const char *at = take_terminated(r, kept);
    if (kept > size) r->bad = true;
    if (r->bad) return filch_none();
    *cut = size - kept;
    return kind == FILCH_KIND_TEXT ? filch_str(at) : filch_bytes(at, (size_t)kept);
}

static filch_data take_data(fli_box_reader *r, uint64_t *cut)
{
    uint8_t  kind = take_u8(r);
    uint64_t bits;
    double   real;
    *cut = 0;
    switch (kind) {
    case FILCH_KIND_NONE: return filch_none();
    case FILCH_KIND_INT: return filch_int((int64_t)take_u64(r));
    case FILCH_KIND_NUM:
        bits = take_u64(r);
        memcpy(&real, &bits, sizeof real);
        return filch_num(real);
    case FILCH_KIND_PID: return filch_of_pid(take_pid(r));
    case FILCH_KIND_PTR: return filch_ptr((void *)(uintptr_t)take_u64(r));
    case FILCH_KIND_TEXT:
    case FILCH_KIND_BYTES: return take_bytes(r, kind, cut);
    default: r->bad = true; return filch_none();
    }
}

static fli_box_digest take_digest(fli_box_reader *r)
{
    fli_box_digest digest;
    digest.kind = take_u8(r);
    digest.size = take_u64(r);
    digest.hash = take_u64(r);
    if (digest.kind > FILCH_KIND_BYTES) r->bad = true;
    return digest;
}

static void take_event(fli_box_reader *r, fli_box_item *item)
{
    filch_event *event = &item->event;
    event->type = (int32_t)take_u32(r);
    event->error = take_err(r);
    event->tag = take_u64(r);
    event->from = take_pid(r);
    event->data = take_data(r, &item->cut);
}

static void take_call(fli_box_reader *r, fli_rec_call *call)
{
    call->kind = take_u8(r);
    call->command = take_u32(r);
    call->tag = take_u64(r);
    call->pid = take_pid(r);
    call->data = take_digest(r);
    call->name = take_text(r);
    call->answer = take_err(r);
    call->given = call->kind == FLI_REC_RELATE ? take_u64(r) : 0;
    if (call->kind < FLI_REC_SEND || call->kind > FLI_REC_WHEREIS) r->bad = true;
}

static void take_result(fli_box_reader *r, fli_rec_result *result)
{
    result->error = take_err(r);
    result->status = take_u8(r);
    result->calls = take_u64(r);
    result->value = take_digest(r);
    result->name = take_text(r);
}

fli_box_kind fli_box_next(fli_box_reader *r, fli_box_item *item)
{
    *item = (fli_box_item){ .kind = FLI_BOX_END, .event = { .data = filch_none() } };
    if (r->bad || r->at == r->end) return FLI_BOX_END;
    item->kind = (fli_box_kind)take_u8(r);
    switch (item->kind) {
    case FLI_BOX_VALUE:
        item->name = take_text(r);
        item->event.data = take_data(r, &item->cut);
        break;
    case FLI_BOX_BORN: break;
    case FLI_BOX_STEP: item->waiting = take_u32(r); break;
    case FLI_BOX_EVENT: take_event(r, item); break;
    case FLI_BOX_CALL: take_call(r, &item->call); break;
    case FLI_BOX_RESULT: take_result(r, &item->result); break;
    case FLI_BOX_END: r->at = r->end; break;
    default: r->bad = true; break;
    }
    if (r->bad) item->kind = FLI_BOX_END;
    return item->kind;
}

static void take_head(fli_box_reader *r)
{
    fli_box_head *head = &r->head;
    head->type_name = take_text(r);
    head->state_size = take_u64(r);
    head->pid = take_pid(r);
    head->error = take_err(r);
    head->lost = take_u8(r) != 0;
    head->missing = take_u64(r);
    head->steps = take_u64(r);
    head->payload_max = take_u64(r);
    head->send_budget = take_u32(r);
    r->method = take_u8(r) != 0 ? take_text(r) : NULL;
    r->args = take_data(r, &r->args_cut);
}

/* Returns true if an item of kind `next` may follow an item of kind `last`. */
static bool may_follow(fli_box_kind last, fli_box_kind next)
{
    switch (next) {
    case FLI_BOX_VALUE:
    case FLI_BOX_BORN: return last == FLI_BOX_VALUE;
    case FLI_BOX_STEP:
    case FLI_BOX_END: return last == FLI_BOX_BORN || last == FLI_BOX_RESULT;
    case FLI_BOX_EVENT: return last == FLI_BOX_STEP || last == FLI_BOX_EVENT;
    case FLI_BOX_CALL:
    case FLI_BOX_RESULT: return last == FLI_BOX_STEP || last == FLI_BOX_EVENT || last == FLI_BOX_CALL;
    default: return false;
    }
}

/* Returns true if all items can be read and are in a valid order. Does not change `r`. */
static bool makes_sense(fli_box_reader *r)
{
    fli_box_reader walk = *r;
    fli_box_item   item;
    fli_box_kind   last = FLI_BOX_VALUE;
    uint64_t       steps = 0;
    while (!walk.bad && walk.at < walk.end) {
        bool         is_last = walk.at + 1 == walk.end;
        fli_box_kind kind = fli_box_next(&walk, &item);
        if (walk.bad || !may_follow(last, kind) || (kind == FLI_BOX_END && !is_last)) return false;
        if (kind == FLI_BOX_STEP) steps++;
        last = kind;
    }
    return !walk.bad && last == FLI_BOX_END && steps == r->head.steps;
}

filch_err fli_box_open(fli_box_reader *r, const void *bytes, size_t size, char *text, size_t text_size)
{
    const uint8_t *at = bytes;
    *r = (fli_box_reader){ .args = filch_none() };
    if (size < HEAD_MIN + CHECKSUM_SIZE) {
        snprintf(text, text_size, "too short for a recording: %zu bytes", size);
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    if (memcmp(at, MAGIC, MAGIC_SIZE) != 0) {
        snprintf(text, text_size, "not a recording: it does not begin with " MAGIC);
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    uint64_t format = read_number(at + MAGIC_SIZE, 4), library = read_number(at + MAGIC_SIZE + 4, 4);
    uint64_t whole = read_number(at + SIZE_AT, 8);
    if (format != FLI_BOX_FORMAT) {
        snprintf(text, text_size, "a recording in format %u, written by Filch %u.%u.%u; this is %s and reads format %d",
                 (unsigned)format, (unsigned)(library >> 16), (unsigned)(library >> 8) & 255u, (unsigned)library & 255u,
                 filch_version(), FLI_BOX_FORMAT);
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    if (whole != size) {
        snprintf(text, text_size, "a recording of %llu bytes, but %zu are here", (unsigned long long)whole, size);
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    if (hash_bytes(HASH_BEGIN, at, size - CHECKSUM_SIZE) != read_number(at + size - CHECKSUM_SIZE, CHECKSUM_SIZE)) {
        snprintf(text, text_size, "damaged: the checksum does not fit");
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    r->at = at + HEAD_MIN;
    r->end = at + size - CHECKSUM_SIZE;
    take_head(r);
    if (r->bad || !makes_sense(r)) {
        snprintf(text, text_size, "malformed, though the checksum fits");
        return filch_invalid("bytes is not a whole recording: see report.text");
    }
    return FILCH_OK;
}
