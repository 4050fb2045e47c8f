/* write.c - writing: all bytes of a payload, in as many system calls as needed. The first attempt writes from the
 * payload of the command. The operation takes a reference to the payload only if the system does not accept all bytes
 * at once, for later attempts. The payload of a yield is inline bytes or a block with a reference count, so a reference
 * needs no memory and cannot fail. */
#include <errno.h>

#include "base/assert.h"
#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"

static int64_t write_once(fli_stream *s, const void *bytes, size_t size)
{
    return s->kind == FLI_STREAM_SOCKET ? fli_net_send(s->fd, bytes, size) : fli_desc_write(s->fd, bytes, size);
}

void fli_op_hold(fli_io *io, fli_op *op)
{
    if (op->owns) return;
    filch_data owned = filch_none();
    filch_err  err = fli_data_own(&io->rt->mem, 0, &op->as.data, &owned);
    FLI_ASSERT(err == FILCH_OK); /* cannot fail: see fli_op_hold() in stream.h */
    op->as.data = owned;
    op->owns = true;
}

fli_io_result fli_write_try(fli_io *io, fli_stream *s, fli_op *op)
{
    const uint8_t *bytes = filch_raw(&op->as.data);
    size_t         size = filch_size(&op->as.data);
    while (op->done < size) {
        size_t left = size - (size_t)op->done, budget = fli_budget_left(io);
        if (budget == 0) {
            fli_op_hold(io, op);
            return fli_io_result_later();
        }
        int64_t n = write_once(s, bytes + op->done, left < budget ? left : budget);
        if (n < 0) {
            fli_op_hold(io, op);
            return fli_io_result_failed(n);
        }
        op->done += (uint64_t)n;
        fli_budget_use(io, (size_t)n);
    }
    return (fli_io_result){ .data = filch_int((int64_t)size), .ready = true };
}

fli_io_result fli_send_to_try(fli_io *io, fli_stream *s, fli_op *op)
{
    filch_io_request request = fli_op_request(op);
    fli_address      to;
    if (!fli_address_read(&to, request.text)) return fli_io_result_err(FILCH_EINVAL);
    int64_t n = fli_net_send_to(s->fd, request.bytes, request.byte_count, &to);
    /* ECONNREFUSED is about an earlier datagram, which no socket received. The current datagram was not sent, so it is
     * sent again. */
    if (n == -ECONNREFUSED) n = fli_net_send_to(s->fd, request.bytes, request.byte_count, &to);
    if (n < 0) {
        fli_op_hold(io, op);
        return fli_io_result_failed(n);
    }
    return (fli_io_result){ .data = filch_int(n), .ready = true };
}
