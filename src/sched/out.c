/* out.c - the functions that a step may call on its filch_out. See out.h. */
#include "sched/out.h"

#include <stddef.h>

#include "base/assert.h"
#include "payload/data.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "proc/values.h"
#include "proc/yields.h"
#include "sched/finish.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/worker.h"
#include "work/command.h"

void fli_out_init(filch_out *out, const fli_local *worker)
{
    filch_sched *sched = (filch_sched *)worker->rt;
    filch_ctx    ctx = { .sched = sched, .worker = worker, .self = { .node = worker->rt->node_id } };
    *out = (filch_out){ .ctx = ctx, .send_budget = sched->opt.send_budget };
}

/* Discards the status that the step chose, and frees the data that belongs to it. Resets the status first: the free
 * function of the data is code of the program, which may have kept `out` and may choose another status. The loop then
 * discards that status too. */
void fli_out_forget(filch_out *out, filch_err error)
{
    while (out->status != FLI_STATUS_NONE) {
        fli_status        was = out->status;
        filch_data        result = out->result;
        const filch_type *type = out->type;
        void             *self = out->self;
        out->status = FLI_STATUS_NONE;
        if (was == FLI_STATUS_DONE || was == FLI_STATUS_FAIL) fli_data_free(&result);
        if (was != FLI_STATUS_UPGRADE) continue;
        if (type->close != NULL) fli_instance_close(FLI_OUTER(fli_worker, out, out), type, self, error);
        fli_instance_free(out->ctx.sched, type, NULL, self);
    }
}

void fli_out_drop_pending(filch_out *out, fli_local *worker)
{
    while (out->pending_count > 0) {
        fli_pending_command *call = &out->pending[--out->pending_count];
        fli_yield_close(worker->rt, worker->current, call->node);
        fli_full_node_give(worker->rt, worker, call->node);
        fli_data_free(&call->command.data);
    }
}

bool fli_out_is_stepping(const filch_out *out)
{
    const fli_local *worker = fli_current_worker(&out->ctx.sched->rt);
    if (worker == NULL || worker->current == NULL || worker->dispatching || worker->closing) return false;
    return out == &((const fli_worker *)worker)->out;
}

/* Discards a status that owns data. Returns FILCH_ESTATE if the step of `out` is not running: then the worker owns the
 * data, for example a new instance of the process after filch_upgrade. */
static __attribute__((noinline)) filch_err think_better(filch_out *out)
{
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE;
    fli_out_forget(out, out->fails);
    return FILCH_OK;
}

/* Slow path of choose(). A separate function, because a call inside choose() would make the fast path save
 * registers. */
static __attribute__((noinline, cold)) filch_err choose_again(filch_out *out, fli_status status)
{
    if (out == NULL) return filch_invalid("out is NULL");
    /* The status UPGRADE owns an instance that filch_upgrade has created. Only DONE, FAIL or another UPGRADE may
     * replace it. */
    if (out->status == FLI_STATUS_UPGRADE && status < FLI_STATUS_DONE) return FILCH_ESTATE;
    filch_err err = think_better(out);
    if (err == FILCH_OK) out->status = status;
    return err;
}

/* Returns true if `out` is not NULL and owns no result or instance that must be freed before the status changes. */
static inline bool may_choose(const filch_out *out)
{
    return FLI_LIKELY(out != NULL && out->status < FLI_STATUS_DONE);
}

static inline filch_err choose(filch_out *out, fli_status status)
{
    if (!may_choose(out)) return choose_again(out, status);
    out->status = status;
    return FILCH_OK;
}

filch_err filch_continue(filch_out *out)
{
    return choose(out, FLI_STATUS_CONTINUE);
}

filch_err filch_wait(filch_out *out)
{
    return choose(out, FLI_STATUS_WAIT);
}

filch_err filch_idle(filch_out *out)
{
    return choose(out, FLI_STATUS_IDLE);
}

static inline void set_result(filch_out *out, uint64_t kind, uint64_t first, uint64_t second)
{
    out->result.kind = (uint8_t)kind;
    out->result.form = 0;
    out->result.small = 0;
    out->result.as.pid = (filch_pid){ first, second };
}

static __attribute__((noinline, cold)) filch_err done_again(filch_out *out, uint64_t kind, uint64_t first,
                                                            uint64_t second)
{
    filch_err err = choose_again(out, FLI_STATUS_DONE);
    if (err == FILCH_OK) set_result(out, kind, first, second);
    return err;
}

filch_err filch_done_value(filch_out *out, uint64_t kind, uint64_t first, uint64_t second)
{
    if (!may_choose(out)) return done_again(out, kind, first, second);
    out->status = FLI_STATUS_DONE;
    set_result(out, kind, first, second);
    return FILCH_OK;
}

filch_err filch_done_any(filch_out *out, filch_data result)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE; /* a result set outside a step would never be freed */
    fli_runtime *rt = &out->ctx.sched->rt;
    filch_data   owned;
    filch_err    err = fli_data_own(&rt->mem, rt->payload_max, &result, &owned);
    if (err != FILCH_OK) return err;
    (void)choose(out, FLI_STATUS_DONE);
    out->result = owned;
    return FILCH_OK;
}

extern inline filch_err filch_done(filch_out *out, filch_data result);

filch_err filch_fail(filch_out *out, filch_err error, filch_data detail)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (error == FILCH_OK) return filch_invalid("error is FILCH_OK: use filch_done");
    bool inside = fli_out_is_stepping(out);
    if (inside) out->fails = error;
    /* If the detail cannot be stored, the process fails with the error alone. */
    if (filch_done(out, detail) == FILCH_OK) out->status = FLI_STATUS_FAIL;
    else (void)!think_better(out);
    if (inside) out->fails = FILCH_OK;
    return error;
}

filch_err filch_upgrade(filch_out *out, const filch_type *type, const char *method, filch_data args)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_type_is_sound(type)) return FILCH_EINVAL;
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE;
    void     *self = NULL;
    filch_err err = fli_instance_make(out->ctx.sched, type, &out->ctx, method, &args, NULL, &self);
    if (err != FILCH_OK) return err;
    (void)choose(out, FLI_STATUS_UPGRADE);
    out->type = type;
    out->self = self;
    return FILCH_OK;
}

static bool make_room(filch_out *out)
{
    if (out->pending_count < out->pending_room) return true;
    const fli_mem       *mem = &out->ctx.sched->rt.mem;
    uint32_t             room = out->pending_room == 0 ? 8 : out->pending_room * 2;
    fli_pending_command *grown = fli_resize(mem, out->pending, out->pending_room * sizeof *grown, room * sizeof *grown);
    if (grown == NULL) return false;
    out->pending = grown;
    out->pending_room = room;
    return true;
}

filch_err fli_out_yield(filch_out *out, uint32_t command, uint64_t tag, filch_pid target, const filch_data *data)
{
    if (out == NULL) return filch_invalid("out is NULL");
    fli_runtime *rt = &out->ctx.sched->rt;
    fli_local   *worker = fli_current_worker(rt);
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE;
    if (FLI_UNLIKELY(worker->rec_hooks != NULL))
        return worker->rec_hooks->yield(worker, out, command, tag, target, data);
    if (FLI_UNLIKELY(!make_room(out))) return FILCH_ENOMEM;
    fli_pending_command *call = &out->pending[out->pending_count];
    filch_err            err = fli_data_own_fast(&rt->mem, rt->payload_max, data, &call->command.data);
    if (err != FILCH_OK) return err;
    fli_event_node *node = fli_yield_open(rt, worker, worker->current, command, tag);
    if (FLI_UNLIKELY(node == NULL)) {
        fli_data_undo(data, &call->command.data);
        return FILCH_ENOMEM;
    }
    /* These fields are set last. The first entry of `pending` may belong to an inline completion loop, and a yield that
     * fails must not change that entry. */
    call->node = node;
    call->command.id = command;
    call->command.from = fli_ctx_self(&out->ctx);
    call->command.target = target;
    call->command.ctx = &out->ctx;
    out->pending_count++;
    return FILCH_OK;
}

/* Yields a value. Calls fli_out_yield() instead if the caller is not a step of this scheduler, or in a slow case (no
 * room in a list, no node in the magazine). */
static __attribute__((noinline)) filch_err yield_value(filch_out *out, uint32_t command, uint64_t tag, filch_pid target,
                                                       filch_data data)
{
    fli_local *worker = fli_current_get();
    bool       fast = worker != NULL && out == &fli_worker_of(worker)->out && worker->fast_rt == worker->rt &&
                worker->current != NULL;
    if (FLI_UNLIKELY(!fast || out->pending_count == out->pending_room))
        return fli_out_yield(out, command, tag, target, &data);
    fli_proc *p = worker->current;
    bool      room = FLI_LIKELY(p->yield_count < FLI_YIELDS_FEW) || fli_yield_room(worker->rt, p);
    if (FLI_UNLIKELY(!room || worker->nodes.count == 0)) return fli_out_yield(out, command, tag, target, &data);
    fli_pending_command *call = &out->pending[out->pending_count];
    call->node = worker->nodes.objects[--worker->nodes.count];
    fli_yield_add(p, call->node, worker->serial, command, tag);
    call->command = (filch_command){
        .id = command, .from = fli_ctx_self(&out->ctx), .target = target, .data = data, .ctx = &out->ctx
    };
    out->pending_count++;
    return FILCH_OK;
}

/* Fast path of filch_yield and filch_yield_send, for a value.
 * Precondition: the first yield of a step in an inline completion loop (out->spare is set).
 * Skips: taking a node, and the fields of the command that the loop has set.
 * Repeats: the yield is in the list of the process; begin_loop() of inline_yield.c has put it there.
 * General path: fli_out_yield(). */
static inline __attribute__((always_inline)) filch_err yield_inline(filch_out *out, uint32_t command, uint64_t tag,
                                                                    filch_pid target, uint64_t kind, uint64_t first,
                                                                    uint64_t second)
{
    fli_local *worker = fli_current_get();
    /* Compares the address of `out` before its fields are read, because the program may have kept the `out` of another
     * step. */
    bool inside = (uintptr_t)out == (uintptr_t)worker + offsetof(fli_worker, out);
    if (FLI_UNLIKELY(!inside || out->spare == NULL || out->pending_count != 0)) {
        return yield_value(out, command, tag, target, filch_value((filch_kind)kind, first, second));
    }
    fli_pending_command *call = out->pending;
    out->spare->tag = tag;
    out->pending_count = 1;
    call->command.id = command;
    call->command.target = target;
    fli_value_put(&call->command.data, kind, first, second);
    return FILCH_OK;
}

filch_err filch_yield_value(filch_out *out, uint32_t command, uint64_t tag, uint64_t kind, uint64_t first,
                            uint64_t second)
{
    return yield_inline(out, command, tag, (filch_pid){ 0, 0 }, kind, first, second);
}

filch_err filch_yield_any(filch_out *out, uint32_t command, uint64_t tag, filch_data data)
{
    return fli_out_yield(out, command, tag, (filch_pid){ 0, 0 }, &data);
}

extern inline filch_err filch_yield(filch_out *out, uint32_t command, uint64_t tag, filch_data data);

static filch_err yield_time(filch_out *out, uint32_t command, uint64_t tag, uint64_t span_ns)
{
    /* A span of more than 292 years becomes INT64_MAX ns, which means for ever. */
    return filch_yield(out, command, tag, filch_int(span_ns > INT64_MAX ? INT64_MAX : (int64_t)span_ns));
}

filch_err filch_yield_sleep(filch_out *out, uint64_t tag, uint64_t delay_ns)
{
    return yield_time(out, FILCH_CMD_SLEEP, tag, delay_ns);
}

filch_err filch_yield_timer(filch_out *out, uint64_t tag, uint64_t delay_ns)
{
    return yield_time(out, FILCH_CMD_TIMER, tag, delay_ns);
}

filch_err filch_yield_ticker(filch_out *out, uint64_t tag, uint64_t period_ns)
{
    if (period_ns == 0) return filch_invalid("period_ns is 0: a ticker needs a period");
    return yield_time(out, FILCH_CMD_TICKER, tag, period_ns);
}

filch_err filch_yield_timer_cancel(filch_out *out, uint64_t tag, int64_t id)
{
    return filch_yield(out, FILCH_CMD_TIMER_CANCEL, tag, filch_int(id));
}

filch_err filch_yield_work(filch_out *out, uint64_t tag, filch_work_fn fn, void *arg)
{
    if (fn == NULL) return filch_invalid("fn is NULL");
    /* Calls filch_yield_any(), because the packed call is not a value: see fli_work_pack(). */
    return filch_yield_any(out, FILCH_CMD_WORK, tag, fli_work_pack(fn, arg));
}

filch_err filch_yield_work_within(filch_out *out, uint64_t tag, filch_work_fn fn, void *arg, uint64_t timeout_ns)
{
    if (fn == NULL) return filch_invalid("fn is NULL");
    if (timeout_ns == FILCH_FOREVER) return filch_yield_work(out, tag, fn, arg);
    filch_data call = fli_work_pack(fn, arg);
    return fli_out_yield(out, FILCH_CMD_WORK, tag, (filch_pid){ 0, timeout_ns != 0 ? timeout_ns : 1 }, &call);
}

filch_err filch_yield_send(filch_out *out, uint64_t tag, filch_pid to, filch_data data)
{
    if (!fli_data_is_value(&data)) return fli_out_yield(out, FILCH_CMD_SEND, tag, to, &data);
    return yield_inline(out, FILCH_CMD_SEND, tag, to, data.kind, data.as.pid.node, data.as.pid.serial);
}

const filch_ctx *filch_out_ctx(const filch_out *out)
{
    return out != NULL ? &out->ctx : NULL;
}

extern inline filch_sched *filch_out_sched(const filch_out *out);

int filch_should_yield(const filch_out *out)
{
    /* Returns 0 unless `out` belongs to the worker on this thread. Compares addresses only, because `worker` and `out`
     * may be NULL. */
    const fli_worker *worker = fli_current_get();
    if ((uintptr_t)worker + offsetof(fli_worker, out) != (uintptr_t)out) return 0;
    if (worker->local.sends < worker->local.send_limit) return 0;
    /* The limit is 0 after many contended sends. A recorded step does not see that, because it must get the same result
     * when it is replayed. */
    return worker->local.rec_hooks == NULL || worker->local.sends >= out->send_budget;
}

filch_pid filch_ctx_self(const filch_ctx *ctx)
{
    return ctx != NULL ? fli_ctx_self(ctx) : (filch_pid){ 0, 0 };
}

extern inline filch_sched *filch_ctx_sched(const filch_ctx *ctx);

const filch_data *filch_ctx_value(const filch_ctx *ctx, const char *key)
{
    static const filch_data none = { .kind = FILCH_KIND_NONE };
    const filch_data       *found = ctx != NULL && key != NULL ? fli_values_find(fli_ctx_values(ctx), key) : NULL;
    return found != NULL ? found : &none;
}
