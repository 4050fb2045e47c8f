/* bench.h - processes without a scheduler, for the programs about mailboxes, yields and limits: the real files of
 * src/proc and src/dispatch under a runtime whose `ready` hook runs the process at once, on the thread that woke it.
 * So nothing stands between settling and waking but the state word: no run queue helps with the ordering. */
#ifndef FILCH_TEST_PARTS_BENCH_H
#define FILCH_TEST_PARTS_BENCH_H

#include "dispatch/send_waiters.h"
#include "parts.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "proc/yields.h"

#define BENCH_NODE 77u

/* What a process has done. Plain: its own, handed over with it. */
typedef struct bench_life {
    uint32_t inside;                     /* workers at it this moment */
    uint32_t last[FLI_WEAK_THREADS + 1]; /* by sender: the number of its last message */
    uint32_t received, cancels, answers, answer_error;
    int64_t  answer;
    bool     ended;
} bench_life;

typedef struct bench {
    fli_runtime  rt; /* first: hooks find the bench by it */
    fli_local    worker[FLI_WEAK_THREADS + 1];
    fli_send_waiters room;
    bench_life   lives[8];                   /* by slot */
    uint32_t     woke[FLI_WEAK_THREADS + 1]; /* by thread: how often it was the one to wake */
    uint32_t     slept[FLI_WEAK_THREADS + 1];
    uint32_t     note;  /* plain: what somebody left before he cancelled or killed */
    bool         noted; /* set up: it is read by who gets that */
    /* Set up, or NULL: what the step reads that gets a cancel, and keeps in `heard`. */
    uint32_t (*listen)(void);
    uint32_t heard;
    bool         brief; /* set up: messages are sent, and read, by the short ways */
    bool         ends;  /* set up: who gets a message alone ends with it */
    uint32_t     unread[FLI_WEAK_THREADS + 1];
    uint32_t     accepted[FLI_WEAK_THREADS + 1], refused[FLI_WEAK_THREADS + 1];
} bench;

extern bench *b;

void bench_setup(void);
/* An ACTIVE process, as from filch_spawn. */
fli_proc  *bench_spawn(uint32_t mailbox_max, filch_overflow overflow);
filch_pid  bench_pid(fli_proc *p);
fli_local *bench_here(void);
/* What a worker does with a process it owns, until it sleeps or ends. */
void bench_drive(fli_proc *p);
/* Ends a process that the caller owns; the slot goes back. */
void bench_finish(fli_proc *p);
/* The same by the short way, as sched/finish.h does it, if it has read all mail behind `word`. False: something has come. */
bool bench_exit(fli_proc *p, uint64_t word);
/* ACTIVE -> IDLE or BLOCKED. False: somebody knocked. */
bool bench_settle(fli_proc *p, unsigned rest);
/* Sends number `n` of this thread's messages. */
void bench_send(filch_pid to, uint32_t n);
/* Every node is where it belongs, once: in a magazine or in the depot. */
void        bench_check_nodes(void);
uint32_t    bench_sum(const uint32_t *by_thread);
bench_life *bench_life_of(fli_proc *p);

#endif
