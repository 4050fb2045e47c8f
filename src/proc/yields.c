/* yields.c - see yields.h and the stamp in node.h. */
#include "proc/yields.h"

#include <string.h>

static uint32_t room_of(const fli_proc *p)
{
    return (p->flags & FLI_PROC_YIELDS_HEAP) != 0 ? p->yields.many[0] : FLI_YIELDS_FEW;
}

static bool grow(fli_runtime *rt, fli_proc *p)
{
    uint32_t  old_room = room_of(p), room = old_room * 4;
    uint32_t *many = fli_alloc(&rt->mem, (room + 1u) * sizeof *many);
    if (many == NULL) return false;
    many[0] = room;
    memcpy(many + 1, fli_yield_list(p), p->yield_count * sizeof *many);
    if ((p->flags & FLI_PROC_YIELDS_HEAP) != 0) fli_free(&rt->mem, p->yields.many, (old_room + 1u) * sizeof *many);
    p->yields.many = many;
    p->flags |= FLI_PROC_YIELDS_HEAP;
    return true;
}

bool fli_yield_room(fli_runtime *rt, fli_proc *p)
{
    return p->yield_count < room_of(p) || grow(rt, p);
}

void fli_yield_unlist(fli_runtime *rt, fli_proc *p, const fli_event_node *node, uint32_t last)
{
    uint32_t *list = fli_yield_list(p);
    list[node->yield_index] = list[last];
    fli_full_node_at(rt, list[node->yield_index])->yield_index = node->yield_index;
}

void fli_yield_abandon(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    uint32_t *list = fli_yield_list(p);
    for (uint32_t i = 0; i < p->yield_count; i++) {
        fli_event_node *node = fli_full_node_at(rt, list[i]);
        uint32_t        stamp = fli_load_rlx(&node->stamp);
        /* Skips a node that a completion has claimed: either that completion has pushed the node to the mailbox, or it
         * will find the process dead and free the node. */
        if ((stamp & FLI_STAMP_MASK) != FLI_STAMP_PENDING || !fli_yield_claim_stamp(node, stamp)) continue;
        uint64_t cookie = node->data[0];
        fli_yield_retire(node);
        fli_full_node_give(rt, worker, node);
        fli_count(&worker->counters.abandoned, 1);
        if (cookie != 0) rt->hooks.abandon(rt, cookie);
    }
    p->yield_count = 0;
    if ((p->flags & FLI_PROC_YIELDS_HEAP) != 0) {
        fli_free(&rt->mem, p->yields.many, (p->yields.many[0] + 1u) * sizeof *list);
        p->flags &= (uint8_t)~FLI_PROC_YIELDS_HEAP;
    }
}

bool fli_yield_first(fli_runtime *rt, fli_proc *p, uint32_t *command, uint64_t *tag)
{
    uint32_t *list = fli_yield_list(p);
    for (uint32_t i = 0; i < p->yield_count; i++) {
        fli_event_node *node = fli_full_node_at(rt, list[i]);
        uint32_t        stamp = fli_load_rlx(&node->stamp);
        /* Another thread may be completing this yield, and writing to its node. So this worker claims the node, reads
         * it, and restores the stamp. A completion between the claim and the restore is refused, which does no harm:
         * the process is about to end. */
        if ((stamp & FLI_STAMP_MASK) != FLI_STAMP_PENDING || !fli_yield_claim_stamp(node, stamp)) continue;
        *command = (uint32_t)node->command;
        *tag = node->tag;
        fli_store_rel(&node->stamp, stamp); /* PAIR node.claim, release half */
        return true;
    }
    return false;
}

filch_receiver fli_yield_receiver(fli_runtime *rt, fli_event_node *node)
{
    return (filch_receiver){ .sched = (filch_sched *)rt, .key = fli_yield_key(node), .tag = node->tag };
}

bool fli_yield_is_pending(fli_runtime *rt, uint64_t key)
{
    fli_event_node *node = fli_slab_find_size(&rt->nodes, (uint32_t)key, sizeof(fli_event_node));
    return node != NULL && fli_load_rlx(&node->stamp) == fli_yield_pending(key);
}

bool fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **out)
{
    fli_event_node *node = fli_slab_find_size(&rt->nodes, (uint32_t)key, sizeof(fli_event_node));
    if (node == NULL || !fli_yield_claim_stamp(node, fli_yield_pending(key))) return false;
    *out = node;
    return true;
}

void fli_yield_drop(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    fli_yield_retire(node);
    fli_full_node_give(rt, worker, node);
}
