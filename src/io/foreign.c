/* foreign.c - descriptors that the runtime did not open: waiting until one is ready (poll), and making a stream of one
 * (adopt).
 *
 * A poll that has to wait gets a stream of its own, a FLI_STREAM_POLL, and is an operation on it. So alarms, cancel and
 * the end of the process work as for every operation (op.c). The stream has a duplicate of the descriptor, because a
 * poller identifies a descriptor by number and file: with the original number, a second poll would be refused (EEXIST),
 * and after the process closed the number and the system reused it, removing the stream would remove another stream
 * from the poller.
 *
 * A poll asks poll(2) what the descriptor is ready for; the reports of the poller, which are edge-triggered, only say
 * when to ask.
 *
 * Adopting makes a duplicate of the descriptor too, and closes the original as its last action: after an error the
 * caller still has the original.
 */
#include <errno.h>

#include "base/assert.h"
#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"

/* ---- poll ---- */

fli_io_result fli_poll_try(fli_io *io, fli_stream *s, fli_op *op)
{
    (void)io;
    int ready = fli_desc_poll(s->fd, op->how);
    if (ready == 0) return fli_io_result_again();
    return ready > 0 ? (fli_io_result){ .data = filch_int(ready) } : fli_io_result_failed(ready);
}

static filch_err handle_poll(fli_io *io, const filch_command *command, filch_io_request request,
                             filch_receiver receiver)
{
    int         fd = (int)request.number, ready = fli_desc_poll(fd, request.how);
    fli_stream *s;
    bool        try_first;
    if (ready > 0) fli_op_complete(receiver, FILCH_OK, filch_int(ready));
    else if (ready < 0) fli_op_complete_errno(receiver, ready);
    if (ready != 0) return FILCH_OK;
    if (request.timeout_ns == 0) return FILCH_EDEADLINE;
    int own = fli_desc_copy(fd);
    if (own < 0) {
        fli_op_complete_errno(receiver, own);
        return FILCH_OK;
    }
    filch_err err = fli_stream_make(io, command->from.serial, NULL, own, FLI_STREAM_POLL, &s);
    if (err != FILCH_OK) return err;
    s->foreign = fd;
    request.stream.id = fli_stream_id(s);
    err = fli_op_begin(s, command, &request, receiver, FLI_READING, &try_first);
    FLI_ASSERT(err == FILCH_OK); /* the stream is new: no other operation can be outstanding */
    s->ops[FLI_READING].how = (uint8_t)request.how;
    fli_op_run(io, s, FLI_READING, true);
    return FILCH_OK;
}

/* Cancels all polls of the process for one descriptor, in batches of up to ROOM. A cancelled poll leaves the stream
 * list of the process at once. But a poll that another worker is attempting (BUSY) stays in the list until that worker
 * completes it, so the next batch would contain this poll again. The loop ends after a batch of fewer than ROOM polls,
 * or after a batch in which all polls were BUSY. */
static filch_err handle_poll_cancel(fli_io *io, const filch_command *command, const filch_io_request *request,
                                    filch_receiver receiver)
{
    enum { ROOM = 64 };
    uint64_t ids[ROOM];
    int64_t  count = 0;
    for (bool more = true; more;) {
        uint32_t n = fli_stream_find_polls(io, command->from.serial, (int)request->number, ids, ROOM), settled = 0;
        for (uint32_t i = 0; i < n; i++) {
            fli_stream *s = fli_slab_at(&io->streams, (uint32_t)ids[i]);
            if (!fli_stream_state_stop_op(&s->state, (uint32_t)(ids[i] >> 32), FLI_READING, FLI_OP_CANCELLED)) continue;
            fli_op_settle(io, s, FLI_READING, fli_io_result_err(FILCH_ECANCELLED));
            settled++;
        }
        more = n == ROOM && settled > 0;
        count += more ? settled : n;
    }
    fli_op_complete(receiver, FILCH_OK, filch_int(count));
    return FILCH_OK;
}

/* ---- adopt ---- */

static const fli_stream_kind kinds[] = {
    [FLI_DESC_STREAM] = FLI_STREAM_SOCKET,     [FLI_DESC_LISTENER] = FLI_STREAM_LISTENER,
    [FLI_DESC_DATAGRAM] = FLI_STREAM_DATAGRAM, [FLI_DESC_PIPE] = FLI_STREAM_PIPE,
    [FLI_DESC_FILE] = FLI_STREAM_FILE,
};

static int copy_of(int fd, int kind)
{
    if (kind == FLI_DESC_PIPE) return fli_desc_copy_nonblocking(fd);
    return kind == FLI_DESC_LISTENER ? fli_desc_copy_flagged(fd) : fli_desc_copy(fd);
}

static filch_err handle_adopt(fli_io *io, const filch_command *command, const filch_io_request *request,
                              filch_receiver receiver)
{
    int         fd = (int)request->number, kind = fli_desc_kind_of(fd);
    int         own = kind >= 0 ? copy_of(fd, kind) : kind;
    fli_stream *s;
    fli_address address = { .size = 0 };
    if (own < 0) {
        fli_op_complete_errno(receiver, own);
        return FILCH_OK;
    }
    filch_err err = fli_stream_make(io, command->from.serial, NULL, own, kinds[kind], &s);
    if (err != FILCH_OK) return err;
    /* Connections that a listener accepts inherit `is_unix` from it. `own` cannot be closed before its address is read,
     * because only the process that has yielded this command can close the new stream. */
    if (kind == FLI_DESC_LISTENER && fli_net_address(own, false, &address) == 0)
        s->is_unix = fli_address_is_unix(&address);
    /* `short_reads` is set unless the descriptor is a regular file: a read from a terminal, a packet socket or a FIFO
     * may end at a line or packet boundary although more bytes are there. */
    fli_store_rlx(&s->short_reads, kind != FLI_DESC_FILE);
    if ((request->how & FILCH_ADOPT_KEEP) == 0) (void)fli_desc_close(fd);
    fli_op_complete(receiver, FILCH_OK, filch_int((int64_t)fli_stream_id(s)));
    return FILCH_OK;
}

filch_err fli_foreign_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver)
{
    switch (command->id) {
    case FILCH_CMD_POLL: return handle_poll(io, command, *request, receiver);
    case FILCH_CMD_POLL_CANCEL: return handle_poll_cancel(io, command, request, receiver);
    default: return handle_adopt(io, command, request, receiver);
    }
}
