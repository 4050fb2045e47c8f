/* values.c - see values.h. A chain outlives schedulers, so its memory comes from malloc. */
#include "proc/values.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "port/atomic.h"
#include "port/thread.h"

#define DEADLINE_KEY "filch.deadline"
#define SCOPE_KEY "filch.scope"

/* The fields that only a scope has. */
typedef struct scope {
    fli_mutex  lock;
    fli_tenant tenants; /* head of the ring of tenants; under `lock` */
    /* FILCH_OK while the scope is not cancelled.  writes: once, under the lock.  reads: any. Relaxed, because the
     * reason publishes no other data. */
    FLI_ATOMIC(filch_err) reason;
} scope;

struct filch_values {
    /* Number of references: by processes, by the program, and by newer elements (`parent`).  PAIR values.refs */
    FLI_ATOMIC(uint32_t) refs;
    filch_values        *parent; /* the next older element; NULL: none. Not atomic, like all fields below: set once */
    filch_data           data;
    scope               *scope;    /* NULL: not a scope */
    bool                 special;  /* this element or an older one is a deadline or a scope */
    size_t               key_size; /* bytes of the key, its NUL included */
    char                 key[];
};

static fli_mem default_mem(void)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    return mem;
}

static filch_err create(filch_values *parent, const char *key, filch_data data, filch_values **out)
{
    fli_mem       mem = default_mem();
    size_t        key_size = strlen(key) + 1;
    filch_values *values = fli_alloc(&mem, sizeof *values + key_size);
    if (values == NULL) return FILCH_ENOMEM;
    filch_err err = filch_keep(&data, &values->data);
    if (err != FILCH_OK) {
        fli_free(&mem, values, sizeof *values + key_size);
        return err;
    }
    fli_atomic_init(&values->refs, 1);
    values->parent = fli_values_hold(parent);
    values->scope = NULL;
    /* A deadline is recognised by its key, because a replay rebuilds the values from a recording, which has keys and
     * data only. */
    values->special = fli_values_is_special(parent) || strcmp(key, DEADLINE_KEY) == 0;
    values->key_size = key_size;
    memcpy(values->key, key, key_size);
    *out = values;
    return FILCH_OK;
}

filch_err filch_values_create(filch_values *parent, const char *key, filch_data data, filch_values **out)
{
    if (key == NULL) return filch_invalid("key is NULL");
    return out != NULL ? create(parent, key, data, out) : filch_invalid("out is NULL");
}

filch_err filch_values_deadline(filch_values *parent, uint64_t at_ns, filch_values **out)
{
    if (out == NULL) return filch_invalid("out is NULL");
    return create(parent, DEADLINE_KEY, filch_int(at_ns > INT64_MAX ? INT64_MAX : (int64_t)at_ns), out);
}

filch_err filch_values_scope(filch_values *parent, filch_values **out)
{
    if (out == NULL) return filch_invalid("out is NULL");
    fli_mem       mem = default_mem();
    filch_err     err = FILCH_ENOMEM;
    filch_values *values;
    scope        *made = fli_zalloc(&mem, sizeof *made);
    if (made == NULL) goto no_scope;
    err = fli_mutex_init(&made->lock);
    if (err != FILCH_OK) goto no_lock;
    err = create(parent, SCOPE_KEY, filch_none(), &values);
    if (err != FILCH_OK) goto no_values;
    made->tenants.next = made->tenants.prev = &made->tenants;
    values->scope = made;
    values->special = true;
    *out = values;
    return FILCH_OK;
no_values:
    fli_mutex_fini(&made->lock);
no_lock:
    fli_free(&mem, made, sizeof *made);
no_scope:
    return err;
}

filch_values *fli_values_hold(filch_values *values)
{
    /* Relaxed: the caller holds a reference, so the count cannot reach zero during this call. */
    if (values != NULL) fli_add_rlx(&values->refs, 1);
    return values;
}

void filch_values_drop(filch_values *values)
{
    fli_mem mem = default_mem();
    /* PAIR values.refs, both halves: the last read of every holder comes before the free. */
    while (values != NULL && fli_sub_acqrel(&values->refs, 1) == 1) {
        filch_values *parent = values->parent;
        filch_drop(&values->data);
        if (values->scope != NULL) {
            fli_mutex_fini(&values->scope->lock);
            fli_free(&mem, values->scope, sizeof *values->scope);
        }
        fli_free(&mem, values, sizeof *values + values->key_size);
        values = parent;
    }
}

const filch_values *fli_values_link(const filch_values *values, const char **key, const filch_data **data)
{
    *key = values->key;
    *data = &values->data;
    return values->parent;
}

const filch_data *fli_values_find(const filch_values *values, const char *key)
{
    for (; values != NULL; values = values->parent) {
        if (strcmp(values->key, key) == 0) return &values->data;
    }
    return NULL;
}

bool fli_values_is_special(const filch_values *values)
{
    return values != NULL && values->special;
}

uint64_t fli_values_deadline(const filch_values *values)
{
    uint64_t earliest = FILCH_FOREVER;
    for (; fli_values_is_special(values); values = values->parent) {
        bool deadline = strcmp(values->key, DEADLINE_KEY) == 0 && filch_kind_of(&values->data) == FILCH_KIND_INT;
        /* INT64_MAX also stands for every later time, so a deadline of INT64_MAX is never due */
        bool for_ever = deadline && values->data.as.i == INT64_MAX;
        if (deadline && !for_ever && (uint64_t)values->data.as.i < earliest) earliest = (uint64_t)values->data.as.i;
    }
    return earliest;
}

filch_values *fli_scope_first(filch_values *values)
{
    while (fli_values_is_special(values) && values->scope == NULL) values = values->parent;
    return fli_values_is_special(values) ? values : NULL;
}

filch_values *fli_scope_next(filch_values *values)
{
    return fli_scope_first(values->parent);
}

void fli_scope_enter(filch_values *values, fli_tenant *tenant)
{
    scope *s = values->scope;
    fli_mutex_lock(&s->lock);
    tenant->next = &s->tenants;
    tenant->prev = s->tenants.prev;
    tenant->prev->next = tenant;
    s->tenants.prev = tenant;
    fli_mutex_unlock(&s->lock);
}

void fli_scope_leave(filch_values *values, fli_tenant *tenant)
{
    fli_mutex_lock(&values->scope->lock);
    tenant->prev->next = tenant->next;
    tenant->next->prev = tenant->prev;
    fli_mutex_unlock(&values->scope->lock);
}

filch_err fli_scope_cancelled(filch_values *values, bool sure)
{
    scope *s = values->scope;
    if (sure) fli_mutex_lock(&s->lock);
    filch_err reason = fli_load_rlx(&s->reason);
    if (sure) fli_mutex_unlock(&s->lock);
    return reason;
}

filch_err fli_values_cancelled(filch_values *values)
{
    filch_err reason = FILCH_OK;
    for (filch_values *s = fli_scope_first(values); s != NULL && reason == FILCH_OK; s = fli_scope_next(s)) {
        reason = fli_scope_cancelled(s, false);
    }
    return reason;
}

bool fli_scope_cancel(filch_values *values, filch_err reason, void (*each)(const fli_tenant *tenant))
{
    scope *s = values->scope;
    fli_mutex_lock(&s->lock);
    bool first = fli_load_rlx(&s->reason) == FILCH_OK;
    if (first) fli_store_rlx(&s->reason, reason);
    for (fli_tenant *t = s->tenants.next; first && t != &s->tenants; t = t->next) each(t);
    fli_mutex_unlock(&s->lock);
    return first;
}
