/* data.h - payloads inside the runtime. A payload that travels *owns* its bytes: the value itself, up to 24 bytes right
 * here, or a reference to a counted block. */
#ifndef FLI_PROC_DATA_H
#define FLI_PROC_DATA_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "base/mem.h"

/* filch_data.form */
enum {
    FLI_FORM_VALUE,  /* the union holds the value; nothing to free */
    FLI_FORM_INLINE, /* `small` bytes in as.bytes; a text shorter than 24 has its NUL there */
    FLI_FORM_LENT,   /* as.ref names somebody else's bytes */
    FLI_FORM_MOVE,   /* as.move names bytes that change hands when the call succeeds */
    FLI_FORM_BLOCK   /* as.ref names bytes in the counted block as.ref.block */
};

/* Makes an owned payload of `in`. FILCH_EINVAL: malformed. FILCH_ETOOBIG: more than `max` bytes (0: no limit).
 * FILCH_ENOMEM. Inline, lent and moved bytes end up inline or in a block of `mem`. */
FILCH_MUST_USE filch_err fli_data_own(const fli_mem *mem, size_t max, const filch_data *in, filch_data *out);

/* Is it one that our functions make? */
bool fli_data_is_sound(const filch_data *data);

/* The same payload without the offer to change hands: moved bytes become lent ones. */
filch_data fli_data_lend(const filch_data *data);

/* Gives an owned payload back. */
void fli_data_free(filch_data *data);

/* Takes back fli_data_own(in -> out) when the call failed later on: a moved `in` is the caller's again. */
void fli_data_undo(const filch_data *in, filch_data *out);

/* Frees the bytes of a filch_move that nobody took. */
void fli_data_free_moved(const filch_data *data);

/* A counted block to be filled from the system, with one reference: `room` bytes, and where they begin. NULL: no memory.
 * Payloads are cut out of it without a copy; whoever holds one keeps the whole block. */
void *fli_block_make(const fli_mem *mem, size_t room, uint8_t **bytes);
void  fli_block_hold(void *block);
/* Gives a block whose only holder is the caller more room, and says where its bytes are now. NULL: no memory, or `first`
 * is not its first byte; then the block is as it was. */
void *fli_block_grow(void *block, const uint8_t *first, size_t room, uint8_t **bytes);
void  fli_block_drop(void *block);
/* Does nobody else hold it? Then what it held may be written over. */
bool fli_block_is_ours(void *block);
/* The function that frees its bytes, by which the room that made it knows it again; NULL for copies. */
filch_free_fn fli_block_free_fn(void *block);
/* `size` bytes of it at `at`, for a call that takes a reference of its own; this one has none. */
filch_data fli_block_cut(void *block, const void *at, size_t size);

/* Nothing to copy, count or free: the value itself. The common case, worth asking for inline. */
static inline bool fli_data_is_value_form(const filch_data *data)
{
    return data->form == FLI_FORM_VALUE;
}

/* A sound payload that is its own owner. */
static inline bool fli_data_is_value(const filch_data *data)
{
    /* Both in one comparison: FLI_FORM_VALUE is 0. */
    return (unsigned)(data->kind | data->form << 8) <= FILCH_KIND_PTR;
}

/* A value goes from register to node to event in words of 8 bytes. Volatile, or a compiler makes vectors of them: the
 * processor forwards what has just been stored to a load only if it was stored in one piece, and else the load waits until
 * it has left the store buffer. */
typedef volatile uint64_t fli_word;

/* Writes a value where a payload begins: its kind, alone in the first word, and what it is. The last word of a payload stays as
 * it is: values do not reach that far. */
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

/* fli_data_own, without a call for what is its own owner. */
FILCH_MUST_USE static inline filch_err fli_data_own_fast(const fli_mem *mem, size_t max, const filch_data *in,
                                                         filch_data *out)
{
    if (!fli_data_is_value(in)) return fli_data_own(mem, max, in, out);
    *out = *in;
    return FILCH_OK;
}

/* Payload bytes, as limits count them: 0 for plain values. */
size_t fli_data_bytes(const filch_data *data);

#endif
