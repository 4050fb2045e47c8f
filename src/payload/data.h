/* data.h - payloads inside the runtime. A payload in a message *owns* its bytes: it is a value, up to 24 bytes inline,
 * or a reference to a counted block. Design: docs/design/memory.md. */
#ifndef FLI_PAYLOAD_DATA_H
#define FLI_PAYLOAD_DATA_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "base/mem.h"

/* Values of filch_data.form. */
enum {
    FLI_FORM_VALUE,  /* the union holds the value itself: nothing to copy, count or free */
    FLI_FORM_INLINE, /* the bytes are in as.bytes; `small` is their number. A text of less than 24 bytes has its NUL
                        there too */
    FLI_FORM_LENT,   /* as.ref points to bytes of the caller, valid during the call */
    FLI_FORM_MOVE,   /* as.move points to bytes that the callee takes if the call succeeds */
    FLI_FORM_BLOCK   /* as.ref points to bytes of the counted block as.ref.block */
};

/* Makes an owned payload from `in`. Lent and moved bytes are stored inline or in a block of `mem`. FILCH_EINVAL:
 * `in` is malformed. FILCH_ETOOBIG: more than `max` bytes (0: no limit). FILCH_ENOMEM. */
FILCH_MUST_USE filch_err fli_data_own(const fli_mem *mem, size_t max, const filch_data *in, filch_data *out);

/* Returns true if the payload is well formed, as made by the functions of filch.h. */
bool fli_data_is_sound(const filch_data *data);

/* Returns the payload with moved bytes turned into lent bytes, so that the callee does not take them. */
filch_data fli_data_lend(const filch_data *data);

/* Frees an owned payload. */
void fli_data_free(filch_data *data);

/* Undoes fli_data_own(in -> out) after a later failure: the bytes of a moved `in` belong to the caller again. */
void fli_data_undo(const filch_data *in, filch_data *out);

/* Frees the bytes of a filch_move() payload that no call has taken. */
void fli_data_free_moved(const filch_data *data);

/* Allocates a counted block with one reference and `room` bytes, to be filled by a read. Stores the start of the
 * bytes in *bytes. Returns NULL if out of memory. Payloads made by fli_block_cut() refer to parts of the block
 * without a copy; each of them keeps the whole block alive.
 */
void *fli_block_make(const fli_mem *mem, size_t room, uint8_t **bytes);
void  fli_block_hold(void *block);
/* Enlarges a block that the caller alone references, and stores the new start of its bytes. Returns NULL if out of
 * memory, or if `first` is not the first byte of the block; then the block is unchanged. */
void *fli_block_grow(void *block, const uint8_t *first, size_t room, uint8_t **bytes);
void  fli_block_drop(void *block);
/* Returns true if the caller's reference is the only one; then the block's bytes may be overwritten. */
bool fli_block_is_ours(void *block);
/* Returns the function that frees the block's bytes; NULL for copied bytes. A module recognises its own blocks by
 * this function. */
filch_free_fn fli_block_free_fn(void *block);
/* Returns a payload of `size` bytes at `at` in the block. The payload holds no reference itself; the call to which
 * it is passed takes one. */
filch_data fli_block_cut(void *block, const void *at, size_t size);

/* Returns true if the payload is a value: nothing to copy, count or free. */
static inline bool fli_data_is_value_form(const filch_data *data)
{
    return data->form == FLI_FORM_VALUE;
}

/* Returns true if the payload is a well-formed value. */
static inline bool fli_data_is_value(const filch_data *data)
{
    /* One comparison checks kind and form, because FLI_FORM_VALUE is 0. */
    return (unsigned)(data->kind | data->form << 8) <= FILCH_KIND_PTR;
}

/* A word of a value. A value is copied from registers to a node, and from the node to an event, in words of 8 bytes.
 * Volatile, so that the compiler does not merge two words into one vector access: the processor forwards the data of a
 * store to a later load only if this one store covers the whole load; otherwise the load waits until the store buffer
 * has drained. */
typedef volatile uint64_t fli_word;

/* Writes a value at the start of a payload. The first word gets the kind, with 0 in all its other bytes; the next two
 * words get the data. The last word of the payload is not written, because values have at most 16 bytes. */
static inline void fli_value_put(void *payload, uint64_t kind, uint64_t first, uint64_t second)
{
    static_assert(offsetof(filch_data, kind) == 0 && offsetof(filch_data, as) == 8, "what it is comes first");
    fli_word *words = (fli_word *)payload;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    words[0] = kind;
#else
    words[0] = 0;
    *(uint8_t *)payload = (uint8_t)kind;
#endif
    words[1] = first;
    words[2] = second;
}

/* fli_data_own() with the common case inlined: a value is copied. */
FILCH_MUST_USE static inline filch_err fli_data_own_fast(const fli_mem *mem, size_t max, const filch_data *in,
                                                         filch_data *out)
{
    if (!fli_data_is_value(in)) return fli_data_own(mem, max, in, out);
    *out = *in;
    return FILCH_OK;
}

/* Returns the number of payload bytes that count against a limit: 0 for values. */
size_t fli_data_bytes(const filch_data *data);

#endif
