/* file.c - operations on files. The poller cannot report when a file is ready, and a read of a file may block. So each
 * operation is a job for the work pool, one at a time per file. While the job runs, the job holds the reading direction
 * of the stream (BUSY). So the file is closed only after its job, even if the process ends earlier. */
#include <errno.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"
#include "port/path.h"
#include "proc/yields.h"

static fli_io_result open_file(fli_stream *s, const fli_op *op)
{
    filch_io_request request = fli_op_request(op);
    if (!fli_yield_is_pending(s->io->rt, op->receiver.key)) return fli_io_result_err(FILCH_ECANCELLED);
    int fd = fli_desc_open(request.text, request.how);
    if (fd < 0) return fli_io_result_failed(fd);
    s->fd = fd;
    return (fli_io_result){ .data = filch_int((int64_t)fli_stream_id(s)), .ready = true };
}

/* Moves the file position back by the number of bytes in the read buffer and drops these bytes. Called before an
 * operation that depends on the position. A terminal or a FIFO has no position (ESPIPE): its buffered bytes stay. */
static int64_t unread(fli_stream *s)
{
    int64_t n = s->read_buffer.size > 0 ? fli_desc_seek(s->fd, -(int64_t)s->read_buffer.size, 1) : 0;
    if (n >= 0) fli_read_buffer_drop(s);
    return n;
}

static fli_io_result seek_file(fli_stream *s, const fli_op *op)
{
    filch_io_request request = fli_op_request(op);
    int64_t          n = unread(s);
    if (n >= 0) n = fli_desc_seek(s->fd, request.number, (int)request.how);
    if (n < 0) return fli_io_result_failed(n);
    return (fli_io_result){ .data = filch_int(n), .ready = true };
}

static fli_io_result write_file(fli_io *io, fli_stream *s, fli_op *op)
{
    int64_t n = unread(s);
    return n < 0 && n != -ESPIPE ? fli_io_result_failed(n) : fli_write_try(io, s, op);
}

static fli_io_result sync_file(fli_stream *s, const fli_op *op)
{
    filch_io_request request = fli_op_request(op);
    int              why = fli_path_sync(s->fd, (request.how & FILCH_SYNC_DATA) != 0);
    return why == 0 ? (fli_io_result){ .ready = true } : fli_io_result_failed(why);
}

static fli_io_result truncate_file(fli_stream *s, const fli_op *op)
{
    filch_io_request request = fli_op_request(op);
    int64_t          n = unread(s);
    if (n >= 0) n = fli_path_truncate(s->fd, request.number);
    return n >= 0 ? (fli_io_result){ .ready = true } : fli_io_result_failed(n);
}

static fli_stream *stream_of(fli_job *job)
{
    return FLI_OUTER(fli_stream, job, job);
}

static void run(fli_job *job)
{
    fli_stream   *s = stream_of(job);
    fli_op       *op = &s->ops[FLI_READING];
    fli_io       *io = s->io;
    fli_io_result result;
    switch (op->command) {
    case FILCH_CMD_OPEN: result = open_file(s, op); break;
    case FILCH_CMD_SEEK: result = seek_file(s, op); break;
    case FILCH_CMD_SYNC: result = sync_file(s, op); break;
    case FILCH_CMD_TRUNCATE: result = truncate_file(s, op); break;
    case FILCH_CMD_WRITE: result = write_file(io, s, op); break;
    default: result = fli_read_try(io, s, op); break;
    }
    /* Some special files return EAGAIN as sockets do. Files are not in the poller, so the operation cannot wait and
     * fails. */
    if (result.again) result = fli_io_result_err(FILCH_ESYS);
    fli_op_settle(io, s, FLI_READING, result);
}

static void cancel(fli_job *job)
{
    fli_stream *s = stream_of(job);
    fli_op_settle(s->io, s, FLI_READING, fli_io_result_err(FILCH_ECANCELLED));
}

/* Closes the descriptor. The stream has no owner any more and is freed when this job releases the reading direction. */
static void close_run(fli_job *job)
{
    fli_stream *s = stream_of(job);
    int         why = fli_desc_close(s->fd);
    s->fd = -1;
    fli_op_settle(s->io, s, FLI_READING, why == 0 ? (fli_io_result){ .err = FILCH_OK } : fli_io_result_failed(why));
}

bool fli_file_close(fli_io *io, fli_stream *s, const filch_command *command, const filch_io_request *request,
                    filch_receiver receiver)
{
    bool unused;
    if (fli_op_begin(s, command, request, receiver, FLI_READING, &unused) != FILCH_OK) return false;
    bool ours = fli_stream_close(io, s, command->from.serial);
    /* always true: only the owner closes an open stream, and this worker runs the owner */
    FLI_ASSERT(ours);
    fli_job_owner owner = { command->from.serial, receiver.tag, command->id };
    s->job = (fli_job){ .run = close_run, .cancel = close_run, .owner = owner, .lane = FLI_LANE_FILE };
    s->io = io;
    if (fli_workpool_submit(io->pool, &s->job) != FILCH_OK) close_run(&s->job);
    return true;
}

filch_err fli_file_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                          filch_receiver receiver)
{
    filch_io_request copy = *request;
    fli_stream      *s = NULL;
    filch_err        err;
    bool             unused;
    if (command->id == FILCH_CMD_OPEN) {
        err = fli_stream_make(io, command->from.serial, NULL, -1, FLI_STREAM_FILE, &s);
        if (err != FILCH_OK) return err;
        copy.stream.id = fli_stream_id(s);
    } else {
        s = fli_stream_find(io, request->stream.id, command->from.serial);
        if (s == NULL) return FILCH_ESTREAM;
        if (s->kind != FLI_STREAM_FILE) return FILCH_EINVAL;
    }
    copy.timeout_ns = FILCH_FOREVER;
    err = fli_op_begin(s, command, &copy, receiver, FLI_READING, &unused);
    if (err != FILCH_OK) return err;
    fli_op *op = &s->ops[FLI_READING];
    if (command->id == FILCH_CMD_READ) {
        fli_op_set_read(op, request);
    } else {
        op->as.data = command->data;
        fli_op_hold(io, op);
    }
    /* A file operation always needs a thread of the pool, so with a timeout of 0 it would always fail. Therefore a
     * timeout of 0 means no deadline, except for FILCH_CMD_OPEN. */
    uint64_t timeout_ns =
        request->timeout_ns != 0 || command->id == FILCH_CMD_OPEN ? request->timeout_ns : FILCH_FOREVER;
    fli_op_submit(io, s, command->id == FILCH_CMD_OPEN ? FLI_LANE_OPEN : FLI_LANE_FILE, timeout_ns, run, cancel);
    return FILCH_OK;
}
