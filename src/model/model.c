/* model.c - creation and end of a model: created on first use, shared by the hosts of a node, freed with the last of
 * them.
 *
 * INVARIANT  a host with pins > 0 has its runtime: fini first clears `rt`, then waits until pins is 0.
 */
#include "model/model.h"

#include <string.h>

#include "base/assert.h"
#include "proc/runtime.h"
#include "sched/sched.h"

static void make_relation(void *object, uint32_t handle)
{
    fli_relation *relation = object;
    relation->self = handle;
    fli_store_rlx(&relation->gen, 1);
}

static filch_err stripes_init(fli_model *m)
{
    for (int i = 0; i < FLI_STRIPES; i++) {
        filch_err err = fli_mutex_init(&m->stripes[i].lock);
        if (err == FILCH_OK) continue;
        while (i-- > 0) fli_mutex_fini(&m->stripes[i].lock);
        return err;
    }
    return FILCH_OK;
}

filch_err fli_model_create(const fli_mem *mem, fli_model **out)
{
    filch_err  err = FILCH_ENOMEM;
    fli_model *m = fli_zalloc_aligned(mem, sizeof *m, FLI_LINE);
    if (m == NULL) goto no_model;
    m->mem = *mem;
    fli_atomic_init(&m->refs, 1);
    err = fli_slab_init(&m->relations, mem, sizeof(fli_relation), UINT32_MAX / 2 - 1, make_relation);
    if (err != FILCH_OK) goto no_slab;
    err = fli_mutex_init(&m->grow);
    if (err != FILCH_OK) goto no_grow;
    err = fli_mutex_init(&m->hubs);
    if (err != FILCH_OK) goto no_hubs;
    err = stripes_init(m);
    if (err != FILCH_OK) goto no_stripes;
    *out = m;
    return FILCH_OK;
no_stripes:
    fli_mutex_fini(&m->hubs);
no_hubs:
    fli_mutex_fini(&m->grow);
no_grow:
    fli_slab_fini(&m->relations);
no_slab:
    fli_free_aligned(mem, m, sizeof *m, FLI_LINE);
no_model:
    return err;
}

void fli_model_drop(fli_model *m)
{
    /* PAIR model.refs, both halves: the accesses of every thread that dropped a reference come before the free. */
    if (fli_sub_acqrel(&m->refs, 1) != 1) return;
    fli_mem mem = m->mem;
    FLI_ASSERT(fli_slab_is_whole(&m->relations)); /* asserts that no relation is left */
    for (int i = 0; i < FLI_HOSTS_MAX; i++) fli_free(&mem, fli_load_rlx(&m->hosts[i]), sizeof(fli_host));
    for (int i = 0; i < FLI_STRIPES; i++) fli_mutex_fini(&m->stripes[i].lock);
    fli_mutex_fini(&m->hubs);
    fli_mutex_fini(&m->grow);
    fli_slab_fini(&m->relations);
    fli_free_aligned(&mem, m, sizeof *m, FLI_LINE);
}

/* ---- hosts ---- */

static filch_err host_create(fli_model *m, fli_runtime *rt, fli_host **out)
{
    fli_host *host = fli_zalloc(&m->mem, sizeof *host);
    if (host == NULL) return FILCH_ENOMEM;
    int       made = 0, shards = 0;
    filch_err err = FILCH_OK;
    for (; shards < FLI_GROUP_SHARDS; shards++) {
        err = fli_group_shard_init(&host->groups[shards]);
        if (err != FILCH_OK) goto no_groups;
    }
    for (; made < FLI_NAME_SHARDS; made++) {
        err = fli_table_init(&host->names[made]);
        if (err != FILCH_OK) goto no_names;
    }
    fli_atomic_init(&host->rt, rt);
    fli_atomic_init(&host->node_id, rt->node_id);
    *out = host;
    return FILCH_OK;
no_names:
    while (made-- > 0) fli_table_fini(&m->mem, &host->names[made]);
no_groups:
    while (shards-- > 0) fli_group_shard_fini(&m->mem, &host->groups[shards]);
    fli_free(&m->mem, host, sizeof *host);
    return err;
}

/* Frees the host's tables, which are empty. The fli_host itself is kept until the model is freed, because other
 * hosts may read it. */
static void host_close(fli_model *m, fli_host *host)
{
    for (int i = 0; i < FLI_NAME_SHARDS; i++) fli_table_fini(&m->mem, &host->names[i]);
    for (int i = 0; i < FLI_GROUP_SHARDS; i++) fli_group_shard_fini(&m->mem, &host->groups[i]);
}

filch_err fli_model_add(fli_model *m, fli_runtime *rt, uint32_t *number)
{
    fli_host *host = NULL;
    filch_err err = host_create(m, rt, &host);
    if (err != FILCH_OK) return err;
    uint32_t i = 0;
    bool     known = false;
    fli_mutex_lock(&m->grow);
    for (fli_host *other; i < FLI_HOSTS_MAX && (other = fli_load_rlx(&m->hosts[i])) != NULL; i++) {
        known = known || fli_load_rlx(&other->node_id) == rt->node_id;
    }
    if (known) err = FILCH_EEXISTS;
    else if (i == FLI_HOSTS_MAX) err = FILCH_ELIMIT;
    else fli_store_rel(&m->hosts[i], host); /* PAIR host.open, release half */
    fli_mutex_unlock(&m->grow);
    if (err != FILCH_OK) {
        host_close(m, host);
        fli_free(&m->mem, host, sizeof *host);
        return err;
    }
    fli_add_rlx(&m->refs, 1); /* relaxed: the caller holds a reference, so the count is not 0 */
    *number = i;
    return FILCH_OK;
}

filch_err fli_model_get(fli_runtime *rt, fli_model **out)
{
    fli_model *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    if (FLI_LIKELY(m != NULL)) {
        *out = m;
        return FILCH_OK;
    }
    fli_model *made;
    uint32_t   number;
    filch_err  err = fli_model_create(&rt->mem, &made);
    if (err != FILCH_OK) return err;
    /* `number` is not used: the first host has number 0, the initial value of rt->host */
    err = fli_model_add(made, rt, &number);
    if (err == FILCH_OK) {
        *out = made;
        /* PAIR runtime.model, both halves: if several threads create a model, one of them wins. */
        if (!fli_cas_acqrel_acq(&rt->model, &m, made)) {
            *out = m;
            host_close(made, fli_load_rlx(&made->hosts[0]));
            fli_model_drop(made); /* drops the reference that fli_model_add() has taken for the host */
        }
    }
    fli_model_drop(made);
    return err;
}

static void on_fini(fli_runtime *rt)
{
    fli_model *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    if (m == NULL) return;
    fli_host *host = fli_host_at(m, rt->host);
    fli_store_rel(&host->rt, NULL); /* PAIR host.open, release half */
    /* PAIR host.pins, both halves: a thread that pins the host after this point finds that host->rt is NULL. This loop
     * waits for the threads that pinned the host before. */
    while (fli_add_acqrel(&host->pins, 0) != 0) fli_thread_yield();
    fli_names_fini(m, rt);
    host_close(m, host);
    for (unsigned i = 0; i < FLI_SLAB_SEGMENTS; i++) {
        uint32_t length = 1u << (i == 0 ? FLI_SLAB_FIRST_BITS : FLI_SLAB_FIRST_BITS + i - 1);
        fli_free(&m->mem, fli_load_rlx(&host->heads[i]), length * sizeof(fli_relation_list_head));
        fli_store_rlx(&host->heads[i], NULL);
    }
    const filch_sched *sched = (const filch_sched *)rt;
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        fli_slab_empty(&m->relations, &((fli_local *)sched->workers[i])->relations);
    }
    fli_model_drop(m);
}

filch_err fli_endpoint_pin(fli_model *m, fli_runtime *rt, filch_pid pid, fli_endpoint *out)
{
    if (pid.serial == 0) return filch_invalid("pid is {0, 0}, the pid of no process");
    if (FLI_LIKELY(pid.node == rt->node_id)) {
        *out = (fli_endpoint){ .rt = rt, .host = rt->host, .serial = pid.serial };
        return FILCH_OK;
    }
    for (uint32_t i = 0; i < FLI_HOSTS_MAX; i++) {
        fli_host *host = fli_host_at(m, i);
        if (host == NULL) break;
        if (fli_load_rlx(&host->node_id) != pid.node) continue;
        /* PAIR host.pins, both halves: either on_fini() sees this pin, or this thread sees that on_fini() has set
         * host->rt to NULL. */
        (void)fli_add_acqrel(&host->pins, 1);
        fli_runtime *far = fli_load_acq(&host->rt); /* PAIR host.open, acquire half */
        if (far != NULL) {
            *out = (fli_endpoint){ .rt = far, .host = i, .serial = pid.serial };
            return FILCH_OK;
        }
        (void)fli_sub_acqrel(&host->pins, 1); /* PAIR host.pins, release half */
        return FILCH_EDEAD;
    }
    return FILCH_EFOREIGN;
}

void fli_endpoint_unpin(fli_model *m, const fli_runtime *rt, const fli_endpoint *endpoint)
{
    /* PAIR host.pins, release half: this thread's accesses to the host come before on_fini() frees the host's
     * tables. */
    if (endpoint->rt != rt) (void)fli_sub_acqrel(&fli_host_at(m, endpoint->host)->pins, 1);
}

filch_err fli_access_check(fli_model *m, fli_runtime *rt, uint32_t op, const fli_endpoint *endpoint, filch_pid target)
{
    if (FLI_LIKELY(endpoint->rt == rt)) return FILCH_OK;
    if (m->policy == NULL) return FILCH_EDENIED;
    filch_access access = {
        .command = op, .from = (filch_sched *)rt, .to = (filch_sched *)endpoint->rt, .target = target
    };
    fli_local *worker = fli_current_worker(rt);
    if (worker != NULL && worker->serial != 0) access.who = (filch_pid){ rt->node_id, worker->serial };
    return m->policy(m->policy_user, &access) ? FILCH_OK : FILCH_EDENIED;
}

static uint64_t on_node_of(fli_runtime *rt, uint32_t host)
{
    fli_model *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    return fli_load_rlx(&fli_host_at(m, host)->node_id);
}

static filch_err on_birth(fli_runtime *rt, fli_proc *p, uint64_t serial, const fli_birth *birth, bool limited)
{
    fli_model *m;
    filch_err  err = fli_model_get(rt, &m);
    return err == FILCH_OK ? fli_birth_make(m, rt, p, serial, birth, limited) : err;
}

static void on_relation_bytes(fli_runtime *rt, uint64_t serial, filch_info *info)
{
    fli_model   *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint endpoint = { .rt = rt, .host = rt->host, .serial = serial };
    if (m != NULL) fli_relation_bytes(m, &endpoint, info);
}

static bool on_name_of(fli_runtime *rt, uint64_t serial, char *name)
{
    fli_model   *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint endpoint = { .rt = rt, .host = rt->host, .serial = serial };
    return m != NULL && fli_name_of(m, &endpoint, name);
}

static filch_err on_whereis(fli_runtime *rt, const char *name, filch_pid *pid)
{
    fli_model *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    return m != NULL ? fli_name_find(m, rt, name, pid) : FILCH_EDEAD;
}

static bool on_is_named(fli_runtime *rt, const char *name)
{
    filch_pid pid;
    return filch_whereis((filch_sched *)rt, name, &pid) == FILCH_OK;
}

const fli_model_ops fli_model_table = {
    .ended = fli_ended,
    .birth = on_birth,
    .relate = fli_relate,
    .is_named = on_is_named,
    .whereis = on_whereis,
    .name_of = on_name_of,
    .relation_bytes = on_relation_bytes,
    .handle = fli_handle,
    .node_of = on_node_of,
    .supervised = fli_supervised,
    .fini = on_fini,
};
