/* read.c - reading: as many bytes as there are, an exact number, or up to a delimiter.
 *
 * Where received bytes are put: Each worker has a block of 64 KiB into which it receives, one read behind the other;
 * the process gets the filled part with a reference to the block. When no process refers to any part of the block, the
 * worker uses the block from its start again. So a server that does not keep the bytes it reads reuses the same cached
 * memory without an allocation.
 *
 * Bytes received beyond what was asked for stay in the read buffer of the stream, which refers to the same block. When
 * more bytes must follow them, they are copied to a block that only this stream uses. A byte is copied at most once in
 * this way. From then on the stream receives into that block.
 */
#include <errno.h>
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"

#define BLOCK_BYTES ((size_t)65536)
/* A read gets at least LEAST_BYTES of space in a block. If fewer bytes are free at the end of a block, they stay
 * unused. */
#define LEAST_BYTES ((size_t)16384)
/* Payloads up to this size are stored in the event itself, without a block. */
#define INLINE_BYTES sizeof((filch_data *)NULL)->as.bytes
/* A read of an exact size up to TRUST_BYTES allocates all its memory at once; for larger sizes the memory grows as
 * bytes come, so that a length sent by a peer does not allocate memory by itself. */
#define TRUST_BYTES ((size_t)262144)

uint8_t *fli_io_room(fli_io *io, size_t least, size_t *room, void **block)
{
    fli_io_local *local = &io->locals[fli_current_worker(io->rt)->index];
    if (local->block != NULL && fli_block_is_ours(local->block)) local->used = 0;
    if (local->block == NULL || BLOCK_BYTES - local->used < least) {
        uint8_t *bytes;
        void    *fresh = fli_block_make(&io->rt->mem, BLOCK_BYTES, &bytes);
        if (fresh == NULL) return NULL;
        if (local->block != NULL) fli_block_drop(local->block);
        *local = (fli_io_local){ .block = fresh, .bytes = bytes };
    }
    *room = BLOCK_BYTES - local->used;
    *block = local->block;
    return local->bytes + local->used;
}

void fli_io_filled(fli_io *io, size_t size)
{
    /* Rounds `size` up, because the bytes of the next read must start at a multiple of 8. */
    fli_io_local *local = &io->locals[fli_current_worker(io->rt)->index];
    local->used += (size + 7) & ~(size_t)7;
    FLI_ASSERT(local->used <= BLOCK_BYTES); /* true also after rounding up, because BLOCK_BYTES is a multiple of 8 */
}

void fli_read_buffer_drop(fli_stream *s)
{
    if (s->read_buffer.block != NULL) fli_block_drop(s->read_buffer.block);
    s->read_buffer = (fli_read_buffer){ .block = NULL };
}

static int64_t receive(fli_io *io, fli_stream *s, void *bytes, size_t room)
{
    bool    cut = false;
    int64_t n;
    if (s->kind != FLI_STREAM_SOCKET) n = fli_desc_read(s->fd, bytes, room);
    else if (!s->is_unix) n = fli_net_receive(s->fd, bytes, room);
    else n = fli_net_receive_unix(s->fd, bytes, room, &cut);
    /* s->more: the system may have more bytes. If fewer bytes came than there was space for, the system has no more
     * now, and the poller will report new bytes. Exception: a read that ended at a boundary (the end of a terminal
     * line, the end of a packet, an urgent byte, or a passed descriptor). */
    s->more = n == 0 || n == (int64_t)room || cut || (n > 0 && fli_load_rlx(&s->short_reads));
    if (n > 0) fli_budget_use(io, (size_t)n);
    return n;
}

static fli_io_result ended(void)
{
    return (fli_io_result){ .err = FILCH_EEND, .ready = true };
}

/* ---- FLI_READ_SOME: the fast path, with an empty read buffer ---- */

static fli_io_result read_some(fli_io *io, fli_stream *s, fli_op *op)
{
    size_t   room;
    void    *block;
    uint8_t *at = fli_io_room(io, LEAST_BYTES, &room, &block);
    if (at == NULL) return fli_io_result_err(FILCH_ENOMEM);
    if (room > op->most) room = (size_t)op->most;
    int64_t n = receive(io, s, at, room);
    if (n < 0) return fli_io_result_failed(n);
    if (n == 0) return ended();
    size_t        size = (size_t)n;
    fli_io_result result = { .ready = s->more };
    if (size <= INLINE_BYTES) {
        /* filch_bytes() copies the bytes into the event, so the next read may use this part of the block again */
        result.data = filch_bytes(at, size);
    } else {
        /* the payload refers to the bytes in the worker's block; the completion takes its own reference to the block */
        result.data = fli_block_cut(block, at, size);
        fli_io_filled(io, size);
    }
    return result;
}

/* ---- the read buffer ---- */

/* Takes the first `size` bytes out of the read buffer as a payload. */
static fli_io_result cut(fli_stream *s, size_t size, filch_err err)
{
    fli_read_buffer *buffer = &s->read_buffer;
    fli_io_result    result = { .ready = s->more, .err = err };
    if (size == 0) return result;
    fli_block_hold(buffer->block);
    result.data = fli_block_cut(buffer->block, buffer->at, size);
    result.owns = true;
    buffer->at += size;
    buffer->size -= size;
    if (buffer->room > 0) buffer->room -= size;
    if (buffer->size == 0) fli_read_buffer_drop(s);
    return result;
}

/* Makes space for more bytes behind the bytes in the read buffer, in a block that only this stream uses. Returns false
 * if there is no memory. */
static bool make_room(fli_io *io, fli_stream *s, size_t want)
{
    fli_read_buffer *buffer = &s->read_buffer;
    if (buffer->room > buffer->size) return true;
    size_t cap = want <= TRUST_BYTES ? want : buffer->size * 2;
    if (cap < LEAST_BYTES) cap = LEAST_BYTES;
    if (cap > want && want > TRUST_BYTES) cap = want;
    uint8_t *bytes;
    /* A block with no other reference is resized in place. The allocator does this for large blocks without a copy. */
    bool  grows = buffer->room > 0 && fli_block_is_ours(buffer->block);
    void *block = grows ? fli_block_grow(buffer->block, buffer->at, cap, &bytes) : NULL;
    if (block == NULL) {
        block = fli_block_make(&io->rt->mem, cap, &bytes);
        if (block == NULL) return false;
        if (buffer->size > 0) memcpy(bytes, buffer->at, buffer->size);
        if (buffer->block != NULL) fli_block_drop(buffer->block);
    }
    *buffer = (fli_read_buffer){ .block = block, .at = bytes, .size = buffer->size, .room = cap };
    return true;
}

/* Receives more bytes into the read buffer. `want`: how many bytes the buffer must have space for, including those it
 * holds already. Returns FILCH_OK with `again` false if any bytes were received. */
static fli_io_result fetch(fli_io *io, fli_stream *s, size_t want)
{
    fli_read_buffer *buffer = &s->read_buffer;
    size_t           room;
    void            *block = NULL;
    uint8_t         *at;
    size_t           budget = fli_budget_left(io);
    if (budget == 0) return fli_io_result_later();
    /* A thread of the work pool has no shared block, so it always uses a block of the stream. */
    bool own = buffer->size > 0 || want > LEAST_BYTES || fli_current_worker(io->rt) == NULL;
    if (own) {
        if (!make_room(io, s, want)) return fli_io_result_err(FILCH_ENOMEM);
        at = buffer->at + buffer->size;
        room = buffer->room - buffer->size;
    } else {
        at = fli_io_room(io, LEAST_BYTES, &room, &block);
        if (at == NULL) return fli_io_result_err(FILCH_ENOMEM);
    }
    int64_t n = receive(io, s, at, room < budget ? room : budget);
    if (n <= 0 && buffer->size == 0) fli_read_buffer_drop(s); /* an empty block is not kept while the operation waits */
    if (n < 0) return fli_io_result_failed(n);
    if (n == 0) return cut(s, buffer->size, FILCH_EEND);
    if (!own) {
        fli_read_buffer_drop(s);
        fli_block_hold(block);
        *buffer = (fli_read_buffer){ .block = block, .at = at };
        fli_io_filled(io, (size_t)n);
    }
    buffer->size += (size_t)n;
    return (fli_io_result){ .err = FILCH_OK };
}

/* Searches the delimiter in the read buffer. Returns the offset behind the delimiter, or 0 if the buffer does not
 * contain it. op->done keeps how many bytes have been searched. */
static size_t find(const fli_read_buffer *buffer, fli_op *op)
{
    size_t size = op->delimiter_size, from = op->done >= size ? (size_t)op->done - size + 1 : 0;
    if (buffer->size < size) return 0;
    const uint8_t *found = memmem(buffer->at + from, buffer->size - from, op->as.delimiter, size);
    op->done = buffer->size;
    return found != NULL ? (size_t)(found - buffer->at) + size : 0;
}

static fli_io_result read_until(fli_io *io, fli_stream *s, fli_op *op)
{
    for (;;) {
        size_t end = find(&s->read_buffer, op);
        if (end > 0 && end <= op->most) return cut(s, end, FILCH_OK);
        if (end > 0 || s->read_buffer.size >= op->most) return (fli_io_result){ .err = FILCH_ETOOBIG, .ready = true };
        /* Makes space for twice the bytes in the buffer, so that a line that comes in small pieces is copied a
         * logarithmic number of times. */
        size_t        want = s->read_buffer.size * 2 < LEAST_BYTES ? LEAST_BYTES : s->read_buffer.size * 2;
        fli_io_result result = fetch(io, s, want);
        if (result.again || result.err != FILCH_OK) return result;
    }
}

static fli_io_result read_exactly(fli_io *io, fli_stream *s, fli_op *op)
{
    while (s->read_buffer.size < op->most) {
        fli_io_result result = fetch(io, s, (size_t)op->most);
        if (result.again || result.err != FILCH_OK) return result;
    }
    return cut(s, (size_t)op->most, FILCH_OK);
}

fli_io_result fli_read_try(fli_io *io, fli_stream *s, fli_op *op)
{
    if (op->how == FLI_READ_EXACTLY) return read_exactly(io, s, op);
    if (op->how == FLI_READ_UNTIL) return read_until(io, s, op);
    if (s->read_buffer.size == 0 && fli_current_worker(io->rt) != NULL) return read_some(io, s, op);
    if (s->read_buffer.size == 0) {
        fli_io_result result = fetch(io, s, (size_t)op->most);
        if (result.again || result.err != FILCH_OK) return result;
    }
    return cut(s, s->read_buffer.size < op->most ? s->read_buffer.size : (size_t)op->most, FILCH_OK);
}
