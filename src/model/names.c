/* names.c - registered names: one process per name and scheduler. Each name is an entry of a table, and a relation by
 * which the end of the process finds the entry.
 *
 * INVARIANT  an entry is in its table exactly while its relation is listed: both change under the lock of the process's
 *            stripe and, inside it, the table's lock.
 *
 * calls.c and named_message.c check a name before they call this file; fli_name_make() checks the name of a spawn.
 */
#include <assert.h>
#include <string.h>

#include "base/assert.h"
#include "model/model.h"
#include "proc/runtime.h"

typedef struct named {
    fli_entry entry;
    filch_pid pid;
    uint64_t  ref; /* number of the relation (fli_relation_ref) */
} named;

static fli_table *table_of(fli_model *m, uint32_t host, uint64_t hash)
{
    return &fli_host_at(m, host)->names[(hash >> 32) % FLI_NAME_SHARDS];
}

static named *named_of(const fli_relation *relation)
{
    return relation->name_entry;
}

size_t fli_name_size(const fli_relation *relation)
{
    return sizeof(named) + strlen(named_of(relation)->entry.name) + 1;
}

static fli_table *table_of_relation(fli_model *m, fli_relation *relation)
{
    return table_of(m, (uint32_t)fli_load_rlx(&relation->name_host), named_of(relation)->entry.hash);
}

filch_err fli_name_make(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                        fli_relation **out)
{
    if (!fli_name_is_sound(name)) return filch_invalid("options.name is not 1 to 255 bytes");
    named *n = fli_entry_make(&m->mem, sizeof *n, name);
    if (n == NULL) return FILCH_ENOMEM;
    fli_relation *relation = NULL;
    filch_err     err = fli_relation_make(m, FLI_RELATION_NAME, endpoint, NULL, &relation);
    if (err != FILCH_OK) {
        fli_entry_free(&m->mem, n);
        return err;
    }
    relation->name_entry = n;
    fli_store_rlx(&relation->name_host, rt->host);
    n->pid = (filch_pid){ endpoint->rt->node_id, endpoint->serial };
    n->ref = fli_relation_ref(relation);
    *out = relation;
    return FILCH_OK;
}

void fli_name_unmake(fli_model *m, fli_relation *relation)
{
    fli_entry_free(&m->mem, named_of(relation));
    fli_relation_free(m, relation);
}

filch_err fli_name_list(fli_model *m, fli_relation *relation)
{
    named     *n = named_of(relation);
    fli_table *table = table_of_relation(m, relation);
    filch_err  err = FILCH_OK;
    fli_mutex_lock(&table->lock);
    if (fli_table_find(table, n->entry.name) != NULL) err = FILCH_EEXISTS;
    else fli_table_add(&m->mem, table, n);
    fli_mutex_unlock(&table->lock);
    if (err == FILCH_OK) fli_relation_list(m, relation, 0);
    return err;
}

void fli_name_forget(fli_model *m, fli_relation *relation)
{
    named     *n = named_of(relation);
    fli_table *table = table_of_relation(m, relation);
    fli_mutex_lock(&table->lock);
    fli_table_remove(&m->mem, table, n);
    fli_mutex_unlock(&table->lock);
    fli_entry_free(&m->mem, n);
}

/* Finds the process that has the name on host `host`, and the number of the name's relation. FILCH_EDEAD: no process
 * has the name. */
static filch_err look_up(fli_model *m, uint32_t host, const char *name, filch_pid *pid, uint64_t *ref)
{
    fli_table *table = table_of(m, host, fli_name_hash(name));
    fli_mutex_lock(&table->lock);
    const named *n = fli_table_find(table, name);
    if (n != NULL) *pid = n->pid;
    if (n != NULL) *ref = n->ref;
    fli_mutex_unlock(&table->lock);
    return n != NULL ? FILCH_OK : FILCH_EDEAD;
}

filch_err fli_name_find(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pid)
{
    uint64_t  ref;
    fli_proc *alive;
    filch_err err = look_up(m, rt->host, name, pid, &ref);
    /* A process that has ended loses its name when fli_ended() processes its end. Until then the name is reported as
     * not registered, and a new registration of the name removes it first (fli_name_remove_ended). */
    return err == FILCH_OK && pid->node == rt->node_id ? fli_pid_find(rt, *pid, &alive) : err;
}

bool fli_name_of(fli_model *m, const fli_endpoint *endpoint, char *name)
{
    static_assert(FLI_NAME_ROOM > FLI_NAME_MAX, "a name fits");
    fli_stripe_lock(m, endpoint);
    fli_relation *relation = fli_relation_newest_name(m, endpoint);
    if (relation != NULL)
        strcpy(name, named_of(relation)->entry.name); /* the entry exists while the stripe is locked */
    fli_stripe_unlock(m, endpoint);
    return relation != NULL;
}

/* Removes the name that belongs to the relation with the number `ref`. Returns false if that relation is gone or was
 * reused. */
static bool take_away(fli_model *m, const fli_endpoint *endpoint, uint64_t ref)
{
    fli_relation *relation = fli_slab_find(&m->relations, (uint32_t)ref);
    fli_stripe_lock(m, endpoint);
    /* While the stripe is locked, the generation of a relation of this process does not change. */
    bool found = relation != NULL && fli_relation_ref(relation) == ref;
    if (found) {
        fli_relation_unlist(m, relation, 0);
        fli_relation_retire(relation);
        fli_name_forget(m, relation);
    }
    fli_stripe_unlock(m, endpoint);
    if (found) fli_relation_free(m, relation);
    return found;
}

void fli_name_remove_ended(fli_model *m, fli_runtime *rt, const char *name)
{
    filch_pid pid;
    uint64_t  ref;
    fli_proc *alive;
    if (look_up(m, rt->host, name, &pid, &ref) != FILCH_OK || pid.node != rt->node_id) return;
    if (fli_pid_find(rt, pid, &alive) == FILCH_OK) return;
    fli_endpoint endpoint = { .rt = rt, .host = rt->host, .serial = pid.serial };
    (void)take_away(m, &endpoint, ref);
}

filch_err fli_name_add(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint)
{
    fli_relation *relation = NULL;
    filch_err     err = fli_name_make(m, rt, name, endpoint, &relation);
    if (err != FILCH_OK) return err;
    fli_name_remove_ended(m, rt, name);
    fli_stripe_lock(m, endpoint);
    err = fli_endpoint_set_related(m, endpoint) ? fli_name_list(m, relation) : FILCH_EDEAD;
    fli_stripe_unlock(m, endpoint);
    if (err != FILCH_OK) fli_name_unmake(m, relation);
    return err;
}

filch_err fli_name_remove(fli_model *m, fli_runtime *rt, const char *name)
{
    filch_pid    pid;
    uint64_t     ref;
    fli_endpoint endpoint;
    filch_err    err = look_up(m, rt->host, name, &pid, &ref);
    if (err == FILCH_OK) err = fli_endpoint_pin(m, rt, pid, &endpoint);
    if (err != FILCH_OK) return err;
    err = take_away(m, &endpoint, ref) ? FILCH_OK : FILCH_EDEAD;
    fli_endpoint_unpin(m, rt, &endpoint);
    return err;
}

/* Finds a name of a table. Returns false if the table is empty. `cursor`: see fli_index_any(). */
static bool any_of(fli_table *table, uint32_t *cursor, filch_pid *pid, uint64_t *ref)
{
    fli_mutex_lock(&table->lock);
    const named *n = (const named *)fli_index_any(&table->index, cursor);
    if (n != NULL) *pid = n->pid;
    if (n != NULL) *ref = n->ref;
    fli_mutex_unlock(&table->lock);
    return n != NULL;
}

void fli_names_fini(fli_model *m, fli_runtime *rt)
{
    fli_host *host = fli_host_at(m, rt->host);
    for (int i = 0; i < FLI_NAME_SHARDS; i++) {
        filch_pid    pid;
        uint64_t     ref;
        fli_endpoint endpoint;
        uint32_t     cursor = 0;
        while (any_of(&host->names[i], &cursor, &pid, &ref)) {
            if (fli_endpoint_pin(m, rt, pid, &endpoint) != FILCH_OK)
                continue; /* tries again: the host of the process is ending and will remove the name itself */
            (void)take_away(m, &endpoint, ref);
            fli_endpoint_unpin(m, rt, &endpoint);
        }
    }
}
