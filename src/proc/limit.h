/* limit.h - the load of a mailbox with a limit: how full the mailbox is, and which senders may still reserve space.
 * One word per process:
 *
 *   63   52 51         50      49   26 25                0
 *   gen     OVERFLOWED WAITING count   payload / 16 bytes
 *
 * Senders reserve space before they push, and the owner releases the space after delivery; both are
 * read-modify-writes of this word. The low 12 bits of the generation refuse senders with stale pids; one stale
 * sender in 4096 passes, finds the process dead at the push, and releases its space.
 *
 * WAITING says that senders are queued for space (dispatch/send_waiters.c): no other sender may overtake them, and
 * the owner retries them when it releases space. The bit is set under the lock of the process's stripe there, by a CAS
 * that expects the word in which the mailbox was full: either the CAS fails because the owner has released space, or
 * the owner sees the bit when it releases space.
 *
 * Mailboxes without a limit never use this word.
 * Design: docs/design/mailbox-fast-paths.md.
 */
#ifndef FLI_PROC_LIMIT_H
#define FLI_PROC_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/proc.h"

#define FLI_LOAD_COUNT_ONE (UINT64_C(1) << 26)
#define FLI_LOAD_WAITING_SHIFT 50
#define FLI_LOAD_WAITING (UINT64_C(1) << FLI_LOAD_WAITING_SHIFT)
#define FLI_LOAD_OVERFLOWED (UINT64_C(1) << 51)
#define FLI_LOAD_GEN_SHIFT 52

/* Largest limits of a mailbox. A drop-oldest mailbox may grow to twice its limit before its worker trims it, so twice
 * these limits must fit into the fields of the load. FLI_MAILBOX_MAX is also the limit in messages if a mailbox is
 * limited in bytes only, FLI_MAILBOX_UNITS_MAX the limit in units if it is limited in messages only. */
#define FLI_MAILBOX_MAX ((1u << 23) - 1)
#define FLI_MAILBOX_UNITS_MAX (1u << 24)

static inline uint32_t fli_load_count(uint64_t load)
{
    return (uint32_t)(load / FLI_LOAD_COUNT_ONE) & 0xffffffu;
}

static inline uint32_t fli_load_units(uint64_t load)
{
    return (uint32_t)load & 0x3ffffffu;
}

/* Converts bytes to units of 16 bytes, rounded up. Only for sizes that fit into the mailbox: see fli_limit_fits(). */
static inline uint32_t fli_limit_units(size_t bytes)
{
    return (uint32_t)((bytes + 15) / 16);
}

typedef enum fli_admit {
    FLI_ADMIT, /* space is reserved: push the message, and release the space if the push fails */
    /* space is reserved beyond the limit of a drop-oldest mailbox: push the message, and wake the process so that its
     * worker trims the mailbox */
    FLI_ADMIT_OVER,
    FLI_ADMIT_FULL, /* no space was reserved: the mailbox is full, or other senders wait for space */
    FLI_ADMIT_DEAD  /* no space was reserved: the process has ended */
} fli_admit;

/* Initialises the load of a new process. Thread: the spawner. */
static inline void fli_limit_open(fli_proc *p, uint32_t gen)
{
    /* relaxed: fli_state_open() publishes the load and drops_pending */
    fli_store_rlx(&p->load, (uint64_t)(gen & 0xfffu) << FLI_LOAD_GEN_SHIFT);
    fli_store_rlx(&p->drops_pending, (uint64_t)gen << 32);
}

/* Returns true if a payload of `bytes` bytes would fit into the mailbox if the mailbox were empty. */
bool fli_limit_fits(fli_proc *p, size_t bytes);

/* Reserves space for one message with a payload of `units` units. `queued`: the message is the next of the waiting
 * messages, so WAITING does not refuse it. */
FILCH_MUST_USE fli_admit fli_limit_reserve(fli_proc *p, uint32_t gen, uint32_t units, bool queued);

/* fli_limit_reserve() for a value message, in one attempt. Returns false if no space was reserved: the mailbox is full,
 * senders wait, the process has ended or overflowed, or the CAS failed; then use fli_limit_reserve(). */
FILCH_MUST_USE static inline bool fli_limit_reserve_value(fli_proc *p, uint32_t gen)
{
    uint64_t load = fli_load_rlx(&p->load);
    /* If mailbox_max is 0 (no limit in messages), `last` wraps around to UINT32_MAX. */
    uint32_t count = fli_load_count(load), last = fli_load_rlx(&p->mailbox_max) - 1;
    /* One comparison checks the generation and that neither WAITING nor OVERFLOWED is set. */
    bool clean = load >> FLI_LOAD_WAITING_SHIFT == (uint64_t)(gen & 0xfffu)
                                                       << (FLI_LOAD_GEN_SHIFT - FLI_LOAD_WAITING_SHIFT);
    if (FLI_UNLIKELY(!clean || count > last || count >= FLI_MAILBOX_MAX)) return false;
    /* The payload adds no units, so a limit in bytes does not refuse the message. */
    return fli_cas_weak_rlx(&p->load, &load, load + FLI_LOAD_COUNT_ONE);
}

/* Releases the space of `count` messages with `units` units in all. Returns true if senders wait for space; the caller
 * then calls hooks.room, which retries these senders. Thread: any. */
FILCH_MUST_USE bool fli_limit_release(fli_proc *p, uint32_t gen, uint32_t count, uint32_t units);

/* Sets WAITING if the mailbox is still full. Returns FLI_ADMIT_FULL if WAITING is set now: by this call, or before it,
 * even if there is space. The caller then queues its message behind the waiting messages. Returns FLI_ADMIT if WAITING
 * is not set and there is space; the caller then reserves again. Returns FLI_ADMIT_DEAD if the process has ended.
 * Thread: any, under the lock of the process's stripe (dispatch/send_waiters.h). */
FILCH_MUST_USE fli_admit fli_limit_wait(fli_proc *p, uint32_t gen, uint32_t units);
/* Clears WAITING. Called when no sender waits any more. Thread: any, under the lock of the process's stripe
 * (dispatch/send_waiters.h). */
void fli_limit_wait_over(fli_proc *p, uint32_t gen);

/* Records that the process ends because its mailbox overflowed. Thread: any. */
void fli_limit_overflowed(fli_proc *p, uint32_t gen);

/* Closes the load of an ending process: no sender of this generation can reserve space any more. Returns the last
 * value of the load. Thread: the owner, when it ends the process. */
uint64_t fli_limit_close(fli_proc *p, uint32_t gen);

/* Clears the drop counters of an ended process, because the next process of the slot may have no limit and would not
 * reset them. Thread: the owner, when it ends the process. */
static inline void fli_limit_clear(fli_proc *p, uint32_t gen)
{
    /* Stores the next generation, so that a late fli_limit_dropped() by a sender with a stale pid has no effect. */
    fli_store_rlx(&p->drops_pending, (uint64_t)(gen + 1) << 32);
    fli_store_rlx(&p->drops_reported, 0);
}

/* Returns true if the overflow policy of the mailbox drops messages. */
static inline bool fli_limit_may_drop(fli_proc *p)
{
    uint8_t overflow = fli_load_rlx(&p->overflow);
    return overflow == FILCH_OVERFLOW_DROP_NEWEST || overflow == FILCH_OVERFLOW_DROP_OLDEST;
}

/* Returns how many messages must be dropped so that the mailbox is within its limit in messages; 1 if only the payload
 * units exceed their limit. Thread: the owner. */
uint32_t fli_limit_excess(fli_proc *p);

/* Adds `n` to the number of dropped messages that the process's next step will report. Thread: any. */
void fli_limit_dropped(fli_proc *p, uint32_t gen, uint32_t n);
/* Returns the count of dropped messages that fli_limit_dropped() has collected, and resets it. Thread: the owner. */
uint32_t fli_limit_take_dropped(fli_proc *p);

#endif
