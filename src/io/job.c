/* job.c - operations that may block, on threads of the work pool: files, names, programs.
 *
 * A system call on a pool thread cannot be interrupted. A deadline or a cancel (io/op.c, work/cancel.c) completes the
 * yield while the thread stays in the call:
 *   - The reading direction of the stream stays BUSY, held by the job, until the call returns. Until then the next
 *     operation gets FILCH_EBUSY.
 *   - A job that was still queued at that time begins later, unless a cancel by tag has removed it. If it opens a file,
 *     resolves a name or starts a program, it finds its yield completed and does nothing. An operation of an open file
 *     runs all the same.
 *   - When the call returns, fli_op_settle() finds the yield completed and frees the result: bytes are dropped, an
 *     opened stream is closed.
 * A deadline is a timer of the yield (fli_timers_deadline), not of the stream. So the deadline uses no field that the
 * thread uses.
 */
#include "io/stream.h"
#include "port/clock.h"

/* Sets the deadline of a yield. Must be called before the job is submitted: after that the job may complete the yield
 * at any time. */
static filch_err set_deadline(fli_io *io, filch_receiver receiver, uint64_t timeout_ns, uint64_t *timer)
{
    *timer = 0;
    if (timeout_ns == FILCH_FOREVER) return FILCH_OK;
    *timer = fli_timers_deadline(io->timers, receiver, fli_clock_after(fli_clock_ns(), timeout_ns));
    return *timer != 0 ? FILCH_OK : FILCH_ENOMEM;
}

filch_err fli_job_submit(fli_io *io, fli_job *job, fli_lane lane, const filch_command *command, filch_receiver receiver,
                         uint64_t timeout_ns, uint64_t *timer)
{
    filch_err err = set_deadline(io, receiver, timeout_ns, timer);
    /* copied, because `timer` may point into the job, and the job may be freed at any time after it is submitted */
    uint64_t set = *timer;
    job->lane = lane;
    job->owner = (fli_job_owner){ command->from.serial, receiver.tag, command->id };
    job->key = receiver.key;
    if (err == FILCH_OK) err = fli_workpool_submit(io->pool, job);
    if (err != FILCH_OK && set != 0) fli_timers_abandon(io->timers, set);
    return err == FILCH_ECLOSED ? FILCH_ECANCELLED : err;
}

void fli_op_submit(fli_io *io, fli_stream *s, fli_lane lane, uint64_t timeout_ns, void (*job_run)(fli_job *job),
                   void (*job_cancel)(fli_job *job))
{
    fli_op       *op = &s->ops[FLI_READING];
    filch_command command = { .id = op->command, .from = { 0, fli_load_rlx(&s->owner) } };
    s->job = (fli_job){ .run = job_run, .cancel = job_cancel };
    s->io = io;
    filch_err err = fli_job_submit(io, &s->job, lane, &command, op->receiver, timeout_ns, &op->timer);
    if (err != FILCH_OK) (void)fli_op_settle(io, s, FLI_READING, fli_io_result_err(err));
}

bool fli_op_cancel_job(fli_stream *s)
{
    /* This thread may read `receiver`: the worker that ran the owner wrote it when the operation started, and threads
     * of the pool do not write it. */
    return fli_op_complete(s->ops[FLI_READING].receiver, FILCH_ECANCELLED, filch_none());
}
