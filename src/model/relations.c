/* relations.c - monitors and links: makes and removes them, and processes the end of a process. See model.h.
 *
 * INVARIANT  every endpoint of a listed relation is listed, with a process that has HAS_RELATIONS and has not passed
 *            through fli_ended() yet.
 * INVARIANT  a relation is removed from its lists under the locks of all its endpoints, and belongs to the thread that
 *            removed it.
 *
 * Why no notice is lost: a thread that makes a relation sets HAS_RELATIONS and lists the relation under the stripe's
 * lock. A process ends by a swap of its state word. If the swap comes first, setting the bit fails, and the thread
 * sends the notice itself. If the bit is set first, the swap returns the bit, and fli_ended() waits for the lock and
 * finds the relation. Why no notice is sent twice: a relation is removed once.
 * Design: docs/design/relations.md.
 */
#include "base/assert.h"
#include "base/prng.h"
#include "clock/timers.h"
#include "model/model.h"
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "sched/sched.h"

/* ---- stripes ---- */

static unsigned stripe_of(uint32_t host, uint64_t serial)
{
    return (unsigned)(fli_serial_slot(serial) + host * 7) % FLI_STRIPES;
}

static unsigned stripe_of_endpoint(const fli_endpoint *endpoint)
{
    return stripe_of(endpoint->host, endpoint->serial);
}

static void lock_two(fli_model *m, unsigned a, unsigned b)
{
    unsigned low = a < b ? a : b, high = a < b ? b : a;
    fli_mutex_lock(&m->stripes[low].lock);
    if (high != low) fli_mutex_lock(&m->stripes[high].lock);
}

static void unlock_two(fli_model *m, unsigned a, unsigned b)
{
    fli_mutex_unlock(&m->stripes[a].lock);
    if (b != a) fli_mutex_unlock(&m->stripes[b].lock);
}

void fli_stripe_lock(fli_model *m, const fli_endpoint *endpoint)
{
    fli_mutex_lock(&m->stripes[stripe_of_endpoint(endpoint)].lock);
}

void fli_stripe_unlock(fli_model *m, const fli_endpoint *endpoint)
{
    fli_mutex_unlock(&m->stripes[stripe_of_endpoint(endpoint)].lock);
}

void fli_stripes_lock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b)
{
    lock_two(m, stripe_of_endpoint(a), stripe_of_endpoint(b));
}

void fli_stripes_unlock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b)
{
    unlock_two(m, stripe_of_endpoint(a), stripe_of_endpoint(b));
}

/* ---- lists of relations by process ---- */

static fli_relation *relation_at(fli_model *m, uint32_t place)
{
    return fli_slab_at_size(&m->relations, place / 2, sizeof(fli_relation));
}

static uint32_t host_of(fli_relation *relation, unsigned which)
{
    return (fli_load_rlx(&relation->hosts) >> (16 * which)) & 0xffffu;
}

/* Returns the number of the first slot of `segment`, which is the number of slots in all segments before it. */
static uint32_t segment_first(unsigned segment)
{
    return segment == 0 ? 0 : 1u << (FLI_SLAB_FIRST_BITS + segment - 1);
}

static uint32_t segment_length(unsigned segment)
{
    return segment == 0 ? 1u << FLI_SLAB_FIRST_BITS : segment_first(segment);
}

/* Allocates the segment of list heads that contains the head for the slot of `endpoint`, if it is not allocated yet. */
static filch_err make_heads(fli_model *m, const fli_endpoint *endpoint)
{
    fli_host *host = fli_host_at(m, endpoint->host);
    unsigned  segment = fli_slab_segment(fli_serial_slot(endpoint->serial));
    if (fli_proc_find(endpoint->rt, endpoint->serial) == NULL)
        /* the slot was never used: fli_endpoint_set_related() will fail, so no relation will be listed for it */
        return FILCH_OK;
    if (fli_load_acq(&host->heads[segment]) != NULL) return FILCH_OK; /* PAIR host.heads, acquire half */
    filch_err err = FILCH_OK;
    fli_mutex_lock(&m->grow);
    if (fli_load_rlx(&host->heads[segment]) == NULL) {
        fli_relation_list_head *heads = fli_zalloc(&m->mem, segment_length(segment) * sizeof *heads);
        if (heads == NULL) err = FILCH_ENOMEM;
        else fli_store_rel(&host->heads[segment], heads); /* PAIR host.heads, release half */
    }
    fli_mutex_unlock(&m->grow);
    return err;
}

/* Returns the list of a process that has relations or is about to get one. Requires the lock of the process's
 * stripe. */
static fli_relation_list_head *list_of(fli_model *m, uint32_t host, uint64_t serial)
{
    uint32_t slot = fli_serial_slot(serial);
    unsigned segment = fli_slab_segment(slot);
    /* PAIR host.heads, acquire half */
    fli_relation_list_head *heads = fli_load_acq(&fli_host_at(m, host)->heads[segment]);
    return &heads[slot - segment_first(segment)];
}

static uint32_t *head_of(fli_model *m, uint32_t host, uint64_t serial)
{
    return &list_of(m, host, serial)->first;
}

static bool is_double(const fli_relation *relation)
{
    return relation->kind == FLI_RELATION_MONITOR || relation->kind == FLI_RELATION_LINK;
}

/* PLAIN_SIZE: bytes of a monitor or link with its node, and of a deadline with its timer (about; 144 bytes were
 * measured by bench/relations.c). */
enum { PLAIN_SIZE = 144 };

/* Returns how much endpoint `which` of the relation adds to fli_relation_list_head.units of its process. The result is
 * the same each time while the relation is listed. */
static uint32_t units_of(fli_relation *relation, unsigned which)
{
    switch (relation->kind) {
    case FLI_RELATION_MONITOR:
    case FLI_RELATION_LINK:
    case FLI_RELATION_DEADLINE: return which == 0 ? PLAIN_SIZE / FLI_RELATION_UNIT : 0;
    case FLI_RELATION_NAME: return (uint32_t)((sizeof *relation + fli_name_size(relation)) / FLI_RELATION_UNIT + 1);
    case FLI_RELATION_MEMBER:
    case FLI_RELATION_WATCHER: return (uint32_t)fli_load_rlx(&relation->membership_units);
    default: return 0;
    }
}

/* Returns the counter of `list` to which units_of() of the relation is added. */
static uint32_t *sum_of(fli_relation_list_head *list, const fli_relation *relation)
{
    return !is_double(relation) && relation->is_given ? &list->given_units : &list->units;
}

void fli_relation_bytes(fli_model *m, const fli_endpoint *endpoint, filch_info *info)
{
    fli_stripe_lock(m, endpoint);
    if (fli_relation_has_list(m, endpoint)) {
        const fli_relation_list_head *list = list_of(m, endpoint->host, endpoint->serial);
        info->relation_bytes = (uint64_t)list->units * FLI_RELATION_UNIT;
        info->given_bytes = (uint64_t)list->given_units * FLI_RELATION_UNIT;
    }
    fli_stripe_unlock(m, endpoint);
}

void fli_relation_list(fli_model *m, fli_relation *relation, unsigned which)
{
    fli_relation_list_head *list = list_of(m, host_of(relation, which), fli_load_rlx(&relation->serial[which]));
    uint32_t                place = relation->self * 2 + which, first = list->first;
    *sum_of(list, relation) += units_of(relation, which);
    if (first == 0) {
        relation->next[which] = relation->prev[which] = place;
        list->first = place;
        return;
    }
    fli_relation *oldest = relation_at(m, first);
    uint32_t      last = oldest->prev[first & 1];
    relation->next[which] = first;
    relation->prev[which] = last;
    relation_at(m, last)->next[last & 1] = place;
    oldest->prev[first & 1] = place;
}

void fli_relation_unlist(fli_model *m, fli_relation *relation, unsigned which)
{
    fli_relation_list_head *list = list_of(m, host_of(relation, which), fli_load_rlx(&relation->serial[which]));
    uint32_t place = relation->self * 2 + which, next = relation->next[which], prev = relation->prev[which];
    *sum_of(list, relation) -= units_of(relation, which);
    if (next == place) {
        list->first = 0;
        return;
    }
    relation_at(m, next)->prev[next & 1] = prev;
    relation_at(m, prev)->next[prev & 1] = next;
    if (list->first == place) list->first = next;
}

/* ---- making and freeing relations ---- */

/* Returns the magazine of the calling worker, or NULL if the thread is not a worker of a host of this model. */
static fli_magazine *magazine_of(fli_model *m)
{
    fli_local *worker = fli_current_get();
    /* Relaxed: the thread got `m` by an acquire. A worker that reads another value of rt->model here only uses the
     * depot instead of its magazine. */
    return worker != NULL && fli_load_rlx(&worker->rt->model) == m ? &worker->relations : NULL;
}

/* Reserves an event node for the notice to `endpoint`, which is endpoint number `which` of the relation. Returns false
 * if out of memory. */
static bool reserve_notice(fli_relation *relation, unsigned which, const fli_endpoint *endpoint)
{
    fli_event_node *node = fli_node_take(endpoint->rt, fli_current_worker(endpoint->rt));
    if (node != NULL) relation->node[which] = node->self;
    return node != NULL;
}

/* Takes the event node reserved for endpoint `which` from the relation. `to` is the runtime from which the node was
 * allocated. */
static fli_event_node *take_node(fli_relation *relation, unsigned which, fli_runtime *to)
{
    fli_event_node *node = fli_full_node_at(to, relation->node[which]);
    relation->node[which] = 0;
    return node;
}

void fli_relation_retire(fli_relation *relation)
{
    fli_store_rlx(&relation->gen, fli_load_rlx(&relation->gen) + 1);
}

void fli_relation_free(fli_model *m, fli_relation *relation)
{
    FLI_ASSERT(relation->node[0] == 0 && relation->node[1] == 0);
    fli_slab_give(&m->relations, magazine_of(m), relation);
}

/* Frees a relation with endpoint 0 `a` and endpoint 1 `b`, and returns its nodes to a->rt and b->rt, from which they
 * were allocated. The caller has pinned both hosts. The runtimes are passed in `a` and `b`, because a host that has
 * begun to close is no longer found by its number, although the pin keeps its runtime alive. */
static void free_double(fli_model *m, fli_relation *relation, const fli_endpoint *a, const fli_endpoint *b)
{
    const fli_endpoint *ends[2] = { a, b };
    for (unsigned which = 0; which < 2; which++) {
        fli_runtime *rt = ends[which]->rt;
        if (relation->node[which] != 0) fli_full_node_give(rt, fli_current_worker(rt), take_node(relation, which, rt));
    }
    fli_relation_free(m, relation);
}

/* Returns true if the calling thread runs a step of the process. */
static bool is_current(const fli_endpoint *endpoint)
{
    const fli_local *worker = fli_current_worker(endpoint->rt);
    return worker != NULL && worker->current != NULL && worker->serial == endpoint->serial;
}

filch_err fli_relation_make(fli_model *m, fli_relation_kind kind, const fli_endpoint *a, const fli_endpoint *b,
                            fli_relation **out)
{
    filch_err err = make_heads(m, a);
    if (err == FILCH_OK && b != NULL) err = make_heads(m, b);
    if (err != FILCH_OK) return err;
    fli_relation *relation = fli_slab_take(&m->relations, magazine_of(m));
    if (relation == NULL) return FILCH_ENOMEM;
    relation->kind = (uint16_t)kind;
    relation->supervises = 0;
    if (!is_double(relation)) relation->is_given = !is_current(a);
    relation->monitor_tag = 0; /* clears the whole union: monitor_tag is its widest member */
    relation->node[0] = relation->node[1] = 0;
    fli_store_rlx(&relation->serial[0], a->serial);
    fli_store_rlx(&relation->serial[1], b != NULL ? b->serial : 0);
    fli_store_rlx(&relation->hosts, a->host | (b != NULL ? b->host : a->host) << 16);
    /* A monitor notifies endpoint 0. A link notifies the endpoint that still lives; if both endpoints are on one host,
     * one reserved node is enough, because only one of them is notified. */
    bool reserved = !is_double(relation) || reserve_notice(relation, 0, a);
    if (reserved && kind == FLI_RELATION_LINK && a->host != b->host) reserved = reserve_notice(relation, 1, b);
    if (!reserved) {
        free_double(m, relation, a, b);
        return FILCH_ENOMEM;
    }
    *out = relation;
    return FILCH_OK;
}

/* Returns true if the segment with the list head for the slot of `endpoint` is allocated. */
static bool has_head(fli_model *m, const fli_endpoint *endpoint)
{
    unsigned segment = fli_slab_segment(fli_serial_slot(endpoint->serial));
    return fli_load_acq(&fli_host_at(m, endpoint->host)->heads[segment]) != NULL; /* PAIR host.heads, acquire half */
}

bool fli_endpoint_set_related(fli_model *m, const fli_endpoint *endpoint)
{
    fli_proc *p = fli_proc_find(endpoint->rt, endpoint->serial);
    /* If the slot has no list head, the slot had never been used when fli_relation_make() was called. So the process
     * was spawned after that call, and the result is false. */
    return p != NULL && has_head(m, endpoint) && fli_state_set_related(&p->state, fli_serial_gen(endpoint->serial));
}

/* ---- hubs: processes with an index of their links ----
 *
 * To find a link, find_link() walks the lists of both processes alternately, so the shorter list decides the cost. If
 * the walk takes HUB_FROM steps or more, it makes a process a *hub*: the process with the list that ended the walk. Its
 * links are put into an index. Most processes never become hubs, and their links need no index.
 *
 * The index of a hub is protected by the lock of the hub's stripe. A thread that makes or removes a link holds the
 * stripe locks of both endpoints. A thread that makes a process a hub holds the lock of its stripe and `hubs`: so the
 * other endpoint of a link cannot become a hub at the same time, and the link is put into one index only.
 *
 * INVARIANT  if an endpoint of a link is a hub and neither endpoint has ended, the link is in the index of one
 *            endpoint. */

#ifdef FLI_SMALL
#define HUB_FROM 2
#else
#define HUB_FROM 64
#endif

static fli_relation *link_of(const fli_index_item *item)
{
    return (fli_relation *)((uintptr_t)item - offsetof(fli_relation, link_item));
}

static uint64_t end_hash(uint32_t host, uint64_t serial)
{
    return fli_prng_mix(serial ^ (uint64_t)host << 56);
}

/* Returns the sum of the hashes of both endpoints, because the order of the endpoints means nothing. */
static uint64_t link_hash(const fli_index_item *item)
{
    fli_relation *relation = link_of(item);
    return end_hash(host_of(relation, 0), fli_load_rlx(&relation->serial[0])) +
           end_hash(host_of(relation, 1), fli_load_rlx(&relation->serial[1]));
}

/* Returns the index of links of the process `serial`; NULL: the process is not a hub. Requires the lock of the
 * process's stripe. */
static fli_index *hub_of(fli_model *m, uint32_t host, uint64_t serial)
{
    uint32_t            first = *head_of(m, host, serial);
    const fli_relation *relation = first != 0 ? relation_at(m, first) : NULL;
    return relation != NULL && relation->kind == FLI_RELATION_HUB ? relation->links : NULL;
}

static fli_index *hub_of_end(fli_model *m, fli_relation *relation, unsigned which)
{
    return hub_of(m, host_of(relation, which), fli_load_rlx(&relation->serial[which]));
}

static void index_link(fli_model *m, fli_relation *relation)
{
    fli_index *links = hub_of_end(m, relation, 0);
    if (links == NULL) links = hub_of_end(m, relation, 1);
    if (links == NULL) return;
    fli_index_add(&m->mem, links, &relation->link_item);
    relation->is_indexed = 1;
}

static void unindex_link(fli_model *m, fli_relation *relation)
{
    for (unsigned which = 0; which < 2; which++) {
        fli_index *links = hub_of_end(m, relation, which);
        if (links != NULL && fli_index_remove(&m->mem, links, &relation->link_item)) return;
    }
}

/* Makes a process that is not a hub a hub: puts its links into an index, except links that are already in the index of
 * another hub. Does nothing if out of memory. Requires the lock of the process's stripe. */
static void make_hub(fli_model *m, const fli_endpoint *endpoint)
{
    fli_index *links = fli_alloc(&m->mem, sizeof *links);
    if (links == NULL) return;
    fli_relation *hub = NULL;
    if (fli_relation_make(m, FLI_RELATION_HUB, endpoint, NULL, &hub) != FILCH_OK) {
        fli_free(&m->mem, links, sizeof *links);
        return;
    }
    fli_index_init(links, link_hash);
    fli_mutex_lock(&m->hubs);
    uint32_t *head = head_of(m, endpoint->host, endpoint->serial), first = *head, at = first;
    do {
        fli_relation *relation = relation_at(m, at);
        if (relation->kind == FLI_RELATION_LINK && !relation->is_indexed) {
            fli_index_add(&m->mem, links, &relation->link_item);
            relation->is_indexed = 1;
        }
        at = relation->next[at & 1];
    } while (at != first);
    fli_mutex_unlock(&m->hubs);
    hub->links = links;
    fli_relation_list(m, hub, 0);
    *head = hub->self * 2; /* the HUB relation must be the first in the list */
}

static void free_hub(fli_model *m, fli_relation *hub)
{
    fli_index_fini(&m->mem, hub->links);
    fli_free(&m->mem, hub->links, sizeof *hub->links);
}

static void list_both(fli_model *m, fli_relation *relation)
{
    if (relation->kind == FLI_RELATION_LINK) index_link(m, relation);
    fli_relation_list(m, relation, 0);
    fli_relation_list(m, relation, 1);
}

static void unlist_both(fli_model *m, fli_relation *relation)
{
    if (relation->kind == FLI_RELATION_LINK && relation->is_indexed) unindex_link(m, relation);
    fli_relation_unlist(m, relation, 0);
    fli_relation_unlist(m, relation, 1);
    fli_relation_retire(relation);
}

bool fli_relation_has_list(fli_model *m, const fli_endpoint *endpoint)
{
    fli_proc *p = fli_proc_find(endpoint->rt, endpoint->serial);
    return p != NULL && fli_word_lives(fli_state_peek(&p->state), fli_serial_gen(endpoint->serial)) &&
           has_head(m, endpoint);
}

fli_relation *fli_relation_newest_name(fli_model *m, const fli_endpoint *endpoint)
{
    uint32_t first = *head_of(m, endpoint->host, endpoint->serial), at = first;
    while (at != 0) {
        fli_relation *relation = relation_at(m, at);
        at = relation->prev[at & 1];
        relation = relation_at(m, at);
        if (relation->kind == FLI_RELATION_NAME && fli_load_rlx(&relation->name_host) == endpoint->host)
            return relation;
        if (at == first) break;
    }
    return NULL;
}

/* ---- monitors ---- */

filch_err fli_monitor(fli_model *m, const fli_endpoint *watcher, const fli_endpoint *target, uint64_t tag,
                      uint64_t *ref)
{
    fli_relation *relation;
    filch_err     err = fli_relation_make(m, FLI_RELATION_MONITOR, watcher, target, &relation);
    if (err != FILCH_OK) return err;
    relation->monitor_tag = tag;
    fli_stripes_lock(m, watcher, target);
    bool has_watcher = fli_endpoint_set_related(m, watcher), lives = has_watcher && fli_endpoint_set_related(m, target);
    if (lives) list_both(m, relation);
    *ref = lives ? fli_relation_ref(relation) : 0;
    fli_stripes_unlock(m, watcher, target);
    if (lives) return FILCH_OK;
    if (has_watcher) {
        fli_event_node *node = take_node(relation, 0, watcher->rt);
        fli_notice_fill(node, FILCH_EVENT_EXIT, watcher->rt, target, tag, FILCH_EDEAD, NULL);
        fli_notice_post(watcher->rt, watcher->serial, node);
    }
    free_double(m, relation, watcher, target);
    return has_watcher ? FILCH_OK : FILCH_EDEAD;
}

/* Returns true if endpoint `which` of the relation is `endpoint`. */
static bool is_end(fli_relation *relation, unsigned which, const fli_endpoint *endpoint)
{
    return fli_load_rlx(&relation->serial[which]) == endpoint->serial && host_of(relation, which) == endpoint->host;
}

/* Returns true if the relation is still the monitor `ref` of this watcher. The result stays valid while the lock of
 * the watcher's stripe is held. */
static bool is_monitor_of(fli_relation *relation, const fli_endpoint *watcher, uint64_t ref)
{
    return fli_relation_ref(relation) == ref && is_end(relation, 0, watcher);
}

filch_err fli_unmonitor(fli_model *m, const fli_endpoint *watcher, uint64_t ref)
{
    fli_relation *relation = fli_slab_find(&m->relations, (uint32_t)ref);
    if (relation == NULL) return FILCH_ESTALE;
    /* Another thread may free and reuse the relation while this thread reads its endpoint 1. Then the wrong stripe may
     * be locked, but the relation is not changed, because its generation does not match `ref`. */
    unsigned mine = stripe_of_endpoint(watcher),
             other = stripe_of(host_of(relation, 1), fli_load_rlx(&relation->serial[1]));
    lock_two(m, mine, other);
    bool found = is_monitor_of(relation, watcher, ref) && relation->kind == FLI_RELATION_MONITOR &&
                 stripe_of(host_of(relation, 1), fli_load_rlx(&relation->serial[1])) == other;
    if (found) unlist_both(m, relation);
    unlock_two(m, mine, other);
    /* Only endpoint 0, the watcher, has a node, so `watcher` is passed for both endpoints; the host of endpoint 1 may
     * have ended. */
    if (found) free_double(m, relation, watcher, watcher);
    return found ? FILCH_OK : FILCH_ESTALE;
}

/* Returns true if the relation is a monitor by which a process of host `host` supervises the process of endpoint
 * `which`. `by`: the serial that the supervisor must have; 0: any serial. */
static bool is_supervision(fli_relation *relation, unsigned which, uint32_t host, uint64_t by)
{
    if (relation->kind != FLI_RELATION_MONITOR || relation->supervises == 0) return false;
    if (which != 1 || host_of(relation, 0) != host) return false;
    return by == 0 || fli_load_rlx(&relation->serial[0]) == by;
}

/* A supervisor monitors its child from the spawn on. The spawn lists at most a name and a link before that monitor, and
 * a HUB may come first. So only the first four relations of the list are looked at. */
bool fli_supervised(fli_runtime *rt, uint64_t serial, uint64_t by)
{
    fli_model   *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint me = { .rt = rt, .host = rt->host, .serial = serial };
    bool         found = false;
    if (m == NULL) return false;
    fli_stripe_lock(m, &me);
    if (fli_relation_has_list(m, &me)) {
        uint32_t first = *head_of(m, me.host, serial), at = first;
        for (int i = 0; at != 0 && !found && i < 4; i++) {
            fli_relation *relation = relation_at(m, at);
            found = is_supervision(relation, at & 1, me.host, by);
            at = relation->next[at & 1] != first ? relation->next[at & 1] : 0;
        }
    }
    fli_stripe_unlock(m, &me);
    return found;
}

/* ---- links ---- */

/* Returns true if `relation` is a link between the two processes. */
static bool is_link_of(fli_relation *relation, const fli_endpoint *a, const fli_endpoint *b)
{
    if (relation->kind != FLI_RELATION_LINK) return false;
    return (is_end(relation, 0, a) && is_end(relation, 1, b)) || (is_end(relation, 0, b) && is_end(relation, 1, a));
}

static fli_relation *find_link_of_hub(const fli_index *links, const fli_endpoint *a, const fli_endpoint *b)
{
    uint64_t        hash = end_hash(a->host, a->serial) + end_hash(b->host, b->serial);
    fli_index_item *item = fli_index_bucket(links, hash);
    while (item != NULL && !is_link_of(link_of(item), a, b)) item = item->next;
    return item != NULL ? link_of(item) : NULL;
}

/* Returns the link between two processes, or NULL. If neither process is a hub, walks the lists of both processes
 * alternately, so that the cost depends on the length of the shorter list. If the walk takes HUB_FROM steps or more,
 * makes one of the processes a hub: the process whose list ended the walk. Requires the locks of both stripes. */
static fli_relation *find_link(fli_model *m, const fli_endpoint *a, const fli_endpoint *b)
{
    const fli_index *hub_a = hub_of(m, a->host, a->serial), *hub_b = hub_of(m, b->host, b->serial);
    if (hub_a != NULL || hub_b != NULL) {
        fli_relation *found = hub_a != NULL ? find_link_of_hub(hub_a, a, b) : NULL;
        return found == NULL && hub_b != NULL ? find_link_of_hub(hub_b, a, b) : found;
    }
    const fli_endpoint *ends[2] = { a, b };
    uint32_t            first[2], at[2];
    for (int i = 0; i < 2; i++) {
        first[i] = at[i] = *head_of(m, ends[i]->host, ends[i]->serial);
        if (first[i] == 0) return NULL;
    }
    for (uint32_t steps = 0;; steps++) {
        for (int i = 0; i < 2; i++) {
            fli_relation *relation = relation_at(m, at[i]);
            bool          found = is_link_of(relation, a, b);
            at[i] = relation->next[at[i] & 1];
            if (!found && at[i] != first[i]) continue;
            if (steps >= HUB_FROM) make_hub(m, ends[i]);
            return found ? relation : NULL;
        }
    }
}

/* Notifies `to`, endpoint `which` of the link, that the linked process `about` has failed. */
static void notify_down(fli_relation *relation, unsigned which, const fli_endpoint *to, const fli_endpoint *about,
                        filch_err error, const filch_data *data)
{
    fli_event_node *node = take_node(relation, relation->node[which] != 0 ? which : 0, to->rt);
    fli_notice_fill(node, FILCH_EVENT_LINK_DOWN, to->rt, about, 0, error, data);
    fli_notice_post(to->rt, to->serial, node);
}

filch_err fli_link(fli_model *m, const fli_endpoint *a, const fli_endpoint *b)
{
    fli_relation *relation;
    filch_err     err = fli_relation_make(m, FLI_RELATION_LINK, a, b, &relation);
    if (err != FILCH_OK) return err;
    fli_stripes_lock(m, a, b);
    bool a_lives = fli_endpoint_set_related(m, a), b_lives = fli_endpoint_set_related(m, b), both = a_lives && b_lives;
    bool linked = both && find_link(m, a, b) == NULL;
    if (linked) list_both(m, relation);
    fli_stripes_unlock(m, a, b);
    if (linked) return FILCH_OK;
    if (!both && a_lives) notify_down(relation, 0, a, b, FILCH_EDEAD, NULL);
    if (!both && b_lives) notify_down(relation, 1, b, a, FILCH_EDEAD, NULL);
    free_double(m, relation, a, b);
    return a_lives || b_lives ? FILCH_OK : FILCH_EDEAD;
}

filch_err fli_unlink(fli_model *m, const fli_endpoint *a, const fli_endpoint *b)
{
    fli_stripes_lock(m, a, b);
    fli_relation *relation = fli_relation_has_list(m, a) && fli_relation_has_list(m, b) ? find_link(m, a, b) : NULL;
    if (relation != NULL) unlist_both(m, relation);
    fli_stripes_unlock(m, a, b);
    if (relation != NULL && is_end(relation, 0, a)) free_double(m, relation, a, b);
    else if (relation != NULL) free_double(m, relation, b, a);
    return relation != NULL ? FILCH_OK : FILCH_ESTALE;
}

/* ---- notifying and removing relations when a process ends ---- */

/* Locks stripe `mine` of process `me`. If the first relation in the list of `me` has a second endpoint, also locks the
 * stripe of that endpoint, and stores it in *other; otherwise *other is `mine`. Returns that relation, or NULL if the
 * list is empty; the locks are held in both cases. */
static fli_relation *lock_first(fli_model *m, const fli_endpoint *me, unsigned mine, unsigned *which, unsigned *other)
{
    fli_mutex_lock(&m->stripes[mine].lock);
    for (;;) {
        uint32_t *head = head_of(m, me->host, me->serial), first = *head;
        *other = mine;
        if (first == 0) return NULL;
        fli_relation *relation = relation_at(m, first);
        *which = first & 1;
        if (is_double(relation))
            *other = stripe_of(host_of(relation, !*which), fli_load_rlx(&relation->serial[!*which]));
        if (*other == mine || fli_mutex_try_lock(&m->stripes[*other].lock)) return relation;
        fli_mutex_unlock(&m->stripes[mine].lock);
        lock_two(m, mine, *other);
        /* The first relation may have been removed while no lock was held. It cannot have been listed again, because no
         * relation is made with a process that has ended. */
        if (*head == first) return relation;
        fli_mutex_unlock(&m->stripes[*other].lock);
    }
}

/* Notifies `other`, the other endpoint of a relation of the ended process `me`, if the kind of relation requires a
 * notice. Thread: the thread that removed the relation and has pinned the host of `other`. */
static void conclude(fli_relation *relation, unsigned which, const fli_endpoint *me, const fli_endpoint *other,
                     filch_err error, const filch_data *result)
{
    if (relation->kind == FLI_RELATION_LINK && error != FILCH_OK)
        notify_down(relation, !which, other, me, error, result);
    if (relation->kind == FLI_RELATION_MONITOR && which == 1) {
        fli_event_node *node = take_node(relation, 0, other->rt);
        fli_notice_fill(node, FILCH_EVENT_EXIT, other->rt, me, relation->monitor_tag, error, result);
        fli_notice_post(other->rt, other->serial, node);
    }
}

static void answer_exec(fli_relation *relation, fli_runtime *rt, filch_err error, const filch_data *result)
{
    filch_receiver receiver = { .sched = (filch_sched *)rt,
                                .key = fli_load_rlx(&relation->exec_key),
                                .tag = relation->exec_tag };
    /* filch_complete() fails if the yield is no longer outstanding; that error is ignored. */
    (void)!filch_complete(receiver, receiver.tag, *result, error);
}

/* Removes names, group memberships, deadlines, scopes and the HUB of the ended process `me`. Called before notices are
 * sent, so that a process that gets a notice of this end finds the names free. */
static void release_singles(fli_model *m, const fli_endpoint *me, unsigned mine)
{
    uint32_t released = 0; /* first place of the removed relations, which are linked by next[0]; 0: none */
    fli_mutex_lock(&m->stripes[mine].lock);
    uint32_t at = *head_of(m, me->host, me->serial), last = at != 0 ? relation_at(m, at)->prev[at & 1] : 0;
    for (bool more = at != 0; more;) {
        fli_relation *relation = relation_at(m, at);
        uint32_t      place = at;
        more = at != last;
        at = relation->next[at & 1];
        if (is_double(relation) || relation->kind == FLI_RELATION_EXEC) continue;
        fli_relation_unlist(m, relation, 0);
        fli_relation_retire(relation);
        if (relation->kind == FLI_RELATION_HUB) free_hub(m, relation);
        else if (relation->kind == FLI_RELATION_NAME) fli_name_forget(m, relation);
        else if (relation->kind == FLI_RELATION_MEMBER || relation->kind == FLI_RELATION_WATCHER)
            fli_group_forget(m, relation);
        relation->next[0] = released;
        released = place;
    }
    fli_mutex_unlock(&m->stripes[mine].lock);
    while (released != 0) {
        fli_relation *relation = relation_at(m, released);
        released = relation->next[0];
        if (relation->kind == FLI_RELATION_DEADLINE)
            fli_timers_abandon(&((filch_sched *)me->rt)->timers, relation->timer);
        if (relation->kind == FLI_RELATION_SCOPE) fli_context_free(m, relation);
        else fli_relation_free(m, relation);
    }
}

/* Pins the host of endpoint `which` of a relation of `me`, before the relation is removed. The process of that endpoint
 * has not passed through fli_ended(), so its host exists. Requires the stripe locks of both endpoints. */
static fli_endpoint enter_far(fli_model *m, const fli_endpoint *me, fli_relation *relation, unsigned which)
{
    fli_endpoint far = { .host = host_of(relation, which), .serial = fli_load_rlx(&relation->serial[which]) };
    fli_host    *host = fli_host_at(m, far.host);
    far.rt = fli_load_acq(&host->rt); /* PAIR host.open, acquire half */
    FLI_ASSERT(far.rt != NULL);
    if (far.rt != me->rt) (void)fli_add_acqrel(&host->pins, 1); /* PAIR host.pins, both halves */
    return far;
}

void fli_ended(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result)
{
    fli_model   *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint me = { .rt = rt, .host = rt->host, .serial = serial };
    unsigned     mine = stripe_of_endpoint(&me), which, other;
    release_singles(m, &me, mine);
    for (;;) {
        fli_endpoint  far = me;
        fli_relation *relation = lock_first(m, &me, mine, &which, &other);
        if (relation == NULL) break;
        if (is_double(relation)) {
            far = enter_far(m, &me, relation, !which);
            unlist_both(m, relation);
        } else {
            fli_relation_unlist(m, relation, which);
            fli_relation_retire(relation);
        }
        unlock_two(m, mine, other);
        if (is_double(relation)) conclude(relation, which, &me, &far, error, result);
        else answer_exec(relation, rt, error, result);
        free_double(m, relation, which == 0 ? &me : &far, which == 0 ? &far : &me);
        fli_endpoint_unpin(m, rt, &far);
    }
    fli_mutex_unlock(&m->stripes[mine].lock);
}

/* ---- the relations of a new process ---- */

typedef struct cradle {
    fli_relation *monitor, *link, *name, *exec;
    fli_relation *context; /* first of the relations for deadline and scopes, linked by next[0] */
    uint64_t      timer;   /* timer of the deadline; 0: the deadline has passed, or the process has no deadline */
} cradle;

static void cradle_free(fli_model *m, const fli_endpoint *child, const fli_endpoint *parent, cradle *c)
{
    fli_context_undo(m, child->rt, c->context);
    if (c->monitor != NULL) free_double(m, c->monitor, parent, child);
    if (c->link != NULL) free_double(m, c->link, parent, child);
    if (c->name != NULL) fli_name_unmake(m, c->name);
    if (c->exec != NULL) fli_relation_free(m, c->exec);
}

static filch_err cradle_make(fli_model *m, fli_runtime *rt, const fli_birth *birth, const fli_endpoint *child,
                             const fli_endpoint *parent, cradle *c)
{
    filch_err err = FILCH_OK;
    if ((birth->relations & FILCH_SPAWN_MONITOR) != 0)
        err = fli_relation_make(m, FLI_RELATION_MONITOR, parent, child, &c->monitor);
    if (err == FILCH_OK && c->monitor != NULL) {
        c->monitor->monitor_tag = birth->tag;
        c->monitor->supervises = (birth->relations & FILCH_SPAWN_SUPERVISED) != 0;
    }
    if (err == FILCH_OK && (birth->relations & FILCH_SPAWN_LINK) != 0) {
        err = fli_relation_make(m, FLI_RELATION_LINK, parent, child, &c->link);
    }
    if (err == FILCH_OK && birth->name != NULL) err = fli_name_make(m, rt, birth->name, child, &c->name);
    if (c->name != NULL) fli_name_remove_ended(m, rt, birth->name);
    if (err == FILCH_OK && birth->exec != NULL) err = fli_relation_make(m, FLI_RELATION_EXEC, child, NULL, &c->exec);
    if (err == FILCH_OK && c->exec != NULL) {
        c->exec->exec_tag = birth->exec->tag;
        fli_store_rlx(&c->exec->exec_key, birth->exec->key);
    }
    if (err == FILCH_OK && birth->values != NULL)
        err = fli_context_make(m, child, birth->values, &c->context, &c->timer);
    return err;
}

filch_err fli_birth_make(fli_model *m, fli_runtime *rt, fli_proc *p, uint64_t serial, const fli_birth *birth,
                         bool limited)
{
    fli_endpoint child = { .rt = rt, .host = rt->host, .serial = serial }, parent = child;
    cradle       c = { 0 };
    filch_err    err = birth->relations != 0 ? fli_endpoint_pin(m, rt, birth->parent, &parent) : FILCH_OK;
    FLI_ASSERT(err == FILCH_OK); /* the parent is being stepped, so its host exists */
    err = cradle_make(m, rt, birth, &child, &parent, &c);
    if (err != FILCH_OK) {
        cradle_free(m, &child, &parent, &c);
        fli_endpoint_unpin(m, rt, &parent);
        return err;
    }
    fli_stripes_lock(m, &child, &parent);
    if (birth->relations != 0 && !fli_endpoint_set_related(m, &parent)) err = FILCH_EDEAD;
    if (err == FILCH_OK && c.name != NULL) err = fli_name_list(m, c.name);
    if (err == FILCH_OK) {
        /* The link is listed before the monitor, because notices are sent in the order of the list, and EXIT must be
         * the last notice that the parent gets. */
        if (c.link != NULL) list_both(m, c.link);
        if (c.monitor != NULL) list_both(m, c.monitor);
        if (c.exec != NULL) fli_relation_list(m, c.exec, 0);
        for (fli_relation *relation = c.context, *next; relation != NULL; relation = next) {
            next = fli_relation_at(m, relation->next[0]);
            fli_relation_list(m, relation, 0);
        }
        /* Values that contain neither a future deadline nor a scope need no relation. Without any relation
         * HAS_RELATIONS is not set, and fli_ended() is not called when the process ends. */
        bool related = c.link != NULL || c.monitor != NULL || c.name != NULL || c.exec != NULL || c.context != NULL;
        if (related) fli_state_open_related(&p->state, fli_serial_gen(serial), limited);
        else fli_state_open(&p->state, fli_serial_gen(serial), limited);
    }
    fli_stripes_unlock(m, &child, &parent);
    if (err != FILCH_OK) cradle_free(m, &child, &parent, &c);
    else if (birth->values != NULL) fli_context_begin(&child, birth->values, c.timer);
    fli_endpoint_unpin(m, rt, &parent);
    return err;
}
