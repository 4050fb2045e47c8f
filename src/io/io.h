/* io.h - sockets, files, programs and signals for processes: what the scheduler knows of this room.
 *
 * The scheduler hands it commands (fli_io_handle), asks it now and then what descriptors have become ready
 * (fli_io_collect), lets one sleeping worker wait in it (the same, with a time), and tells it when a process with
 * streams ends. Built without I/O (FLI_IO 0, also in the simulator) everything here is empty.
 */
#ifndef FLI_IO_IO_H
#define FLI_IO_IO_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "clock/timers.h"
#include "proc/runtime.h"
#include "work/pool.h"

/* How much a read wants: filch_io_request.how. */
enum { FLI_READ_SOME, FLI_READ_EXACTLY, FLI_READ_UNTIL };

#ifndef FLI_IO
#define FLI_IO 0
#endif

#if FLI_IO

#include "port/poller.h"
#include "sync/slab.h"

#define FLI_IO_STRIPES 16

/* Bytes that one turn may move: a command, or one look at the descriptors. A peer that sends or receives as fast as we
 * do would otherwise keep a worker for as long as it likes. What is left then is requeued behind all descriptors that
 * have news (fli_poller_again). Each operation that a look finds ready may move FLI_IO_OP_MIN_BYTES, whatever the ones
 * before it have used. docs/design/io.md. */
#ifdef FLI_SMALL
#define FLI_IO_BUDGET_BYTES ((size_t)8192)
#define FLI_IO_OP_MIN_BYTES ((size_t)2048)
#else
#define FLI_IO_BUDGET_BYTES ((size_t)262144)
#define FLI_IO_OP_MIN_BYTES ((size_t)65536)
#endif

/* What a worker receives into: bytes are received behind those that others still hold. Plain: the worker's own. */
typedef struct fli_io_local {
    alignas(FLI_LINE) void *block; /* NULL: none yet */
    uint8_t *bytes;
    size_t   used;
    size_t   left;  /* of the budget of this turn */
    size_t   moved; /* bytes since the clock was last asked for: fli_io_clock_due */
} fli_io_local;

/* What descriptors have reported and nobody has acted on yet. */
#define FLI_IO_BATCH 64
typedef struct fli_io_batch {
    uint32_t        count;
    fli_poll_report reports[FLI_IO_BATCH];
} fli_io_batch;

struct fli_stream_transfer;

typedef struct fli_io {
    fli_runtime  *rt; /* plain: set at init, down to `streams` */
    fli_timers   *timers;
    fli_workpool *pool;
    fli_io_local *locals; /* one per worker */
    uint32_t      local_count;
    fli_slab      streams;
    fli_poller    poller; /* written once, before `open` */
    /* The poller is there.  writes: under lock, once.  PAIR io.open */
    FLI_ATOMIC(bool) open;
    /* Streams in the poller.  writes: any, by add.  reads: workers, as a hint: whoever opens the first one wakes a
     * worker or is one, which looks again before it sleeps.  PAIR io.fd_count */
    FLI_ATOMIC(uint32_t) fd_count;
    fli_mutex                   lock;      /* opening the poller; `transfers` */
    struct fli_stream_transfer *transfers; /* under lock: streams on their direction from one process to another */
    fli_mutex                   stripes[FLI_IO_STRIPES]; /* the lists of streams of the processes, by pid */
} fli_io;

filch_err fli_io_init(fli_io *io, fli_runtime *rt, fli_timers *timers, fli_workpool *pool, uint32_t local_count);
/* Thread: no worker is left. Closes what is still open. */
void fli_io_fini(fli_io *io);

/* Has the poller made now, not when it is first needed: for its descriptor. FILCH_ESYS. */
filch_err fli_io_open(fli_io *io);

/* The descriptor that is readable when fli_io_collect has something to collect, and the bell in it: port/wakefd.h. */
static inline int fli_io_fd(const fli_io *io)
{
    return fli_poller_fd(&io->poller);
}
static inline int fli_io_wake_fd(const fli_io *io)
{
    return io->poller.wakefd;
}

/* The handler of every I/O command. */
filch_err fli_io_handle(fli_io *io, const filch_command *command, filch_receiver receiver);
/* Returns true once for each FLI_IO_BUDGET_BYTES that the commands of this worker have moved: the caller looks at its
 * timers before the next step, as a process that goes on reading takes few steps and much time. Thread: a worker. */
static inline bool fli_io_clock_due(fli_io *io, const fli_local *worker)
{
    fli_io_local *local = &io->locals[worker->index];
    if (FLI_LIKELY(local->moved < FLI_IO_BUDGET_BYTES)) return false;
    local->moved = 0;
    return true;
}

/* The process, which has an ext, ends: its streams are closed. Thread: its owner. */
void fli_io_release(fli_io *io, fli_proc *p);

/* A timer that an operation has set rings. */
void fli_io_alarm(fli_io *io, uint64_t cookie);

/* Is there any descriptor to wait for? */
static inline bool fli_io_has_fds(const fli_io *io)
{
    return fli_load_acq(&io->fd_count) > 0; /* PAIR io.fd_count, acquire half: then there is a poller */
}

/* Collects what is ready, `most` reports or as many as a batch holds: waits for it until `until_ns` (0: does not wait)
 * or until the bell. */
void fli_io_collect(fli_io *io, uint64_t until_ns, fli_io_batch *batch, uint32_t most);
/* Completes what waited for it. Thread: a worker; the processes become ready there, and run in the order of the
 * reports. */
void fli_io_deliver(fli_io *io, const fli_io_batch *batch);

/* Interrupts the one who sleeps in fli_io_collect. */
static inline void fli_io_ring(fli_io *io)
{
    fli_poller_ring(&io->poller);
}

/* filch_stream_give and so on, for the process being stepped. */
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
static inline void fli_io_ring(fli_io *io)
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
