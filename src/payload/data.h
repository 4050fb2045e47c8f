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

#include "base/assert.h"
#include "base/mem.h"

/* Values of filch_data.form. The inline functions of filch.h know VALUE, INLINE and LENT. */
enum {
    FLI_FORM_VALUE = FILCH_FORM_VALUE, /* the union holds the value itself: nothing to copy, count or free */
    /* the bytes are in as.bytes, and `small` is their number; a text has fewer than 24 bytes, and its NUL behind
     * them */
    FLI_FORM_INLINE = FILCH_FORM_INLINE,
    FLI_FORM_LENT = FILCH_FORM_LENT, /* as.ref points to bytes of the caller, valid during the call */
    FLI_FORM_MOVE,                   /* as.move points to bytes that the callee takes if the call succeeds */
    FLI_FORM_BLOCK                   /* as.ref points to bytes of the counted block as.ref.block */
};

/* Makes an owned payload *out from `in`. The bytes of a lent payload are copied, inline or to a block; moved bytes are
 * taken over by a new block. Blocks are allocated from `mem`. FILCH_EINVAL: `in` is malformed. FILCH_ETOOBIG: `in` has
 * more than `max` bytes (0: no limit). FILCH_ENOMEM. */
FILCH_MUST_USE filch_err fli_data_own(const fli_mem *mem, size_t max, const filch_data *in, filch_data *out);

/* Returns true if the payload is well formed, as made by the functions of filch.h. */
bool fli_data_is_sound(const filch_data *data);

/* Returns the payload with moved bytes turned into lent bytes, so that the callee does not take them. */
filch_data fli_data_lend(const filch_data *data);

/* Frees an owned payload. */
void fli_data_free(filch_data *data);

/* Undoes fli_data_own(..., in, out) after a later failure. If `in` was moved, its bytes belong to the caller again. */
void fli_data_undo(const filch_data *in, filch_data *out);

/* Frees the bytes of a filch_move() payload that no call has taken. */
void fli_data_free_moved(const filch_data *data);

/* Allocates a counted block with one reference and space for `room` bytes, which the caller fills. Stores the
 * address of these bytes in *bytes. Returns NULL if out of memory. A payload made by fli_block_cut() refers to a part
 * of the block without a copy, and keeps the whole block alive. */
void *fli_block_make(const fli_mem *mem, size_t room, uint8_t **bytes);
void  fli_block_hold(void *block);
/* Enlarges a block to `room` bytes and returns it; *bytes is the new address of its bytes. Requires that the caller has
 * the only reference. Returns NULL, and leaves the block unchanged, if out of memory or if `first` is not the address
 * of the block's first byte. */
void *fli_block_grow(void *block, const uint8_t *first, size_t room, uint8_t **bytes);
void  fli_block_drop(void *block);
/* Returns true if the caller's reference is the only one; then the block's bytes may be overwritten. */
bool fli_block_is_ours(void *block);
/* Returns the function that frees moved bytes of the block; NULL if its bytes were copied. A module recognises its own
 * blocks by this function. */
filch_free_fn fli_block_free_fn(void *block);
/* Returns a payload of `size` bytes at `at` in the block. The payload holds no reference itself; the call to which
 * it is passed takes one. */
filch_data fli_block_cut(void *block, const void *at, size_t size);

/* Returns true if the payload is in value form: it needs no copy, no count and no free. */
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

/* The most bytes that a payload holds inline. */
#define FLI_INLINE_MAX 24

/* A word of a payload. A payload is copied to a node, and from the node to an event, in words of 8 bytes. Volatile, so
 * that the compiler does not merge two words into one vector access: the processor forwards the data of a store to a
 * later load only if this one store covers the whole load; otherwise the load waits until the store buffer is empty.
 */
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

static_assert(sizeof(filch_data) == 8 + FLI_INLINE_MAX, "a payload is a word and the inline bytes");

/* Copies a payload in words of 8 bytes. */
static inline void fli_data_copy(filch_data *to, const filch_data *from)
{
    const fli_word *source = (const fli_word *)(const void *)from;
    fli_word       *words = (fli_word *)(void *)to;
    words[0] = source[0];
    words[1] = source[1];
    words[2] = source[2];
    words[3] = source[3];
}

static inline uint64_t fli_word_load(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Returns a word that has the `size` bytes at `at` (less than 8) as its first bytes in memory order, and 0 in the
 * others. The word is built in a register: copying the bytes to memory and loading the word would wait for the store
 * buffer (see fli_word). */
static inline uint64_t fli_word_load_part(const uint8_t *at, size_t size)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t four = 0;
    uint16_t two = 0;
    uint64_t word = 0;
    if ((size & 1) != 0) word = at[size - 1];
    if ((size & 2) != 0) {
        memcpy(&two, at + (size & 4), sizeof two);
        word = word << 16 | two;
    }
    if ((size & 4) != 0) {
        memcpy(&four, at, sizeof four);
        word = word << 32 | four;
    }
    return word;
#else
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) ((uint8_t *)&word)[i] = at[i];
    return word;
#endif
}

/* Writes `size` bytes, at most FLI_INLINE_MAX, to filch_data.as of an inline payload (`as`), and 0 behind them. */
static inline void fli_inline_put(void *as, const uint8_t *bytes, size_t size)
{
    fli_word *words = (fli_word *)as;
    if (FLI_LIKELY(size == FLI_INLINE_MAX)) {
        words[0] = fli_word_load(bytes);
        words[1] = fli_word_load(bytes + 8);
        words[2] = fli_word_load(bytes + 16);
    } else if (size >= 16) {
        words[0] = fli_word_load(bytes);
        words[1] = fli_word_load(bytes + 8);
        words[2] = fli_word_load_part(bytes + 16, size - 16);
    } else if (size >= 8) {
        words[0] = fli_word_load(bytes);
        words[1] = fli_word_load_part(bytes + 8, size - 8);
        words[2] = 0;
    } else {
        words[0] = fli_word_load_part(bytes, size);
        words[1] = 0;
        words[2] = 0;
    }
}

/* Writes the first word of a payload, or of the payload in a node, in one store of 8 bytes on little-endian machines:
 * see fli_word. `what` and `error` are fields of a node; a filch_data has a gap at their place. */
static inline void fli_shape_put(void *payload, uint64_t kind, uint64_t form, uint64_t small, uint64_t what,
                                 uint32_t error)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    *(fli_word *)payload = kind | form << 8 | small << 16 | what << 24 | (uint64_t)error << 32;
#else
    uint8_t *bytes = payload;
    bytes[0] = (uint8_t)kind;
    bytes[1] = (uint8_t)form;
    bytes[2] = (uint8_t)small;
    bytes[3] = (uint8_t)what;
    memcpy(bytes + 4, &error, sizeof error);
#endif
}

/* Writes an inline payload with a copy of `bytes`. Requires fli_inline_fits(). */
static inline void fli_inline_own(void *payload, uint64_t kind, const void *bytes, size_t size)
{
    fli_shape_put(payload, kind, FLI_FORM_INLINE, size, 0, 0);
    fli_inline_put((uint8_t *)payload + offsetof(filch_data, as), bytes, size);
}

/* Returns true if a payload can hold `size` bytes inline. A text needs one byte more, for its NUL. */
static inline bool fli_inline_fits(uint64_t kind, size_t size)
{
    return size <= (kind == FILCH_KIND_TEXT ? FLI_INLINE_MAX - 1 : FLI_INLINE_MAX);
}

/* fli_data_own() with the common case inlined: a value is copied. */
FILCH_MUST_USE static inline filch_err fli_data_own_fast(const fli_mem *mem, size_t max, const filch_data *in,
                                                         filch_data *out)
{
    if (!fli_data_is_value(in)) return fli_data_own(mem, max, in, out);
    fli_data_copy(out, in);
    return FILCH_OK;
}

/* Returns the number of payload bytes that count against a limit: 0 for values. */
size_t fli_data_bytes(const filch_data *data);

#endif
