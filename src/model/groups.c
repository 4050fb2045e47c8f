/* groups.c - named sets of processes, and the processes that watch them.
 *
 * The groups of a host are spread by the hash of their name over *shards*, each with a lock. A group is an entry of the
 * table of its shard, created by the first member or watcher and freed with the last. Members are listed in the order
 * they joined; a process that joins several times is listed several times. Everything is under the shard's lock. A
 * relation points to the membership of each member and watcher, so that the end of the process finds the membership.
 * JOINED and LEFT events are posted under the lock too: every watcher gets them in the same order.
 *
 * Leaving finds the membership by an index of the shard, whose key is the group, the process and the kind. If a process
 * has joined a group several times, the newest membership is in the index, and points to the older ones.
 *
 * The event of a member that leaves because it ends must not need memory. So a group keeps a *reserve* of nodes, as
 * many as it has members times watchers. Joining and watching add to the reserve, or are refused.
 *
 * INVARIANT  reserve_count == member_count * watcher_count
 * INVARIANT  a membership is in the index exactly if `newer` is NULL; the others are reached through `older`.
 */
#include "base/assert.h"
#include "base/prng.h"
#include "model/model.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "proc/send.h"

typedef struct membership {
    fli_index_item item; /* item of the index fli_group_shard.memberships; must be the first field */
    /* ring of the members, or of the watchers, of the group; its head is in `group` */
    struct membership *next, *prev;
    /* next newer and next older membership of this process in this group with the same `kind`; NULL: none */
    struct membership *newer, *older;
    struct group      *group;
    fli_relation      *relation;
    uint64_t           serial, tag;
    fli_relation_kind  kind; /* MEMBER or WATCHER */
} membership;

typedef struct group {
    fli_entry    entry;
    fli_runtime *rt;
    filch_data   name;              /* name of the group; also the payload of its JOINED and LEFT events; owned */
    membership   members, watchers; /* heads of the lists of members and watchers */
    uint64_t     member_count, watcher_count, reserve_count;
    uint32_t     reserve; /* handle of the first reserved event node; the reserved nodes are linked by `next` */
} group;

/* ---- groups ---- */

static fli_group_shard *shard_of(fli_model *m, const fli_runtime *rt, uint64_t name_hash)
{
    return &fli_host_at(m, rt->host)->groups[(name_hash >> 32) % FLI_GROUP_SHARDS];
}

static group *group_make(fli_model *m, fli_runtime *rt, fli_table *table, const char *name)
{
    group *g = fli_entry_make(&m->mem, sizeof *g, name);
    if (g == NULL) return NULL;
    filch_data text = filch_str(name);
    if (fli_data_own(&rt->mem, 0, &text, &g->name) != FILCH_OK) {
        fli_entry_free(&m->mem, g);
        return NULL;
    }
    g->rt = rt;
    g->members.next = g->members.prev = &g->members;
    g->watchers.next = g->watchers.prev = &g->watchers;
    fli_table_add(&m->mem, table, g);
    return g;
}

static void group_free_if_empty(fli_model *m, fli_table *table, group *g)
{
    if (g->member_count > 0 || g->watcher_count > 0) return;
    FLI_ASSERT(g->reserve_count == 0);
    fli_table_remove(&m->mem, table, g);
    fli_data_free(&g->name);
    fli_entry_free(&m->mem, g);
}

static void enlist(membership *head, membership *p)
{
    p->next = head;
    p->prev = head->prev;
    head->prev->next = p;
    head->prev = p;
}

static void delist(membership *p)
{
    p->prev->next = p->next;
    p->next->prev = p->prev;
}

/* ---- the index of memberships ---- */

static uint64_t key_hash(const group *g, uint64_t serial, fli_relation_kind kind)
{
    return fli_prng_mix(g->entry.hash ^ fli_prng_mix(serial ^ (uint64_t)kind << 60));
}

static uint64_t hash_of(const fli_index_item *item)
{
    const membership *p = (const membership *)item;
    return key_hash(p->group, p->serial, p->kind);
}

filch_err fli_group_shard_init(fli_group_shard *shard)
{
    fli_index_init(&shard->memberships, hash_of);
    return fli_table_init(&shard->table);
}

void fli_group_shard_fini(const fli_mem *mem, fli_group_shard *shard)
{
    FLI_ASSERT(shard->memberships.count == 0);
    fli_index_fini(mem, &shard->memberships);
    fli_table_fini(mem, &shard->table);
}

/* Returns the newest membership of kind `kind` that the process `serial` has in the group, or NULL. */
static membership *find(const fli_group_shard *shard, const group *g, uint64_t serial, fli_relation_kind kind)
{
    membership *p = (membership *)fli_index_bucket(&shard->memberships, key_hash(g, serial, kind));
    while (p != NULL && (p->group != g || p->serial != serial || p->kind != kind)) {
        p = (membership *)p->item.next;
    }
    return p;
}

static void index_add(fli_model *m, fli_group_shard *shard, membership *p)
{
    membership *before = find(shard, p->group, p->serial, p->kind);
    p->older = before;
    if (before == NULL) {
        fli_index_add(&m->mem, &shard->memberships, &p->item);
    } else {
        before->newer = p;
        fli_index_replace(&shard->memberships, &before->item, &p->item);
    }
}

static void index_remove(fli_model *m, fli_group_shard *shard, membership *p)
{
    if (p->older != NULL) p->older->newer = p->newer;
    if (p->newer != NULL) p->newer->older = p->older;
    else if (p->older != NULL) fli_index_replace(&shard->memberships, &p->item, &p->older->item);
    else (void)fli_index_remove(&m->mem, &shard->memberships, &p->item);
}

/* ---- the reserved event nodes for JOINED and LEFT events to watchers ---- */

static fli_event_node *reserve_take(group *g)
{
    FLI_ASSERT(g->reserve_count > 0);
    fli_event_node *node = fli_full_node_at(g->rt, g->reserve);
    g->reserve = node->next;
    g->reserve_count--;
    return node;
}

static void reserve_shrink(group *g, uint64_t count)
{
    while (count-- > 0) fli_full_node_give(g->rt, fli_current_worker(g->rt), reserve_take(g));
}

/* Adds `count` event nodes to the group's reserve, or none if out of memory. */
static filch_err reserve_grow(group *g, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        fli_event_node *node = fli_node_take(g->rt, fli_current_worker(g->rt));
        if (node == NULL) {
            reserve_shrink(g, i);
            return FILCH_ENOMEM;
        }
        node->next = g->reserve;
        g->reserve = node->self;
        g->reserve_count++;
    }
    return FILCH_OK;
}

/* Posts an event about process `serial` to every watcher, with event nodes of the group's reserve. */
static void notify_watchers(fli_model *m, group *g, filch_event_type type, uint64_t serial)
{
    (void)m;
    fli_endpoint about = { .rt = g->rt, .host = g->rt->host, .serial = serial };
    for (membership *w = g->watchers.next; w != &g->watchers; w = w->next) {
        fli_event_node *node = reserve_take(g);
        fli_notice_fill(node, type, g->rt, &about, w->tag, FILCH_OK, &g->name);
        fli_notice_post(g->rt, w->serial, node);
    }
}

/* ---- joining and leaving ---- */

static filch_err add_member(fli_model *m, group *g, membership *p)
{
    filch_err err = reserve_grow(g, 2 * g->watcher_count);
    if (err != FILCH_OK) return err;
    notify_watchers(m, g, FILCH_EVENT_JOINED, p->serial);
    enlist(&g->members, p);
    g->member_count++;
    return FILCH_OK;
}

static filch_err add_watcher(fli_model *m, group *g, membership *p)
{
    (void)m;
    filch_err err = reserve_grow(g, g->member_count);
    if (err != FILCH_OK) return err;
    enlist(&g->watchers, p);
    g->watcher_count++;
    return FILCH_OK;
}

/* Returns the bytes that a new membership takes, in units of FLI_RELATION_UNIT: the relation, the membership, the group
 * (each member pays for it, because the group lives as long as its last member), and the nodes that the membership adds
 * to the reserve. Each node of the reserve is for one member and one watcher; it is counted for the one that was added
 * later. */
static uint64_t units_of(const group *g, fli_relation_kind kind)
{
    uint64_t pairs = kind == FLI_RELATION_MEMBER ? g->watcher_count : g->member_count;
    size_t   size = sizeof(fli_relation) + sizeof(membership) + sizeof *g + 2 * filch_size(&g->name);
    return (size + pairs * sizeof(fli_event_node)) / FLI_RELATION_UNIT + 1;
}

static filch_err add_membership(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                                fli_relation_kind kind, uint64_t tag)
{
    if (endpoint->rt != rt) return FILCH_EFOREIGN;
    membership *p = fli_zalloc(&m->mem, sizeof *p);
    if (p == NULL) return FILCH_ENOMEM;
    p->serial = endpoint->serial;
    p->tag = tag;
    p->kind = kind;
    filch_err err = fli_relation_make(m, kind, endpoint, NULL, &p->relation);
    if (err != FILCH_OK) {
        fli_free(&m->mem, p, sizeof *p);
        return err;
    }
    fli_group_shard *shard = shard_of(m, rt, fli_name_hash(name));
    fli_table       *table = &shard->table;
    fli_stripe_lock(m, endpoint);
    fli_mutex_lock(&table->lock);
    group *g = NULL;
    err = fli_endpoint_set_related(m, endpoint) ? FILCH_OK : FILCH_EDEAD;
    if (err == FILCH_OK) {
        g = fli_table_find(table, name);
        if (g == NULL) g = group_make(m, rt, table, name);
        if (g == NULL) err = FILCH_ENOMEM;
    }
    if (g != NULL) {
        p->group = g;
        fli_store_rlx(&p->relation->membership_units, units_of(g, kind));
        err = kind == FLI_RELATION_MEMBER ? add_member(m, g, p) : add_watcher(m, g, p);
    }
    if (err == FILCH_OK) {
        p->relation->membership = p;
        index_add(m, shard, p);
        fli_relation_list(m, p->relation, 0);
    } else if (g != NULL) {
        group_free_if_empty(m, table, g);
    }
    fli_mutex_unlock(&table->lock);
    fli_stripe_unlock(m, endpoint);
    if (err == FILCH_OK) return FILCH_OK;
    fli_relation_free(m, p->relation);
    fli_free(&m->mem, p, sizeof *p);
    return err;
}

/* Removes a member or watcher from its group. Requires the lock of the process's stripe and the lock of the shard. */
static void drop_locked(fli_model *m, fli_group_shard *shard, membership *p)
{
    group *g = p->group;
    index_remove(m, shard, p);
    delist(p);
    if (p->kind == FLI_RELATION_MEMBER) {
        g->member_count--;
        notify_watchers(m, g, FILCH_EVENT_LEFT, p->serial);
    } else {
        g->watcher_count--;
        reserve_shrink(g, g->member_count);
    }
    group_free_if_empty(m, &shard->table, g);
    fli_free(&m->mem, p, sizeof *p);
}

void fli_group_forget(fli_model *m, fli_relation *relation)
{
    membership      *p = relation->membership;
    fli_group_shard *shard = shard_of(m, p->group->rt, p->group->entry.hash);
    fli_mutex_lock(&shard->table.lock);
    drop_locked(m, shard, p);
    fli_mutex_unlock(&shard->table.lock);
}

static filch_err drop_membership(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                                 fli_relation_kind kind)
{
    if (endpoint->rt != rt) return FILCH_EFOREIGN;
    fli_group_shard *shard = shard_of(m, rt, fli_name_hash(name));
    fli_relation    *relation = NULL;
    fli_stripe_lock(m, endpoint);
    fli_mutex_lock(&shard->table.lock);
    const group *g = fli_table_find(&shard->table, name);
    /* Finds no membership if the process has ended: fli_ended() will remove the memberships of that process. */
    membership *p = g != NULL && fli_relation_has_list(m, endpoint) ? find(shard, g, endpoint->serial, kind) : NULL;
    if (p != NULL) {
        relation = p->relation;
        fli_relation_unlist(m, relation, 0);
        fli_relation_retire(relation);
        drop_locked(m, shard, p);
    }
    fli_mutex_unlock(&shard->table.lock);
    fli_stripe_unlock(m, endpoint);
    if (relation != NULL) fli_relation_free(m, relation);
    return relation != NULL ? FILCH_OK : FILCH_ESTALE;
}

filch_err fli_group_join(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint)
{
    return add_membership(m, rt, name, endpoint, FLI_RELATION_MEMBER, 0);
}

filch_err fli_group_leave(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint)
{
    return drop_membership(m, rt, name, endpoint, FLI_RELATION_MEMBER);
}

filch_err fli_group_watch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint, uint64_t tag)
{
    return add_membership(m, rt, name, endpoint, FLI_RELATION_WATCHER, tag);
}

filch_err fli_group_unwatch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint)
{
    return drop_membership(m, rt, name, endpoint, FLI_RELATION_WATCHER);
}

/* ---- lists of members ---- */

size_t fli_group_members(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pids, size_t room)
{
    fli_table *table = &shard_of(m, rt, fli_name_hash(name))->table;
    size_t     n = 0;
    fli_mutex_lock(&table->lock);
    const group *g = fli_table_find(table, name);
    if (g != NULL) {
        for (const membership *p = g->members.next; p != &g->members; p = p->next) {
            /* Skips a process that has ended: it stays in the group until fli_ended() has processed its end. */
            fli_proc *alive;
            filch_pid pid = { rt->node_id, p->serial };
            if (fli_pid_find(rt, pid, &alive) != FILCH_OK) continue;
            if (n < room) pids[n] = pid;
            n++;
        }
    }
    fli_mutex_unlock(&table->lock);
    return n;
}

filch_err fli_group_list(fli_model *m, fli_runtime *rt, const char *name, fli_pids *out)
{
    fli_pids list = { .count = fli_group_members(m, rt, name, NULL, 0) };
    /* Repeats while the group has more members than the array has space for, because processes may join between two
     * calls of fli_group_members(). */
    while (list.count > list.room) {
        size_t     size = list.room * sizeof *list.at;
        filch_pid *at = fli_resize(&rt->mem, list.at, size, list.count * sizeof *list.at);
        if (at == NULL) {
            fli_free(&rt->mem, list.at, size);
            return FILCH_ENOMEM;
        }
        list.at = at;
        list.room = list.count;
        list.count = fli_group_members(m, rt, name, list.at, list.room);
    }
    *out = list;
    return FILCH_OK;
}

void fli_group_unlist(const fli_runtime *rt, const fli_pids *list)
{
    fli_free(&rt->mem, list->at, list->room * sizeof *list->at);
}

filch_err fli_group_broadcast(fli_model *m, fli_runtime *rt, const char *name, filch_pid from, const filch_data *data,
                              uint64_t *sent)
{
    fli_pids   members;
    filch_data owned;
    filch_err  err = fli_group_list(m, rt, name, &members);
    if (err != FILCH_OK) return err;
    err = fli_data_own(&rt->mem, rt->payload_max, data, &owned);
    if (err == FILCH_OK) {
        fli_local *worker = fli_current_worker(rt);
        *sent = 0;
        for (size_t i = 0; i < members.count; i++) {
            *sent += fli_send(rt, worker, members.at[i], from, &owned) == FILCH_OK;
        }
        fli_data_free(&owned);
    }
    fli_group_unlist(rt, &members);
    return err;
}
