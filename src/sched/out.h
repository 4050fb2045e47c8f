/* out.h - filch_out: what a step writes, its status and its yields. Each worker has one, reused for every step. */
#ifndef FLI_SCHED_OUT_H
#define FLI_SCHED_OUT_H

#include <stdint.h>

#include <filch.h>

#include "proc/runtime.h"

struct filch_ctx {
    filch_sched     *sched;  /* must be the first member: inline functions in filch.h read it at offset 0 */
    const fli_local *worker; /* in a step: the worker; its `serial` identifies the process. NULL outside a step: then
                                `self` and `values` are used */
    filch_pid     self;      /* in a step only the field `node` of `self` is used */
    filch_values *values;
};

static inline filch_pid fli_ctx_self(const filch_ctx *ctx)
{
    return ctx->worker == NULL ? ctx->self : (filch_pid){ ctx->self.node, ctx->worker->serial };
}

/* Returns the values of the process, or NULL if it has none or the step has ended. */
static inline filch_values *fli_ctx_values(const filch_ctx *ctx)
{
    if (ctx->worker == NULL) return ctx->values;
    return ctx->worker->current != NULL ? ctx->worker->current->values : NULL;
}

typedef enum fli_status {
    FLI_STATUS_NONE,
    FLI_STATUS_CONTINUE,
    FLI_STATUS_WAIT,
    FLI_STATUS_IDLE,
    FLI_STATUS_DONE,
    FLI_STATUS_UPGRADE,
    FLI_STATUS_FAIL /* set by filch_fail; the step returns the error */
} fli_status;

typedef struct fli_pending_command {
    fli_event_node *node;    /* the node of the yield */
    filch_command   command; /* the command as the handler gets it; owns its data */
} fli_pending_command;

struct filch_out {
    filch_ctx       ctx; /* must be the first member: inline functions in filch.h read it at offset 0 */
    fli_status      status;
    uint32_t        send_budget; /* option send_budget */
    uint32_t        pending_room;
    fli_event_node *spare;              /* in an inline completion loop: the node for the first yield of the step; NULL:
                                           not in a loop */
    fli_pending_command *pending;       /* array of pending_room commands; grows, never shrinks */
    uint32_t             pending_count; /* placed apart from `status`: otherwise the compiler would read both fields
                                           with one load, which has to wait for both stores */
    filch_data        result;           /* owned; set if `status` is DONE or FAIL */
    const filch_type *type; /* `type` and `self` are set if `status` is UPGRADE: the new type and its instance */
    void             *self;
    filch_err         fails; /* inside filch_fail: its error; otherwise FILCH_OK */
};

static_assert(offsetof(filch_ctx, sched) == 0 && offsetof(filch_out, ctx) == 0, "the header reads them there");

/* Initializes the filch_out of a worker. */
void fli_out_init(filch_out *out, const fli_local *worker);

/* Resets `out` for the next step. Precondition: no commands of the last step are pending. */
static inline void fli_out_begin(filch_out *out)
{
    out->status = FLI_STATUS_NONE;
}

/* Returns true if the step has chosen idle and made no yield. */
static inline bool fli_out_is_idle(const filch_out *out)
{
    return out->status == FLI_STATUS_IDLE && out->pending_count == 0;
}

/* Returns the error with which the process ends after this step, or FILCH_OK if it goes on. It is an error if the
 * step chose no status, or if it waits although no yield is outstanding. `err`: the error that the step function
 * returned. */
static inline filch_err fli_out_verdict(const filch_out *out, uint32_t yield_count, filch_err err)
{
    if (FLI_UNLIKELY(err != FILCH_OK)) return err;
    /* One comparison finds two mistakes: the status is NONE; or it is FAIL although the step returned FILCH_OK. */
    if (FLI_UNLIKELY((unsigned)out->status - 1u >= FLI_STATUS_FAIL - 1u)) return FILCH_ENOSTATUS;
    return out->status == FLI_STATUS_WAIT && yield_count == 0 ? FILCH_ENOYIELD : FILCH_OK;
}

/* Returns true if the calling thread is inside the step that `out` belongs to. Needed because a program may have kept
 * `out` after an earlier step. */
bool fli_out_is_stepping(const filch_out *out);

/* The general path of filch_yield, with a target pid. */
filch_err fli_out_yield(filch_out *out, uint32_t command, uint64_t tag, filch_pid target, const filch_data *data);

/* Resets the status, and frees the result or the instance that belongs to it. The `close` of an instance gets `error`
 * from filch_close_error(): the error with which the process ends, or FILCH_OK. */
void fli_out_forget(filch_out *out, filch_err error);

/* Frees the yields of the step, none of which has been dispatched to a handler. Thread: the worker `worker`. */
void fli_out_drop_pending(filch_out *out, fli_local *worker);

#endif
