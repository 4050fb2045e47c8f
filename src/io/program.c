/* program.c - other programs, and signals.
 *
 * Starting a program blocks until the program runs, so it is a job for the work pool. The stream of the program is made
 * before the job starts, without a descriptor, and the job holds it BUSY. The pipes to the program become streams of
 * the process that started it, if that process is still alive when the program runs. When the stream of a program is
 * closed, the program is killed and reaped. */
#include <errno.h>
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"
#include "port/program.h"
#include "proc/yields.h"

/* ---- starting ---- */

/* Splits `joined`, texts that each end with NUL, into an array of pointers that ends with NULL. Returns NULL if there
 * is no memory. */
static char **split(fli_io *io, const char *joined, size_t length, size_t *size)
{
    size_t count = 0, i = 0;
    for (size_t at = 0; at < length; at += strlen(joined + at) + 1) count++;
    *size = (count + 1) * sizeof(char *);
    char **list = fli_alloc(&io->rt->mem, *size);
    if (list == NULL) return NULL;
    for (size_t at = 0; at < length; at += strlen(joined + at) + 1) {
        /* the cast removes const: posix_spawn does not write to the texts */
        list[i++] = (char *)(uintptr_t)(joined + at);
    }
    list[i] = NULL;
    return list;
}

static int start(fli_io *io, const fli_op *op, fli_program *program)
{
    filch_io_request request = fli_op_request(op);
    bool             given = request.backlog != 0; /* true: the request contains an environment, which may be empty */
    size_t           argv_size, environment_size = 0;
    char           **argv = split(io, request.text, request.text_size, &argv_size);
    char           **environment = given ? split(io, request.bytes, request.byte_count, &environment_size) : NULL;
    int              why = -ENOMEM;
    fli_program_plan plan = {
        .argv = argv, .environment = environment, .directory = request.service, .flags = request.how
    };
    if (argv != NULL && (environment != NULL || !given)) why = fli_program_start(&plan, program);
    if (environment != NULL) fli_free(&io->rt->mem, environment, environment_size);
    if (argv != NULL) fli_free(&io->rt->mem, argv, argv_size);
    return why;
}

/* Makes a stream over `fd`, the runtime's end of a pipe to the program, if the process `serial` still owns `s`, the
 * stream of the program. */
static filch_err add_pipe(fli_io *io, fli_stream *s, uint64_t serial, int fd, filch_stream *out)
{
    fli_stream *pipe = NULL;
    if (fd < 0) return FILCH_OK;
    filch_err err = fli_stream_make(io, serial, s, fd, FLI_STREAM_PIPE, &pipe);
    if (err == FILCH_OK) out->id = fli_stream_id(pipe);
    return err;
}

static void forget(fli_io *io, uint64_t serial, filch_stream stream)
{
    fli_stream *s = stream.id != 0 ? fli_stream_find(io, stream.id, serial) : NULL;
    if (s != NULL) (void)fli_stream_close(io, s, serial);
}

static fli_io_result refused(int number)
{
    return (fli_io_result){ .err = fli_io_error(number), .data = filch_int(number), .ready = true };
}

static fli_io_result start_program(fli_io *io, fli_stream *s, filch_program *started)
{
    uint64_t    serial = fli_load_rlx(&s->owner);
    fli_program program;
    fli_op     *op = &s->ops[FLI_READING];
    if (serial == 0 || !fli_yield_is_pending(io->rt, op->receiver.key)) return fli_io_result_err(FILCH_ECANCELLED);
    int why = start(io, op, &program);
    if (why == -EAGAIN)
        /* EAGAIN of fork means that the system allows no further process. The operation fails instead of waiting,
         * because the poller does not report when another process of the system ends. */
        return refused(EAGAIN);
    if (why != 0) return fli_io_result_failed(why);
    s->pid = program.pid;
    s->flags = program.group;
    s->fd = program.fd;
    *started = (filch_program){ .self = { fli_stream_id(s) }, .pid = program.pid };
    filch_err err = s->fd >= 0 ? fli_stream_add_to_poller(io, s) : FILCH_OK;
    /* Each add_pipe() takes ownership of its descriptor, also if it fails. */
    filch_err in = add_pipe(io, s, serial, program.input, &started->input);
    filch_err out = add_pipe(io, s, serial, program.output, &started->output);
    filch_err errors = add_pipe(io, s, serial, program.errors, &started->errors);
    if (err == FILCH_OK) err = in != FILCH_OK ? in : out != FILCH_OK ? out : errors;
    if (err == FILCH_OK) return (fli_io_result){ .data = filch_bytes(started, sizeof *started), .ready = true };
    forget(io, serial, started->input);
    forget(io, serial, started->output);
    forget(io, serial, started->errors);
    return fli_io_result_err(err);
}

static void run(fli_job *job)
{
    fli_stream   *s = FLI_OUTER(fli_stream, job, job);
    fli_io       *io = s->io;
    uint64_t      serial = fli_load_rlx(&s->owner);
    filch_program started = { .pid = 0 };
    fli_io_result result = start_program(io, s, &started);
    bool          began = result.err == FILCH_OK;
    if (fli_op_settle(io, s, FLI_READING, result) || !began) return;
    /* The yield was completed earlier (deadline or cancel), and closing the stream of the program has killed the
     * program. The process never gets the ids of the pipes, so they are closed here. */
    forget(io, serial, started.input);
    forget(io, serial, started.output);
    forget(io, serial, started.errors);
}

static void cancel(fli_job *job)
{
    fli_stream *s = FLI_OUTER(fli_stream, job, job);
    fli_op_settle(s->io, s, FLI_READING, fli_io_result_err(FILCH_ECANCELLED));
}

static filch_err handle_run(fli_io *io, const filch_command *command, filch_io_request request, filch_receiver receiver)
{
    fli_stream *s;
    bool        unused;
    filch_err   err = fli_stream_make(io, command->from.serial, NULL, -1, FLI_STREAM_PROGRAM, &s);
    if (err != FILCH_OK) return err;
    request.stream.id = fli_stream_id(s);
    uint64_t timeout_ns = request.timeout_ns;
    request.timeout_ns = FILCH_FOREVER;
    err = fli_op_begin(s, command, &request, receiver, FLI_READING, &unused);
    FLI_ASSERT(err == FILCH_OK); /* the stream is new: no other operation can be outstanding */
    fli_op *op = &s->ops[FLI_READING];
    op->as.data = command->data;
    fli_op_hold(io, op);
    fli_op_submit(io, s, FLI_LANE_PROGRAM, timeout_ns, run, cancel);
    return FILCH_OK;
}

/* ---- the end of a program ---- */

fli_io_result fli_exit_try(fli_io *io, fli_stream *s, fli_op *op)
{
    int32_t status = 0;
    (void)io, (void)op;
    int ended = fli_program_status(s->pid, s->fd, &status);
    if (ended == 0) return fli_io_result_again();
    if (ended < 0) return fli_io_result_failed(ended);
    return (fli_io_result){ .data = filch_int(status), .ready = true };
}

typedef struct reap_job {
    fli_job job;
    fli_mem mem;
    int64_t pid;
    bool    group;
} reap_job;

static void reap(fli_job *job)
{
    reap_job *b = FLI_OUTER(reap_job, job, job);
    fli_mem   mem = b->mem;
    (void)fli_program_reap(b->pid, b->group, true);
    fli_free(&mem, b, sizeof *b);
}

void fli_program_end(fli_io *io, fli_stream *s)
{
    bool group = s->flags != 0;
    if (s->pid == 0 || fli_program_reap(s->pid, group, false)) return;
    /* The program is killed but has not ended yet. A thread of the pool waits for the end of the program. If no job can
     * be submitted, the calling thread waits; a killed program ends soon. */
    reap_job *b = fli_alloc(&io->rt->mem, sizeof *b);
    if (b != NULL)
        *b = (reap_job){
            .job = { .run = reap, .cancel = reap, .owner = { 0, 0, FILCH_CMD_RUN }, .lane = FLI_LANE_PROGRAM },
            .mem = io->rt->mem,
            .pid = s->pid,
            .group = group
        };
    if (b != NULL && fli_workpool_submit(io->pool, &b->job) == FILCH_OK) return;
    if (b != NULL) fli_free(&io->rt->mem, b, sizeof *b);
    (void)fli_program_reap(s->pid, group, true);
}

static filch_err handle_kill(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver)
{
    fli_stream *s = fli_stream_find(io, request->stream.id, command->from.serial);
    if (s == NULL) return FILCH_ESTREAM;
    if (s->kind != FLI_STREAM_PROGRAM || s->pid == 0) return FILCH_EINVAL;
    fli_op_complete_errno(receiver, fli_program_kill(s->pid, s->fd, (int)request->number));
    return FILCH_OK;
}

/* ---- signals ---- */

fli_io_result fli_signals_try(fli_io *io, fli_stream *s, fli_op *op)
{
    (void)io, (void)op;
    int number = fli_desc_read_signal(s->fd);
    if (number < 0) return fli_io_result_failed(number);
    return (fli_io_result){ .data = filch_int(number), .ready = true };
}

static filch_err handle_signals(fli_io *io, const filch_command *command, const filch_io_request *request,
                                filch_receiver receiver)
{
    int         numbers[64];
    fli_stream *s;
    if (request->byte_count == 0 || request->byte_count > sizeof numbers) return FILCH_EINVAL;
    memcpy(numbers, request->bytes, request->byte_count);
    int fd = fli_desc_signals(numbers, request->byte_count / sizeof numbers[0]);
    if (fd < 0) {
        fli_op_complete_errno(receiver, fd);
        return FILCH_OK;
    }
    filch_err err = fli_stream_make(io, command->from.serial, NULL, fd, FLI_STREAM_SIGNALS, &s);
    if (err == FILCH_OK) fli_op_complete(receiver, FILCH_OK, filch_int((int64_t)fli_stream_id(s)));
    return err;
}

filch_err fli_program_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                             filch_receiver receiver)
{
    switch (command->id) {
    case FILCH_CMD_RUN: return handle_run(io, command, *request, receiver);
    case FILCH_CMD_KILL: return handle_kill(io, command, request, receiver);
    default: return handle_signals(io, command, request, receiver);
    }
}
