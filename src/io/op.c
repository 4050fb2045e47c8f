/* op.c - the life of an operation. The worker that runs the process starts the operation and attempts it at once. If
 * the system call would block, the operation stays ARMED until the poller reports the descriptor.
 *
 *   1. begin: checks that the process owns the stream and that no operation of this direction is outstanding. Then the
 *      worker holds the direction (BUSY)
 *   2. try: makes the system call. Skipped if nothing has been reported since the last call returned EAGAIN
 *   3. would block: sets an alarm if there is a timeout, then sets the operation to ARMED. From here on any thread may
 *      take the operation. An operation that has used up its budget (FLI_IO_BUDGET_BYTES) waits too: the poller is told
 *      to report the descriptor again, after all pending reports
 *   4. taken: a report, the alarm, a cancel or a close takes the operation: back to 2, or to 5. After the alarm of its
 *      timeout the operation is attempted once more but does not wait again: bytes that came in time are delivered even
 *      if their report has not been read yet
 *   5. settle: releases the direction, then completes the yield, in this order because the completed process may start
 *      the next operation at once on another worker. The stream may be freed when the direction is released, so it is
 *      not touched after that
 *
 * An alarm may fire after its operation has ended and find the next operation of the stream. The alarm handler
 * therefore compares the time with the deadline of the operation it finds, and does not end an operation before its
 * deadline.
 * Design: docs/design/io.md.
 */
#include <errno.h>
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/clock.h"

/* Interval at which the runtime checks whether a program has ended, if the program has no descriptor that the poller
 * could report. */
#define LOOK_NS FILCH_MILLISECONDS(10)

/* Bit 63 of an alarm's cookie, above the stream id. Set: the alarm is for the writing direction. */
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

fli_io_result fli_io_result_failed(int64_t negative)
{
    int number = (int)-negative;
    if (number == EAGAIN) return fli_io_result_again();
    /* `ready` is set so that the next operation makes a system call at once and gets the error again. */
    return (fli_io_result){ .err = fli_io_error(number), .data = filch_int(number), .ready = true };
}

bool fli_op_complete(filch_receiver receiver, filch_err err, filch_data data)
{
    filch_err completed = filch_complete(receiver, receiver.tag, data, err);
    /* If the payload cannot be delivered, completes the yield without a payload and with the error of filch_complete(),
     * so that the process does not wait for ever. */
    if (completed == FILCH_ENOMEM || completed == FILCH_ETOOBIG) {
        (void)!filch_complete(receiver, receiver.tag, filch_none(), completed);
    }
    return completed == FILCH_OK;
}

void fli_op_complete_errno(filch_receiver receiver, int why)
{
    if (why == 0) (void)fli_op_complete(receiver, FILCH_OK, filch_none());
    else (void)fli_op_complete(receiver, fli_io_error(-why), filch_int(-why));
}

/* Closes a stream after its opening has failed or timed out. The process never received the stream's id. */
static void forget(fli_io *io, fli_stream *s)
{
    /* returns false if the owner has ended: the end of the owner has closed the stream */
    (void)fli_stream_close(io, s, fli_load_rlx(&s->owner));
}

/* Returns true if the command of `op` opens its stream. If such an operation fails, the stream is closed. */
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
    /* cannot fail: filch_io_read() decoded this request without error when the command was handled */
    FLI_ASSERT(err == FILCH_OK);
    return request;
}

/* Tells the scheduler (hooks.cut) how many bytes of a cancelled write were not written. */
static void note_cut(fli_io *io, const fli_op *op)
{
    if (op->command != FILCH_CMD_WRITE && op->command != FILCH_CMD_SEND_TO) return;
    size_t size = op->command == FILCH_CMD_WRITE ? filch_size(&op->as.data) : fli_op_request(op).byte_count;
    io->rt->hooks.cut(io->rt, op->serial, size - op->done);
}

/* Closes the stream `id` that was opened for a process which did not receive the id. Looks the stream up by id, because
 * the stream may be freed already. */
static void forget_named(fli_io *io, uint64_t id, uint64_t serial)
{
    fli_stream *s = fli_stream_find(io, id, serial);
    if (s != NULL) (void)fli_stream_close(io, s, serial);
}

bool fli_op_settle(fli_io *io, fli_stream *s, fli_direction direction, fli_io_result result)
{
    fli_op        *op = &s->ops[direction];
    filch_receiver receiver = op->receiver;
    uint64_t       timer = op->timer, id = fli_stream_id(s), serial = fli_load_rlx(&s->owner);
    bool           opened = result.err == FILCH_OK && opens(op);
    filch_data     written = filch_none();
    if (result.err == FILCH_ECANCELLED) note_cut(io, op);
    op->timer = 0;
    if (op->owns) written = op->as.data;
    op->owns = false;
    if (result.err != FILCH_OK && opens(op)) forget(io, s);
    if (op->command == FILCH_CMD_POLL) forget(io, s); /* a FLI_STREAM_POLL serves one poll command only: closes it */
    bool last = fli_stream_state_end_op(&s->state, direction, result.ready);
    if (last) fli_stream_gone(io, s);
    if (timer != 0) fli_timers_abandon(io->timers, timer);
    bool completed = fli_op_complete(receiver, result.err, result.data);
    if (!completed && opened) forget_named(io, id, serial);
    if (result.owns) fli_data_free(&result.data);
    fli_data_free(&written);
    return completed;
}

static fli_io_result attempt(fli_io *io, fli_stream *s, fli_op *op)
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

/* Sets an alarm for the timeout of the operation, or for an earlier time at which the operation must be attempted
 * again. `later`: the last attempt ended early, for example because it had moved as many bytes as the budget allows.
 * Returns FILCH_EDEADLINE if the operation must not wait (`at_once`) and `later` is false. If `at_once` and `later` are
 * both true, the alarm is due now, because the operation needs one more attempt, and the poller does not report the
 * descriptor if the system has no more bytes. */
static filch_err set_alarm(fli_io *io, fli_stream *s, fli_direction direction, bool later)
{
    fli_op  *op = &s->ops[direction];
    uint64_t when_ns = op->due_ns;
    if (op->at_once && !later) return FILCH_EDEADLINE;
    if (op->at_once) when_ns = fli_clock_ns();
    /* The poller cannot report the end of a program without a descriptor, so the end is checked every LOOK_NS. */
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

/* Clears op->timer and stops the alarm. Called when the alarm has fired or the operation does not need it any more. */
static void drop_alarm(fli_io *io, fli_op *op)
{
    if (op->timer != 0) fli_timers_abandon(io->timers, op->timer);
    op->timer = 0;
}

/* Records in s->more that the poller has reported the stream. The state word does not keep the report (READY is
 * cleared), and a read that gets all its bytes from the read buffer makes no system call. With s->more set, the next
 * read makes a system call. */
static void note_report(fli_stream *s, fli_direction direction)
{
    if (direction == FLI_READING) s->more = true;
}

void fli_op_run(fli_io *io, fli_stream *s, fli_direction direction, bool try_first)
{
    fli_op *op = &s->ops[direction];
    bool    later = false; /* true: the last attempt ended early, for example at the end of its budget of bytes */
    for (bool tries = try_first;; tries = !later) {
        if (tries) {
            fli_io_result result = attempt(io, s, op);
            if (!result.again) {
                fli_op_settle(io, s, direction, result);
                return;
            }
            later = result.later;
        }
        filch_err err = set_alarm(io, s, direction, later);
        /* The requeue must come before the operation is armed: as soon as it is armed, another thread may close the
         * descriptor, and the system may reuse the descriptor number. */
        if (err == FILCH_OK && later) err = fli_stream_requeue(io, s);
        fli_arm arm = err == FILCH_OK ? fli_stream_state_arm_op(&s->state, direction) : FLI_ARM_CANCELLED;
        if (err == FILCH_OK && arm == FLI_ARM_DONE) return;
        if (arm == FLI_ARM_AGAIN) {
            note_report(s, direction);
            continue;
        }
        if (arm == FLI_ARM_EXPIRED) {
            /* An alarm has come: it was set for the next attempt, for the timeout, or by an earlier operation. If the
             * timeout has passed, `at_once` is set, as in fli_io_alarm(). In all three cases the alarm in op->timer is
             * dropped, and set_alarm() sets a new one. */
            if (fli_clock_ns() >= op->due_ns) op->at_once = true;
            drop_alarm(io, op);
            continue;
        }
        if (err == FILCH_OK) err = FILCH_ECANCELLED;
        fli_op_settle(io, s, direction, fli_io_result_err(err));
        return;
    }
}

filch_err fli_op_begin(fli_stream *s, const filch_command *command, const filch_io_request *request,
                       filch_receiver receiver, fli_direction direction, bool *try_first)
{
    fli_begin begin = fli_stream_state_begin_op(&s->state, (uint32_t)(request->stream.id >> 32), direction);
    if (begin == FLI_BEGIN_BUSY) return FILCH_EBUSY;
    /* Only the owner closes an open stream, and the caller runs the owner, so the stream is normally open. Exception:
     * the process has guessed the id of a stream that is still connecting, and the connect has failed at the same
     * time. */
    if (begin == FLI_BEGIN_GONE) return FILCH_ESTREAM;
    fli_op *op = &s->ops[direction];
    *op = (fli_op){ .receiver = receiver, .serial = command->from.serial, .command = command->id, .due_ns = FLI_NEVER };
    op->at_once = request->timeout_ns == 0;
    if (request->timeout_ns != FILCH_FOREVER && !op->at_once) {
        op->due_ns = fli_clock_after(fli_clock_ns(), request->timeout_ns);
    }
    if (begin == FLI_BEGIN_TRY) note_report(s, direction);
    /* A write is always attempted. A read is attempted if the poller has reported the descriptor, if the operation must
     * not wait, or if the read buffer has bytes. */
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
    /* When the timeout has passed, the operation is attempted for the last time, because bytes may have come before the
     * timeout. If the alarm was set for the next attempt or by an earlier operation, the additional attempt does no
     * harm. drop_alarm() also clears op->timer if it is the id of the alarm that called this function. */
    if (fli_clock_ns() >= op->due_ns) op->at_once = true;
    drop_alarm(io, op);
    fli_op_run(io, s, direction, true);
}

static void report(fli_io *io, const fli_poll_report *what)
{
    fli_budget_next_op(io);
    bool     poll = (what->number & FLI_POLL_MARK) != 0;
    uint64_t number = what->number & ~FLI_POLL_MARK;
    /* The slot exists, but may contain a later stream. fli_stream_state_report() compares the generation in
     * `number`. */
    /* the acquire load in fli_slab_is_made makes the slot's contents visible */
    FLI_ASSERT(fli_slab_is_made(&io->streams, (uint32_t)number));
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
    /* In reverse order, because each process is pushed on top of the deque: the process of the first report runs
     * first. */
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
        fli_op_settle(io, s, (fli_direction)direction, fli_io_result_err(FILCH_ECANCELLED));
    }
    fli_op_complete(receiver, FILCH_OK, filch_int(count));
    return FILCH_OK;
}

/* Cancels the operations in batches of up to ROOM. After a batch, none of its yields is outstanding, so the next batch
 * finds other operations. Only one completion of a yield takes effect: the result of the operation, or the cancel made
 * here. If the cancel takes effect, the operation closes the stream that it has made, whatever its result
 * (fli_op_settle): on this thread, or, if the operation is BUSY, on the worker that is attempting it. */
uint32_t fli_io_cancel(fli_io *io, uint64_t serial, uint64_t tag)
{
    enum { ROOM = 32 };
    fli_pending_op found[ROOM];
    uint32_t       count = 0;
    for (uint32_t n = ROOM; n == ROOM;) {
        n = fli_stream_find_tagged(io, serial, tag, found, ROOM);
        for (uint32_t i = 0; i < n; i++) {
            fli_stream *s = fli_slab_at(&io->streams, (uint32_t)found[i].stream);
            uint32_t    gen = (uint32_t)(found[i].stream >> 32);
            if (!fli_op_complete(found[i].receiver, FILCH_ECANCELLED, filch_int(0))) continue;
            count++;
            if (fli_stream_state_stop_op(&s->state, gen, found[i].direction, FLI_OP_CANCELLED))
                (void)fli_op_settle(io, s, found[i].direction, fli_io_result_err(FILCH_ECANCELLED));
        }
    }
    return count;
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
        /* returns false if the stream is closed already: it failed to open, and the process had guessed its id */
        (void)fli_stream_close(io, s, command->from.serial);
        fli_op_complete(receiver, FILCH_OK, filch_none());
        return FILCH_OK;
    default: /* the command is FILCH_CMD_SHUTDOWN */
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
        /* While a read is outstanding, another thread may write `sender`, so this call fails. */
        if (fli_stream_state_phase(fli_stream_state_load(&s->state), FLI_READING) != FLI_OP_NONE) return FILCH_EBUSY;
        address = s->sender;
    } else {
        if (s->kind > FLI_STREAM_DATAGRAM) return FILCH_ESYS;
        int why = fli_net_address(s->fd, which == FILCH_ADDRESS_PEER, &address);
        if (why != 0) return fli_io_error(-why);
    }
    return fli_address_write(&address, text, room) < room ? FILCH_OK : FILCH_ETOOBIG;
}
