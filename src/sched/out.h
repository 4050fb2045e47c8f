/* out.h - what a step writes: its status and its yields. One per worker, reused for every step. */
#ifndef FLI_SCHED_OUT_H
#define FLI_SCHED_OUT_H

#include <stdint.h>

#include <filch.h>

#include "proc/runtime.h"

struct filch_ctx {
    filch_sched     *sched; /* first: filch.h knows */
    const fli_local *worker;  /* in a step: the worker; its `serial` is the process. NULL: the two fields below are used */
    filch_pid        self;  /* in a step only its node is used */
    filch_values    *values;
};

static inline filch_pid fli_ctx_self(const filch_ctx *ctx)
{
    return ctx->worker == NULL ? ctx->self : (filch_pid){ ctx->self.node, ctx->worker->serial };
}

/* Returns the values of the process, or NULL: it has none, or the step is over. */
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
    FLI_STATUS_FAIL /* with an error: filch_fail */
} fli_status;

typedef struct fli_pending_command {
    fli_event_node     *node;    /* its yield */
    filch_command command; /* as the handler gets it; its data is owned */
} fli_pending_command;

struct filch_out {
    filch_ctx         ctx; /* first: the same */
    fli_status        status;
    uint32_t          send_budget; /* the option */
    uint32_t          pending_room;
    fli_event_node         *spare;  /* in an inline completion loop: the node for the first yield of the step; else NULL */
    fli_pending_command         *pending;  /* allocated; grows, never shrinks */
    uint32_t          pending_count; /* apart from `status`: read as one they would have to wait for both stores */
    filch_data        result; /* owned, with DONE and FAIL */
    const filch_type *type;   /* with UPGRADE: the new type and its instance */
    void             *self;
};

static_assert(offsetof(filch_ctx, sched) == 0 && offsetof(filch_out, ctx) == 0, "the header reads them there");

/* Once per worker. */
void fli_out_init(filch_out *out, const fli_local *worker);

/* Ready for the next step. The last step has left no pending commands. */
static inline void fli_out_begin(filch_out *out)
{
    out->status = FLI_STATUS_NONE;
}

/* Returns true if the step has chosen idle and made no yield. */
static inline bool fli_out_is_idle(const filch_out *out)
{
    return out->status == FLI_STATUS_IDLE && out->pending_count == 0;
}

/* Returns the error with which the step ends its process, or FILCH_OK: a step must choose a status, and may wait only if a yield is
 * outstanding. */
static inline filch_err fli_out_verdict(const filch_out *out, uint32_t yield_count, filch_err err)
{
    if (FLI_UNLIKELY(err != FILCH_OK)) return err;
    /* NONE, or FAIL without the error that belongs to it: in one comparison. */
    if (FLI_UNLIKELY((unsigned)out->status - 1u >= FLI_STATUS_FAIL - 1u)) return FILCH_ENOSTATUS;
    return out->status == FLI_STATUS_WAIT && yield_count == 0 ? FILCH_ENOYIELD : FILCH_OK;
}

/* Returns true if the calling thread is inside the step that `out` belongs to. A program may have kept the pointer. */
bool fli_out_is_stepping(const filch_out *out);

/* filch_yield, about a pid. */
filch_err fli_out_yield(filch_out *out, uint32_t command, uint64_t tag, filch_pid target, const filch_data *data);

/* Resets the status, and frees what it owns. */
void fli_out_forget(filch_out *out);

/* Throws away what the step yielded: no handler has heard of it, so it never was out. Thread: the worker `worker`. */
void fli_out_drop_pending(filch_out *out, fli_local *worker);

#endif
