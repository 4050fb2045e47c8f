/* limit.h - how full a mailbox with a limit is, and who may still come in. One word per process:
 *
 *   63   52 51         50      49   26 25                0
 *   gen     OVERFLOWED WAITING count   payload / 16 bytes
 *
 * Senders reserve room before they push and the owner gives it back when it reads; both are read-modify-writes of this
 * word. The generation (its low 12 bits) keeps senders with old pids out; one in 4096 of those gets past it, finds the
 * process dead when it pushes, and gives the room back.
 *
 * WAITING says that senders are queued for room (dispatch/send_waiters.c): nobody may overtake them, and the owner calls
 * them in. It is raised under the waiting room's lock, by a CAS on the word that just said "full": so either that CAS
 * fails because the owner made room, or the owner sees the bit when it does.
 *
 * Mailboxes without a limit never come here.
 */
#ifndef FLI_PROC_LIMIT_H
#define FLI_PROC_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/proc.h"

#define FLI_LOAD_COUNT_ONE (UINT64_C(1) << 26)
#define FLI_LOAD_WAITING (UINT64_C(1) << 50)
#define FLI_LOAD_OVERFLOWED (UINT64_C(1) << 51)
#define FLI_LOAD_GEN_SHIFT 52

/* Drop-oldest lets a mailbox run up to twice its limit before its owner trims it, so limits are less than half of what
 * the fields hold. They also bound what was given no limit of its own. */
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

/* Bytes as the word counts them. Only for sizes that fit: see fli_limit_fits. */
static inline uint32_t fli_limit_units(size_t bytes)
{
    return (uint32_t)((bytes + 15) / 16);
}

typedef enum fli_admit {
    FLI_ADMIT,      /* room reserved: push, and give it back if that fails */
    FLI_ADMIT_OVER, /* the same, beyond the limit of a drop-oldest mailbox: the owner has to trim */
    FLI_ADMIT_FULL, /* no */
    FLI_ADMIT_DEAD  /* not this process any more */
} fli_admit;

/* Makes the word of a new process. Thread: the spawner. */
static inline void fli_limit_open(fli_proc *p, uint32_t gen)
{
    /* Both are published by fli_state_open. */
    fli_store_rlx(&p->load, (uint64_t)(gen & 0xfffu) << FLI_LOAD_GEN_SHIFT);
    fli_store_rlx(&p->drops_pending, (uint64_t)gen << 32);
}

/* Could a payload of so many bytes ever fit? */
bool fli_limit_fits(fli_proc *p, size_t bytes);

/* Reserves room for one message. `queued`: the caller is next in the waiting room and overtakes nobody. */
FILCH_MUST_USE fli_admit fli_limit_reserve(fli_proc *p, uint32_t gen, uint32_t units, bool queued);

/* Gives back the room of `count` messages. True: senders wait for it. Thread: any; the owner calls the waiting in. */
FILCH_MUST_USE bool fli_limit_release(fli_proc *p, uint32_t gen, uint32_t count, uint32_t units);

/* Raises WAITING if the mailbox is still full. False: it is not; try to enter again. Thread: under the waiting room's
 * lock. FLI_ADMIT: there is room, FLI_ADMIT_FULL: raised, FLI_ADMIT_DEAD. */
FILCH_MUST_USE fli_admit fli_limit_wait(fli_proc *p, uint32_t gen, uint32_t units);
/* Nobody waits any more. Thread: under the waiting room's lock. */
void fli_limit_wait_over(fli_proc *p, uint32_t gen);

/* Marks the mailbox as the reason for the end. Thread: any. */
void fli_limit_overflowed(fli_proc *p, uint32_t gen);

/* Closes the word: nobody of this generation comes in any more. Returns the last value. Thread: the owner, at the end.*/
uint64_t fli_limit_close(fli_proc *p, uint32_t gen);

/* Forgets what was dropped for a process that is over: its slot may get one without a limit, which does not look here.
 * Thread: the owner, at the end. */
static inline void fli_limit_clear(fli_proc *p, uint32_t gen)
{
    fli_store_rlx(&p->drops_pending, (uint64_t)(gen + 1) << 32); /* the generation keeps late senders from counting on */
    fli_store_rlx(&p->drops_reported, 0);
}

/* How many messages are over the limit. Thread: the owner. */
uint32_t fli_limit_excess(fli_proc *p);

/* Counts `n` messages dropped for the process, to be told in its next step. Thread: any. */
void fli_limit_dropped(fli_proc *p, uint32_t gen, uint32_t n);
/* Takes the count of those. Thread: the owner. */
uint32_t fli_limit_take_dropped(fli_proc *p);

#endif
