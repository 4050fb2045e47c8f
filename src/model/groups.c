/* groups.c - named sets of processes, and the processes that watch them.
 *
 * A group is an entry of its host's table, created by the first member or watcher and freed with the last. Members are
 * listed in the order they joined; a process that joins several times is listed several times. Everything is under the
 * table's lock. A relation points to the membership of each member and watcher, so that the end of the process finds
 * the membership. JOINED and LEFT events are posted under the lock too: every watcher gets them in the same order.
 *
 * The event of a member that leaves because it ends must not need memory. So a group keeps a *reserve* of nodes, as
 * many as it has members times watchers. Joining and watching add to the reserve, or are refused.
 *
 * INVARIANT  reserve_count == member_count * watcher_count
 */
#include "base/assert.h"
#include "model/model.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "proc/send.h"

typedef struct membership {
    struct membership *next, *prev; /* links of a ring that starts at the head of the list */
    struct group      *group;
    uint64_t           serial, tag;
} membership;

typedef struct group {
    fli_entry    entry;
    fli_runtime *rt;
    filch_data   name;              /* name of the group, the payload of its events; owned */
    membership   members, watchers; /* heads of the lists of members and watchers */
    uint64_t     member_count, watcher_count, reserve_count;
    uint32_t     reserve; /* first of the reserved nodes, linked by `next` */
} group;

/* ---- groups ---- */

static fli_table *table_of(fli_model *m, const fli_runtime *rt)
{
    return &fli_host_at(m, rt->host)->groups;
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
    fli_table_remove(table, g);
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

/* ---- the reserve ---- */

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

/* Adds `count` nodes to the reserve, or none if out of memory. */
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

/* Posts an event to every watcher, with nodes of the reserve. */
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

static filch_err add_membership(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                                fli_relation_kind kind, uint64_t tag)
{
    if (endpoint->rt != rt) return FILCH_EFOREIGN;
    membership *p = fli_zalloc(&m->mem, sizeof *p);
    if (p == NULL) return FILCH_ENOMEM;
    p->serial = endpoint->serial;
    p->tag = tag;
    fli_relation *relation;
    filch_err     err = fli_relation_make(m, kind, endpoint, NULL, &relation);
    if (err != FILCH_OK) {
        fli_free(&m->mem, p, sizeof *p);
        return err;
    }
    fli_table *table = table_of(m, rt);
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
        err = kind == FLI_RELATION_MEMBER ? add_member(m, g, p) : add_watcher(m, g, p);
    }
    if (err == FILCH_OK) {
        relation->membership = p;
        fli_store_rlx(&relation->group, (uintptr_t)g);
        fli_relation_list(m, relation, 0);
    } else if (g != NULL) {
        group_free_if_empty(m, table, g);
    }
    fli_mutex_unlock(&table->lock);
    fli_stripe_unlock(m, endpoint);
    if (err == FILCH_OK) return FILCH_OK;
    fli_relation_free(m, relation);
    fli_free(&m->mem, p, sizeof *p);
    return err;
}

/* Removes a member or watcher from its group. Requires the locks of the stripe and of the table. */
static void drop_locked(fli_model *m, fli_table *table, fli_relation *relation)
{
    membership *p = relation->membership;
    group      *g = p->group;
    delist(p);
    if (relation->kind == FLI_RELATION_MEMBER) {
        g->member_count--;
        notify_watchers(m, g, FILCH_EVENT_LEFT, p->serial);
    } else {
        g->watcher_count--;
        reserve_shrink(g, g->member_count);
    }
    group_free_if_empty(m, table, g);
    fli_free(&m->mem, p, sizeof *p);
}

void fli_group_forget(fli_model *m, fli_relation *relation)
{
    fli_table *table = table_of(m, ((const membership *)relation->membership)->group->rt);
    fli_mutex_lock(&table->lock);
    drop_locked(m, table, relation);
    fli_mutex_unlock(&table->lock);
}

static filch_err drop_membership(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                                 fli_relation_kind kind)
{
    if (endpoint->rt != rt) return FILCH_EFOREIGN;
    fli_table    *table = table_of(m, rt);
    fli_relation *relation = NULL;
    fli_stripe_lock(m, endpoint);
    fli_mutex_lock(&table->lock);
    group *g = fli_table_find(table, name);
    /* A living process in a group has a relation, so the list of its relations exists. */
    if (g != NULL && fli_relation_has_list(m, endpoint)) relation = fli_relation_find(m, endpoint, kind, (uintptr_t)g);
    if (relation != NULL) {
        fli_relation_unlist(m, relation, 0);
        fli_relation_retire(relation);
        drop_locked(m, table, relation);
    }
    fli_mutex_unlock(&table->lock);
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
    fli_table *table = table_of(m, rt);
    size_t     n = 0;
    fli_mutex_lock(&table->lock);
    const group *g = fli_table_find(table, name);
    if (g != NULL) {
        for (const membership *p = g->members.next; p != &g->members; p = p->next) {
            /* Skips a process that has ended: it is removed from the group only when its end is processed. */
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
    /* Repeats, because members may join while the array is enlarged. */
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
