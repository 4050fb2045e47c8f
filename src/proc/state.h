/* state.h - the one word that says where a process is, and every move of it. Nobody else touches the word.
 *
 *   63        40 39  38      37   36     35      34    32 31                        0
 *   generation   ASK HAS_RELATIONS KILL CANCEL LIMITED state    newest node in the mailbox
 *
 *   FREE     no process. Owner: the slab, or the spawner preparing it.     -> ACTIVE, by spawn.
 *   ACTIVE   ready or running: in exactly one run queue, or with the worker that took it from there.
 *                                                                          -> IDLE BLOCKED DONE, by that worker.
 *   ACTIVE_ONE   ACTIVE, and more than that: one PLAIN message has woken it from IDLE, and nothing has come since. The next
 *            event, or flag other than HAS_RELATIONS, makes it plainly ACTIVE.   -> ACTIVE, or as that.
 *   IDLE     in no queue, no owner.                                        -> ACTIVE, by whoever brings any event.
 *   BLOCKED  in no queue, no owner, a yield is out.                        -> ACTIVE, by a completion, cancel or kill.
 *   DONE     in no queue, final. Owner: the worker that ended it.          -> FREE, by that worker.
 *
 * Observers see ACTIVE as Running if a worker shows the process in its window, else as Ready. The mailbox head serves as the
 * wakeup flag: a worker lets go of a process only by a CAS that still finds the head it has already emptied. Whoever
 * pushed in between made that CAS fail; whoever pushes after finds the process asleep and owns the wake.
 *
 * Each sender checks the generation in the same CAS that delivers: a stale pid cannot reach the slot's next owner.
 *
 * HAS_RELATIONS: somebody is to be told of the end (src/model). Whoever raises it holds the lock of the process's slot there
 * and lists himself before he lets go; whoever ends the process sees the bit in what the swap to DONE returns.
 *
 * ASK: the stop has something to tell the process (sched/drain.c). Unlike CANCEL it overtakes no message.
 */
#ifndef FLI_PROC_STATE_H
#define FLI_PROC_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/assert.h"
#include "port/atomic.h"

typedef FLI_ATOMIC(uint64_t) fli_state;

/* The odd ones can be sent to without waking anybody. */
enum { FLI_FREE, FLI_ACTIVE, FLI_IDLE, FLI_BLOCKED, FLI_DONE, FLI_ACTIVE_ONE };

#define FLI_STATE_SHIFT 32
#define FLI_STATE_MASK (UINT64_C(7) << FLI_STATE_SHIFT)
#define FLI_ONE_BIT ((uint64_t)(FLI_ACTIVE_ONE ^ FLI_ACTIVE) << FLI_STATE_SHIFT) /* no other of the odd ones has it */
#define FLI_LIMITED (UINT64_C(1) << 35)
#define FLI_CANCEL (UINT64_C(1) << 36)
#define FLI_KILL (UINT64_C(1) << 37)
#define FLI_HAS_RELATIONS (UINT64_C(1) << 38)
#define FLI_ASK (UINT64_C(1) << 39)
#define FLI_GEN_SHIFT 40
#define FLI_GEN_LAST ((1u << 24) - 1)

static inline uint32_t fli_word_head(uint64_t word)
{
    return (uint32_t)word;
}

/* ACTIVE_ONE is ACTIVE to all who need not know. */
static inline unsigned fli_word_state(uint64_t word)
{
    unsigned state = (unsigned)((word & FLI_STATE_MASK) >> FLI_STATE_SHIFT);
    return state == FLI_ACTIVE_ONE ? FLI_ACTIVE : state;
}

/* The same word, with another state and head. */
static inline uint64_t fli_word_with(uint64_t word, unsigned state, uint32_t head)
{
    return (word & ~(FLI_STATE_MASK | UINT32_MAX)) | (uint64_t)state << FLI_STATE_SHIFT | head;
}

static inline uint32_t fli_word_gen(uint64_t word)
{
    return (uint32_t)(word >> FLI_GEN_SHIFT);
}

static inline uint64_t fli_word_make(uint32_t gen, unsigned state, uint64_t flags)
{
    return ((uint64_t)gen << FLI_GEN_SHIFT) | ((uint64_t)state << FLI_STATE_SHIFT) | flags;
}

/* Does this word belong to the living process of that generation? */
static inline bool fli_word_lives(uint64_t word, uint32_t gen)
{
    unsigned state = fli_word_state(word);
    return fli_word_gen(word) == gen && state != FLI_FREE && state != FLI_DONE;
}

/* A look from outside. Relaxed: whoever acts on it does so by a CAS that checks again. */
static inline uint64_t fli_state_peek(fli_state *state)
{
    return fli_load_rlx(state);
}

/* A look by the worker that owns the process, before it reads new nodes. */
static inline uint64_t fli_state_look(fli_state *state)
{
    return fli_load_acq(state); /* PAIR state.push, acquire half: the nodes behind the head are complete */
}

/* FREE -> ACTIVE. Thread: the spawner, who took the slot from the slab; nobody else can change a FREE word. */
static inline void fli_state_open(fli_state *state, uint32_t gen, bool limited)
{
    /* PAIR state.push, release half: a sender that finds the process alive sees it complete. */
    fli_store_rel(state, fli_word_make(gen, FLI_ACTIVE, limited ? FLI_LIMITED : 0));
}

/* The same for one that has relations from the beginning. Thread: the spawner, under the lock of its slot. */
static inline void fli_state_open_related(fli_state *state, uint32_t gen, bool limited)
{
    /* PAIR state.push, release half: as in fli_state_open. */
    fli_store_rel(state, fli_word_make(gen, FLI_ACTIVE, FLI_HAS_RELATIONS | (limited ? FLI_LIMITED : 0)));
}

/* What a knock did, and what the caller must do now. */
typedef enum fli_delivery {
    FLI_DELIVERY_DEAD,  /* no such process any more; nothing was changed */
    FLI_DELIVERY_NOTED, /* delivered; it is awake, or it does not wake for this */
    FLI_DELIVERY_WOKE   /* delivered, and it was asleep: queue it, you are the one */
} fli_delivery;

/* Puts node `handle` in front of the mailbox. `next` is the node's link. `wakes_blocked`: whether this ends a wait. */
FILCH_MUST_USE static inline fli_delivery fli_state_push(fli_state *state, uint32_t gen, uint32_t handle, uint32_t *next,
                                                      bool wakes_blocked)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_word_lives(word, gen)) return FLI_DELIVERY_DEAD;
        unsigned now = fli_word_state(word);
        bool     wakes = now == FLI_IDLE || (now == FLI_BLOCKED && wakes_blocked);
        uint64_t wanted = fli_word_with(word, wakes ? FLI_ACTIVE : now, handle);
        *next = fli_word_head(word);
        /* PAIR state.push, release half: the node is complete before it can be found.
         * PAIR state.settle, acquire half: what the last worker left in the process is seen by the one we wake. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return wakes ? FLI_DELIVERY_WOKE : FLI_DELIVERY_NOTED;
    }
}

/* How `word` differs from the one of an idle process of that generation without a limit: 0, it is such a one; FLI_IS_AWAKE, it
 * is active or blocked and otherwise the same; anything else: not so simple, or not alive. HAS_RELATIONS makes no difference. A
 * generation that no word can hold differs from all. */
#define FLI_IS_AWAKE(differs) (((differs) & ~(FLI_STATE_MASK >> FLI_STATE_SHIFT & ~UINT64_C(1))) == 1)
static inline uint64_t fli_word_differs(uint64_t word, uint32_t gen)
{
    uint64_t idle = (uint64_t)gen << (FLI_GEN_SHIFT - FLI_STATE_SHIFT) | FLI_IDLE;
    return ((word & ~FLI_HAS_RELATIONS) >> FLI_STATE_SHIFT) ^ idle;
}

/* Pushes a PLAIN message, in one attempt, by somebody who has just seen that `word` is IDLE: it has no head. Then it is ACTIVE_ONE.
 * False: something has changed. */
FILCH_MUST_USE static inline bool fli_state_push_idle(fli_state *state, uint64_t word, uint32_t handle, uint32_t *next)
{
    uint64_t wanted = (word | handle) ^ (uint64_t)(FLI_IDLE ^ FLI_ACTIVE_ONE) << FLI_STATE_SHIFT;
    *next = 0;
    /* PAIR state.push, release half, and PAIR state.settle, acquire half: as in fli_state_push. */
    return fli_cas_acqrel(state, &word, wanted);
}

/* The same, for one that need not be woken: it is ACTIVE or ACTIVE_ONE, and then it is ACTIVE; or BLOCKED, and stays that. */
FILCH_MUST_USE static inline bool fli_state_push_awake(fli_state *state, uint64_t word, uint32_t handle, uint32_t *next)
{
    uint64_t wanted = (word & ~(FLI_ONE_BIT | UINT32_MAX)) | handle;
    *next = fli_word_head(word);
    /* PAIR state.push, release half, and PAIR state.settle, acquire half: as in fli_state_push. */
    return fli_cas_acqrel(state, &word, wanted);
}

/* Raises CANCEL, KILL or ASK. Needs no memory, so it cannot fail for lack of any. */
FILCH_MUST_USE static inline fli_delivery fli_state_set_flag(fli_state *state, uint32_t gen, uint64_t flag)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_word_lives(word, gen)) return FLI_DELIVERY_DEAD;
        bool     wakes = fli_word_state(word) != FLI_ACTIVE;
        uint64_t wanted = (word & ~FLI_STATE_MASK) | ((uint64_t)FLI_ACTIVE << FLI_STATE_SHIFT) | flag;
        /* Also where the flag is up already and nothing changes: the CAS tells that this is so now, and that whoever
         * takes the flag down comes after it. A load may find a flag that has been taken down, and then what was written
         * before this call would be seen by no step.
         * PAIR state.push, release half: that is seen by the step that takes the flag, whoever else has raised it.
         * PAIR state.settle, acquire half: as in fli_state_push. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return wakes ? FLI_DELIVERY_WOKE : FLI_DELIVERY_NOTED;
    }
}

/* IDLE or BLOCKED -> ACTIVE without an event, to have the process look after its mailbox. */
FILCH_MUST_USE static inline fli_delivery fli_state_wake(fli_state *state, uint32_t gen)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_word_lives(word, gen)) return FLI_DELIVERY_DEAD;
        if (fli_word_state(word) == FLI_ACTIVE) return FLI_DELIVERY_NOTED;
        uint64_t wanted = (word & ~FLI_STATE_MASK) | ((uint64_t)FLI_ACTIVE << FLI_STATE_SHIFT);
        /* PAIR state.settle, acquire half: as in fli_state_push. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return FLI_DELIVERY_WOKE;
    }
}

/* Raises HAS_RELATIONS. False: no such process any more. Wakes nobody. Thread: any, under the lock of the slot. */
FILCH_MUST_USE static inline bool fli_state_set_related(fli_state *state, uint32_t gen)
{
    uint64_t word = fli_load_rlx(state);
    do {
        if (!fli_word_lives(word, gen)) return false;
        /* It may end this moment; but then it comes to the lock that we hold. */
        if ((word & FLI_HAS_RELATIONS) != 0) return true;
        /* PAIR state.related, release half: whoever ends the process with the bit finds the model. */
    } while (!fli_cas_weak_acqrel(state, &word, word | FLI_HAS_RELATIONS));
    return true;
}

/* Lowers CANCEL. Thread: the worker that owns the process, about to deliver the event. */
static inline void fli_state_take_cancel(fli_state *state)
{
    /* PAIR state.push, acquire half: what all who raised it wrote before is seen by the step. */
    (void)fli_and_acqrel(state, ~FLI_CANCEL);
}

/* Lowers ASK. Thread: the worker that owns the process. */
static inline void fli_state_take_ask(fli_state *state)
{
    (void)fli_and_acqrel(state, ~FLI_ASK);
}

typedef enum fli_settle {
    FLI_SETTLED,      /* asleep; the next one who knocks owns the wake. Do not touch the process any more */
    FLI_SETTLE_NOTIFIED /* somebody came meanwhile; it is still yours: look again */
} fli_settle;

/* ACTIVE -> `rest` (IDLE or BLOCKED), if nothing has come since the worker looked at `word`. Thread: the worker that owns
 * the process, which has read everything behind that word and put its own fields in order. */
FILCH_MUST_USE static inline fli_settle fli_state_settle_from(fli_state *state, uint64_t word, unsigned rest)
{
    uint64_t wanted = fli_word_with(word, rest, 0);
    /* One attempt, and rightly so: an ACTIVE word changes only by a new node or a raised flag, and both mean "look
     * again" (HAS_RELATIONS does not, and the look is in vain). The strong form does not fail for no reason.
     * PAIR state.settle, release half: our fields are in order for whoever wakes the process. */
    return fli_cas_acqrel(state, &word, wanted) ? FLI_SETTLED : FLI_SETTLE_NOTIFIED;
}

/* The same for one that was ACTIVE_ONE, in fewer instructions. */
FILCH_MUST_USE static inline fli_settle fli_state_settle_one(fli_state *state, uint64_t word)
{
    uint64_t wanted = ((word >> FLI_STATE_SHIFT) + FLI_IDLE - FLI_ACTIVE_ONE) << FLI_STATE_SHIFT;
    return fli_cas_acqrel(state, &word, wanted) ? FLI_SETTLED : FLI_SETTLE_NOTIFIED; /* PAIR state.settle, release half */
}

/* The same as fli_state_settle_from, if nothing has come since `seen` was the newest node. */
FILCH_MUST_USE static inline fli_settle fli_state_settle(fli_state *state, uint32_t seen, unsigned rest)
{
    uint64_t word = fli_load_rlx(state);
    if (fli_word_head(word) != seen || (word & (FLI_CANCEL | FLI_KILL | FLI_ASK)) != 0) return FLI_SETTLE_NOTIFIED;
    return fli_state_settle_from(state, word, rest);
}

/* ACTIVE -> DONE. Returns the last word: its head is the newest node, for the last emptying, and HAS_RELATIONS says whether
 * the model has to hear of it. Thread: the worker that owns the process. */
static inline uint64_t fli_state_finish(fli_state *state)
{
    uint32_t gen = fli_word_gen(fli_load_rlx(state));
    /* PAIR state.push, acquire half: nodes pushed until now are ours to free; later pushes find DONE.
     * PAIR state.related, acquire half. */
    return fli_swap_acqrel(state, fli_word_make(gen, FLI_DONE, 0));
}

/* ACTIVE or ACTIVE_ONE -> FREE with the next generation in one go, for a process that leaves nothing behind, if nothing has come since the
 * worker looked at `word`. False: something has, or the word has a flag, or this was the last generation; nothing was
 * changed. Thread: the worker that owns the process, which has read everything behind that word. */
FILCH_MUST_USE static inline bool fli_state_exit(fli_state *state, uint64_t word)
{
    uint32_t flags = (uint32_t)((word & ~FLI_ONE_BIT) >> FLI_STATE_SHIFT) & ((1u << (FLI_GEN_SHIFT - FLI_STATE_SHIFT)) - 1);
    uint64_t wanted = ((word >> FLI_GEN_SHIFT) + 1) << FLI_GEN_SHIFT;
    if (FLI_UNLIKELY(flags != FLI_ACTIVE || wanted == 0)) return false;
    /* PAIR state.push, both halves: later pushes find nobody; if there was one, or somebody watches, this fails. */
    return fli_cas_acqrel(state, &word, wanted);
}

/* DONE -> FREE, with the next generation; also for a FREE slot whose spawn failed. False: the slot has used up its
 * generations and must never be given back (fli_slab_retire). A plain store will do: nobody changes a DONE or FREE word. */
FILCH_MUST_USE static inline bool fli_state_free(fli_state *state)
{
    uint32_t gen = fli_word_gen(fli_load_rlx(state));
    bool     more = gen < FLI_GEN_LAST;
    fli_store_rel(state, fli_word_make(more ? gen + 1 : gen, FLI_FREE, 0)); /* PAIR state.push, release half */
    return more;
}

#endif
