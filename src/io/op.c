/* op.c - the life of an operation: started by the worker that runs the process, attempted at once, and if the system
 * call would block left ARMED until a report of the poller.
 *
 *   1. begin: the process owns the stream and no operation of this direction is outstanding: the worker holds the
 *      direction, BUSY
 *   2. try: the system call. Skipped if nothing has been reported since the last call returned EAGAIN
 *   3. would block: sets an alarm if there is a timeout, then arms. From here on any thread may take the operation. An
 *      operation that has used up its budget (FLI_IO_BUDGET_BYTES) waits too: the poller is told to report the
 *      descriptor again, after all pending reports
 *   4. a report, the alarm, a cancel or a close takes it: back to 2, or to 5. After the alarm of its timeout it is
 *      attempted once more but does not wait again: bytes that came in time are delivered even if their report has not
 *      been read yet
 *   5. settle: releases the direction, then completes the yield. In this order, because the completed process may start
 *      the next operation at once on another worker. The stream may be freed when the direction is released, so it is
 *      not touched after that
 *
 * An alarm may be due after its operation has ended, and find the next operation: it compares the time with that
 * operation's deadline and does not end it.
 * Design: docs/design/io.md.
 */
#include <errno.h>
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/clock.h"

/* Interval at which a program without a descriptor is checked for its end while an operation waits for it. */
#define LOOK_NS FILCH_MILLISECONDS(10)

/* In the cookie of an alarm, above the stream id: the alarm is for the writing direction. */
#define WRITING_COOKIE (UINT64_C(1) << 63)

filch_err fli_io_error(int number)
{
    switch (number) {
    case ENOMEM:
    case ENOBUFS: return FILCH_ENOMEM;
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case ECONNABORTED: return FILCH_ERESET;
    case ECONNREFUSED: return FILCH_EREFUSED;
    case ETIMEDOUT: return FILCH_EDEADLINE;
    case EADDRINUSE:
    case EADDRNOTAVAIL: return FILCH_EINUSE;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN: return FILCH_ENOHOST;
    case EMFILE:
    case ENFILE: return FILCH_EFILES;
    case ENOENT:
    case ENOTDIR: return FILCH_ENOFILE;
    case EACCES:
    case EPERM:
    case EROFS: return FILCH_EACCESS;
    case EEXIST: return FILCH_EEXISTS;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return FILCH_ENOSPACE;
    case EIO: return FILCH_EIO;
    case EISDIR:
    case ENOTEMPTY: return FILCH_EDIRECTORY;
    case EXDEV: return FILCH_EDEVICE;
    case EBADF: return FILCH_EDESC;
    case ENAMETOOLONG: return FILCH_EINVAL;
    case EMSGSIZE: return FILCH_ETOOBIG;
    case EAGAIN: return FILCH_EFULL;
    default: return FILCH_ESYS;
    }
}

fli_outcome fli_outcome_failed(int64_t negative)
{
    int number = (int)-negative;
    if (number == EAGAIN) return fli_outcome_again();
    /* READY: the next attempt gets the error again. */
    return (fli_outcome){ .err = fli_io_error(number), .data = filch_int(number), .ready = true };
}

bool fli_op_complete(filch_receiver receiver, filch_err err, filch_data data)
{
    filch_err told = filch_complete(receiver, receiver.tag, data, err);
    /* A payload that cannot be delivered must not leave the process waiting: the yield is completed with the reason. */
    if (told == FILCH_ENOMEM || told == FILCH_ETOOBIG) {
        (void)!filch_complete(receiver, receiver.tag, filch_none(), told);
    }
    return told == FILCH_OK;
}

void fli_op_complete_errno(filch_receiver receiver, int why)
{
    if (why == 0) (void)fli_op_complete(receiver, FILCH_OK, filch_none());
    else (void)fli_op_complete(receiver, fli_io_error(-why), filch_int(-why));
}

/* Closes a stream after its opening failed or timed out: the process never received its id. */
static void forget(fli_io *io, fli_stream *s)
{
    (void)fli_stream_close(io, s, fli_load_rlx(&s->owner)); /* false: its owner has ended, and that closed it */
}

/* Returns true if the operation opens its stream, which is closed if the operation fails. */
static bool opens(const fli_op *op)
{
    return op->command == FILCH_CMD_CONNECT || op->command == FILCH_CMD_OPEN || op->command == FILCH_CMD_RUN;
}

void fli_op_set_read(fli_op *op, const filch_io_request *request)
{
    op->how = (uint8_t)request->how;
    op->most = request->most;
    op->delimiter_size = (uint8_t)request->delimiter_size;
    memcpy(op->as.delimiter, request->delimiter, sizeof op->as.delimiter);
}

filch_io_request fli_op_request(const fli_op *op)
{
    filch_command    command = { .id = op->command, .data = op->as.data };
    filch_io_request request = { .size = sizeof request };
    filch_err        err = filch_io_read(&command, &request);
    FLI_ASSERT(err == FILCH_OK); /* it was read successfully when the command was handled */
    return request;
}

/* Counts the bytes of a write that was cancelled before it was finished. */
static void note_cut(fli_io *io, const fli_op *op)
{
    if (op->command != FILCH_CMD_WRITE && op->command != FILCH_CMD_SEND_TO) return;
    size_t size = op->command == FILCH_CMD_WRITE ? filch_size(&op->as.data) : fli_op_request(op).byte_count;
    io->rt->hooks.cut(io->rt, op->serial, size - op->done);
}

/* Closes a stream that was opened for a process that did not receive its id. Found by id: the stream may be freed
 * already. */
static void forget_named(fli_io *io, uint64_t id, uint64_t serial)
{
    fli_stream *s = fli_stream_find(io, id, serial);
    if (s != NULL) (void)fli_stream_close(io, s, serial);
}

bool fli_op_settle(fli_io *io, fli_stream *s, fli_direction direction, fli_outcome outcome)
{
    fli_op        *op = &s->ops[direction];
    filch_receiver receiver = op->receiver;
    uint64_t       timer = op->timer, id = fli_stream_id(s), serial = fli_load_rlx(&s->owner);
    bool           opened = outcome.err == FILCH_OK && opens(op);
    filch_data     written = filch_none();
    if (outcome.err == FILCH_ECANCELLED) note_cut(io, op);
    op->timer = 0;
    if (op->owns) written = op->as.data;
    op->owns = false;
    if (outcome.err != FILCH_OK && opens(op)) forget(io, s);
    if (op->command == FILCH_CMD_POLL) forget(io, s); /* a FLI_STREAM_POLL serves one poll command */
    bool last = fli_stream_state_end_op(&s->state, direction, outcome.ready);
    if (last) fli_stream_gone(io, s);
    if (timer != 0) fli_timers_abandon(io->timers, timer);
    bool told = fli_op_complete(receiver, outcome.err, outcome.data);
    if (!told && opened) forget_named(io, id, serial);
    if (outcome.owns) fli_data_free(&outcome.data);
    fli_data_free(&written);
    return told;
}

static fli_outcome attempt(fli_io *io, fli_stream *s, fli_op *op)
{
    switch (op->command) {
    case FILCH_CMD_READ: return s->kind == FLI_STREAM_SIGNALS ? fli_signals_try(io, s, op) : fli_read_try(io, s, op);
    case FILCH_CMD_WRITE: return fli_write_try(io, s, op);
    case FILCH_CMD_ACCEPT: return fli_accept_try(io, s, op);
    case FILCH_CMD_CONNECT: return fli_connect_try(io, s, op);
    case FILCH_CMD_RECEIVE_FROM: return fli_receive_from_try(io, s, op);
    case FILCH_CMD_SEND_TO: return fli_send_to_try(io, s, op);
    case FILCH_CMD_POLL: return fli_poll_try(io, s, op);
    default: return fli_exit_try(io, s, op);
    }
}

/* Sets an alarm for the timeout of the operation, or for an earlier time at which it is to be attempted again.
 * `later`: the attempt ended because its budget was used up, so even an operation that must not wait is attempted
 * again, by an alarm that is due now, because the poller does not report a descriptor without news. Returns
 * FILCH_EDEADLINE if the operation must not wait. */
static filch_err set_alarm(fli_io *io, fli_stream *s, fli_direction direction, bool later)
{
    fli_op  *op = &s->ops[direction];
    uint64_t when_ns = op->due_ns;
    if (op->at_once && !later) return FILCH_EDEADLINE;
    if (op->at_once) when_ns = fli_clock_ns();
    /* A program without a descriptor: the poller cannot report its end, so it is checked every LOOK_NS. */
    if (op->command == FILCH_CMD_EXIT && s->fd < 0) {
        uint64_t look_ns = fli_clock_ns() + LOOK_NS;
        if (look_ns < when_ns) when_ns = look_ns;
    }
    if (op->command == FILCH_CMD_ACCEPT && s->resume_ns != 0 && s->resume_ns < when_ns) when_ns = s->resume_ns;
    if (when_ns == FLI_NEVER || op->timer != 0) return FILCH_OK;
    uint64_t cookie = fli_stream_id(s) | (direction == FLI_WRITING ? WRITING_COOKIE : 0);
    op->timer = fli_timers_alarm(io->timers, when_ns, cookie);
    return op->timer != 0 ? FILCH_OK : FILCH_ENOMEM;
}

/* Forgets the alarm: it was due, or the operation does not need it any more. */
static void drop_alarm(fli_io *io, fli_op *op)
{
    if (op->timer != 0) fli_timers_abandon(io->timers, op->timer);
    op->timer = 0;
}

/* Keeps a report after READY has been cleared. A read that is satisfied from the read buffer makes no system call:
 * then the report is still valid for the next read. */
static void note_report(fli_stream *s, fli_direction direction)
{
    if (direction == FLI_READING) s->more = true;
}

void fli_op_run(fli_io *io, fli_stream *s, fli_direction direction, bool try_first)
{
    fli_op *op = &s->ops[direction];
    bool    later = false; /* the budget is used up; the system may have more */
    for (bool tries = try_first;; tries = !later) {
        if (tries) {
            fli_outcome outcome = attempt(io, s, op);
            if (!outcome.again) {
                fli_op_settle(io, s, direction, outcome);
                return;
            }
            later = outcome.later;
        }
        filch_err err = set_alarm(io, s, direction, later);
        /* Before it is armed: afterwards another thread may close the descriptor and its number may be reused. */
        if (err == FILCH_OK && later) err = fli_stream_requeue(io, s);
        fli_arm arm = err == FILCH_OK ? fli_stream_state_arm_op(&s->state, direction) : FLI_ARM_CANCELLED;
        if (err == FILCH_OK && arm == FLI_ARM_DONE) return;
        if (arm == FLI_ARM_AGAIN) {
            note_report(s, direction);
            continue;
        }
        if (arm == FLI_ARM_EXPIRED) {
            /* The alarm was for the next attempt, or for the timeout (then `at_once` as in fli_io_alarm), or of an
             * earlier operation. In each case this operation needs a new alarm. */
            if (fli_clock_ns() >= op->due_ns) op->at_once = true;
            drop_alarm(io, op);
            continue;
        }
        if (err == FILCH_OK) err = FILCH_ECANCELLED;
        fli_op_settle(io, s, direction, fli_outcome_err(err));
        return;
    }
}

filch_err fli_op_begin(fli_stream *s, const filch_command *command, const filch_io_request *request,
                       filch_receiver receiver, fli_direction direction, bool *try_first)
{
    fli_begin begin = fli_stream_state_begin_op(&s->state, (uint32_t)(request->stream.id >> 32), direction);
    if (begin == FLI_BEGIN_BUSY) return FILCH_EBUSY;
    /* Only the owner closes a stream, and the caller runs the owner. But the process may have guessed the id of a
     * stream that it is still connecting, and the connect may fail now. */
    if (begin == FLI_BEGIN_GONE) return FILCH_ESTREAM;
    fli_op *op = &s->ops[direction];
    *op = (fli_op){ .receiver = receiver, .serial = command->from.serial, .command = command->id, .due_ns = FLI_NEVER };
    op->at_once = request->timeout_ns == 0;
    if (request->timeout_ns != FILCH_FOREVER && !op->at_once) {
        op->due_ns = fli_clock_after(fli_clock_ns(), request->timeout_ns);
    }
    if (begin == FLI_BEGIN_TRY) note_report(s, direction);
    /* A write is always attempted. A read is attempted if the poller has reported the descriptor, if it must not
     * wait, or if the read buffer has bytes. */
    *try_first = direction == FLI_WRITING || begin == FLI_BEGIN_TRY || op->at_once || s->read_buffer.size > 0;
    return FILCH_OK;
}

void fli_io_alarm(fli_io *io, uint64_t cookie)
{
    fli_direction direction = (cookie & WRITING_COOKIE) != 0 ? FLI_WRITING : FLI_READING;
    uint64_t      id = cookie & ~WRITING_COOKIE;
    fli_stream   *s = fli_slab_at(&io->streams, (uint32_t)id);
    if (!fli_stream_state_stop_op(&s->state, (uint32_t)(id >> 32), direction, FLI_OP_EXPIRED)) return;
    fli_op *op = &s->ops[direction];
    fli_budget_begin(io, FLI_IO_OP_MIN_BYTES);
    /* At the timeout the operation is attempted once more: bytes that are there by now came in time. An alarm for
     * the next attempt, or of an earlier operation, attempts too, which does no harm. op->timer may be the alarm
     * that is running. */
    if (fli_clock_ns() >= op->due_ns) op->at_once = true;
    drop_alarm(io, op);
    fli_op_run(io, s, direction, true);
}

static void report(fli_io *io, const fli_poll_report *what)
{
    fli_budget_next_op(io);
    bool     poll = (what->number & FLI_POLL_MARK) != 0;
    uint64_t number = what->number & ~FLI_POLL_MARK;
    /* The slot exists, perhaps with a later stream in it: the generation in `number` tells. */
    FLI_ASSERT(fli_slab_is_made(&io->streams, (uint32_t)number)); /* the acquire in it makes the slot visible */
    fli_stream *s = fli_slab_at(&io->streams, (uint32_t)number);
    bool        in = what->in || (poll && what->out), out = what->out && !poll;
    if (what->urgent) fli_store_rlx(&s->short_reads, true);
    unsigned ours = fli_stream_state_report(&s->state, (uint32_t)(number >> 32), in, out, what->ended);
    if ((ours & 1u << FLI_READING) != 0) {
        note_report(s, FLI_READING);
        fli_op_run(io, s, FLI_READING, true);
    }
    if ((ours & 1u << FLI_WRITING) != 0) fli_op_run(io, s, FLI_WRITING, true);
}

void fli_io_collect(fli_io *io, uint64_t until_ns, fli_io_batch *batch, uint32_t most)
{
    batch->count = fli_poller_wait(&io->poller, until_ns, batch->reports, most < FLI_IO_BATCH ? most : FLI_IO_BATCH);
}

void fli_io_deliver(fli_io *io, const fli_io_batch *batch)
{
    fli_budget_begin(io, FLI_IO_BUDGET_BYTES);
    /* In reverse: each process is pushed on top of the deque, so the process of the first report runs first. */
    for (uint32_t i = batch->count; i-- > 0;) report(io, &batch->reports[i]);
}

/* ---- commands on a stream that need no waiting ---- */

static filch_err handle_cancel(fli_io *io, fli_stream *s, uint32_t gen, filch_receiver receiver)
{
    int64_t count = 0;
    for (int direction = FLI_READING; direction <= FLI_WRITING; direction++) {
        uint64_t word = fli_stream_state_load(&s->state);
        if (fli_stream_state_phase(word, (fli_direction)direction) == FLI_OP_NONE) continue;
        if (s->kind == FLI_STREAM_FILE) {
            count += fli_op_cancel_job(s) ? 1 : 0;
            continue;
        }
        count++;
        if (!fli_stream_state_stop_op(&s->state, gen, (fli_direction)direction, FLI_OP_CANCELLED)) continue;
        fli_op_settle(io, s, (fli_direction)direction, fli_outcome_err(FILCH_ECANCELLED));
    }
    fli_op_complete(receiver, FILCH_OK, filch_int(count));
    return FILCH_OK;
}

static filch_err handle_stream(fli_io *io, const filch_command *command, const filch_io_request *request,
                               filch_receiver receiver)
{
    fli_stream *s = fli_stream_find(io, request->stream.id, command->from.serial);
    if (s == NULL) return FILCH_ESTREAM;
    switch (command->id) {
    case FILCH_CMD_IO_CANCEL: return handle_cancel(io, s, (uint32_t)(request->stream.id >> 32), receiver);
    case FILCH_CMD_CLOSE:
        if (s->kind == FLI_STREAM_FILE && fli_file_close(io, s, command, request, receiver)) return FILCH_OK;
        (void)fli_stream_close(io, s, command->from.serial); /* false: it failed to open; the process guessed its id */
        fli_op_complete(receiver, FILCH_OK, filch_none());
        return FILCH_OK;
    default: /* FILCH_CMD_SHUTDOWN */
        if (s->kind != FLI_STREAM_SOCKET) return FILCH_EINVAL;
        fli_op_complete_errno(receiver, fli_net_shutdown(s->fd));
        return FILCH_OK;
    }
}

filch_err fli_io_handle(fli_io *io, const filch_command *command, filch_receiver receiver)
{
    filch_io_request request = { .size = sizeof request };
    filch_err        err = filch_io_read(command, &request);
    if (err != FILCH_OK) return err;
    fli_budget_begin(io, FLI_IO_BUDGET_BYTES);
    switch (command->id) {
    case FILCH_CMD_CLOSE:
    case FILCH_CMD_SHUTDOWN:
    case FILCH_CMD_IO_CANCEL: return handle_stream(io, command, &request, receiver);
    default: return fli_socket_handle(io, command, &request, receiver);
    }
}

filch_err fli_io_address(fli_io *io, fli_local *worker, filch_stream stream, filch_address_of which, char *text,
                         size_t room)
{
    fli_stream *s = fli_stream_find(io, stream.id, worker->serial);
    fli_address address = { .size = 0 };
    if (s == NULL) return FILCH_ESTREAM;
    if (which == FILCH_ADDRESS_SENDER) {
        /* `sender` belongs to the owner between two operations; an outstanding read may change it. */
        if (fli_stream_state_phase(fli_stream_state_load(&s->state), FLI_READING) != FLI_OP_NONE) return FILCH_EBUSY;
        address = s->sender;
    } else {
        if (s->kind > FLI_STREAM_DATAGRAM) return FILCH_ESYS;
        int why = fli_net_address(s->fd, which == FILCH_ADDRESS_PEER, &address);
        if (why != 0) return fli_io_error(-why);
    }
    return fli_address_write(&address, text, room) < room ? FILCH_OK : FILCH_ETOOBIG;
}
