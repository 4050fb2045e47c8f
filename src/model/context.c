/* context.c - deadlines and scopes of the context that a process inherits (proc/values.h): who is in a scope is asked
 * to end when it is cancelled, and whoever has a deadline when that comes.
 *
 * A process enters its scopes before it is open, so there is no failing afterwards. A cancel that comes in between
 * finds nobody to ask; but it has marked the scope, and the newborn looks, under the scope's lock, once it is open:
 * either the cancel came before that look, which sees the mark, or it comes after, and finds the process open.
 */
#include "model/model.h"
#include "proc/values.h"

static filch_values *scope_of(const fli_bond *bond)
{
    return (filch_values *)(uintptr_t)fli_load_rlx(&((fli_bond *)(uintptr_t)bond)->serial[1]);
}

void fli_context_free(fli_model *m, fli_bond *bond)
{
    fli_tenant *tenant = (fli_tenant *)(uintptr_t)bond->tag;
    fli_scope_leave(scope_of(bond), tenant);
    fli_free(&m->mem, tenant, sizeof *tenant);
    fli_bond_free(m, bond);
}

static filch_err enter(fli_model *m, const fli_end *end, filch_values *scope, fli_bond **out)
{
    fli_bond   *bond;
    fli_tenant *tenant = fli_zalloc(&m->mem, sizeof *tenant);
    if (tenant == NULL) return FILCH_ENOMEM;
    filch_err err = fli_bond_make(m, FLI_BOND_SCOPE, end, NULL, &bond);
    if (err != FILCH_OK) {
        fli_free(&m->mem, tenant, sizeof *tenant);
        return err;
    }
    tenant->rt = end->rt;
    tenant->serial = end->serial;
    bond->tag = (uintptr_t)tenant;
    fli_store_rlx(&bond->serial[1], (uintptr_t)scope);
    fli_scope_enter(scope, tenant);
    *out = bond;
    return FILCH_OK;
}

/* When the deadline comes the process is asked to end. */
static filch_err arm(fli_model *m, const fli_end *end, uint64_t left_ns, fli_bond **out)
{
    fli_bond *bond;
    filch_err err = fli_bond_make(m, FLI_BOND_DEADLINE, end, NULL, &bond);
    if (err != FILCH_OK) return err;
    bond->tag = fli_timers_raise(&((filch_sched *)end->rt)->timers, end->serial, left_ns, FLI_CANCEL);
    if (bond->tag == 0) {
        fli_bond_free(m, bond);
        return FILCH_ENOMEM;
    }
    *out = bond;
    return FILCH_OK;
}

void fli_context_undo(fli_model *m, fli_runtime *rt, fli_bond *bonds)
{
    while (bonds != NULL) {
        fli_bond *bond = bonds;
        bonds = fli_bond_at(m, bond->next[0]);
        if (bond->kind == FLI_BOND_SCOPE) {
            fli_context_free(m, bond);
            continue;
        }
        fli_timers_abandon(&((filch_sched *)rt)->timers, bond->tag);
        fli_bond_free(m, bond);
    }
}

filch_err fli_context_make(fli_model *m, const fli_end *end, filch_values *values, fli_bond **out, uint64_t *timer)
{
    uint64_t  at_ns = fli_values_deadline(values), now_ns = fli_now(end->rt);
    fli_bond *bonds = NULL, *bond;
    filch_err err = FILCH_OK;
    *timer = 0;
    /* One that has passed needs no timer: see fli_context_begin. */
    if (at_ns != FILCH_FOREVER && at_ns > now_ns) {
        err = arm(m, end, at_ns - now_ns, &bond);
        if (err == FILCH_OK) {
            bond->next[0] = 0;
            bonds = bond;
            *timer = bond->tag;
        }
    }
    for (filch_values *s = fli_scope_first(values); s != NULL && err == FILCH_OK; s = fli_scope_next(s)) {
        err = enter(m, end, s, &bond);
        if (err != FILCH_OK) break;
        bond->next[0] = bonds != NULL ? bonds->self * 2 : 0;
        bonds = bond;
    }
    if (err != FILCH_OK) fli_context_undo(m, end->rt, bonds);
    else *out = bonds;
    return err;
}

void fli_context_begin(fli_end *end, filch_values *values, uint64_t timer)
{
    fli_proc *p = fli_proc_find(end->rt, end->serial);
    bool      late = fli_values_deadline(values) <= fli_now(end->rt);
    /* It may have fired before there was anybody to ask; it must not fire when we have asked. */
    if (late && timer != 0) fli_timers_abandon(&((filch_sched *)end->rt)->timers, timer);
    for (filch_values *s = fli_scope_first(values); s != NULL && !late; s = fli_scope_next(s)) {
        late = fli_scope_cancelled(s, true) != FILCH_OK;
    }
    /* It is awake, and will be queued by whoever spawned it. */
    if (late) (void)!fli_state_set_flag(&p->state, fli_serial_gen(end->serial), FLI_CANCEL);
}

/* ---- the public face ---- */

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
    if (reason == FILCH_OK) return filch_invalid("reason is FILCH_OK");
    (void)fli_scope_cancel(scope, reason, ask);
    return FILCH_OK;
}

uint64_t filch_ctx_deadline(const filch_ctx *ctx)
{
    return ctx != NULL ? fli_values_deadline(fli_ctx_values(ctx)) : FILCH_FOREVER;
}

filch_err filch_ctx_cancelled(const filch_ctx *ctx)
{
    filch_err reason = FILCH_OK;
    if (ctx == NULL) return FILCH_OK;
    for (filch_values *s = fli_scope_first(fli_ctx_values(ctx)); s != NULL && reason == FILCH_OK; s = fli_scope_next(s)) {
        reason = fli_scope_cancelled(s, false);
    }
    return reason;
}
