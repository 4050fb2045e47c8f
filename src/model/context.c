/* context.c - deadlines and scopes that a process inherits (proc/values.h): when a scope is cancelled, every process in
 * it is cancelled; when a deadline comes, its process is cancelled.
 *
 * A process enters its scopes before it is opened, so that nothing can fail afterwards. A cancel between these two
 * moments finds a process that is not open and cannot cancel it; but the cancel has marked the scope, and the
 * spawner checks the mark under the scope's lock after opening the process. Either the cancel came before this
 * check, which sees the mark, or the cancel comes later and finds the process open.
 */
#include "clock/timers.h"
#include "model/model.h"
#include "proc/runtime.h"
#include "proc/values.h"
#include "sched/out.h"
#include "sched/sched.h"

static filch_values *scope_of(const fli_relation *relation)
{
    return (filch_values *)(uintptr_t)fli_load_rlx(&((fli_relation *)(uintptr_t)relation)->scope);
}

void fli_context_free(fli_model *m, fli_relation *relation)
{
    fli_tenant *tenant = relation->tenant;
    fli_scope_leave(scope_of(relation), tenant);
    fli_free(&m->mem, tenant, sizeof *tenant);
    fli_relation_free(m, relation);
}

static filch_err enter_scope(fli_model *m, const fli_endpoint *endpoint, filch_values *scope, fli_relation **out)
{
    fli_relation *relation;
    fli_tenant   *tenant = fli_zalloc(&m->mem, sizeof *tenant);
    if (tenant == NULL) return FILCH_ENOMEM;
    filch_err err = fli_relation_make(m, FLI_RELATION_SCOPE, endpoint, NULL, &relation);
    if (err != FILCH_OK) {
        fli_free(&m->mem, tenant, sizeof *tenant);
        return err;
    }
    tenant->rt = endpoint->rt;
    tenant->serial = endpoint->serial;
    relation->tenant = tenant;
    fli_store_rlx(&relation->scope, (uintptr_t)scope);
    fli_scope_enter(scope, tenant);
    *out = relation;
    return FILCH_OK;
}

/* Starts the timer that cancels the process at its deadline. */
static filch_err arm_deadline(fli_model *m, const fli_endpoint *endpoint, uint64_t left_ns, fli_relation **out)
{
    fli_relation *relation;
    filch_err     err = fli_relation_make(m, FLI_RELATION_DEADLINE, endpoint, NULL, &relation);
    if (err != FILCH_OK) return err;
    relation->timer =
        fli_timers_set_flag_later(&((filch_sched *)endpoint->rt)->timers, endpoint->serial, left_ns, FLI_CANCEL);
    if (relation->timer == 0) {
        fli_relation_free(m, relation);
        return FILCH_ENOMEM;
    }
    *out = relation;
    return FILCH_OK;
}

void fli_context_undo(fli_model *m, fli_runtime *rt, fli_relation *relations)
{
    while (relations != NULL) {
        fli_relation *relation = relations;
        relations = fli_relation_at(m, relation->next[0]);
        if (relation->kind == FLI_RELATION_SCOPE) {
            fli_context_free(m, relation);
            continue;
        }
        fli_timers_abandon(&((filch_sched *)rt)->timers, relation->timer);
        fli_relation_free(m, relation);
    }
}

filch_err fli_context_make(fli_model *m, const fli_endpoint *endpoint, filch_values *values, fli_relation **out,
                           uint64_t *timer)
{
    uint64_t      at_ns = fli_values_deadline(values), now_ns = fli_now(endpoint->rt);
    fli_relation *relations = NULL, *relation;
    filch_err     err = FILCH_OK;
    *timer = 0;
    /* A deadline in the past needs no timer: fli_context_begin() will cancel the process. */
    if (at_ns != FILCH_FOREVER && at_ns > now_ns) {
        err = arm_deadline(m, endpoint, at_ns - now_ns, &relation);
        if (err == FILCH_OK) {
            relation->next[0] = 0;
            relations = relation;
            *timer = relation->timer;
        }
    }
    for (filch_values *s = fli_scope_first(values); s != NULL && err == FILCH_OK; s = fli_scope_next(s)) {
        err = enter_scope(m, endpoint, s, &relation);
        if (err != FILCH_OK) break;
        relation->next[0] = relations != NULL ? relations->self * 2 : 0;
        relations = relation;
    }
    if (err != FILCH_OK) fli_context_undo(m, endpoint->rt, relations);
    else *out = relations;
    return err;
}

void fli_context_begin(fli_endpoint *endpoint, filch_values *values, uint64_t timer)
{
    fli_proc *p = fli_proc_find(endpoint->rt, endpoint->serial);
    bool      late = fli_values_deadline(values) <= fli_now(endpoint->rt);
    /* If the deadline has passed, the CANCEL flag is set below, so the timer is no longer needed. The timer may have
     * fired already. Then it had no effect, because the process was not open yet and could not receive events. */
    if (late && timer != 0) fli_timers_abandon(&((filch_sched *)endpoint->rt)->timers, timer);
    for (filch_values *s = fli_scope_first(values); s != NULL && !late; s = fli_scope_next(s)) {
        late = fli_scope_cancelled(s, true) != FILCH_OK;
    }
    /* The process is ACTIVE, so the flag wakes nothing: the spawner will queue the process. */
    if (late) (void)!fli_state_set_flag(&p->state, fli_serial_gen(endpoint->serial), FLI_CANCEL);
}

/* ---- public functions ---- */

static void ask(const fli_tenant *tenant)
{
    fli_runtime *rt = tenant->rt;
    fli_proc    *p = fli_proc_find(rt, tenant->serial);
    if (fli_state_set_flag(&p->state, fli_serial_gen(tenant->serial), FLI_CANCEL) != FLI_DELIVERY_WOKE) return;
    rt->hooks.ready(rt, fli_current_worker(rt), p);
}

filch_err filch_values_cancel(filch_values *scope, filch_err reason)
{
    if (scope == NULL) return filch_invalid("scope is NULL");
    if (fli_scope_first(scope) != scope) return filch_invalid("scope was not made by filch_values_scope");
    if (reason == FILCH_OK) return filch_invalid("reason is FILCH_OK: give an error");
    (void)fli_scope_cancel(scope, reason, ask);
    return FILCH_OK;
}

uint64_t filch_ctx_deadline(const filch_ctx *ctx)
{
    return ctx != NULL ? fli_values_deadline(fli_ctx_values(ctx)) : FILCH_FOREVER;
}

filch_err filch_ctx_cancelled(const filch_ctx *ctx)
{
    return ctx != NULL ? fli_values_cancelled(fli_ctx_values(ctx)) : FILCH_OK;
}
