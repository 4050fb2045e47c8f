/* yields.h - the yields of one process that are still out. A yield's node is taken when the step yields, so that
 * completing it later needs no memory and cannot fail. */
#ifndef FLI_PROC_YIELDS_H
#define FLI_PROC_YIELDS_H

#include <filch.h>

#include "base/assert.h"
#include "proc/runtime.h"

/* The list of its outstanding yields, by handle. */
static inline uint32_t *fli_yield_list(fli_proc *p)
{
    return FLI_UNLIKELY((p->flags & FLI_PROC_YIELDS_HEAP) != 0) ? p->yields.many + 1 : p->yields.few;
}

/* Makes room for one more, if there is none. False: out of memory. Thread: the owner. */
FILCH_MUST_USE bool fli_yield_room(fli_runtime *rt, fli_proc *p);

/* The next generation, FREE: whoever still holds the old receiver claims nothing. Thread: the node's one owner. */
static inline void fli_yield_retire(fli_event_node *node)
{
    uint32_t stamp = fli_load_rlx(&node->stamp);
    fli_store_rlx(&node->stamp, ((stamp & ~(uint32_t)FLI_STAMP_MASK) + FLI_STAMP_GENERATION) | FLI_STAMP_FREE);
}

/* Makes a node that is ours a yield of `p`, whose serial it is, PENDING. There is room in the list. Thread: the owner. */
static inline void fli_yield_add(fli_proc *p, fli_event_node *node, uint64_t serial, uint32_t command, uint64_t tag)
{
    node->owner = serial;
    node->tag = tag;
    node->command = (int32_t)command;
    node->what = FLI_NODE_COMPLETION;
    node->data[0] = 0;
    node->yield_index = p->yield_count;
    fli_yield_list(p)[p->yield_count++] = node->self;
    uint32_t stamp = fli_load_rlx(&node->stamp);
    /* PAIR node.claim, release half: whoever claims it finds the owner's serial. */
    fli_store_rel(&node->stamp, (stamp & ~(uint32_t)FLI_STAMP_MASK) | FLI_STAMP_PENDING);
}

/* Adds a yield of `command` with `tag`. Gives its node, PENDING, or NULL: out of memory. Thread: the owner. */
FILCH_MUST_USE static inline fli_event_node *fli_yield_open(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t command,
                                                      uint64_t tag)
{
    if (FLI_UNLIKELY(p->yield_count >= FLI_YIELDS_FEW) && !fli_yield_room(rt, p)) return NULL;
    fli_event_node *node = fli_node_take(rt, worker);
    if (FLI_UNLIKELY(node == NULL)) return NULL;
    fli_yield_add(p, node, fli_proc_serial(p), command, tag);
    return node;
}
/* Moves the last of the list to where `node` was. Thread: the owner. */
void fli_yield_unlist(fli_runtime *rt, fli_proc *p, const fli_event_node *node, uint32_t last);

/* The yield behind `node` is over: CLAIMED by a completion and now delivered, or never told to anybody. Thread: the owner. */
static inline void fli_yield_close(fli_runtime *rt, fli_proc *p, fli_event_node *node)
{
    uint32_t last = --p->yield_count;
    FLI_ASSERT(node->yield_index <= last && fli_yield_list(p)[node->yield_index] == node->self);
    if (FLI_UNLIKELY(node->yield_index != last)) fli_yield_unlist(rt, p, node, last);
    fli_yield_retire(node);
}

/* Makes all outstanding yields void, at the end of the process: late completions find them gone. Must come before
 * fli_state_finish: while the process lives, the nodes of yields being completed cannot be anybody else's.
 * Thread: the owner. */
void fli_yield_abandon(fli_runtime *rt, fli_local *worker, fli_proc *p);

/* One of the outstanding yields: its command and tag. False if there is none. Thread: the owner, about to end it. */
bool fli_yield_first(fli_runtime *rt, fli_proc *p, uint32_t *command, uint64_t *tag);

/* The name of a PENDING yield for whoever is to complete it. */
filch_receiver fli_yield_receiver(fli_runtime *rt, fli_event_node *node);
/* What tells it from all others, its generation being that of `stamp`. */
static inline uint64_t fli_yield_key_of(const fli_event_node *node, uint32_t stamp)
{
    uint64_t generation = stamp & ~(uint32_t)FLI_STAMP_MASK;
    return (generation << 32) / FLI_STAMP_GENERATION | node->self;
}
static inline uint64_t fli_yield_key(fli_event_node *node)
{
    return fli_yield_key_of(node, fli_load_rlx(&node->stamp));
}

/* Claims by stamp; the expected one names the generation. Thread: any. */
FILCH_MUST_USE static inline bool fli_yield_claim_stamp(fli_event_node *node, uint32_t pending)
{
    uint32_t stamp = pending;
    /* PAIR node.claim, both halves: one wins; he sees the yield complete, and a later reuse comes after him. */
    return fli_cas_acqrel(&node->stamp, &stamp, pending - FLI_STAMP_PENDING + FLI_STAMP_CLAIMED);
}

/* The stamp of a yield that is still out. A generation has 30 bits; a key with more was not made here: no stamp. */
static inline uint32_t fli_yield_pending(uint64_t key)
{
    return FLI_LIKELY(key >> 62 == 0) ? (uint32_t)(key >> 32) * FLI_STAMP_GENERATION + FLI_STAMP_PENDING : FLI_STAMP_MASK;
}

/* Claims the yield that `key` names: true makes the node the caller's, to fill and to post. Thread: any. */
FILCH_MUST_USE bool fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **out);
/* A quick look: is it worth making a payload for? */
FILCH_MUST_USE bool fli_yield_is_pending(fli_runtime *rt, uint64_t key);

/* Frees the node of a claimed yield whose process has ended. */
void fli_yield_drop(fli_runtime *rt, fli_local *worker, fli_event_node *node);

#endif
