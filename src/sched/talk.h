/* talk.h - a worker that hears more from others than it works takes a nap. See talk.c. */
#ifndef FLI_SCHED_TALK_H
#define FLI_SCHED_TALK_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"

struct fli_worker;

/* What had been done by all workers at some time. */
typedef struct fli_talk_mark {
    uint64_t ns, done, sent;
} fli_talk_mark;

/* A worker's part. Plain but for one: its own. */
typedef struct fli_talker {
    uint64_t      debt_ns;  /* for what it has heard from others */
    uint64_t      paid_ns;  /* when it last paid */
    uint32_t      loot;     /* processes that it stole last; 0: looked after */
    uint32_t      poor;     /* steals in a row that were not worth it */
    uint32_t      barren;   /* of those, the last ones in a row that led to nothing at all */
    uint64_t      loot_at;  /* its count of steps then */
    uint64_t      unheard;  /* messages that it sent to those who were ready already; it did nothing else since the first */
    uint32_t      unheard_steps; /* that sent so, since somebody last asked; */
    uint64_t      asked_at; /* and its count of steps then */
    fli_talk_mark before;   /* not long ago, with everybody awake since */
    /* Events beyond the first of a step.  writes: the worker.  reads: any; relaxed, for a rate. */
    FLI_ATOMIC(uint64_t) batched;
} fli_talker;

/* A scheduler's part. */
typedef struct fli_talk {
    FLI_ATOMIC(uint32_t) napping; /* workers.  writes: they, by add.  PAIR talk.napping */
    /* How long the next nap is, before when there is none, and by how long a bad one puts off the next.  writes: who has
     * napped.  reads: workers; relaxed: an old one makes a nap a little too long, or one too many. */
    FLI_ATOMIC(uint64_t) nap_ns, patient_until_ns, patience_ns;
    /* When the last nap was over, and what all had done by then.  writes: who has napped.  reads: workers.
     * PAIR talk.over  Two naps that end at once may leave the time of one with the count of the other: one bad guess. */
    FLI_ATOMIC(uint64_t) over_ns, over_done, over_sent;
    /* What was done per millisecond during the last nap, if that was clearly more than before it; else 0.  writes: who has
     * napped.  reads: workers; relaxed, a guess like the others. */
    FLI_ATOMIC(uint64_t) clear_rate;
    fli_mutex lock;               /* holds nothing; for `rouse` */
    fli_cond  rouse;              /* everything is to stop */
} fli_talk;

filch_err fli_talk_init(fli_talk *talk);
void      fli_talk_fini(fli_talk *talk);

/* Should the worker nap? Asked at readings of the clock. */
bool fli_talk_is_too_much(struct fli_worker *w);

/* Notes a step that sent so many messages, and to nobody who had to be queued for it. */
static inline void fli_talk_unheard(fli_talker *t, uint32_t sends)
{
    t->unheard += sends;
    t->unheard_steps++;
}

/* Notes a steal; and, when the worker has run dry: should it nap because of how little that brought? */
void fli_talk_stole(struct fli_worker *w, uint32_t count);
bool fli_talk_is_poor(struct fli_worker *w);

/* What is done per millisecond, before a nap and during it: was that nap good? */
bool fli_talk_was_good(uint32_t workers, uint64_t before, uint64_t during);

/* Hands over what is queued and waits. Thread: the worker, with no process in hand. */
void fli_talk_nap(struct fli_worker *w);

/* Ends all naps. Thread: stop, after it has closed the door. */
void fli_talk_over(filch_sched *sched);

#endif
