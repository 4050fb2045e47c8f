/* proc.h - the control block of a process: two cache lines from a slab; the slab is the pid table. A process that only
 * receives messages and has at most FLI_STATE_INLINE bytes of state touches the first line alone.
 *
 * A pid's serial is generation:32 | slot:32. The state word holds 24 bits of generation, so the upper 8 bits of the
 * serial's generation are 0; a slot is retired after FLI_GEN_LAST. A lookup is a bounds check and an address
 * computation; whether the process is alive is decided by the generation in the state word, in the CAS that delivers.
 *
 * Fields without FLI_ATOMIC are not atomic: they belong to the worker that owns the process (ACTIVE, see state.h),
 * and pass to the next owner by PAIR state.settle and the run queues.
 */
#ifndef FLI_PROC_PROC_H
#define FLI_PROC_PROC_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "port/atomic.h"
#include "proc/state.h"

#define FLI_STATE_INLINE 16 /* maximum number of bytes of user state that are stored inside the control block */
#define FLI_YIELDS_FEW 2    /* maximum length of a list of outstanding yields that is stored inside the control block */

/* Bits of proc->flags. */
enum {
    /* the node `head_taken` has been delivered, and must be freed when the mailbox head no longer names it */
    FLI_PROC_HEAD_HELD = 1,
    FLI_PROC_WAITING = 2,      /* the last step returned wait: deliver completions and notices, and leave messages
                                  queued */
    FLI_PROC_MUST_STEP = 4,    /* run a step even without events: the process is new, or its last step returned
                                  continue */
    FLI_PROC_STOP_SENT = 8,    /* the cancel that a stop sends has been delivered or queued */
    FLI_PROC_YIELDS_HEAP = 16, /* yields.many, an allocated list, is in use */
    FLI_PROC_RECORDED = 32,    /* ext->recorder records the steps of the process */
    FLI_PROC_TRAPS = 64,       /* the process gets a LINK_DOWN event when a linked process fails, instead of ending
                                  with that process */
    FLI_PROC_LINK_FAILED = 128 /* a linked process has failed, and this process does not trap links: it ends */
};

/* Fields that few processes need: allocated on first use, freed at exit. */
typedef struct fli_ext {
    filch_exit_fn on_exit;
    void         *on_exit_user;
    /* ids of the timers and tickers that the process has armed; some of them may have fired or been stopped */
    uint64_t *timers;
    uint32_t  timer_count, timer_cap;
    /* Handle of the first open stream of the process.  writes: io/stream.c, under the stripe lock of the process.
     * reads: io/stream.c under that lock, and the owner without the lock when it ends the process.  PAIR ext.streams */
    FLI_ATOMIC(uint32_t) streams;
    struct fli_recorder *recorder; /* recorder of record/record.c; NULL: the steps of the process are not recorded */
} fli_ext;

typedef struct fli_proc {
    fli_state state;
    /* Pending work: for every message, the fields from head_taken to last_worker are read as two 64-bit words
     * (fli_proc_is_idle_word). */
    uint32_t head_taken; /* handle of the newest node that was taken from the mailbox; 0: none */
    /* handle of the newest node in the list of completions, and in the list of messages; 0: the list is empty. Each
     * list is a ring: mailbox.c */
    uint32_t            completions, messages;
    uint8_t             flags;
    FLI_ATOMIC(uint8_t) overflow; /* overflow policy of the mailbox (filch_overflow) */
    uint8_t report_state; /* state (filch_state) of the process before it was last woken: shown in the report of a
                             forced stop */
    uint8_t last_worker;  /* mark of the worker that last stepped the process, or FLI_MARK_SAMPLED: see
                             fli_worker_mark */
    uint32_t slot;        /* handle of this control block in the slab; set when the slot is made */
    uint32_t yield_count; /* number of outstanding yields */
    void    *self;        /* the user's state */
    /* writes: the owner, at spawn and upgrade.  reads: any, for reports. Relaxed: types are never freed while a
     * scheduler uses them. */
    FLI_ATOMIC(const filch_type *) type;
    alignas(16) uint8_t inline_state[FLI_STATE_INLINE]; /* the user's state, if it has at most FLI_STATE_INLINE bytes */

    /* Number of messages, and of units of payload, in a mailbox with a limit: see limit.h. */
    FLI_ATOMIC(uint64_t) load;
    /* The mailbox's limit; `overflow` says what happens when it is reached.  writes: the spawner.  reads: senders,
     * also those with a stale pid while the slot changes its process. Relaxed, because senders check the generation
     * before they act on the limit.
     */
    FLI_ATOMIC(uint32_t) mailbox_max;   /* limit in messages; 0: none */
    FLI_ATOMIC(uint32_t) mailbox_units; /* limit of the payload in units of 16 bytes; 0: none */
    /* Bits: high 32 = generation, low 32 = messages dropped and not yet reported to the process. */
    FLI_ATOMIC(uint64_t) drops_pending;
    fli_ext             *ext;
    struct fli_proc     *link; /* next process in the chain of the global queue (sync/inject.c) */
    /* With a drop policy, drops_reported: number of messages dropped and reported so far. writes: the owner. reads:
     * any, for reports. With FILCH_OVERFLOW_WAIT, waiters: the messages that wait for space (dispatch/send_waiters.c).
     * Bits: high 32 = their number, low 32 = handle of the newest. Used under the lock of the process's stripe in
     * send_waiters.c. */
    union {
        FLI_ATOMIC(uint64_t) drops_reported, waiters;
    };
    union {
        uint32_t  few[FLI_YIELDS_FEW];
        uint32_t *many; /* heap array: many[0] is its capacity, the handles of the nodes follow */
    } yields;
    filch_values *values;
} fli_proc;

static_assert(offsetof(fli_proc, inline_state) + FLI_STATE_INLINE == 64 && sizeof(fli_proc) == 128,
              "a process is two cache lines");

/* Value of `last_worker` while the process's wait in the run queue is being measured. */
#define FLI_MARK_SAMPLED 255

/* Returns the mark of worker `index`: the index reduced to 8 bits, never FLI_MARK_SAMPLED. */
static inline uint8_t fli_worker_mark(uint32_t index)
{
    return (uint8_t)(index % FLI_MARK_SAMPLED);
}

/* Returns true if the process has no held node, no event in its private lists and no flag set. Thread: the owner. */
static inline bool fli_proc_has_no_pending(const fli_proc *p)
{
    return (p->head_taken | p->completions | p->messages | p->flags) == 0;
}

/* The seven fields from head_taken to last_worker are two 64-bit words. Returns the second word of a process that has
 * no pending work and went idle on worker `index`. The first word of this process is 0. */
static inline uint64_t fli_proc_idle_word(uint32_t index)
{
    fli_proc p = { .report_state = FILCH_STATE_IDLE, .last_worker = fli_worker_mark(index) };
    uint64_t idle_word;
    memcpy(&idle_word, &p.messages, sizeof idle_word);
    return idle_word;
}

/* Returns true if the process has no pending work and went idle on the worker for which fli_proc_idle_word() has made
 * `idle_word`. May return false for a process without pending work, for example if the previous process of the slot
 * left a policy in `overflow`; the caller then uses fli_proc_has_no_pending(). Thread: the owner. */
static inline bool fli_proc_is_idle_word(const fli_proc *p, uint64_t idle_word)
{
    static_assert(offsetof(fli_proc, completions) == offsetof(fli_proc, head_taken) + 4 &&
                      offsetof(fli_proc, last_worker) == offsetof(fli_proc, messages) + 7,
                  "looked at together");
    uint64_t first, second;
    memcpy(&first, &p->head_taken, sizeof first);
    memcpy(&second, &p->messages, sizeof second);
    return (first | (second ^ idle_word)) == 0;
}

static inline uint64_t fli_serial(uint32_t gen, uint32_t slot)
{
    return ((uint64_t)gen << 32) | slot;
}

static inline uint32_t fli_serial_gen(uint64_t serial)
{
    return (uint32_t)(serial >> 32);
}

static inline uint32_t fli_serial_slot(uint64_t serial)
{
    return (uint32_t)serial;
}

/* Returns the serial of the process that uses `p`. Requires that this process does not end during the call. */
static inline uint64_t fli_proc_serial(fli_proc *p)
{
    return fli_serial(fli_word_gen(fli_state_peek(&p->state)), p->slot);
}

static inline const filch_type *fli_proc_type(fli_proc *p)
{
    return fli_load_rlx(&p->type);
}

/* Returns the type's name; never NULL. */
static inline const char *fli_type_name(const filch_type *type)
{
    return type != NULL && type->name != NULL ? type->name : "?";
}

/* Returns true if `type` may be the type of a process. Otherwise returns false, and filch_err_detail() says why. */
static inline bool fli_type_is_sound(const filch_type *type)
{
    const char *why = "type is NULL";
    if (FLI_LIKELY(type != NULL)) {
        uintptr_t reserved = (uintptr_t)type->reserved[0] | (uintptr_t)type->reserved[1] | (uintptr_t)type->reserved[2];
        if (FLI_LIKELY(type->step != NULL && reserved == 0)) return true;
        why = type->step == NULL ? "type.step is NULL" : "type.reserved is not NULL: it is reserved and must be NULL";
    }
    (void)filch_invalid(why);
    return false;
}

#endif
