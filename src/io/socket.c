/* socket.c - the socket commands, and reading and writing on sockets.
 *
 * When the process limit of descriptors is reached, accept fails and would fail again at once. The connections stay in
 * the kernel's queue, and the poller does not report them again. So the process gets the error and the listener backs
 * off: an accept before `resume_ns` waits for an alarm at `resume_ns` and is attempted then. Each failure doubles the
 * back-off, a success ends it.
 */
#include <errno.h>
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/clock.h"
#include "port/desc.h"
#include "proc/ext.h"
#include "proc/yields.h"

#define BACKOFF_FIRST_NS FILCH_MILLISECONDS(10)
#define BACKOFF_LAST_NS FILCH_SECONDS(1)
#define TEXT_MAX 4096
#define DATAGRAM_COPY ((size_t)32768)

/* ---- opening ---- */

/* Makes a stream over `fd`. If `fd` is a negative errno value, completes the yield with this error, sets *err to
 * FILCH_OK and returns NULL. */
static fli_stream *make(fli_io *io, const filch_command *command, int fd, fli_stream_kind kind, filch_receiver receiver,
                        filch_err *err)
{
    fli_stream *s = NULL;
    *err = FILCH_OK;
    if (fd < 0) {
        fli_op_complete_errno(receiver, fd);
        return NULL;
    }
    *err = fli_stream_make(io, command->from.serial, NULL, fd, kind, &s);
    return s;
}

static filch_err handle_open(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver)
{
    fli_address address;
    filch_err   err;
    if (!fli_address_read(&address, request->text)) return FILCH_EINVAL;
    bool listens = command->id == FILCH_CMD_LISTEN;
    int  fd =
        listens ? fli_net_listen(&address, request->backlog, request->how) : fli_net_datagram(&address, request->how);
    fli_stream *s = make(io, command, fd, listens ? FLI_STREAM_LISTENER : FLI_STREAM_DATAGRAM, receiver, &err);
    if (s == NULL) return err;
    s->flags = (uint8_t)request->how;
    s->is_unix = fli_address_is_unix(&address);
    fli_op_complete(receiver, FILCH_OK, filch_int((int64_t)fli_stream_id(s)));
    return FILCH_OK;
}

static filch_err handle_connect(fli_io *io, const filch_command *command, filch_io_request *request,
                                filch_receiver receiver)
{
    fli_address address;
    filch_err   err;
    bool        pending, try_first;
    if (!fli_address_read(&address, request->text)) return FILCH_EINVAL;
    int         fd = fli_net_connect(&address, request->how, &pending);
    fli_stream *s = make(io, command, fd, FLI_STREAM_SOCKET, receiver, &err);
    if (s == NULL) return err;
    s->is_unix = fli_address_is_unix(&address);
    if (!pending) {
        fli_op_complete(receiver, FILCH_OK, filch_int((int64_t)fli_stream_id(s)));
        return FILCH_OK;
    }
    request->stream.id = fli_stream_id(s);
    err = fli_op_begin(s, command, request, receiver, FLI_WRITING, &try_first);
    FLI_ASSERT(err == FILCH_OK); /* the stream is new: no other operation can be outstanding */
    fli_op_run(io, s, FLI_WRITING, try_first);
    return FILCH_OK;
}

fli_io_result fli_connect_try(fli_io *io, fli_stream *s, fli_op *op)
{
    (void)io, (void)op;
    int why = fli_net_connected(s->fd);
    if (why == -EAGAIN) return fli_io_result_again();
    if (why == 0) return (fli_io_result){ .data = filch_int((int64_t)fli_stream_id(s)), .ready = true };
    return fli_io_result_failed(why);
}

static void back_off(fli_stream *s)
{
    s->backoff_ns = s->backoff_ns == 0 ? BACKOFF_FIRST_NS : s->backoff_ns * 2;
    if (s->backoff_ns > BACKOFF_LAST_NS) s->backoff_ns = BACKOFF_LAST_NS;
    s->resume_ns = fli_clock_after(fli_clock_ns(), s->backoff_ns);
}

fli_io_result fli_accept_try(fli_io *io, fli_stream *s, fli_op *op)
{
    (void)op;
    /* During a stop the listener accepts nothing: connections stay in the kernel's queue, and the accept operation
     * stays outstanding. */
    if (fli_load_rlx(&io->rt->phase) != FLI_OPEN) {
        /* cleared, because a `resume_ns` in the past would make set_alarm() set alarms that are due at once */
        s->resume_ns = s->backoff_ns = 0;
        return fli_io_result_again();
    }
    if (s->resume_ns != 0 && fli_clock_ns() < s->resume_ns) return fli_io_result_again();
    int         fd = fli_net_accept(s->fd, s->flags);
    uint64_t    serial = fli_load_rlx(&s->owner);
    fli_stream *fresh = NULL;
    if (fd == -ECONNABORTED) /* accept is not repeated here but in a later attempt, because peers may have aborted any
                                number of connections, and a loop here could occupy the worker */
        return fli_io_result_later();
    filch_err err = fd >= 0 ? fli_stream_make(io, serial, s, fd, FLI_STREAM_SOCKET, &fresh) : FILCH_OK;
    if (fresh == NULL && fd != -EAGAIN) {
        back_off(s);
        return fd < 0 ? fli_io_result_failed(fd) : fli_io_result_err(err);
    }
    s->resume_ns = s->backoff_ns = 0;
    if (fresh == NULL) return fli_io_result_again();
    return (fli_io_result){ .data = filch_int((int64_t)fli_stream_id(fresh)), .ready = true };
}

/* ---- datagrams ---- */

fli_io_result fli_receive_from_try(fli_io *io, fli_stream *s, fli_op *op)
{
    size_t   room;
    void    *block;
    uint8_t *at = fli_io_room(io, op->most < 65536 ? (size_t)op->most : 65536, &room, &block);
    if (at == NULL) return fli_io_result_err(FILCH_ENOMEM);
    if (room > op->most) room = (size_t)op->most;
    int64_t n = fli_net_receive_from(s->fd, at, room, &s->sender);
    if (n < 0) return fli_io_result_failed(n);
    size_t        size = (size_t)n < room ? (size_t)n : room;
    fli_io_result result = { .ready = true, .err = (size_t)n > room ? FILCH_ETOOBIG : FILCH_OK };
    fli_budget_use(io, size);
    /* The block has space for the largest datagram, but most datagrams are much smaller. A small datagram is copied, so
     * that a process that keeps it does not keep a block of 64 KiB alive. A datagram of more than DATAGRAM_COPY (32
     * KiB) stays in the block: it fills more than half of the block. */
    if (size <= DATAGRAM_COPY) {
        result.data = filch_bytes(at, size);
    } else {
        result.data = fli_block_cut(block, at, size);
        fli_io_filled(io, size);
    }
    return result;
}

/* ---- name resolution, on the work pool ---- */

typedef struct lookup {
    fli_job        job;
    fli_io        *io;
    filch_receiver receiver;
    char          *host, *service; /* NULL: the request does not have this text */
    size_t         size;           /* size of the allocation: the struct and the texts behind it */
    uint64_t       timer;          /* id of the timer for the deadline of this lookup; 0: no deadline */
} lookup;

static void lookup_end(lookup *l, filch_err err, filch_data data)
{
    if (l->timer != 0) fli_timers_abandon(l->io->timers, l->timer);
    (void)fli_op_complete(l->receiver, err, data);
    fli_free(&l->io->rt->mem, l, l->size);
}

static void lookup_run(fli_job *job)
{
    lookup *l = FLI_OUTER(lookup, job, job);
    char    text[TEXT_MAX];
    size_t  size;
    if (!fli_yield_is_pending(l->io->rt, l->receiver.key)) {
        lookup_end(l, FILCH_ECANCELLED, filch_none());
        return;
    }
    filch_err err = fli_net_resolve(l->host, l->service, text, sizeof text, &size);
    lookup_end(l, err, err == FILCH_OK ? filch_str(text) : filch_none());
}

static void lookup_cancel(fli_job *job)
{
    lookup_end(FLI_OUTER(lookup, job, job), FILCH_ECANCELLED, filch_none());
}

static filch_err handle_resolve(fli_io *io, const filch_command *command, const filch_io_request *request,
                                filch_receiver receiver)
{
    size_t  service_size = request->service != NULL ? strlen(request->service) + 1 : 0;
    size_t  size = sizeof(lookup) + request->text_size + service_size;
    lookup *l = fli_alloc(&io->rt->mem, size);
    if (l == NULL) return FILCH_ENOMEM;
    char *texts = (char *)(l + 1);
    *l =
        (lookup){ .job = { .run = lookup_run, .cancel = lookup_cancel }, .io = io, .receiver = receiver, .size = size };
    if (request->text != NULL) l->host = memcpy(texts, request->text, request->text_size);
    if (service_size > 0) l->service = memcpy(texts + request->text_size, request->service, service_size);
    filch_err err = fli_job_submit(io, &l->job, FLI_LANE_NAME, command, receiver, request->timeout_ns, &l->timer);
    if (err != FILCH_OK) fli_free(&io->rt->mem, l, size);
    return err;
}

/* ---- commands that wait for a descriptor ---- */

/* Returns true if streams of the kind of `s` support `command`. */
static bool fits(const fli_stream *s, uint32_t command)
{
    switch (command) {
    case FILCH_CMD_ACCEPT: return s->kind == FLI_STREAM_LISTENER;
    case FILCH_CMD_RECEIVE_FROM:
    case FILCH_CMD_SEND_TO: return s->kind == FLI_STREAM_DATAGRAM;
    case FILCH_CMD_READ:
        return s->kind == FLI_STREAM_SOCKET || s->kind == FLI_STREAM_PIPE || s->kind == FLI_STREAM_SIGNALS;
    case FILCH_CMD_EXIT: return s->kind == FLI_STREAM_PROGRAM;
    default: return s->kind == FLI_STREAM_SOCKET || s->kind == FLI_STREAM_PIPE;
    }
}

static filch_err handle_wait(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver)
{
    bool          writes = command->id == FILCH_CMD_WRITE || command->id == FILCH_CMD_SEND_TO, try_first;
    fli_direction direction = writes ? FLI_WRITING : FLI_READING;
    fli_stream   *s = fli_stream_find(io, request->stream.id, command->from.serial);
    if (s == NULL) return FILCH_ESTREAM;
    bool file = s->kind == FLI_STREAM_FILE;
    if (file && (command->id == FILCH_CMD_READ || command->id == FILCH_CMD_WRITE)) {
        return fli_file_handle(io, command, request, receiver);
    }
    if (!fits(s, command->id)) return FILCH_EINVAL;
    filch_err err = fli_op_begin(s, command, request, receiver, direction, &try_first);
    if (err != FILCH_OK) return err;
    fli_op *op = &s->ops[direction];
    if (writes) {
        op->as.data = command->data;
    } else {
        fli_op_set_read(op, request);
    }
    fli_op_run(io, s, direction, try_first);
    return FILCH_OK;
}

filch_err fli_socket_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                            filch_receiver receiver)
{
    filch_io_request copy = *request;
    /* Makes sure that the process has an ext, because the ext contains the list of its streams. */
    if (fli_ext_get(io->rt, fli_current_worker(io->rt)->current) == NULL) return FILCH_ENOMEM;
    switch (command->id) {
    case FILCH_CMD_CONNECT: return handle_connect(io, command, &copy, receiver);
    case FILCH_CMD_LISTEN:
    case FILCH_CMD_DATAGRAM: return handle_open(io, command, request, receiver);
    case FILCH_CMD_RESOLVE: return handle_resolve(io, command, request, receiver);
    case FILCH_CMD_STAT:
    case FILCH_CMD_RENAME:
    case FILCH_CMD_REMOVE:
    case FILCH_CMD_MKDIR:
    case FILCH_CMD_RMDIR:
    case FILCH_CMD_LIST: return fli_paths_handle(io, command, request, receiver);
    case FILCH_CMD_OPEN:
    case FILCH_CMD_SYNC:
    case FILCH_CMD_TRUNCATE:
    case FILCH_CMD_SEEK: return fli_file_handle(io, command, request, receiver);
    case FILCH_CMD_RUN:
    case FILCH_CMD_KILL:
    case FILCH_CMD_SIGNALS: return fli_program_handle(io, command, request, receiver);
    case FILCH_CMD_POLL:
    case FILCH_CMD_POLL_CANCEL:
    case FILCH_CMD_ADOPT: return fli_foreign_handle(io, command, request, receiver);
    default: return handle_wait(io, command, request, receiver);
    }
}
