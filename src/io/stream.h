/* stream.h - one open thing and the operations that are out on it, as the files of this room see it. */
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
    FLI_STREAM_PROGRAM, /* a pidfd */
    FLI_STREAM_SIGNALS,
    FLI_STREAM_POLL /* of a poll: a duplicate of somebody else's descriptor */
} fli_stream_kind;

/* In the number of a watch in the poller, above the stream's id: news of either kind is for the operation. */
#define FLI_POLL_MARK (UINT64_C(1) << 63)

/* An operation that is out. Plain: belongs to whoever holds its direction of the stream (stream_state.h). */
typedef struct fli_op {
    filch_receiver receiver;
    uint64_t       serial;  /* of the process */
    uint32_t       command; /* FILCH_CMD_* */
    uint8_t        how;     /* of a read */
    uint8_t        delimiter_size;
    bool           at_once; /* the timeout is 0, or has passed: it must not wait */
    uint64_t       due_ns;  /* FLI_NEVER: no timeout */
    uint64_t       timer;   /* 0: none is armed */
    uint64_t       most;    /* of a read */
    uint64_t       done;    /* of a write: bytes written; of a read until: bytes searched */
    union {
        uint8_t    delimiter[8];
        filch_data data; /* of a write: owned once it waits */
    } as;
    bool owns; /* as.data */
} fli_op;

/* Bytes that were received and not yet read. Plain, as the reading operation. */
typedef struct fli_read_buffer {
    void    *block; /* one reference; NULL: no bytes */
    uint8_t *at;
    size_t   size;
    size_t   room; /* from `at` on, if the block is this stream's own; 0: bytes of others follow */
} fli_read_buffer;

typedef struct fli_stream {
    fli_stream_state state;
    uint32_t         self; /* plain: set when made */
    int              fd;   /* plain: set before it is opened, changed by nobody until it is gone */
    uint8_t          kind;
    uint8_t          flags; /* of a listener: for what it accepts; of a program: it leads a process group */
    bool             in_poller;
    bool is_unix; /* a unix socket, or a listener of them: descriptors may come with the bytes.  Plain: set when made */
    int  foreign; /* of a watch: the number that was asked for */
    bool more;    /* the system may have more than was received.  Plain, as the reading operation */
    /* A read may end before what the system has does.  writes: who adopts it; a report of urgent bytes, before it
     * changes the state, which orders it (PAIR io.state). A late report may set it for the next stream of this slot:
     * that costs a read for nothing. */
    FLI_ATOMIC(bool) short_reads;
    int64_t pid; /* of a program; 0: it has not begun */
    /* Whose it is; 0: on its direction, or closing.  writes: under the owner's stripe.  reads: any, relaxed: a
     * stranger's look that comes too early or too late finds a number that is not his. */
    FLI_ATOMIC(uint64_t) owner;
    uint32_t        next, prev; /* plain, under the owner's stripe: its streams */
    fli_op          ops[2];     /* by direction */
    fli_read_buffer read_buffer;
    uint64_t        resume_ns; /* of a listener out of descriptors: not before */
    uint64_t        backoff_ns;
    fli_job         job;    /* of a file or a program: what the work pool does for it */
    fli_io         *io;     /* for that job */
    fli_address     sender; /* of the last datagram; plain, as the reading operation */
} fli_stream;

#define FLI_STREAM_SIZE ((sizeof(fli_stream) + 63) / 64 * 64)

/* What an attempt came to. */
typedef struct fli_outcome {
    bool       again; /* not now */
    bool       later; /* with `again`: the system may have more, but the budget of this turn is used up */
    bool       ready; /* the system may have more: the next operation tries first */
    bool       owns;  /* `data` holds a reference */
    filch_err  err;
    filch_data data;
} fli_outcome;

/* ---- stream.c: opening, finding, closing ---- */

static inline uint64_t fli_stream_id(fli_stream *s)
{
    return (uint64_t)fli_stream_state_gen(fli_load_rlx(&s->state)) << 32 | s->self;
}

/* A stream over `fd` (-1: it gets one later), of the process with `serial`, if that still owns `beside` (NULL: the
 * caller is its owner). Takes `fd` whatever happens. FILCH_ENOMEM, FILCH_ESYS, FILCH_EDEAD. */
FILCH_MUST_USE filch_err fli_stream_make(fli_io *io, uint64_t serial, fli_stream *beside, int fd, fli_stream_kind kind,
                                         fli_stream **out);
/* Has the poller report on it. Thread: whoever holds one of its ways. */
FILCH_MUST_USE filch_err fli_stream_add_to_poller(fli_io *io, fli_stream *s);
/* Has the poller report on it again, if it is ready, behind those that are ready already. Thread: as above. */
FILCH_MUST_USE filch_err fli_stream_requeue(fli_io *io, fli_stream *s);
/* The stream `id`, if the process with `serial` owns it. */
fli_stream *fli_stream_find(fli_io *io, uint64_t id, uint64_t serial);
/* Takes it from its owner and closes it. False: it was not his any more. Thread: any. */
bool fli_stream_close(fli_io *io, fli_stream *s, uint64_t serial);
/* The ids of up to `room` watches of `fd` that the process with `serial` has. */
uint32_t fli_stream_find_polls(fli_io *io, uint64_t serial, int fd, uint64_t *ids, uint32_t room);
/* Closes one that has no owner. */
void fli_stream_shut(fli_io *io, fli_stream *s, uint32_t gen);

/* The last one to let go of a closing stream calls this. */
void fli_stream_gone(fli_io *io, fli_stream *s);

/* ---- op.c: the life of an operation ---- */

/* Begins an operation on `s`, which request->stream names, for the command: fills in what all have in common.
 * *try_first: the system may have something. FILCH_EBUSY: another one is out that direction. */
FILCH_MUST_USE filch_err fli_op_begin(fli_stream *s, const filch_command *command, const filch_io_request *request,
                                      filch_receiver receiver, fli_direction direction, bool *try_first);
/* What an operation that holds its payload was asked for. */
filch_io_request fli_op_request(const fli_op *op);
/* What a read wants. */
void fli_op_set_read(fli_op *op, const filch_io_request *request);
/* The payload must outlive the command: a share in it. Needs no memory: it is owned already. */
void fli_op_hold(fli_io *io, fli_op *op);
/* Tries, and waits if the system says so; completes the yield. */
void fli_op_run(fli_io *io, fli_stream *s, fli_direction direction, bool try_first);
/* The operation is over: lets go of the stream, then tells the process. Returns false if the process was not told: it
 * has ended, or the yield's deadline has passed; a stream that was opened is closed then. */
bool fli_op_settle(fli_io *io, fli_stream *s, fli_direction direction, fli_outcome outcome);
/* Completes with what an outcome says, without a stream. Returns false if the yield was over before. */
bool fli_op_complete(filch_receiver receiver, filch_err err, filch_data data);
/* The same with what the system said: 0, or a negative error number. */
void fli_op_complete_errno(filch_receiver receiver, int why);

/* The code for a system's error number, and an outcome that carries both. */
filch_err                 fli_io_error(int number);
fli_outcome               fli_outcome_failed(int64_t negative);
static inline fli_outcome fli_outcome_err(filch_err err)
{
    return (fli_outcome){ .err = err, .ready = true }; /* what was reported and not looked at is not forgotten */
}
static inline fli_outcome fli_outcome_again(void)
{
    return (fli_outcome){ .again = true };
}
static inline fli_outcome fli_outcome_later(void)
{
    return (fli_outcome){ .again = true, .later = true };
}

/* ---- the budget of a turn: FLI_IO_BUDGET_BYTES ---- */

/* A turn begins, with so many bytes. */
static inline void fli_budget_begin(fli_io *io, size_t bytes)
{
    fli_local *worker = fli_current_worker(io->rt);
    if (worker != NULL) io->locals[worker->index].left = bytes;
}
/* One more operation of the same turn: it may move a piece at least. */
static inline void fli_budget_next_op(fli_io *io)
{
    fli_local *worker = fli_current_worker(io->rt);
    if (worker == NULL) return;
    fli_io_local *local = &io->locals[worker->index];
    if (local->left < FLI_IO_OP_MIN_BYTES) local->left = FLI_IO_OP_MIN_BYTES;
}
/* As many bytes as may be moved by the next call of the system; 0: fli_outcome_later. A thread of the work pool, which
 * no process waits for, has no budget. */
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

/* Has a thread of `lane` go on with the operation that is out on the reading direction; FILCH_EDEADLINE after
 * `timeout_ns` although the thread may still be inside. FILCH_FOREVER: no deadline. */
void fli_op_submit(fli_io *io, fli_stream *s, fli_lane lane, uint64_t timeout_ns, void (*job_run)(fli_job *job),
                   void (*job_cancel)(fli_job *job));
/* Has a thread of `lane` call `job_run` for a yield that has no stream. On an error the yield is the caller's. */
FILCH_MUST_USE filch_err fli_job_submit(fli_io *io, fli_job *job, fli_lane lane, const filch_command *command,
                                        filch_receiver receiver, uint64_t timeout_ns, uint64_t *timer);
/* Completes the operation that a thread is at with FILCH_ECANCELLED; the thread goes on. Returns false if it was over.
 * Thread: the owner's worker. */
bool fli_op_cancel_job(fli_stream *s);

/* ---- attempts: one try each, by the holder of the direction ---- */

fli_outcome fli_read_try(fli_io *io, fli_stream *s, fli_op *op);
void        fli_read_buffer_drop(fli_stream *s);
fli_outcome fli_write_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_accept_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_connect_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_receive_from_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_send_to_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_exit_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_signals_try(fli_io *io, fli_stream *s, fli_op *op);
fli_outcome fli_poll_try(fli_io *io, fli_stream *s, fli_op *op);

/* Room to receive into, at least `least` bytes, behind what this worker received before. NULL: no memory. */
uint8_t *fli_io_room(fli_io *io, size_t least, size_t *room, void **block);
/* So many of them were filled. */
void fli_io_filled(fli_io *io, size_t size);

/* ---- handlers ---- */

filch_err fli_socket_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                            filch_receiver receiver);
filch_err fli_file_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                          filch_receiver receiver);
filch_err fli_program_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver);
/* Closes a file on the work pool, to tell what the system says to it. Returns false if something is outstanding there,
 * or the pool takes no job: nothing has happened. */
bool      fli_file_close(fli_io *io, fli_stream *s, const filch_command *command, const filch_io_request *request,
                         filch_receiver receiver);
filch_err fli_paths_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                           filch_receiver receiver);
filch_err fli_foreign_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver);
/* The program's stream is gone: it is killed and buried if it still runs. */
void fli_program_end(fli_io *io, fli_stream *s);

#endif
