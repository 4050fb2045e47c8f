/* proc.h - one process: its control block. Two cache lines from a slab; the slab is the pid table. A process that only gets
 * messages and has little state needs the first line alone.
 *
 * A pid's serial is generation:32 | slot:32. Looking one up is a bounds check and an address; whether it is still
 * alive is decided by the generation in the state word, in the same CAS that delivers.
 *
 * What is not marked FLI_ATOMIC is plain: it belongs to the worker that owns the
 * process (ACTIVE, see state.h), and changes hands by PAIR state.settle and the run queues.
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

#define FLI_STATE_INLINE 16 /* bytes of user state inside the control block */
#define FLI_YIELDS_FEW 2    /* outstanding yields without an allocation */

/* proc->flags */
enum {
    FLI_PROC_HEAD_HELD = 1,    /* the node `seen` has been read, and must be freed when the head moves on */
    FLI_PROC_WAITING = 2, /* the last status was wait: deliver answers, let messages queue */
    FLI_PROC_MUST_STEP = 4,  /* step it even without events: it is new, or said continue */
    FLI_PROC_STOP_SENT = 8,    /* got its cancel from stop */
    FLI_PROC_YIELDS_HEAP = 16,   /* yields.many is an allocated list */
    FLI_PROC_RECORDED = 32,  /* ext->recorder writes down its steps */
    FLI_PROC_TRAPS = 64,  /* hears of linked processes that failed, instead of ending with them */
    FLI_PROC_LINK_FAILED = 128   /* one has failed, and it does not trap: it ends */
};

/* What few processes need: allocated when needed, freed at exit. */
typedef struct fli_ext {
    filch_exit_fn on_exit;
    void         *on_exit_user;
    uint64_t     *timers; /* ids of timers and tickers it has armed; some may be over */
    uint32_t      timer_count, timer_cap;
    /* The first of its open streams.  writes: io/stream.c, under its lock.  reads: the same; the owner at its end without it.
     * PAIR ext.streams */
    FLI_ATOMIC(uint32_t) streams;
    struct fli_recorder *recorder; /* sched/record.c's; NULL: no black box */
} fli_ext;

typedef struct fli_proc {
    fli_state state;
    /* What is on its mind, down to `last_worker`: asked for every message, as two words (fli_proc_is_idle_word). */
    uint32_t head_taken;              /* newest node already taken from the mailbox; 0 none */
    uint32_t completions, messages; /* newest node of each list, a ring; 0 empty */
    uint8_t  flags;
    FLI_ATOMIC(uint8_t) overflow; /* filch_overflow */
    uint8_t  report_state; /* filch_state before it was last woken, for the report if it is forced */
    uint8_t  last_worker; /* the worker that stepped it last, as far as 8 bits tell; FLI_MARK_SAMPLED */
    uint32_t slot; /* its own handle; set when made */
    uint32_t yield_count; /* outstanding */
    void    *self; /* the user's state */
    /* writes: the owner, at spawn and upgrade. reads: any, for reports; relaxed, types are never freed under us. */
    FLI_ATOMIC(const filch_type *) type;
    alignas(16) uint8_t inline_state[FLI_STATE_INLINE]; /* it, if it is small */

    /* Room taken in a mailbox with a limit: proc/limit.h. */
    FLI_ATOMIC(uint64_t) load;
    /* The mailbox's limit; what happens there is `overflow`.  writes: the spawner.  reads: also senders with an old pid,
     * while the slot changes hands: relaxed, what they do with it is checked by generation. */
    FLI_ATOMIC(uint32_t) mailbox_max;   /* messages; 0 none */
    FLI_ATOMIC(uint32_t) mailbox_units; /* payload in units of 16 bytes; 0 none */
    /* generation:32 | messages dropped and not yet reported:32. */
    FLI_ATOMIC(uint64_t) drops_pending;
    fli_ext *ext;
    struct fli_proc *link; /* the global queue's */
    FLI_ATOMIC(uint64_t) drops_reported; /* told to it so far.  writes: the owner. reads: any, for reports */
    union {
        uint32_t  few[FLI_YIELDS_FEW];
        uint32_t *many; /* [0] is the capacity, then the handles */
    } yields;
    filch_values *values;
} fli_proc;

static_assert(offsetof(fli_proc, inline_state) + FLI_STATE_INLINE == 64 && sizeof(fli_proc) == 128, "a process is two cache lines");

/* In `last_worker`: its wait in the queue is being measured. */
#define FLI_MARK_SAMPLED 255

/* What worker `index` leaves there: never that. */
static inline uint8_t fli_worker_mark(uint32_t index)
{
    return (uint8_t)(index % FLI_MARK_SAMPLED);
}

/* Has it nothing on its mind: no node held, no list, no flag? Thread: the owner. */
static inline bool fli_proc_has_no_pending(const fli_proc *p)
{
    return (p->head_taken | p->completions | p->messages | p->flags) == 0;
}

/* How the second of those words looks in a process without anything on its mind that went idle at worker `index`. */
static inline uint64_t fli_proc_idle_word(uint32_t index)
{
    fli_proc p = { .report_state = FILCH_STATE_IDLE, .last_worker = fli_worker_mark(index) };
    uint64_t idle_word;
    memcpy(&idle_word, &p.messages, sizeof idle_word);
    return idle_word;
}

/* Is it such a one? False for a few that are free too (in a slot, say, whose last owner left a policy in `overflow`): for
 * those who do not care which. Thread: the owner. */
static inline bool fli_proc_is_idle_word(const fli_proc *p, uint64_t idle_word)
{
    static_assert(offsetof(fli_proc, completions) == offsetof(fli_proc, head_taken) + 4 &&
                  offsetof(fli_proc, last_worker) == offsetof(fli_proc, messages) + 7, "looked at together");
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

/* The serial of a process that cannot end meanwhile. */
static inline uint64_t fli_proc_serial(fli_proc *p)
{
    return fli_serial(fli_word_gen(fli_state_peek(&p->state)), p->slot);
}

static inline const filch_type *fli_proc_type(fli_proc *p)
{
    return fli_load_rlx(&p->type);
}

/* The type's name; never NULL. */
static inline const char *fli_type_name(const filch_type *type)
{
    return type != NULL && type->name != NULL ? type->name : "?";
}

#endif
