/* yields.c - see yields.h and the stamp in node.h. */
#include "proc/yields.h"

#include <string.h>

#include "base/assert.h"

static uint32_t *list_of(fli_proc *p)
{
    return (p->flags & FLI_PROC_MANY) != 0 ? p->yields.many + 1 : p->yields.few;
}

static uint32_t room_of(const fli_proc *p)
{
    return (p->flags & FLI_PROC_MANY) != 0 ? p->yields.many[0] : FLI_YIELDS_FEW;
}

static bool grow(fli_runtime *rt, fli_proc *p)
{
    uint32_t  old_room = room_of(p), room = old_room * 4;
    uint32_t *many = fli_alloc(&rt->mem, (room + 1u) * sizeof *many);
    if (many == NULL) return false;
    many[0] = room;
    memcpy(many + 1, list_of(p), p->yield_count * sizeof *many);
    if ((p->flags & FLI_PROC_MANY) != 0) fli_free(&rt->mem, p->yields.many, (old_room + 1u) * sizeof *many);
    p->yields.many = many;
    p->flags |= FLI_PROC_MANY;
    return true;
}

/* The next generation, FREE: whoever still holds the old receiver claims nothing. Thread: the node's one owner. */
static void retire(fli_node *node)
{
    uint32_t stamp = fli_load_rlx(&node->stamp);
    fli_store_rlx(&node->stamp, ((stamp & ~(uint32_t)FLI_STAMP_MASK) + FLI_STAMP_GENERATION) | FLI_STAMP_FREE);
}

fli_node *fli_yield_open(fli_runtime *rt, fli_local *here, fli_proc *p, uint32_t command, uint64_t tag)
{
    if (p->yield_count == room_of(p) && !grow(rt, p)) return NULL;
    fli_node *node = fli_node_take(rt, here);
    if (node == NULL) return NULL;
    node->peer = fli_proc_serial(p);
    node->tag = tag;
    node->error = (int32_t)command;
    node->what = FLI_NODE_ANSWER;
    node->data[0] = 0;
    node->index = p->yield_count;
    list_of(p)[p->yield_count++] = node->self;
    uint32_t stamp = fli_load_rlx(&node->stamp);
    /* PAIR node.claim, release half: whoever claims it finds the owner's serial. */
    fli_store_rel(&node->stamp, (stamp & ~(uint32_t)FLI_STAMP_MASK) | FLI_STAMP_PENDING);
    return node;
}

/* Takes the node out of the list; the last one takes its place. */
static void unlist(fli_runtime *rt, fli_proc *p, const fli_node *node)
{
    uint32_t *list = list_of(p), last = --p->yield_count;
    FLI_ASSERT(node->index <= last && list[node->index] == node->self);
    if (node->index == last) return;
    list[node->index] = list[last];
    fli_node_at(rt, list[node->index])->index = node->index;
}

void fli_yield_close(fli_runtime *rt, fli_proc *p, fli_node *node)
{
    unlist(rt, p, node);
    retire(node);
}

/* Claims by stamp; the expected one names the generation. */
static bool claim(fli_node *node, uint32_t pending)
{
    uint32_t stamp = pending;
    /* PAIR node.claim, both halves: one wins; he sees the yield complete, and a later reuse comes after him. */
    return fli_cas_acqrel(&node->stamp, &stamp, (pending & ~(uint32_t)FLI_STAMP_MASK) | FLI_STAMP_CLAIMED);
}

void fli_yield_abandon(fli_runtime *rt, fli_local *here, fli_proc *p)
{
    uint32_t *list = list_of(p);
    for (uint32_t i = 0; i < p->yield_count; i++) {
        fli_node *node = fli_node_at(rt, list[i]);
        uint32_t  stamp = fli_load_rlx(&node->stamp);
        /* If a completion has it, its node comes by the mailbox, or finds the process dead and is freed there. */
        if ((stamp & FLI_STAMP_MASK) != FLI_STAMP_PENDING || !claim(node, stamp)) continue;
        uint64_t cookie = node->data[0];
        retire(node);
        fli_node_give(rt, here, node);
        fli_count(&here->counters.abandoned, 1);
        if (cookie != 0) rt->hooks.abandon(rt, cookie);
    }
    p->yield_count = 0;
    if ((p->flags & FLI_PROC_MANY) != 0) {
        fli_free(&rt->mem, p->yields.many, (p->yields.many[0] + 1u) * sizeof *list);
        p->flags &= (uint8_t)~FLI_PROC_MANY;
    }
}

bool fli_yield_first(fli_runtime *rt, fli_proc *p, uint32_t *command, uint64_t *tag)
{
    uint32_t *list = list_of(p);
    for (uint32_t i = 0; i < p->yield_count; i++) {
        fli_node *node = fli_node_at(rt, list[i]);
        uint32_t  stamp = fli_load_rlx(&node->stamp);
        /* A completion may be filling it this moment: claim it to read it, and put it back. Nobody else can tell: we
         * own the process, and it is about to end. */
        if ((stamp & FLI_STAMP_MASK) != FLI_STAMP_PENDING || !claim(node, stamp)) continue;
        *command = (uint32_t)node->error;
        *tag = node->tag;
        fli_store_rel(&node->stamp, stamp); /* PAIR node.claim, release half */
        return true;
    }
    return false;
}

filch_receiver fli_yield_receiver(fli_runtime *rt, fli_node *node)
{
    uint32_t generation = fli_load_rlx(&node->stamp) / FLI_STAMP_GENERATION;
    return (filch_receiver){
        .sched = (filch_sched *)rt,
        .key = ((uint64_t)generation << 32) | node->self,
        .tag = node->tag,
    };
}

/* The stamp of a yield that is still out. A generation has 30 bits; a key with more was not made here: no stamp. */
static uint32_t pending_of(uint64_t key)
{
    return key >> 62 == 0 ? (uint32_t)(key >> 32) * FLI_STAMP_GENERATION + FLI_STAMP_PENDING : FLI_STAMP_MASK;
}

bool fli_yield_is_pending(fli_runtime *rt, uint64_t key)
{
    fli_node *node = fli_slab_find(&rt->nodes, (uint32_t)key);
    return node != NULL && fli_load_rlx(&node->stamp) == pending_of(key);
}

bool fli_yield_claim(fli_runtime *rt, uint64_t key, fli_node **out)
{
    fli_node *node = fli_slab_find(&rt->nodes, (uint32_t)key);
    if (node == NULL || !claim(node, pending_of(key))) return false;
    *out = node;
    return true;
}

void fli_yield_drop(fli_runtime *rt, fli_local *here, fli_node *node)
{
    retire(node);
    fli_node_give(rt, here, node);
}
