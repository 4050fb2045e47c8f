/* command.c - see command.h. */
#include "work/command.h"

#include <string.h>

#include "base/assert.h"
#include "payload/data.h"

typedef struct call {
    filch_work_fn fn;
    void         *arg;
} call;

typedef struct task {
    fli_job        job;
    fli_runtime   *rt;
    filch_receiver receiver;
    call           call;
    uint64_t       timer; /* id of the timer for the deadline; 0: no deadline */
} task;

/* Marker value in filch_data.small of a packed call. Distinguishes a packed call from any other pointer that a process
 * may yield. */
#define PACKED 0xc5

filch_data fli_work_pack(filch_work_fn fn, void *arg)
{
    call       c = { .fn = fn, .arg = arg };
    filch_data data = filch_ptr(NULL);
    data.small = PACKED;
    memcpy(&data.as, &c, sizeof c);
    return data;
}

/* Completes the yield with `result`, the payload that the called function has set. Then frees the task, and the memory
 * of the payload unless the completion has taken it over. */
static void finish(task *t, filch_data *result, filch_err error)
{
    if (t->timer != 0) t->rt->hooks.abandon(t->rt, t->timer);
    filch_err err = filch_complete(t->receiver, t->receiver.tag, *result, error);
    /* If filch_complete() cannot deliver the payload, completes the yield with the error of that call, so that the
     * process does not wait for ever. */
    if (err == FILCH_EINVAL || err == FILCH_ENOMEM || err == FILCH_ETOOBIG) {
        (void)!filch_complete(t->receiver, t->receiver.tag, filch_none(), err);
    }
    if (result->form == FLI_FORM_BLOCK) fli_data_free(result);
    if (result->form == FLI_FORM_MOVE && err != FILCH_OK && result->as.move.at != NULL) {
        fli_data_free_moved(result);
    }
    fli_free(&t->rt->mem, t, sizeof *t);
}

static void run(fli_job *job)
{
    task      *t = FLI_OUTER(task, job, job);
    filch_data result = filch_none();
    filch_err  error = t->call.fn(t->call.arg, &result);
    finish(t, &result, error);
}

static void cancel(fli_job *job)
{
    filch_data nothing = filch_none();
    finish(FLI_OUTER(task, job, job), &nothing, FILCH_ECANCELLED);
}

filch_err fli_work_handle(fli_workpool *pool, fli_runtime *rt, const filch_command *command, filch_receiver receiver,
                          uint64_t timer)
{
    call c;
    memcpy(&c, &command->data.as, sizeof c);
    if (command->data.kind != FILCH_KIND_PTR || command->data.small != PACKED || c.fn == NULL) return FILCH_EINVAL;
    task *t = fli_alloc(&rt->mem, sizeof *t);
    if (t == NULL) return FILCH_ENOMEM;
    fli_job job = {
        .run = run, .cancel = cancel, .owner = { command->from.serial, receiver.tag, command->id }, .key = receiver.key
    };
    *t = (task){ .job = job, .rt = rt, .receiver = receiver, .call = c, .timer = timer };
    filch_err err = fli_workpool_submit(pool, &t->job);
    if (err != FILCH_OK) fli_free(&rt->mem, t, sizeof *t);
    return err == FILCH_ECLOSED ? FILCH_ECANCELLED : err;
}
