/* stream.h - a stream and its outstanding operations: the internal interface of this module. */
#ifndef FLI_IO_STREAM_H
#define FLI_IO_STREAM_H

#include "io/io.h"
#include "io/stream_state.h"
#include "port/net.h"

typedef enum fli_stream_kind {
    FLI_STREAM_SOCKET,
    FLI_STREAM_LISTENER,
    FLI_STREAM_DATAGRAM,
    FLI_STREAM_PIPE,
    FLI_STREAM_FILE,    /* not in the poller: its operations run on the work pool */
    FLI_STREAM_PROGRAM, /* over a pidfd; without a descriptor on systems that have no pidfd */
    FLI_STREAM_SIGNALS,
    FLI_STREAM_POLL /* made for one poll command: a duplicate of a descriptor that the runtime does not own */
} fli_stream_kind;

/* Bit 63 of the number under which a FLI_STREAM_POLL is registered in the poller; the lower bits are the stream id.
 * Set: reports of both directions are for the reading operation. */
#define FLI_POLL_MARK (UINT64_C(1) << 63)

/* An outstanding operation of one direction of a stream, reading or writing. Not atomic: used only by the holder of
 * this direction, which is the thread that has set it BUSY (stream_state.h). */
typedef struct fli_op {
    filch_receiver receiver;
    uint64_t       serial;  /* serial of the process that yielded the command */
    uint32_t       command; /* a FILCH_CMD_* value */
    uint8_t        how;     /* read: FLI_READ_SOME, _EXACTLY or _UNTIL; poll: FILCH_POLL_* bits */
    uint8_t        delimiter_size;
    bool           at_once; /* the timeout is 0 or has passed: the operation must not wait */
    uint64_t       due_ns;  /* time of the timeout; FLI_NEVER: no timeout */
    uint64_t       timer;   /* id of the operation's alarm; 0: no alarm is set */
    uint64_t       most;    /* read: maximal number of bytes */
    uint64_t       done;    /* write: bytes already written; read until a delimiter: bytes already searched */
    union {
        uint8_t    delimiter[8];
        filch_data data; /* payload of a write; lent by the command. Once the operation has to wait, it owns the payload
                            (`owns`) */
    } as;
    bool owns; /* the operation owns as.data and must free it */
} fli_op;

/* Bytes that were received and not yet read by the process. Not atomic: used only by the holder of the reading
 * direction. */
typedef struct fli_read_buffer {
    void    *block; /* the buffer has one reference to the block; NULL: the buffer is empty */
    uint8_t *at;
    size_t   size;
    /* Size of the block from `at` to its end if only this stream uses the block. 0: the block belongs to a worker,
     * which uses it for many streams. */
    size_t room;
} fli_read_buffer;

typedef struct fli_stream {
    fli_stream_state state;
    uint32_t         self; /* handle of the stream in the slab. Not atomic: set when the slot was made */
    int              fd;   /* not atomic: written before the stream is open. The job that opens a file or starts a
                              program writes its descriptor, and the job that closes the stream clears it */
    uint8_t kind;
    uint8_t flags; /* listener: flags for accepted connections; program: 1 if the program leads a process group */
    bool    in_poller;
    /* The stream is a unix socket or a listener of unix sockets, so descriptors may come with the bytes. Not atomic:
     * set when the stream is made. */
    bool is_unix;
    int  foreign; /* FLI_STREAM_POLL: the descriptor number that the poll command named */
    /* The system may have more bytes than were received. Not atomic: used only by the holder of the reading
     * direction. */
    bool more;
    /* A read may return fewer bytes than asked for although the system has more.  writes: the command that adopts a
     * descriptor; a worker that gets a report of urgent bytes, before it changes `state` (PAIR io.state orders the
     * two). A report for an earlier stream of this slot may also set the flag: that costs the present stream one
     * needless system call. */
    FLI_ATOMIC(bool) short_reads;
    int64_t          pid; /* program: its process id in the system; 0: the program has not been started */
    /* The serial of the process that owns the stream. 0: the stream is being transferred or is closing.  writes: under
     * the owner's stripe lock.  reads: any thread, relaxed. That is enough because a process only compares `owner` with
     * its own serial, and only this process (or its end) changes `owner` to or from that value. */
    FLI_ATOMIC(uint64_t) owner;
    uint32_t        next, prev; /* links of the owner's stream list. Not atomic: protected by the owner's stripe lock */
    fli_op          ops[2];     /* indexed by fli_direction */
    fli_read_buffer read_buffer;
    uint64_t        resume_ns; /* listener: after a failed accept (no free descriptors), no accept before this time */
    uint64_t        backoff_ns;
    fli_job         job; /* file or program: the job of this stream on the work pool */
    fli_io         *io;  /* the fli_io of this stream, for the function that runs `job` */
    /* sender of the last datagram. Not atomic: used only by the holder of the reading direction */
    fli_address sender;
} fli_stream;

#define FLI_STREAM_SIZE ((sizeof(fli_stream) + 63) / 64 * 64)

/* The result of one attempt of an operation. */
typedef struct fli_io_result {
    bool again; /* the system call would block: wait for a report */
    /* set together with `again`: the attempt ended early, for example at the end of its budget of bytes, so requeue the
     * descriptor */
    bool       later;
    bool       ready; /* the system may have more: the next operation of this direction starts with an attempt */
    bool       owns;  /* `data` holds a reference that must be freed */
    filch_err  err;
    filch_data data;
} fli_io_result;

/* ---- stream.c: opening, finding, closing ---- */

static inline uint64_t fli_stream_id(fli_stream *s)
{
    return (uint64_t)fli_stream_state_gen(fli_load_rlx(&s->state)) << 32 | s->self;
}

/* Makes a stream over `fd` (-1: s->fd is set later) for the process `serial`. If `beside` is not NULL, makes the stream
 * only if the process still owns the stream `beside`. If `beside` is NULL, the calling thread must be the worker that
 * runs the process. Takes ownership of `fd`, also on an error. Errors: FILCH_ENOMEM, FILCH_ESYS, FILCH_EDEAD. */
FILCH_MUST_USE filch_err fli_stream_make(fli_io *io, uint64_t serial, fli_stream *beside, int fd, fli_stream_kind kind,
                                         fli_stream **out);
/* Adds the stream to the poller. Thread: the thread that made the stream, or a holder of one of the stream's
 * directions. */
FILCH_MUST_USE filch_err fli_stream_add_to_poller(fli_io *io, fli_stream *s);
/* Makes the poller report the descriptor again if it is ready, after all pending reports. Thread: a holder of one of
 * the stream's directions. */
FILCH_MUST_USE filch_err fli_stream_requeue(fli_io *io, fli_stream *s);
/* Returns the stream `id` if it is open and the process with `serial` owns it, otherwise NULL. */
fli_stream *fli_stream_find(fli_io *io, uint64_t id, uint64_t serial);
/* Removes the stream from its owner and closes it. Returns false if process `serial` does not own the stream any more.
 * Thread: any. */
bool fli_stream_close(fli_io *io, fli_stream *s, uint64_t serial);
/* Writes to `ids` the ids of up to `room` FLI_STREAM_POLL streams that process `serial` has for descriptor `fd`.
 * Returns how many ids it wrote. */
uint32_t fli_stream_find_polls(fli_io *io, uint64_t serial, int fd, uint64_t *ids, uint32_t room);
/* A connect or a poll with an outstanding yield. */
typedef struct fli_pending_op {
    uint64_t       stream; /* id of the stream that the command has made */
    filch_receiver receiver;
    fli_direction  direction;
} fli_pending_op;
/* Writes to `found` up to `room` outstanding connects and polls of process `serial` with `tag`. Returns how many it
 * wrote. Thread: the worker that runs the process. */
uint32_t fli_stream_find_tagged(fli_io *io, uint64_t serial, uint64_t tag, fli_pending_op *found, uint32_t room);
/* Closes the stream `s` of generation `gen`, which has no owner. */
void fli_stream_shut(fli_io *io, fli_stream *s, uint32_t gen);

/* Frees a closing stream. Called by the thread that has ended the last BUSY operation of the stream. */
void fli_stream_gone(fli_io *io, fli_stream *s);

/* ---- op.c: the life of an operation ---- */

/* Starts an operation on `s`, the stream that request->stream names, and fills in the fields that all commands use.
 * Sets *try_first to true if an attempt may succeed, to false if the operation must wait for a report. Errors:
 * FILCH_EBUSY if another operation of this direction is outstanding, FILCH_ESTREAM. */
FILCH_MUST_USE filch_err fli_op_begin(fli_stream *s, const filch_command *command, const filch_io_request *request,
                                      filch_receiver receiver, fli_direction direction, bool *try_first);
/* Returns the request of an operation, decoded from the payload in op->as.data. */
filch_io_request fli_op_request(const fli_op *op);
/* Sets the fields of a read operation: the number of bytes, and the delimiter. */
void fli_op_set_read(fli_op *op, const filch_io_request *request);
/* Takes a reference to the payload, so that the operation can use the payload after the command has been handled.
 * Cannot fail: the payload of a yield is inline bytes or a block with a reference count, so a reference needs no
 * memory. */
void fli_op_hold(fli_io *io, fli_op *op);
/* Attempts the operation, and completes it or leaves it ARMED. With `try_first` false, arms the operation without an
 * attempt. */
void fli_op_run(fli_io *io, fli_stream *s, fli_direction direction, bool try_first);
/* Ends the operation: releases the direction, then completes the yield. Returns false if the yield was already
 * completed (the process has ended, or the deadline has passed). In that case a stream that the operation opened is
 * closed. */
bool fli_op_settle(fli_io *io, fli_stream *s, fli_direction direction, fli_io_result result);
/* Completes a yield with `err` and `data`. If the payload `data` cannot be delivered (FILCH_ENOMEM, FILCH_ETOOBIG),
 * completes the yield without a payload and with this error instead. Returns true if the yield was completed with `err`
 * and `data`. */
bool fli_op_complete(filch_receiver receiver, filch_err err, filch_data data);
/* Completes a yield with the result of a system call: 0, or a negative errno value. */
void fli_op_complete_errno(filch_receiver receiver, int why);

/* fli_io_error(): returns the filch_err for an errno value. fli_io_result_failed(): returns a result with the errno
 * value -`negative` as payload and the filch_err for it; for EAGAIN a result with `again`. */
filch_err                   fli_io_error(int number);
fli_io_result               fli_io_result_failed(int64_t negative);
static inline fli_io_result fli_io_result_err(filch_err err)
{
    return (fli_io_result){ .err = err, .ready = true }; /* `ready`: the next operation starts with an attempt */
}
static inline fli_io_result fli_io_result_again(void)
{
    return (fli_io_result){ .again = true };
}
static inline fli_io_result fli_io_result_later(void)
{
    return (fli_io_result){ .again = true, .later = true };
}

/* ---- the budget: how many bytes a worker may move ---- */

/* Allows this worker to move `bytes` bytes before the operations that have more to move are queued again. */
static inline void fli_budget_begin(fli_io *io, size_t bytes)
{
    fli_local *worker = fli_current_worker(io->rt);
    if (worker != NULL) io->locals[worker->index].left = bytes;
}
/* Called in fli_io_deliver before each operation: raises the budget to FLI_IO_OP_MIN_BYTES if less is left. */
static inline void fli_budget_next_op(fli_io *io)
{
    fli_local *worker = fli_current_worker(io->rt);
    if (worker == NULL) return;
    fli_io_local *local = &io->locals[worker->index];
    if (local->left < FLI_IO_OP_MIN_BYTES) local->left = FLI_IO_OP_MIN_BYTES;
}
/* Returns how many bytes the next system call may move. If it returns 0, the attempt must return fli_io_result_later().
 * On a thread of the work pool the number is unlimited, because no other process waits for that thread. */
static inline size_t fli_budget_left(fli_io *io)
{
    fli_local *worker = fli_current_worker(io->rt);
    return worker != NULL ? io->locals[worker->index].left : SIZE_MAX;
}
static inline void fli_budget_use(fli_io *io, size_t bytes)
{
    fli_local *worker = fli_current_worker(io->rt);
    if (worker == NULL) return;
    fli_io_local *local = &io->locals[worker->index];
    local->left -= bytes < local->left ? bytes : local->left;
    local->moved += bytes;
}

/* ---- job.c: operations on a thread of the work pool ---- */

/* Runs the outstanding reading operation on a thread of `lane`. The yield is completed with FILCH_EDEADLINE after
 * `timeout_ns`, although the thread may still be in the call. FILCH_FOREVER: no deadline. */
void fli_op_submit(fli_io *io, fli_stream *s, fli_lane lane, uint64_t timeout_ns, void (*job_run)(fli_job *job),
                   void (*job_cancel)(fli_job *job));
/* Submits `job` to `lane`, and sets the deadline of its yield: *timer is the id of the timer; 0: no deadline. On an
 * error the caller must complete the yield. */
FILCH_MUST_USE filch_err fli_job_submit(fli_io *io, fli_job *job, fli_lane lane, const filch_command *command,
                                        filch_receiver receiver, uint64_t timeout_ns, uint64_t *timer);
/* Completes the yield of the job with FILCH_ECANCELLED; the thread continues its call. Returns false if the yield was
 * already completed. Thread: the worker that runs the owner. */
bool fli_op_cancel_job(fli_stream *s);

/* ---- functions that make one attempt of an operation; called by the holder of the direction ---- */

fli_io_result fli_read_try(fli_io *io, fli_stream *s, fli_op *op);
void          fli_read_buffer_drop(fli_stream *s);
fli_io_result fli_write_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_accept_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_connect_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_receive_from_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_send_to_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_exit_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_signals_try(fli_io *io, fli_stream *s, fli_op *op);
fli_io_result fli_poll_try(fli_io *io, fli_stream *s, fli_op *op);

/* Returns a pointer to at least `least` free bytes in the receive block of this worker, behind the bytes received
 * before. Sets *room to the number of free bytes. Returns NULL if there is no memory. */
uint8_t *fli_io_room(fli_io *io, size_t least, size_t *room, void **block);
/* Marks the first `size` of the free bytes returned by fli_io_room() as used. */
void fli_io_filled(fli_io *io, size_t size);

/* ---- handlers ---- */

filch_err fli_socket_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                            filch_receiver receiver);
filch_err fli_file_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                          filch_receiver receiver);
filch_err fli_program_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver);
/* Closes a file on the work pool, because the result of close() is reported to the process. Returns false, without
 * any effect, if an operation is outstanding on the file. */
bool      fli_file_close(fli_io *io, fli_stream *s, const filch_command *command, const filch_io_request *request,
                         filch_receiver receiver);
filch_err fli_paths_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                           filch_receiver receiver);
filch_err fli_foreign_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver);
/* Called when the stream of a program is freed: kills the program and reaps it if it still runs. */
void fli_program_end(fli_io *io, fli_stream *s);

#endif
