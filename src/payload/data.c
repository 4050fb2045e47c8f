/* data.c - payloads: making, owning, sharing and reading them. See data.h and filch.h. */
#include "payload/data.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "port/atomic.h"

/* A counted block: bytes that several payloads share. Copied bytes are stored in the same allocation, behind this
 * header; moved bytes stay where the caller allocated them. */
typedef struct block {
    /* Number of references.  writes: any thread that holds a reference.  PAIR block.refs */
    FLI_ATOMIC(uint32_t) refs;
    fli_mem              mem;       /* not atomic, like all fields below: set before the block is shared */
    size_t               allocated; /* bytes of this block, header included */
    void                *bytes;
    size_t               size;
    filch_free_fn        free_fn; /* frees moved bytes; NULL for copied bytes */
    void                *user;
} block;

static void free_plainly(void *user, void *bytes, size_t size)
{
    (void)user;
    (void)size;
    free(bytes);
}

static block *block_create(const fli_mem *mem, size_t room)
{
    size_t total = sizeof(block) + room;
    if (total < room) return NULL;
    block *b = fli_alloc(mem, total);
    if (b == NULL) return NULL;
    *b = (block){ .mem = *mem, .allocated = total };
    fli_atomic_init(&b->refs, 1);
    return b;
}

static void block_free(block *b)
{
    fli_mem mem = b->mem;
    fli_free(&mem, b, b->allocated);
}

static void block_drop(block *b)
{
    /* PAIR block.refs, both halves: the last read of every holder comes before the free. */
    if (fli_sub_acqrel(&b->refs, 1) != 1) return;
    if (b->free_fn != NULL) b->free_fn(b->user, b->bytes, b->size);
    block_free(b);
}

/* Writes a payload that refers to all bytes of the block. Writes word by word: see fli_word. */
static void put_block(filch_data *out, uint8_t kind, block *b)
{
    fli_shape_put(out, kind, FLI_FORM_BLOCK, 0, 0, 0);
    out->as.ref.at = b->bytes;
    out->as.ref.size = b->size;
    out->as.ref.block = b;
}

void *fli_block_make(const fli_mem *mem, size_t room, uint8_t **bytes)
{
    block *b = block_create(mem, room);
    if (b == NULL) return NULL;
    b->bytes = b + 1;
    b->size = room;
    *bytes = b->bytes;
    return b;
}

void *fli_block_grow(void *block_, const uint8_t *first, size_t room, uint8_t **bytes)
{
    block  *b = block_;
    size_t  total = sizeof(block) + room;
    fli_mem mem = b->mem;
    if (total < room || first != (const uint8_t *)b->bytes || b->bytes != b + 1) return NULL;
    b = fli_resize(&mem, b, b->allocated, total);
    if (b == NULL) return NULL;
    b->allocated = total;
    b->bytes = b + 1;
    b->size = room;
    *bytes = b->bytes;
    return b;
}

void fli_block_hold(void *block_)
{
    fli_add_rlx(&((block *)block_)->refs, 1); /* relaxed: the caller holds a reference, so the count is not 0 */
}

void fli_block_drop(void *block_)
{
    block_drop(block_);
}

bool fli_block_is_ours(void *block_)
{
    return fli_load_acq(&((block *)block_)->refs) == 1; /* PAIR block.refs, acquire half: the last reads of all
                                                           former holders come before this load */
}

filch_free_fn fli_block_free_fn(void *block_)
{
    return ((block *)block_)->free_fn;
}

filch_data fli_block_cut(void *block_, const void *at, size_t size)
{
    filch_data data = { .kind = FILCH_KIND_BYTES, .form = FLI_FORM_BLOCK };
    data.as.ref.at = at;
    data.as.ref.size = size;
    data.as.ref.block = block_;
    return data;
}

/* Stores a copy of `size` bytes in *out, inline or in a new block. After a text, adds a NUL. */
static filch_err copy(const fli_mem *mem, uint8_t kind, const void *bytes, size_t size, filch_data *out)
{
    size_t nul = kind == FILCH_KIND_TEXT ? 1 : 0;
    if (fli_inline_fits(kind, size)) {
        fli_inline_own(out, kind, bytes, size);
        return FILCH_OK;
    }
    if (size > SIZE_MAX - 1) return FILCH_ENOMEM;
    block *b = block_create(mem, size + nul);
    if (b == NULL) return FILCH_ENOMEM;
    b->bytes = b + 1;
    b->size = size;
    memcpy(b->bytes, bytes, size);
    if (nul) ((char *)b->bytes)[size] = '\0';
    put_block(out, kind, b);
    return FILCH_OK;
}

static filch_err adopt(const fli_mem *mem, void *bytes, size_t size, filch_free_fn free_fn, void *user, filch_data *out)
{
    block *b = block_create(mem, 0);
    if (b == NULL) return FILCH_ENOMEM;
    b->bytes = bytes;
    b->size = size;
    b->free_fn = free_fn != NULL ? free_fn : free_plainly;
    b->user = user;
    put_block(out, FILCH_KIND_BYTES, b);
    return FILCH_OK;
}

size_t fli_data_bytes(const filch_data *data)
{
    switch (data->form) {
    case FLI_FORM_INLINE: return data->small;
    case FLI_FORM_LENT:
    case FLI_FORM_BLOCK: return data->as.ref.size;
    case FLI_FORM_MOVE: return data->as.move.size;
    default: return 0;
    }
}

bool fli_data_is_sound(const filch_data *data)
{
    bool bytes = data->kind == FILCH_KIND_TEXT || data->kind == FILCH_KIND_BYTES;
    switch (data->form) {
    case FLI_FORM_VALUE: return data->kind <= FILCH_KIND_PTR;
    case FLI_FORM_INLINE: return bytes && data->small <= sizeof data->as.bytes;
    case FLI_FORM_LENT: return bytes && (data->as.ref.at != NULL || data->as.ref.size == 0);
    case FLI_FORM_MOVE: return bytes && data->as.move.at != NULL;
    case FLI_FORM_BLOCK: return bytes && data->as.ref.block != NULL;
    default: return false;
    }
}

filch_err fli_data_own(const fli_mem *mem, size_t max, const filch_data *in, filch_data *out)
{
    if (!fli_data_is_sound(in))
        return filch_invalid("data is not a valid payload: NULL bytes with a size, for example");
    if (max != 0 && fli_data_bytes(in) > max) return FILCH_ETOOBIG;
    switch (in->form) {
    case FLI_FORM_LENT: return copy(mem, in->kind, in->as.ref.at, in->as.ref.size, out);
    case FLI_FORM_MOVE: return adopt(mem, in->as.move.at, in->as.move.size, in->as.move.free_fn, NULL, out);
    case FLI_FORM_BLOCK:
        /* Relaxed: the caller holds a reference, so the count cannot reach zero during this call. */
        fli_add_rlx(&((block *)in->as.ref.block)->refs, 1);
        break;
    default: break;
    }
    fli_data_copy(out, in);
    return FILCH_OK;
}

void fli_data_free(filch_data *data)
{
    if (data->form == FLI_FORM_BLOCK) block_drop(data->as.ref.block);
    *data = (filch_data){ .kind = FILCH_KIND_NONE };
}

void fli_data_undo(const filch_data *in, filch_data *out)
{
    if (in->form == FLI_FORM_MOVE) {
        block_free(out->as.ref.block);
        *out = (filch_data){ .kind = FILCH_KIND_NONE };
    } else {
        fli_data_free(out);
    }
}

void fli_data_free_moved(const filch_data *data)
{
    filch_free_fn free_fn = data->as.move.free_fn != NULL ? data->as.move.free_fn : free_plainly;
    free_fn(NULL, data->as.move.at, data->as.move.size);
}

/* ---- public: making payloads ---- */

filch_data fli_data_lend(const filch_data *data)
{
    return data->form == FLI_FORM_MOVE ? filch_lent((filch_kind)data->kind, data->as.move.at, data->as.move.size)
                                       : *data;
}

filch_data filch_move(void *bytes, size_t size, filch_free_fn free_fn)
{
    filch_data data = { .kind = FILCH_KIND_BYTES, .form = FLI_FORM_MOVE };
    data.as.move.at = bytes;
    data.as.move.size = size;
    data.as.move.free_fn = free_fn;
    return data;
}

/* Allocates the block with malloc: the call names no scheduler, so no scheduler's allocator hook can be used. */
filch_err filch_share(void *bytes, size_t size, filch_free_fn free_fn, void *user, filch_data *out)
{
    if (bytes == NULL) return filch_invalid("bytes is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    return adopt(&mem, bytes, size, free_fn, user, out);
}

void *filch_shared_user(const filch_data *data, filch_free_fn free_fn)
{
    if (data == NULL || free_fn == NULL || data->form != FLI_FORM_BLOCK || !fli_data_is_sound(data)) return NULL;
    const block *b = data->as.ref.block;
    return b->free_fn == free_fn ? b->user : NULL;
}

filch_err filch_keep(const filch_data *data, filch_data *out)
{
    if (data == NULL) return filch_invalid("data is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    return fli_data_own(&mem, 0, data, out);
}

void filch_drop(filch_data *data)
{
    if (data != NULL) fli_data_free(data);
}

static_assert(offsetof(filch_data, as.ref.at) == offsetof(filch_data, as.move.at) &&
                  offsetof(filch_data, as.ref.size) == offsetof(filch_data, as.move.size),
              "filch_raw() and filch_size() read moved bytes as lent bytes");

/* ---- public: functions that filch.h inlines, for callers that cannot use inline functions ---- */

extern inline filch_data   filch_value(filch_kind kind, uint64_t first, uint64_t second);
extern inline filch_data   filch_lent(filch_kind kind, const void *bytes, size_t size);
extern inline filch_data   filch_str(const char *text);
extern inline filch_data   filch_bytes(const void *bytes, size_t size);
extern inline filch_data   filch_none(void);
extern inline filch_data   filch_int(int64_t value);
extern inline filch_data   filch_num(double value);
extern inline filch_data   filch_of_pid(filch_pid pid);
extern inline filch_data   filch_ptr(void *pointer);
extern inline filch_data   filch_of_stream(filch_stream stream);
extern inline filch_kind   filch_kind_of(const filch_data *data);
extern inline int64_t      filch_as_int(const filch_data *data);
extern inline double       filch_as_num(const filch_data *data);
extern inline filch_pid    filch_as_pid(const filch_data *data);
extern inline void        *filch_as_ptr(const filch_data *data);
extern inline filch_stream filch_as_stream(const filch_data *data);
extern inline const void  *filch_raw(const filch_data *data);
extern inline const char  *filch_text(const filch_data *data);
extern inline size_t       filch_size(const filch_data *data);
