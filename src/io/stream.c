/* stream.c - streams: their owners, opening, and closing exactly once.
 *
 * The streams of a process are a list with its head in the ext of the process. The list is protected by one of
 * FLI_IO_STRIPES locks, chosen by pid, because a worker that accepts a connection for a process adds to its list while
 * another worker may run the process.
 *
 * Closing. (1) the thread that removes the stream from its owner's list closes it; (2) it sets CLOSING, and completes
 * the waiting operations as cancelled; (3) the last of the threads that use the stream (the closing thread, and the
 * holders of its two directions) removes it from the poller, closes the descriptor, and returns the slot with the next
 * generation (stream_state.h).
 *
 * While a stream is sent from one process to another it belongs to a fli_stream_transfer, the payload of the message.
 */

#include <errno.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/desc.h"
#include "proc/ext.h"
#include "proc/send.h"
#include "proc/yields.h"

static fli_mutex *stripe_of(fli_io *io, uint64_t serial)
{
    return &io->stripes[fli_serial_slot(serial) % FLI_IO_STRIPES];
}

static fli_stream *at(fli_io *io, uint32_t handle)
{
    return fli_slab_at(&io->streams, handle);
}

/* ---- ownership ---- */

/* Adds `s` to the stream list of the process `serial`. The process must be alive and have an extension (fli_ext, which
 * holds the list). The caller holds the lock of the process's stripe. */
static void link_locked(fli_io *io, fli_stream *s, uint64_t serial)
{
    fli_ext *ext = fli_proc_find(io->rt, serial)->ext;
    s->prev = 0;
    s->next = fli_load_rlx(&ext->streams);
    if (s->next != 0) at(io, s->next)->prev = s->self;
    fli_store_rlx(&ext->streams, s->self);
    fli_store_rlx(&s->owner, serial);
}

static void unlink_locked(fli_io *io, fli_stream *s, uint64_t serial)
{
    fli_ext *ext = fli_proc_find(io->rt, serial)->ext;
    if (s->prev != 0) at(io, s->prev)->next = s->next;
    /* PAIR ext.streams, release half: as soon as the list is empty, the process may end and free its ext, so this
     * function must not access the ext after this line. This can happen while the caller is a thread of the work pool:
     * the deadline has completed the yield, and the process goes on. */
    else fli_store_rel(&ext->streams, s->next);
    if (s->next != 0) at(io, s->next)->prev = s->prev;
    fli_store_rlx(&s->owner, 0);
}

/* Adds `s` to the stream list of process `serial` if that process still owns `beside` (NULL: no condition). Returns
 * false if it does not, or if `serial` is 0 (no process). */
static bool own(fli_io *io, fli_stream *s, uint64_t serial, fli_stream *beside)
{
    fli_mutex *stripe = stripe_of(io, serial);
    fli_mutex_lock(stripe);
    bool ours = serial != 0 && (beside == NULL || fli_load_rlx(&beside->owner) == serial);
    if (ours) link_locked(io, s, serial);
    fli_mutex_unlock(stripe);
    return ours;
}

static bool disown(fli_io *io, fli_stream *s, uint64_t serial)
{
    fli_mutex *stripe = stripe_of(io, serial);
    fli_mutex_lock(stripe);
    bool ours = serial != 0 && fli_load_rlx(&s->owner) == serial;
    if (ours) unlink_locked(io, s, serial);
    fli_mutex_unlock(stripe);
    return ours;
}

fli_stream *fli_stream_find(fli_io *io, uint64_t id, uint64_t serial)
{
    fli_stream *s = fli_slab_find(&io->streams, (uint32_t)id);
    if (s == NULL || !fli_stream_state_is_open(fli_stream_state_load(&s->state), (uint32_t)(id >> 32))) return NULL;
    return fli_load_rlx(&s->owner) == serial ? s : NULL;
}

uint32_t fli_stream_find_polls(fli_io *io, uint64_t serial, int fd, uint64_t *ids, uint32_t room)
{
    fli_mutex *stripe = stripe_of(io, serial);
    uint32_t   count = 0;
    fli_mutex_lock(stripe);
    for (uint32_t i = fli_load_rlx(&fli_proc_find(io->rt, serial)->ext->streams); i != 0 && count < room;
         i = at(io, i)->next) {
        fli_stream *s = at(io, i);
        if (s->kind == FLI_STREAM_POLL && s->foreign == fd) ids[count++] = fli_stream_id(s);
    }
    fli_mutex_unlock(stripe);
    return count;
}

/* Returns the operation of `s` in this direction if it is a connect or a poll with an outstanding yield. Otherwise
 * returns NULL. */
static const fli_op *pending_op(fli_io *io, fli_stream *s, fli_direction direction)
{
    if (fli_stream_state_phase(fli_stream_state_load(&s->state), direction) == FLI_OP_NONE) return NULL;
    /* `command` and `receiver` may be read: this worker has started the operation, and no other thread writes them. */
    const fli_op *op = &s->ops[direction];
    if (op->command != FILCH_CMD_CONNECT && op->command != FILCH_CMD_POLL) return NULL;
    return fli_yield_is_pending(io->rt, op->receiver.key) ? op : NULL;
}

uint32_t fli_stream_find_tagged(fli_io *io, uint64_t serial, uint64_t tag, fli_pending_op *found, uint32_t room)
{
    const fli_ext *ext = fli_proc_find(io->rt, serial)->ext;
    fli_mutex     *stripe = stripe_of(io, serial);
    uint32_t       count = 0;
    if (ext == NULL) return 0;
    fli_mutex_lock(stripe);
    for (uint32_t i = fli_load_rlx(&ext->streams); i != 0 && count < room; i = at(io, i)->next) {
        fli_stream   *s = at(io, i);
        fli_direction direction = s->kind == FLI_STREAM_POLL ? FLI_READING : FLI_WRITING;
        const fli_op *op = pending_op(io, s, direction);
        if (op != NULL && op->receiver.tag == tag)
            found[count++] = (fli_pending_op){ fli_stream_id(s), op->receiver, direction };
    }
    fli_mutex_unlock(stripe);
    return count;
}

/* ---- opening ---- */

/* Must not be called for a file: the poller refuses files. */
filch_err fli_stream_add_to_poller(fli_io *io, fli_stream *s)
{
    filch_err err = fli_io_open(io);
    if (err != FILCH_OK) return err;
    uint64_t mark = s->kind == FLI_STREAM_POLL ? FLI_POLL_MARK : 0;
    int      why = fli_poller_add(&io->poller, s->fd, fli_stream_id(s) | mark);
    if (why == ENOSPC)
        return FILCH_ESYS; /* here ENOSPC is no full disk: the user has reached the limit of descriptors in pollers */
    if (why != 0) return fli_io_error(why);
    s->in_poller = true;
    (void)fli_add_acqrel(&io->fd_count, 1); /* PAIR io.fd_count, release half */
    return FILCH_OK;
}

filch_err fli_stream_requeue(fli_io *io, fli_stream *s)
{
    int why = fli_poller_again(&io->poller, s->fd, fli_stream_id(s));
    return why != 0 ? fli_io_error(why) : FILCH_OK;
}

static void free_slot(fli_io *io, fli_stream *s)
{
    if (fli_stream_state_retire(&s->state)) fli_slab_give(&io->streams, NULL, s);
}

/* Frees a closed stream. No other thread can access the stream any more. */
static void finish(fli_io *io, fli_stream *s)
{
    if (s->in_poller) {
        fli_poller_remove(&io->poller, s->fd);
        (void)fli_sub_acqrel(&io->fd_count, 1);
    }
    if (s->kind == FLI_STREAM_PROGRAM) fli_program_end(io, s);
    if (s->fd >= 0) (void)fli_desc_close(s->fd);
    fli_read_buffer_drop(s);
    free_slot(io, s);
}

filch_err fli_stream_make(fli_io *io, uint64_t serial, fli_stream *beside, int fd, fli_stream_kind kind,
                          fli_stream **out)
{
    filch_err   err = FILCH_ENOMEM;
    fli_stream *s = fli_slab_take(&io->streams, NULL);
    if (s == NULL) goto no_slot;
    s->fd = fd;
    s->kind = (uint8_t)kind;
    s->flags = 0;
    s->in_poller = s->more = false;
    s->is_unix = beside != NULL && beside->is_unix;
    fli_store_rlx(&s->short_reads, false);
    s->foreign = -1;
    s->pid = 0;
    s->read_buffer = (fli_read_buffer){ .block = NULL };
    s->resume_ns = s->backoff_ns = 0;
    s->sender.size = 0;
    fli_store_rlx(&s->owner, 0);
    /* The stream is opened before it is added to the poller: a report for a stream that is not open would be lost. No
     * other thread knows the id of the stream yet. */
    fli_stream_state_open(&s->state);
    err = kind == FLI_STREAM_FILE || fd < 0 ? FILCH_OK : fli_stream_add_to_poller(io, s);
    if (err != FILCH_OK) goto no_watch;
    if (!own(io, s, serial, beside)) {
        fli_stream_shut(io, s, fli_stream_state_gen(fli_load_rlx(&s->state)));
        return FILCH_EDEAD;
    }
    *out = s;
    return FILCH_OK;
no_watch:
    free_slot(io, s);
no_slot:
    if (fd >= 0) (void)fli_desc_close(fd);
    return err;
}

/* ---- closing ---- */

void fli_stream_shut(fli_io *io, fli_stream *s, uint32_t gen)
{
    unsigned ours = 0;
    bool     closes = fli_stream_state_begin_close(&s->state, gen, &ours);
    /* always true: only one thread takes the stream from its owner or its transfer, and only that thread closes it */
    FLI_ASSERT(closes);
    for (int direction = FLI_READING; direction <= FLI_WRITING; direction++) {
        if ((ours & 1u << direction) != 0)
            fli_op_settle(io, s, (fli_direction)direction, fli_io_result_err(FILCH_ECANCELLED));
    }
    if (fli_stream_state_end_close(&s->state)) finish(io, s);
}

bool fli_stream_close(fli_io *io, fli_stream *s, uint64_t serial)
{
    uint32_t gen = fli_stream_state_gen(fli_load_rlx(&s->state));
    if (!disown(io, s, serial)) return false;
    fli_stream_shut(io, s, gen);
    return true;
}

/* Called when the last BUSY direction of a closing stream has ended its operation; see op.c. */
void fli_stream_gone(fli_io *io, fli_stream *s)
{
    finish(io, s);
}

void fli_io_release(fli_io *io, fli_proc *p)
{
    if (fli_load_acq(&p->ext->streams) == 0) return; /* PAIR ext.streams, acquire half */
    fli_mutex *stripe = stripe_of(io, fli_proc_serial(p));
    fli_mutex_lock(stripe);
    uint32_t first = fli_load_rlx(&p->ext->streams);
    fli_store_rlx(&p->ext->streams, 0);
    for (uint32_t i = first; i != 0; i = at(io, i)->next) fli_store_rlx(&at(io, i)->owner, 0);
    fli_mutex_unlock(stripe);
    /* These streams have no owner any more, so no other thread changes their `next`. */
    while (first != 0) {
        fli_stream *s = at(io, first);
        first = s->next;
        fli_stream_shut(io, s, fli_stream_state_gen(fli_load_rlx(&s->state)));
    }
}

/* ---- transfer of a stream from one process to another ---- */

typedef struct fli_stream_transfer {
    fli_io                     *io; /* NULL: the scheduler has been destroyed */
    fli_mem                     mem;
    uint64_t                    id;
    struct fli_stream_transfer *next, *prev; /* protected by io->lock */
    /* True if the stream has left this transfer, because the receiver took it or it was closed.  writes: the thread
     * that takes or closes the stream, by an atomic swap. PAIR io.transfer */
    FLI_ATOMIC(bool) taken;
} fli_stream_transfer;

static void transfer_free(void *user, void *bytes, size_t size)
{
    fli_stream_transfer *transfer = bytes;
    fli_io              *io = transfer->io;
    fli_mem              mem = transfer->mem;
    (void)user;
    if (io != NULL) {
        fli_mutex_lock(&io->lock);
        if (transfer->prev != NULL) transfer->prev->next = transfer->next;
        else io->transfers = transfer->next;
        if (transfer->next != NULL) transfer->next->prev = transfer->prev;
        fli_mutex_unlock(&io->lock);
        if (!fli_swap_acqrel(&transfer->taken, true)) { /* PAIR io.transfer, both halves */
            fli_stream_shut(io, at(io, (uint32_t)transfer->id), (uint32_t)(transfer->id >> 32));
        }
    }
    fli_free(&mem, transfer, size);
}

static filch_err transfer_make(fli_io *io, uint64_t id, filch_data *out)
{
    fli_stream_transfer *transfer = fli_alloc(&io->rt->mem, sizeof *transfer);
    if (transfer == NULL) return FILCH_ENOMEM;
    *transfer = (fli_stream_transfer){ .io = io, .mem = io->rt->mem, .id = id };
    /* true until the message is sent, so that freeing the payload before the send does not close the stream */
    fli_atomic_init(&transfer->taken, true);
    fli_mutex_lock(&io->lock);
    transfer->next = io->transfers;
    if (transfer->next != NULL) transfer->next->prev = transfer;
    io->transfers = transfer;
    fli_mutex_unlock(&io->lock);
    filch_data moved = filch_move(transfer, sizeof *transfer, transfer_free);
    filch_err  err = fli_data_own(&io->rt->mem, 0, &moved, out);
    if (err != FILCH_OK) transfer_free(NULL, transfer, sizeof *transfer);
    return err;
}

static bool has_no_op(fli_stream *s)
{
    uint64_t word = fli_stream_state_load(&s->state);
    return fli_stream_state_phase(word, FLI_READING) == FLI_OP_NONE &&
           fli_stream_state_phase(word, FLI_WRITING) == FLI_OP_NONE;
}

filch_err fli_io_give(fli_io *io, fli_local *worker, filch_stream stream, filch_pid to)
{
    fli_stream *s = fli_stream_find(io, stream.id, worker->serial);
    if (s == NULL) return FILCH_ESTREAM;
    if (to.node != io->rt->node_id) return to.serial == 0 ? FILCH_EDEAD : FILCH_EFOREIGN;
    if (!has_no_op(s)) return FILCH_EBUSY;
    filch_data data = filch_none();
    filch_err  err = transfer_make(io, stream.id, &data);
    if (err != FILCH_OK) return err;
    fli_stream_transfer *transfer = (fli_stream_transfer *)filch_raw(&data);
    /* No operation can start on `s` before the message is sent: only this process could start an operation, and it is
     * in this call. */
    bool ours = disown(io, s, worker->serial);
    FLI_ASSERT(ours);
    fli_store_rel(&transfer->taken, false); /* PAIR io.transfer, release half */
    err = filch_send((filch_sched *)io->rt, to, data);
    if (err != FILCH_OK) {
        fli_store_rel(&transfer->taken, true); /* PAIR io.transfer, release half */
        ours = own(io, s, worker->serial, NULL);
        FLI_ASSERT(ours);
    }
    fli_data_free(&data);
    return err;
}

filch_err fli_io_take(fli_io *io, fli_local *worker, const filch_data *data, filch_stream *stream)
{
    if (data->form != FLI_FORM_BLOCK || fli_block_free_fn(data->as.ref.block) != transfer_free)
        return filch_invalid("data is not a stream that filch_stream_give has sent");
    fli_stream_transfer *transfer = (fli_stream_transfer *)filch_raw(data);
    if (transfer->io != io) return FILCH_EFOREIGN;
    if (fli_ext_get(io->rt, worker->current) == NULL) return FILCH_ENOMEM;
    if (fli_swap_acqrel(&transfer->taken, true)) return FILCH_ESTREAM; /* PAIR io.transfer, both halves */
    (void)own(io, at(io, (uint32_t)transfer->id), worker->serial, NULL);
    stream->id = transfer->id;
    return FILCH_OK;
}

/* ---- start and end of the module ---- */

static void make(void *object, uint32_t handle)
{
    fli_stream *s = object;
    s->self = handle;
    fli_store_rlx(&s->state, UINT64_C(1) << FLI_STREAM_GEN_SHIFT);
}

filch_err fli_io_open(fli_io *io)
{
    if (fli_load_acq(&io->open)) return FILCH_OK; /* PAIR io.open, acquire half */
    filch_err err = FILCH_OK;
    fli_mutex_lock(&io->lock);
    if (!fli_load_rlx(&io->open)) {
        err = fli_poller_open(&io->poller);
        if (err == FILCH_OK) fli_store_rel(&io->open, true); /* PAIR io.open, release half */
    }
    fli_mutex_unlock(&io->lock);
    return err;
}

filch_err fli_io_init(fli_io *io, fli_runtime *rt, fli_timers *timers, fli_workpool *pool, uint32_t local_count)
{
    uint32_t  stripes = 0;
    filch_err err = FILCH_ENOMEM;
    io->rt = rt;
    io->timers = timers;
    io->pool = pool;
    io->local_count = local_count;
    io->poller = (fli_poller){ .epoll = -1, .wakefd = -1 };
    io->transfers = NULL;
    fli_atomic_init(&io->open, false);
    fli_atomic_init(&io->fd_count, 0);
    io->locals = fli_zalloc_aligned(&rt->mem, local_count * sizeof *io->locals, FLI_LINE);
    if (io->locals == NULL) goto no_locals;
    err = fli_slab_init(&io->streams, &rt->mem, FLI_STREAM_SIZE, INT32_MAX, make);
    if (err != FILCH_OK) goto no_streams;
    err = fli_mutex_init(&io->lock);
    if (err != FILCH_OK) goto no_lock;
    for (; stripes < FLI_IO_STRIPES; stripes++) {
        err = fli_mutex_init(&io->stripes[stripes]);
        if (err != FILCH_OK) goto no_stripe;
    }
    return FILCH_OK;
no_stripe:
    while (stripes-- > 0) fli_mutex_fini(&io->stripes[stripes]);
    fli_mutex_fini(&io->lock);
no_lock:
    fli_slab_fini(&io->streams);
no_streams:
    fli_free_aligned(&rt->mem, io->locals, local_count * sizeof *io->locals, FLI_LINE);
no_locals:
    return err;
}

void fli_io_fini(fli_io *io)
{
    /* For each message that contains a stream and is not freed yet: closes the stream if the receiver has not taken it,
     * and detaches the transfer from this fli_io. When the last reference to the message is dropped later, only
     * memory is freed. */
    for (fli_stream_transfer *transfer = io->transfers; transfer != NULL; transfer = transfer->next) {
        if (!fli_swap_acqrel(&transfer->taken, true)) { /* PAIR io.transfer, both halves */
            fli_stream_shut(io, at(io, (uint32_t)transfer->id), (uint32_t)(transfer->id >> 32));
        }
        transfer->io = NULL;
    }
    FLI_ASSERT(fli_load_rlx(&io->fd_count) == 0);
    for (uint32_t i = 0; i < io->local_count; i++) {
        if (io->locals[i].block != NULL) fli_block_drop(io->locals[i].block);
    }
    fli_poller_close(&io->poller);
    for (uint32_t i = 0; i < FLI_IO_STRIPES; i++) fli_mutex_fini(&io->stripes[i]);
    fli_mutex_fini(&io->lock);
    fli_slab_fini(&io->streams);
    fli_free_aligned(&io->rt->mem, io->locals, io->local_count * sizeof *io->locals, FLI_LINE);
}
