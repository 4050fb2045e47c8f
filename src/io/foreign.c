/* foreign.c - descriptors that others have opened: waiting until one is ready (poll), and making a stream of one
 * (adopt).
 *
 * A poll that has to wait is an operation on a stream of its own, a *watch*: so alarms, cancel and the end of the
 * process are those of every operation (op.c). The watch holds a duplicate of the descriptor. The system knows a
 * descriptor in a poller by number and file: with the owner's number, two polls would be refused as one (EEXIST), and
 * removing a watch whose number has been closed and used again would remove a stranger. The duplicate is nobody else's
 * number.
 *
 * A watch asks poll(2) what the descriptor is ready for; the poller's reports, which are edges, only say when to ask.
 *
 * Adopting works on a descriptor of our own too, and closes the given one last: after an error it is still the
 * caller's.
 */
#include <errno.h>

#include "base/assert.h"
#include "io/stream.h"
#include "port/desc.h"
#include "payload/data.h"

/* ---- poll ---- */

fli_outcome fli_poll_try(fli_io *io, fli_stream *s, fli_op *op)
{
    (void)io;
    int ready = fli_desc_poll(s->fd, op->how);
    if (ready == 0) return fli_outcome_again();
    return ready > 0 ? (fli_outcome){ .data = filch_int(ready) } : fli_outcome_failed(ready);
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
    FLI_ASSERT(err == FILCH_OK); /* nobody else knows it */
    s->ops[FLI_READING].how = (uint8_t)request.how;
    fli_op_run(io, s, FLI_READING, true);
    return FILCH_OK;
}

/* Some at a time: settling one takes it off the list. Those that another worker is busy with stay there until it is
 * done, so the last round is the one that found no full list, or none to settle. */
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
            fli_op_settle(io, s, FLI_READING, fli_outcome_err(FILCH_ECANCELLED));
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
    /* For what a listener accepts; `own` is open as long as the stream is, which only this process can close. */
    if (kind == FLI_DESC_LISTENER && fli_net_address(own, false, &address) == 0)
        s->is_unix = fli_address_is_unix(&address);
    fli_store_rlx(&s->short_reads,
                  kind != FLI_DESC_FILE); /* a terminal, packets, a pipe with a name: nothing is known of it */
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
