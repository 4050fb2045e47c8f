/* check.c - checks the invariants that must hold at every point of a simulated run:
 *
 *   - a process is in at most one run queue or direct handoff, and only once; a process in a run queue or handoff is
 *     ACTIVE (so an IDLE or BLOCKED process is in none)
 *   - the list of nodes from a mailbox head to `head_taken` ends; no node is in two mailboxes
 *   - a process with relations is HAS_RELATIONS, each relation is in its list, and the lists are consistent
 *   - the deque of a parked worker is empty and it has no handoff; the counts in the idle word match the parked list
 *
 * When every thread waits and the next event is a timeout, one more invariant must hold: the global queue is empty if a
 * worker is parked. Otherwise a wake-up was lost, which a sentinel would hide by finding the work a millisecond late.
 * (A deque may contain work: its worker waits inside a step, and the sentinel or that worker will take it.)
 */
#include "sim/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "proc/limit.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "sim/engine.h"
#include "sync/deque.h"
#include "sync/inject.h"

#define PEEK(at) atomic_load_explicit((at), memory_order_relaxed)
#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

/* The slots or nodes that the present walk (one check of all data) has visited. A mark is the number of the walk that
 * set it, so that marks need not be cleared between walks; clearing would be most of the work of a small walk. */
typedef struct marks {
    uint32_t *by; /* for each slot or node: the number of the last walk that visited it */
    uint32_t  room, count;
} marks;

static marks    queued;               /* slots of the processes in run queues */
static marks    posted, posted_short; /* nodes and short nodes in mailboxes */
static uint32_t walk;

/* The run queues and the parked workers are checked in every walk. The mailboxes are checked in every walk while there
 * are few slots; otherwise only in every n-th walk, so that on average about SLOTS_PER_WALK slots are checked per
 * walk. */
#define SLOTS_PER_WALK 64
static uint32_t since_procs;

static void marks_for(marks *m, uint32_t count)
{
    m->count = count;
    if (count <= m->room) return;
    uint32_t room = count * 2;
    m->by = realloc(m->by, room * sizeof *m->by);
    MUST(m->by != NULL, "no memory for the checker itself");
    memset(m->by + m->room, 0, (room - m->room) * sizeof *m->by);
    m->room = room;
}

/* Marks entry `at` as visited in this walk. Returns false if the entry was already marked in this walk. */
static bool mark(marks *m, uint32_t at)
{
    bool first = m->by[at] != walk;
    m->by[at] = walk;
    return first;
}

static void mark_queued(const fli_proc *p)
{
    MUST(p->slot != 0 && p->slot < queued.count, "a run queue holds a pointer that is no process");
    MUST(mark(&queued, p->slot), "a process is queued twice");
    MUST(fli_word_state(PEEK(&p->state)) == FLI_ACTIVE, "a process is queued and not ACTIVE");
}

static void walk_deque(fli_deque *deque)
{
    uint32_t top = fli_deque_top(PEEK(&deque->word)), bottom = PEEK(&deque->bottom);
    if (top == bottom) return;
    fli_ring *ring = PEEK(&deque->ring);
    /* `bottom` may be less than `top` for a moment: by one during a pop of an item that a thief has taken, by any
     * number during a push below items that thieves have taken. */
    int32_t slots = (int32_t)ring->mask + 1, count = (int32_t)(bottom - top);
    MUST(count <= slots, "a deque holds more items than it has slots");
    for (uint32_t i = top; (int32_t)(bottom - i) > 0; i++) mark_queued(PEEK(&ring->slots[i & ring->mask]));
}

static void walk_global(const fli_inject *queue)
{
    if (queue->lock.held) return; /* skipped, because a thread that holds the lock is changing the queue */
    for (size_t i = 0; i < queue->length; i++) mark_queued(queue->ring[(queue->first + i) & (queue->room - 1)]);
    for (fli_proc *p = queue->oldest; p != NULL; p = p->link) mark_queued(p);
}

/* Like fli_slab_at(), but the simulator does not switch threads in it. */
static void *object_at(const fli_slab *slab, uint32_t handle)
{
    const fli_slab_map *map = PEEK(&slab->map);
    return (void *)(PEEK(&map->base[handle >> FLI_SLAB_FIRST_BITS]) + (uintptr_t)handle * slab->size);
}

static void walk_mailbox(filch_sched *sched, const fli_proc *p)
{
    for (uint32_t at = fli_word_head(PEEK(&p->state)); at != 0 && at != p->head_taken;) {
        bool     is_short = (at & FLI_SHORT_BIT) != 0;
        uint32_t number = at & ~FLI_SHORT_BIT;
        MUST(number < (is_short ? posted_short.count : posted.count), "a mailbox holds a handle that is no node");
        MUST(mark(is_short ? &posted_short : &posted, number), "a node is in two mailboxes, or twice in one");
        at = ((fli_event_node *)object_at(is_short ? &sched->rt.short_nodes : &sched->rt.nodes, number))->next;
    }
}

/* Checks a process that is ACTIVE_ONE and queued: it must have exactly one message. */
static void walk_active_one(filch_sched *sched, const fli_proc *p)
{
    uint32_t              head = fli_word_head(PEEK(&p->state));
    const fli_event_node *node = object_at(&sched->rt.nodes, head);
    /* Skips a process whose events the slow path has moved to the private lists (a stop does this for all processes)
     * before it queued the process again. The fast path will not take this process, because it has pending events. */
    if (head != 0 && p->head_taken == head) return;
    uint8_t what = (PEEK(&p->state) & FLI_LIMITED) != 0 ? FLI_NODE_COUNTED : 0;
    MUST(head != 0 && node->next == 0 && node->what == what, "an ACTIVE_ONE process does not have exactly one message");
    MUST(!fli_proc_has_no_pending(p) || p->report_state == FILCH_STATE_IDLE,
         "a process is ACTIVE_ONE and was not IDLE before");
}

/* Checks a live process with a limited mailbox and the policy WAIT: if senders wait for space, the bit WAITING must be
 * set, and the mailbox of an idle process must not be empty. */
static void walk_waiters(const fli_proc *p, unsigned state)
{
    if ((PEEK(&p->state) & FLI_LIMITED) == 0 || PEEK(&p->overflow) != FILCH_OVERFLOW_WAIT) return;
    uint64_t load = PEEK(&p->load);
    if (PEEK(&p->waiters) == 0) return;
    MUST((load & FLI_LOAD_WAITING) != 0, "senders wait for space, and the bit WAITING is not set");
    MUST(state != FLI_IDLE || fli_load_count(load) > 0,
         "senders wait for space in the empty mailbox of an idle process");
}

static void walk_procs(filch_sched *sched)
{
    fli_slab *procs = &sched->rt.procs;
    for (uint32_t slot = 1; slot < queued.count; slot++) {
        const fli_proc *p = object_at(procs, slot);
        unsigned        state = fli_word_state(PEEK(&p->state));
        bool            is_active_one = (PEEK(&p->state) & FLI_STATE_MASK) >> FLI_STATE_SHIFT == FLI_ACTIVE_ONE;
        if (state == FLI_ACTIVE || state == FLI_IDLE || state == FLI_BLOCKED) walk_waiters(p, state);
        if (is_active_one && queued.by[slot] == walk) walk_active_one(sched, p);
        /* Checks the mailbox only if no worker owns the process: a worker that reads the mailbox may change
         * `head_taken`. */
        if (state == FLI_IDLE || state == FLI_BLOCKED) walk_mailbox(sched, p);
    }
}

/* Checks a free slot: all fields that the fast path of a spawn expects to be zero must be zero. */
static void check_blank(const fli_proc *p)
{
    MUST(fli_word_state(PEEK(&p->state)) == FLI_FREE, "a spare slot is in use");
    MUST((p->head_taken | p->completions | p->messages | p->yield_count) == 0, "a spare slot has messages or yields");
    MUST(p->ext == NULL && p->values == NULL, "a spare slot has an ext or values");
    MUST((uint32_t)PEEK(&p->drops_pending) == 0 && PEEK(&p->drops_reported) == 0, "a spare slot has dropped messages");
}

static void walk_spare(filch_sched *sched)
{
    const fli_slab *procs = &sched->rt.procs;
    for (uint32_t i = 0; i < procs->spare_count; i++) check_blank(procs->spare[i]);
    for (uint32_t slot = 1; slot < PEEK(&procs->fresh); slot++) {
        unsigned             segment = fli_slab_segment(slot);
        uint32_t             first = segment == 0 ? 0 : 1u << (FLI_SLAB_FIRST_BITS + segment - 1);
        const fli_slab_page *page = &procs->pages[segment][(slot - first) / FLI_SLAB_PAGE];
        if ((page->stored >> slot % FLI_SLAB_PAGE & 1) != 0) check_blank(object_at(&sched->rt.procs, slot));
    }
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        const fli_magazine *own = &sched->workers[i]->local.procs;
        for (uint32_t k = 0; k < own->count; k++) check_blank(own->objects[k]);
    }
}

static fli_relation *relation_at(fli_model *m, uint32_t place)
{
    return object_at(&m->relations, place / 2);
}

/* Checks the relations of the process in `slot`. No thread may hold the lock of the slot during the call. */
static void walk_relation_list(filch_sched *sched, fli_model *m, uint32_t slot, uint32_t first)
{
    uint64_t word = PEEK(&((fli_proc *)object_at(&sched->rt.procs, slot))->state);
    unsigned state = fli_word_state(word);
    MUST(state != FLI_FREE, "a free slot has relations");
    MUST(state == FLI_DONE || (word & FLI_HAS_RELATIONS) != 0, "a process has relations and is not HAS_RELATIONS");
    uint32_t at = first, n = 0, most = PEEK(&m->relations.fresh) * 2;
    do {
        fli_relation *relation = relation_at(m, at);
        uint32_t      next = relation->next[at & 1];
        MUST(n++ < most && relation->self == at / 2, "a list of relations does not end");
        MUST(fli_serial_slot(PEEK(&relation->serial[at & 1])) == slot, "a relation is in the list of another slot");
        MUST(fli_serial_gen(PEEK(&relation->serial[at & 1])) == fli_word_gen(word),
             "a relation has outlived its process");
        MUST(relation_at(m, next)->prev[next & 1] == at, "a list of relations is broken");
        at = next;
    } while (at != first);
}

static void walk_relations(filch_sched *sched)
{
    fli_model *m = PEEK(&sched->rt.model);
    if (m == NULL) return;
    for (int i = 0; i < FLI_STRIPES; i++) {
        /* skipped, because a thread that holds the lock is changing the relations */
        if (m->stripes[i].lock.held) return;
    }
    fli_host *host = PEEK(&m->hosts[0]);
    uint32_t  fresh = PEEK(&sched->rt.procs.fresh);
    for (uint32_t slot = 1; slot < fresh; slot++) {
        unsigned                segment = fli_slab_segment(slot);
        fli_relation_list_head *heads = PEEK(&host->heads[segment]);
        if (heads == NULL) continue;
        uint32_t first = heads[slot - (segment == 0 ? 0 : 1u << (FLI_SLAB_FIRST_BITS + segment - 1))].first;
        if (first != 0) walk_relation_list(sched, m, slot, first);
    }
}

static void walk_parked(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    /* skipped, because a thread that holds the lock is changing the list of parked workers */
    if (idle->lock.held) return;
    uint32_t n = 0;
    for (fli_worker *w = idle->parked; w != NULL; w = w->idle.next) {
        MUST(w->idle.is_parked && n++ < sched->worker_count, "the list of parked workers is broken");
        MUST(fli_deque_top(PEEK(&w->deque.word)) == PEEK(&w->deque.bottom),
             "a parked worker has a process in its deque");
        MUST(PEEK(&w->lifo_slot.item) == NULL, "a parked worker has a process in its LIFO slot");
        MUST(w->local.current == NULL, "a parked worker has a current process");
        MUST(PEEK(&w->idle.handoff) == NULL, "a parked worker has a direct handoff");
    }
    MUST((PEEK(&idle->word) & 0xffff) == n, "the count of parked workers is wrong");
    MUST(((PEEK(&idle->word) >> 32) & 1) == (uint64_t)idle->sentinel_armed,
         "the sentinel bit of the idle word is wrong");
    MUST(idle->sentinel == NULL || idle->sentinel->idle.is_parked, "the sentinel is not parked");
}

void fli_check_begin(void)
{
    since_procs = UINT32_MAX;
}

void fli_check_everything(filch_sched *sched, bool all)
{
    marks_for(&queued, PEEK(&sched->rt.procs.fresh));
    marks_for(&posted, PEEK(&sched->rt.nodes.fresh));
    marks_for(&posted_short, PEEK(&sched->rt.short_nodes.fresh));
    /* the counter has wrapped after 2^32 walks: clears the marks, because old marks would count again */
    if (++walk == 0) {
        memset(queued.by, 0, queued.room * sizeof *queued.by);
        memset(posted.by, 0, posted.room * sizeof *posted.by);
        memset(posted_short.by, 0, posted_short.room * sizeof *posted_short.by);
        walk = 1;
    }
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        walk_deque(&sched->workers[i]->deque);
        if (PEEK(&sched->workers[i]->lifo_slot.item) != NULL) mark_queued(PEEK(&sched->workers[i]->lifo_slot.item));
        const fli_proc *handoff = PEEK(&sched->workers[i]->idle.handoff);
        if (handoff != NULL) mark_queued(handoff);
    }
    walk_global(&sched->global);
    if (all || since_procs++ >= queued.count / SLOTS_PER_WALK) {
        since_procs = 0;
        walk_procs(sched);
        walk_spare(sched);
        walk_relations(sched);
    }
    walk_parked(sched);
}

void fli_check_rest(filch_sched *sched)
{
    if (PEEK(&sched->global.count) > 0 && sched->idle.parked != NULL) {
        fli_sim_fail("the global queue holds work and a worker is parked: a wake-up was lost");
    }
}
