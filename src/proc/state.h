/* state.h - the atomic word that holds a process's state, flags, generation and mailbox head, and every transition of
 * it. No other file writes the word.
 *
 *   63        40 39  38            37   36     35      34    32 31                        0
 *   generation   ASK HAS_RELATIONS KILL CANCEL LIMITED state    newest node in the mailbox
 *
 *   FREE        no process. Owner: the slab, or the spawner preparing the slot.  -> ACTIVE, by spawn.
 *   ACTIVE      ready or running: in exactly one run queue, or held by the worker that took it from there.
 *                                                                                -> IDLE BLOCKED DONE, by that worker.
 *   ACTIVE_ONE  ACTIVE, and the mailbox holds exactly one message, a value message or a plain message of inline bytes,
 *               which woke the process from IDLE. The next
 *               event, and every flag except HAS_RELATIONS, turns it into ACTIVE.  -> ACTIVE, or as ACTIVE.
 *   IDLE        in no queue, no owner.                                           -> ACTIVE, by any event.
 *   BLOCKED     in no queue, no owner, a yield is outstanding.      -> ACTIVE, by a completion, notice or flag.
 *   DONE        in no queue, final. Owner: the worker that ended the process.    -> FREE, by that worker.
 *
 * filch_inspect() reports ACTIVE as Running if a worker shows the process in its fli_worker_status, otherwise as Ready.
 *
 * The mailbox head is also the wake-up flag. A worker gives up a process (settles it) only by a CAS that expects the
 * head up to which it has read the mailbox. A sender that pushed before makes this CAS fail. A sender that pushes
 * afterwards finds the process IDLE and must queue it, or BLOCKED: then a completion or notice queues it, and a message
 * does not.
 *
 * Every push checks the generation in the CAS that delivers: a stale pid cannot reach the next process of the slot.
 *
 * HAS_RELATIONS: src/model lists a relation of this process (monitor, link, name, group, deadline, scope, exec) and
 * must be notified when the process ends. The bit is set under the lock of the process's stripe, and the relation is
 * listed before that lock is released; the worker that ends the process finds the bit in the word that the swap to
 * DONE returns.
 *
 * ASK: a stop has a cancel for the process (sched/drain.c). Unlike CANCEL it is not delivered before messages that
 * arrived earlier.
 * Design: docs/design/process-state.md.
 */
#ifndef FLI_PROC_STATE_H
#define FLI_PROC_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/assert.h"
#include "port/atomic.h"

typedef FLI_ATOMIC(uint64_t) fli_state;

/* States. The states in which a process needs no wake-up for a message (ACTIVE, BLOCKED, ACTIVE_ONE) have odd numbers;
 * fli_state_push_awake() relies on this. */
enum { FLI_FREE, FLI_ACTIVE, FLI_IDLE, FLI_BLOCKED, FLI_DONE, FLI_ACTIVE_ONE };

#define FLI_STATE_SHIFT 32
#define FLI_STATE_MASK (UINT64_C(7) << FLI_STATE_SHIFT)
/* The bit that is set in ACTIVE_ONE and in no other state with an odd number. */
#define FLI_ONE_BIT ((uint64_t)(FLI_ACTIVE_ONE ^ FLI_ACTIVE) << FLI_STATE_SHIFT)
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

/* Returns the state in `word`, with ACTIVE_ONE reported as ACTIVE. */
static inline unsigned fli_word_state(uint64_t word)
{
    unsigned state = (unsigned)((word & FLI_STATE_MASK) >> FLI_STATE_SHIFT);
    return state == FLI_ACTIVE_ONE ? FLI_ACTIVE : state;
}

/* Returns `word` with its state and head replaced; generation and flags stay. */
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

/* Returns true if `word` is the state word of a process that has generation `gen` and has not ended. */
static inline bool fli_word_lives(uint64_t word, uint32_t gen)
{
    unsigned state = fli_word_state(word);
    return fli_word_gen(word) == gen && state != FLI_FREE && state != FLI_DONE;
}

/* Reads the word, on any thread. Relaxed: the value is only a hint. A caller that acts on it changes the word by a CAS,
 * which fails if the word is no longer this value. */
static inline uint64_t fli_state_peek(fli_state *state)
{
    return fli_load_rlx(state);
}

/* Reads the word before the worker reads new nodes. Thread: the worker that owns the process. */
static inline uint64_t fli_state_look(fli_state *state)
{
    return fli_load_acq(state); /* PAIR state.push, acquire half: the nodes behind the head are complete */
}

/* FREE -> ACTIVE. Thread: the spawner, which took the slot from the slab. A plain store is enough: no other thread
 * changes a FREE word. */
static inline void fli_state_open(fli_state *state, uint32_t gen, bool limited)
{
    /* PAIR state.push, release half: a sender that finds the process alive sees its fields completely written. */
    fli_store_rel(state, fli_word_make(gen, FLI_ACTIVE, limited ? FLI_LIMITED : 0));
}

/* FREE -> ACTIVE with HAS_RELATIONS set, for a process that is spawned with relations. Thread: the spawner, under the
 * lock of the process's stripe. */
static inline void fli_state_open_related(fli_state *state, uint32_t gen, bool limited)
{
    /* PAIR state.push, release half: as in fli_state_open. */
    fli_store_rel(state, fli_word_make(gen, FLI_ACTIVE, FLI_HAS_RELATIONS | (limited ? FLI_LIMITED : 0)));
}

/* Result of a delivery, and what the caller must do next. */
typedef enum fli_delivery {
    FLI_DELIVERY_DEAD, /* the process has ended; nothing was changed */
    /* delivered; the process was ACTIVE already, or this event does not wake it: the caller has nothing to do */
    FLI_DELIVERY_NOTED,
    FLI_DELIVERY_WOKE /* delivered, and the process became ACTIVE: the caller must queue it */
} fli_delivery;

/* Returns true if the process of generation `gen` has ended. `word`: the word that the caller has just read. If the
 * result is true, this thread sees everything that the workers of the process wrote before its end. */
static inline bool fli_state_has_ended(fli_state *state, uint64_t word, uint32_t gen)
{
    if (FLI_LIKELY(fli_word_lives(word, gen))) return false;
    /* PAIR state.end, acquire half. Two kinds of callers need it. One frees the node of a completion that is too late:
     * the owner of the process may have written `yield_index` of that node before the end. The other sends the exit
     * event of a process that has already ended: the step that gets this event must see what the ended process wrote.
     * This is a second load, because the caller has read `word` with relaxed order, so that a delivery to a living
     * process costs no acquire. */
    (void)fli_load_acq(state);
    return true;
}

/* Pushes node `handle` as the new mailbox head and stores the old head in `next`, the node's link. `wakes_blocked`: the
 * event also wakes a BLOCKED process (a completion or a notice; a message does not). */
FILCH_MUST_USE static inline fli_delivery fli_state_push(fli_state *state, uint32_t gen, uint32_t handle,
                                                         uint32_t *next, bool wakes_blocked)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (fli_state_has_ended(state, word, gen)) return FLI_DELIVERY_DEAD;
        unsigned now = fli_word_state(word);
        bool     wakes = now == FLI_IDLE || (now == FLI_BLOCKED && wakes_blocked);
        uint64_t wanted = fli_word_with(word, wakes ? FLI_ACTIVE : now, handle);
        *next = fli_word_head(word);
        /* PAIR state.push, release half: the node is complete before another thread can find it.
         * PAIR state.settle, acquire half: the worker that runs the process next sees what the last worker wrote to the
         * process. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return wakes ? FLI_DELIVERY_WOKE : FLI_DELIVERY_NOTED;
    }
}

/* Compares `word` with the word of a process that is IDLE, has generation `gen`, and has neither a mailbox limit nor a
 * flag. The flag HAS_RELATIONS and the mailbox head are ignored. The result tells three cases apart:
 *   0                          the words are equal;
 *   FLI_IS_AWAKE(result) true  only the state differs: it is ACTIVE, ACTIVE_ONE or BLOCKED;
 *   any other result           a limit or a flag is set, or the process of generation `gen` has ended.
 * If `gen` has more than 24 bits, the result is always of the third case. */
#define FLI_IS_AWAKE(differs) (((differs) & ~(FLI_STATE_MASK >> FLI_STATE_SHIFT & ~UINT64_C(1))) == 1)
static inline uint64_t fli_word_differs(uint64_t word, uint32_t gen)
{
    uint64_t idle = (uint64_t)gen << (FLI_GEN_SHIFT - FLI_STATE_SHIFT) | FLI_IDLE;
    return ((word & ~FLI_HAS_RELATIONS) >> FLI_STATE_SHIFT) ^ idle;
}

/* IDLE -> ACTIVE_ONE: pushes a value message or a plain message of inline bytes, in one attempt. Requires that `word`
 * was just read and is IDLE, so that its head is 0. Returns false if the word has changed since; then nothing was done.
 */
FILCH_MUST_USE static inline bool fli_state_push_idle(fli_state *state, uint64_t word, uint32_t handle, uint32_t *next)
{
    uint64_t wanted = (word | handle) ^ (uint64_t)(FLI_IDLE ^ FLI_ACTIVE_ONE) << FLI_STATE_SHIFT;
    *next = 0;
    /* PAIR state.settle, acquire half: as in fli_state_push. There is no release half: the caller queues the process,
     * and the run queue hands the node over together with the process. A thread that finds the process without taking
     * it from the queue does not read the node. */
    return fli_cas_acq(state, &word, wanted);
}

/* Pushes a plain message or a value message in one attempt to a process that needs no wake-up. Requires that `word` was
 * just read and is ACTIVE or ACTIVE_ONE (it becomes ACTIVE) or BLOCKED (it stays BLOCKED). Returns false if the word
 * has changed since; then nothing was done. */
FILCH_MUST_USE static inline bool fli_state_push_awake(fli_state *state, uint64_t word, uint32_t handle, uint32_t *next)
{
    uint64_t wanted = (word & ~(FLI_ONE_BIT | UINT32_MAX)) | handle;
    *next = fli_word_head(word);
    /* PAIR state.push, release half: as in fli_state_push. There is no acquire half: this thread does not wake the
     * process, so it reads nothing that the worker wrote to it. */
    return fli_cas_rel(state, &word, wanted);
}

/* Sets the flag CANCEL, KILL or ASK and makes the process ACTIVE. Needs no memory, so it cannot fail for lack of
 * memory. */
FILCH_MUST_USE static inline fli_delivery fli_state_set_flag(fli_state *state, uint32_t gen, uint64_t flag)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_word_lives(word, gen)) return FLI_DELIVERY_DEAD;
        bool     wakes = fli_word_state(word) != FLI_ACTIVE;
        uint64_t wanted = (word & ~FLI_STATE_MASK) | ((uint64_t)FLI_ACTIVE << FLI_STATE_SHIFT) | flag;
        /* The CAS is done even if the flag is set already and the word would not change. If the CAS succeeds, the flag
         * is still set: the worker that clears the flag does so later, and sees what this thread wrote before this
         * call. A load alone could return a flag that the worker has already cleared; then no step would see what this
         * thread wrote.
         * PAIR state.push, release half: the step that takes the flag sees what this thread wrote, whichever thread set
         * the flag.
         * PAIR state.settle, acquire half: as in fli_state_push(). */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return wakes ? FLI_DELIVERY_WOKE : FLI_DELIVERY_NOTED;
    }
}

/* IDLE or BLOCKED -> ACTIVE without an event, so that the worker that runs the process unstacks and trims its mailbox.
 */
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

/* Sets HAS_RELATIONS. Returns false if the process has ended. Does not wake it. Thread: any, under the lock of the
 * process's stripe. */
FILCH_MUST_USE static inline bool fli_state_set_related(fli_state *state, uint32_t gen)
{
    uint64_t word = fli_load_rlx(state);
    do {
        if (fli_state_has_ended(state, word, gen)) return false;
        /* HAS_RELATIONS is set already. The process may end now, but the worker that ends it then waits for the lock of
         * the stripe, which the caller of this function holds. */
        if ((word & FLI_HAS_RELATIONS) != 0) return true;
        /* PAIR state.related, release half: the worker that ends the process and finds HAS_RELATIONS set sees
         * rt->model. There is no acquire half: the lock of the stripe orders the relations. */
    } while (!fli_cas_weak_rel(state, &word, word | FLI_HAS_RELATIONS));
    return true;
}

/* Clears CANCEL. Thread: the worker that owns the process, before it delivers the CANCEL event. */
static inline void fli_state_take_cancel(fli_state *state)
{
    /* PAIR state.push, acquire half: the step sees what every thread wrote before it set the flag. */
    (void)fli_and_acqrel(state, ~FLI_CANCEL);
}

/* Clears ASK. Thread: the worker that owns the process. */
static inline void fli_state_take_ask(fli_state *state)
{
    (void)fli_and_acqrel(state, ~FLI_ASK);
}

typedef enum fli_settle {
    FLI_SETTLED,        /* the process has settled: the next event wakes it, and this worker must not touch it */
    FLI_SETTLE_NOTIFIED /* an event or a flag has arrived: the worker still owns the process and must check the word
                           again */
} fli_settle;

/* ACTIVE -> `to` (IDLE or BLOCKED), if the word is still `word`. Thread: the worker that owns the process, after it
 * has read all nodes behind `word` and has written the fields of the process. */
FILCH_MUST_USE static inline fli_settle fli_state_settle_from(fli_state *state, uint64_t word, unsigned to)
{
    uint64_t wanted = fli_word_with(word, to, 0);
    /* One attempt is enough: an ACTIVE word changes only by a new node or a new flag, and then the worker must check
     * the word again. (If the new flag is HAS_RELATIONS, the worker finds nothing new, which is harmless.) The strong
     * CAS does not fail spuriously.
     * PAIR state.settle, release half: the worker that runs the process next sees what this worker wrote to the
     * process. */
    return fli_cas_acqrel(state, &word, wanted) ? FLI_SETTLED : FLI_SETTLE_NOTIFIED;
}

/* ACTIVE_ONE -> IDLE, if the word is still `word`: fli_state_settle_from() in fewer instructions. */
FILCH_MUST_USE static inline fli_settle fli_state_settle_one(fli_state *state, uint64_t word)
{
    uint64_t wanted = ((word >> FLI_STATE_SHIFT) + FLI_IDLE - FLI_ACTIVE_ONE) << FLI_STATE_SHIFT;
    /* PAIR state.settle, release half: as in fli_state_settle_from(). */
    return fli_cas_acqrel(state, &word, wanted) ? FLI_SETTLED : FLI_SETTLE_NOTIFIED;
}

/* ACTIVE -> `to`, if the node `seen` is still the head and no flag is set. See fli_state_settle_from(). */
FILCH_MUST_USE static inline fli_settle fli_state_settle(fli_state *state, uint32_t seen, unsigned to)
{
    uint64_t word = fli_load_rlx(state);
    if (fli_word_head(word) != seen || (word & (FLI_CANCEL | FLI_KILL | FLI_ASK)) != 0) return FLI_SETTLE_NOTIFIED;
    return fli_state_settle_from(state, word, to);
}

/* ACTIVE -> DONE. Returns the last word: its head is the newest node, for the last fli_mail_unstack(); its bit
 * HAS_RELATIONS says whether src/model must be notified. Thread: the worker that owns the process. */
static inline uint64_t fli_state_finish(fli_state *state)
{
    uint32_t gen = fli_word_gen(fli_load_rlx(state));
    /* PAIR state.push, acquire half: this worker frees the nodes that were pushed before this swap; a later push finds
     * DONE.
     * PAIR state.related, acquire half.
     * PAIR state.end, release half: a thread that finds DONE sees what the process and its workers wrote. */
    return fli_swap_acqrel(state, fli_word_make(gen, FLI_DONE, 0));
}

/* ACTIVE or ACTIVE_ONE -> FREE with the next generation, in one CAS: the exit of a process that leaves nothing behind.
 * Returns false and changes nothing if the word is no longer `word`, has a flag, or holds the last generation. Thread:
 * the worker that owns the process, which has read everything behind `word`. */
FILCH_MUST_USE static inline bool fli_state_exit(fli_state *state, uint64_t word)
{
    uint32_t flags =
        (uint32_t)((word & ~FLI_ONE_BIT) >> FLI_STATE_SHIFT) & ((1u << (FLI_GEN_SHIFT - FLI_STATE_SHIFT)) - 1);
    uint64_t wanted = ((word >> FLI_GEN_SHIFT) + 1) << FLI_GEN_SHIFT;
    if (FLI_UNLIKELY(flags != FLI_ACTIVE || wanted == 0)) return false;
    /* Later pushes find no process; after an earlier push, flag or relation the CAS fails. Acquire is not needed: this
     * thread has acquired the same `word` with fli_state_look(), and no other thread has changed it since. The slab
     * hands the slot to the next spawner, under its lock or in the magazine of this worker. PAIR state.end, release
     * half: if another process begins to monitor this process after the end, the step that gets the exit event sees
     * what this process wrote. */
    return fli_cas_rel(state, &word, wanted);
}

/* DONE -> FREE with the next generation; also for a FREE slot after a failed spawn. Returns false if the slot has used
 * its last generation and must not be given back to the slab. A plain store is enough: no other thread changes a DONE
 * or FREE word. */
FILCH_MUST_USE static inline bool fli_state_free(fli_state *state)
{
    uint32_t gen = fli_word_gen(fli_load_rlx(state));
    bool     more = gen < FLI_GEN_LAST;
    /* PAIR state.end, release half: as in fli_state_finish(). A thread that reads a later word of the slot sees the
     * same writes: that word was stored with release after this one, or was made from this one by read-modify-writes.
     */
    fli_store_rel(state, fli_word_make(more ? gen + 1 : gen, FLI_FREE, 0));
    return more;
}

#endif
