/* io.h - sockets, files, programs and signals for processes: the interface of this module to the scheduler.
 *
 * The scheduler passes I/O commands to this module (fli_io_handle), collects reports of ready descriptors and delivers
 * them (fli_io_collect, fli_io_deliver), parks one idle worker in fli_io_collect with a timeout, and calls
 * fli_io_release when a process that has streams ends. Without I/O (FLI_IO 0, also in the simulator) all functions are
 * empty.
 */
#ifndef FLI_IO_IO_H
#define FLI_IO_IO_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "clock/timers.h"
#include "proc/runtime.h"
#include "work/pool.h"

/* Values of filch_io_request.how for a read: read as many bytes as are available, an exact number, or up to a
 * delimiter. */
enum { FLI_READ_SOME, FLI_READ_EXACTLY, FLI_READ_UNTIL };

#ifndef FLI_IO
#define FLI_IO 0
#endif

#if FLI_IO

#include "port/poller.h"
#include "sync/slab.h"

#define FLI_IO_STRIPES 16

/* Bytes that one command, or one call of fli_io_deliver(), may move. Without this budget a peer that sends or receives
 * as fast as the worker would occupy the worker for ever. An operation that has used up the budget is requeued behind
 * all descriptors that have reports (fli_poller_again). Each operation that fli_io_deliver() attempts may move
 * FLI_IO_OP_MIN_BYTES even if earlier operations have used up the budget. docs/design/io.md. */
#ifdef FLI_SMALL
#define FLI_IO_BUDGET_BYTES ((size_t)8192)
#define FLI_IO_OP_MIN_BYTES ((size_t)2048)
#else
#define FLI_IO_BUDGET_BYTES ((size_t)262144)
#define FLI_IO_OP_MIN_BYTES ((size_t)65536)
#endif

/* The buffer into which a worker receives. New bytes are put behind earlier bytes, because processes may still refer to
 * the earlier bytes. Not atomic: used by one worker only. */
typedef struct fli_io_local {
    alignas(FLI_LINE) void *block; /* NULL: not allocated yet */
    uint8_t *bytes;
    size_t   used;
    size_t   left;  /* bytes that the worker may still move: the rest of its budget (fli_budget_begin) */
    size_t   moved; /* bytes moved since fli_io_clock_due last returned true */
} fli_io_local;

/* Reports that were collected from the poller and not yet delivered. */
#define FLI_IO_BATCH 64
typedef struct fli_io_batch {
    uint32_t        count;
    fli_poll_report reports[FLI_IO_BATCH];
} fli_io_batch;

struct fli_stream_transfer;

typedef struct fli_io {
    /* not atomic: the fields from `rt` to `streams` are set by fli_io_init() and do not change afterwards */
    fli_runtime  *rt;
    fli_timers   *timers;
    fli_workpool *pool;
    fli_io_local *locals; /* array, one element per worker */
    uint32_t      local_count;
    fli_slab      streams;
    fli_poller    poller; /* written once, by the thread that then sets `open` */
    /* True if the poller is open.  writes: under lock, once.  PAIR io.open */
    FLI_ATOMIC(bool) open;
    /* Number of streams in the poller.  writes: any thread, by an atomic add.  reads: workers, as a hint. The hint is
     * sufficient: after a thread of the work pool has added a stream, it completes a yield, and this unparks a worker;
     * each worker reads fd_count again before it parks.  PAIR io.fd_count */
    FLI_ATOMIC(uint32_t) fd_count;
    fli_mutex            lock; /* protects the opening of the poller, and `transfers` */
    /* protected by `lock`: streams that were sent in a message and not taken by the receiver yet */
    struct fli_stream_transfer *transfers;
    /* the lock stripes[i] protects the stream lists of the processes that stripe_of() maps to i by their pids */
    fli_mutex stripes[FLI_IO_STRIPES];
} fli_io;

filch_err fli_io_init(fli_io *io, fli_runtime *rt, fli_timers *timers, fli_workpool *pool, uint32_t local_count);
/* Closes all streams that are still open and frees the module's memory. Thread: any, after all workers have ended. */
void fli_io_fini(fli_io *io);

/* Opens the poller now instead of at its first use, for a caller that needs the poller's descriptor. Errors:
 * FILCH_ESYS. */
filch_err fli_io_open(fli_io *io);

/* fli_io_fd: the descriptor that is readable when fli_io_collect() has reports. fli_io_wake_fd: the descriptor by which
 * a waiting worker is woken (port/wakefd.h). */
static inline int fli_io_fd(const fli_io *io)
{
    return fli_poller_fd(&io->poller);
}
static inline int fli_io_wake_fd(const fli_io *io)
{
    return io->poller.wakefd;
}

/* Handles every I/O command. */
filch_err fli_io_handle(fli_io *io, const filch_command *command, filch_receiver receiver);
/* Returns true once for each FLI_IO_BUDGET_BYTES that the commands of this worker have moved. The caller then checks
 * its timers before the next step, because a process that reads in a loop takes few steps but much time. Thread: a
 * worker. */
static inline bool fli_io_clock_due(fli_io *io, const fli_local *worker)
{
    fli_io_local *local = &io->locals[worker->index];
    if (FLI_LIKELY(local->moved < FLI_IO_BUDGET_BYTES)) return false;
    local->moved = 0;
    return true;
}

/* Cancels the outstanding connects and polls of the process `serial` with `tag`. Returns how many it cancelled. Thread:
 * the worker that runs the process. */
uint32_t fli_io_cancel(fli_io *io, uint64_t serial, uint64_t tag);

/* Closes the streams of process `p`. Called when `p` ends and has an ext (which contains the stream list). Thread: the
 * worker that runs `p`. */
void fli_io_release(fli_io *io, fli_proc *p);

/* Called when a timer set by an operation is due. */
void fli_io_alarm(fli_io *io, uint64_t cookie);

/* Returns true if any descriptor is in the poller. */
static inline bool fli_io_has_fds(const fli_io *io)
{
    /* PAIR io.fd_count, acquire half: if fd_count is not 0, the poller is open */
    return fli_load_acq(&io->fd_count) > 0;
}

/* Collects at most `most` reports, and at most FLI_IO_BATCH. Blocks until a report is there, until `until_ns` (0: does
 * not block), or until fli_io_wake() is called. */
void fli_io_collect(fli_io *io, uint64_t until_ns, fli_io_batch *batch, uint32_t most);
/* Attempts the operations that waited for the reports in `batch`. Thread: a worker. If an operation completes, its
 * process becomes ready on this worker; these processes run in the order of the reports. */
void fli_io_deliver(fli_io *io, const fli_io_batch *batch);

/* Wakes the worker that blocks in fli_io_collect(). */
static inline void fli_io_wake(fli_io *io)
{
    fli_poller_wake(&io->poller);
}

/* Implement filch_stream_give, filch_stream_take and filch_stream_address for the process that `worker` runs. */
filch_err fli_io_give(fli_io *io, fli_local *worker, filch_stream stream, filch_pid to);
filch_err fli_io_take(fli_io *io, fli_local *worker, const filch_data *data, filch_stream *stream);
filch_err fli_io_address(fli_io *io, fli_local *worker, filch_stream stream, filch_address_of which, char *text,
                         size_t room);

#else

typedef struct fli_io {
    char nothing;
} fli_io;
typedef struct fli_io_batch {
    uint32_t count;
} fli_io_batch;

static inline filch_err fli_io_init(fli_io *io, fli_runtime *rt, fli_timers *timers, fli_workpool *pool, uint32_t count)
{
    (void)io, (void)rt, (void)timers, (void)pool, (void)count;
    return FILCH_OK;
}
static inline void fli_io_fini(fli_io *io)
{
    (void)io;
}
static inline filch_err fli_io_open(fli_io *io)
{
    (void)io;
    return FILCH_ECOMMAND;
}
static inline int fli_io_fd(const fli_io *io)
{
    (void)io;
    return -1;
}
static inline int fli_io_wake_fd(const fli_io *io)
{
    (void)io;
    return -1;
}
static inline filch_err fli_io_handle(fli_io *io, const filch_command *command, filch_receiver receiver)
{
    (void)io, (void)command, (void)receiver;
    return FILCH_ECOMMAND;
}
static inline bool fli_io_clock_due(fli_io *io, const fli_local *worker)
{
    (void)io, (void)worker;
    return false;
}
static inline uint32_t fli_io_cancel(fli_io *io, uint64_t serial, uint64_t tag)
{
    (void)io, (void)serial, (void)tag;
    return 0;
}
static inline void fli_io_release(fli_io *io, fli_proc *p)
{
    (void)io, (void)p;
}
static inline void fli_io_alarm(fli_io *io, uint64_t cookie)
{
    (void)io, (void)cookie;
}
static inline bool fli_io_has_fds(const fli_io *io)
{
    (void)io;
    return false;
}
static inline void fli_io_collect(fli_io *io, uint64_t until_ns, fli_io_batch *batch, uint32_t most)
{
    (void)io, (void)until_ns, (void)batch, (void)most;
}
static inline void fli_io_deliver(fli_io *io, const fli_io_batch *batch)
{
    (void)io, (void)batch;
}
static inline void fli_io_wake(fli_io *io)
{
    (void)io;
}
static inline filch_err fli_io_give(fli_io *io, fli_local *worker, filch_stream stream, filch_pid to)
{
    (void)io, (void)worker, (void)stream, (void)to;
    return FILCH_ECOMMAND;
}
static inline filch_err fli_io_take(fli_io *io, fli_local *worker, const filch_data *data, filch_stream *stream)
{
    (void)io, (void)worker, (void)data, (void)stream;
    return FILCH_ECOMMAND;
}
static inline filch_err fli_io_address(fli_io *io, fli_local *worker, filch_stream stream, filch_address_of which,
                                       char *text, size_t room)
{
    (void)io, (void)worker, (void)stream, (void)which, (void)text, (void)room;
    return FILCH_ECOMMAND;
}

#endif

#endif
