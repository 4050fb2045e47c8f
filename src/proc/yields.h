/* yields.h - the outstanding yields of one process. A yield's node is allocated when the step yields, so that the
 * completion needs no memory and cannot fail. Design: docs/design/yields.md. */
#ifndef FLI_PROC_YIELDS_H
#define FLI_PROC_YIELDS_H

#include <filch.h>

#include "base/assert.h"
#include "proc/runtime.h"

/* Returns the list of outstanding yields of `p`: an array of handles of their nodes. */
static inline uint32_t *fli_yield_list(fli_proc *p)
{
    return FLI_UNLIKELY((p->flags & FLI_PROC_YIELDS_HEAP) != 0) ? p->yields.many + 1 : p->yields.few;
}

/* Reserves space for one more yield in the list. Returns false if out of memory. Thread: the owner. */
FILCH_MUST_USE bool fli_yield_room(fli_runtime *rt, fli_proc *p);

/* Sets the stamp to FREE with the next generation: a receiver of the old generation can no longer claim the node.
 * Thread: the owner of the node. */
static inline void fli_yield_retire(fli_event_node *node)
{
    uint32_t stamp = fli_load_rlx(&node->stamp);
    fli_store_rlx(&node->stamp, ((stamp & ~(uint32_t)FLI_STAMP_MASK) + FLI_STAMP_GENERATION) | FLI_STAMP_FREE);
}

/* Turns a node that the caller owns into a PENDING yield of `p`, which has the serial `serial`. Requires space in
 * the list (fli_yield_room). Thread: the owner of the process. */
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
    /* PAIR node.claim, release half: the thread that claims the node sees the owner's serial. */
    fli_store_rel(&node->stamp, (stamp & ~(uint32_t)FLI_STAMP_MASK) | FLI_STAMP_PENDING);
}

/* Adds an outstanding yield of `command` with `tag` to the list of `p`. Returns its node, which is PENDING; NULL if out
 * of memory. Thread: the owner of the process. */
FILCH_MUST_USE static inline fli_event_node *fli_yield_open(fli_runtime *rt, fli_local *worker, fli_proc *p,
                                                            uint32_t command, uint64_t tag)
{
    if (FLI_UNLIKELY(p->yield_count >= FLI_YIELDS_FEW) && !fli_yield_room(rt, p)) return NULL;
    fli_event_node *node = fli_node_take(rt, worker);
    if (FLI_UNLIKELY(node == NULL)) return NULL;
    fli_yield_add(p, node, fli_proc_serial(p), command, tag);
    return node;
}
/* Fills the place of `node` in the list with the last element, which has the index `last`. Thread: the owner of the
 * process. */
void fli_yield_unlist(fli_runtime *rt, fli_proc *p, const fli_event_node *node, uint32_t last);

/* Removes the yield of `node` from the list: its completion has been delivered, or the yield was never dispatched.
 * Thread: the owner of the process. */
static inline void fli_yield_close(fli_runtime *rt, fli_proc *p, fli_event_node *node)
{
    uint32_t last = --p->yield_count;
    FLI_ASSERT(node->yield_index <= last && fli_yield_list(p)[node->yield_index] == node->self);
    if (FLI_UNLIKELY(node->yield_index != last)) fli_yield_unlist(rt, p, node, last);
    fli_yield_retire(node);
}

/* Cancels all outstanding yields of an ending process: later completions can no longer claim them. Must come before
 * fli_state_finish(): while the process lives, the node of a yield that is being completed cannot be reused. Thread:
 * the owner of the process. */
void fli_yield_abandon(fli_runtime *rt, fli_local *worker, fli_proc *p);

/* Stores command and tag of one outstanding yield and returns true. Returns false if there is none. Thread: the owner
 * of the process, which is about to end it. */
bool fli_yield_first(fli_runtime *rt, fli_proc *p, uint32_t *command, uint64_t *tag);

/* Returns the receiver by which a PENDING yield is completed. */
filch_receiver fli_yield_receiver(fli_runtime *rt, fli_event_node *node);
/* Returns the key of a yield: the handle of its node, and the generation that is in `stamp`. */
static inline uint64_t fli_yield_key_of(const fli_event_node *node, uint32_t stamp)
{
    uint64_t generation = stamp & ~(uint32_t)FLI_STAMP_MASK;
    return (generation << 32) / FLI_STAMP_GENERATION | node->self;
}
static inline uint64_t fli_yield_key(fli_event_node *node)
{
    return fli_yield_key_of(node, fli_load_rlx(&node->stamp));
}

/* Claims the node if its stamp is still `pending`. Returns false if another thread has claimed the node or the node has
 * been reused. Thread: any. */
FILCH_MUST_USE static inline bool fli_yield_claim_stamp(fli_event_node *node, uint32_t pending)
{
    uint32_t stamp = pending;
    /* PAIR node.claim, both halves: one thread wins the claim and sees the complete yield; a later reuse of the node
     * comes after the claim. */
    return fli_cas_acqrel(&node->stamp, &stamp, pending - FLI_STAMP_PENDING + FLI_STAMP_CLAIMED);
}

/* Returns the stamp that a PENDING yield with this key has. A generation has 30 bits. For a key with a longer
 * generation, which the library never makes, returns a value that no stamp has. */
static inline uint32_t fli_yield_pending(uint64_t key)
{
    return FLI_LIKELY(key >> 62 == 0) ? (uint32_t)(key >> 32) * FLI_STAMP_GENERATION + FLI_STAMP_PENDING
                                      : FLI_STAMP_MASK;
}

/* Claims the yield with the key `key`. Returns true if the caller now owns the node *out, to fill and push it. Thread:
 * any. */
FILCH_MUST_USE bool fli_yield_claim(fli_runtime *rt, uint64_t key, fli_event_node **out);
/* Returns true if the yield of `key` is still outstanding. The result is a hint: if it is false, the caller need not
 * make a payload. Thread: any. */
FILCH_MUST_USE bool fli_yield_is_pending(fli_runtime *rt, uint64_t key);

/* Frees the node of a claimed yield after its process has ended. */
void fli_yield_drop(fli_runtime *rt, fli_local *worker, fli_event_node *node);

#endif
