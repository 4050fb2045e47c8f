/* check.c - the invariants, as they must hold at every point of a run:
 *
 *   - a process is in at most one run queue, in at most one place of it, and then it is ACTIVE
 *   - a worker's current process is in no run queue, unless it has just been put there again
 *   - an IDLE or BLOCKED process is in no run queue and is nobody's current one
 *   - the nodes behind a mailbox head, down to what has been seen, end; none is in two mailboxes
 *   - a sleeping worker's deque is empty; the counts in the idle word are those of the list
 */
#include "sim/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sched/sched.h"
#include "sim/engine.h"

#define PEEK(at) atomic_load_explicit((at), memory_order_relaxed)
#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

typedef struct marks {
    uint32_t slots, nodes;
    uint8_t *queued; /* by slot: in how many places */
    uint8_t *posted; /* by node: in how many mailboxes */
} marks;

static void mark_queued(marks *m, const fli_proc *p)
{
    MUST(p->slot != 0 && p->slot < m->slots, "a run queue holds something that is no process");
    MUST(m->queued[p->slot]++ == 0, "a process is queued twice");
    MUST(fli_word_state(PEEK(&p->state)) == FLI_ACTIVE, "a process is queued and not active");
}

static void walk_deque(marks *m, fli_deque *deque)
{
    uint32_t  top = fli_deque_top(PEEK(&deque->word)), bottom = PEEK(&deque->bottom);
    fli_ring *ring = PEEK(&deque->ring);
    MUST((int32_t)(bottom - top) >= -1 && (int32_t)(bottom - top) <= (int32_t)ring->mask + 1, "a deque's ends have crossed");
    for (uint32_t i = top; (int32_t)(bottom - i) > 0; i++) mark_queued(m, PEEK(&ring->slots[i & ring->mask]));
}

static void walk_global(marks *m, const fli_inject *queue)
{
    if (queue->lock.held) return; /* being changed */
    for (fli_proc *p = queue->oldest; p != NULL; p = p->link) mark_queued(m, p);
}

static void walk_mailbox(marks *m, filch_sched *sched, fli_proc *p)
{
    uint32_t at = fli_word_head(PEEK(&p->state)), n = 0;
    unsigned state = fli_word_state(PEEK(&p->state));
    if (state == FLI_FREE || state == FLI_DONE) return;
    /* While its worker reads it, `seen` may be on its way; then only the end of the chain is known. */
    if (state == FLI_ACTIVE) return;
    while (at != 0 && at != p->seen) {
        MUST(at < m->nodes && n++ < m->nodes, "a mailbox does not end");
        MUST(m->posted[at]++ == 0, "a node is in two mailboxes");
        uintptr_t base = PEEK(&sched->rt.nodes.base[fli_slab_segment(at)]);
        at = ((fli_node *)(base + (uintptr_t)at * sched->rt.nodes.size))->next;
    }
}

static fli_proc *proc_at(filch_sched *sched, uint32_t slot)
{
    uintptr_t base = PEEK(&sched->rt.procs.base[fli_slab_segment(slot)]);
    return (fli_proc *)(base + (uintptr_t)slot * sched->rt.procs.size);
}

static void walk_sleepers(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    if (idle->lock.held) return; /* being changed */
    uint32_t n = 0;
    for (fli_worker *w = idle->sleepers; w != NULL; w = w->idle.next) {
        MUST(w->idle.asleep && n++ < sched->worker_count, "the list of sleepers is broken");
        MUST(fli_deque_top(PEEK(&w->deque.word)) == PEEK(&w->deque.bottom), "a worker sleeps on a full deque");
        MUST(w->local.current == NULL, "a worker sleeps in the middle of a process");
    }
    MUST((PEEK(&idle->word) & 0xffff) == n, "the count of sleepers is wrong");
    MUST(((PEEK(&idle->word) >> 32) & 1) == (uint64_t)idle->guarded, "the watch is not what the word says");
    MUST(idle->watch == NULL || idle->watch->idle.asleep, "the watch is awake");
}

void fli_check_everything(filch_sched *sched)
{
    marks m = { .slots = PEEK(&sched->rt.procs.fresh), .nodes = PEEK(&sched->rt.nodes.fresh) };
    m.queued = calloc(m.slots, 1);
    m.posted = calloc(m.nodes, 1);
    for (uint32_t i = 0; i < sched->victim_count; i++) walk_deque(&m, &sched->workers[i]->deque);
    walk_global(&m, &sched->global);
    for (uint32_t slot = 1; slot < m.slots; slot++) walk_mailbox(&m, sched, proc_at(sched, slot));
    walk_sleepers(sched);
    free(m.queued);
    free(m.posted);
}
