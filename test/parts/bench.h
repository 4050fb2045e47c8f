/* bench.h - processes without a scheduler, for the programs about mailboxes, yields and limits: the real files of
 * src/proc and src/dispatch under a runtime with a `ready` hook that runs the process at once, on the thread that woke it. So
 * only the state word orders settling and waking: no run queue adds to the ordering. */
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

/* What a process has done. Plain: only the thread that owns the process uses it. */
typedef struct bench_life {
    uint32_t inside;                     /* workers that step it at present; never more than 1 */
    uint32_t last[FLI_WEAK_THREADS + 1]; /* by sender: the number of its last message */
    uint32_t received, cancels, answers, answer_error;
    int64_t  answer;
    bool     ended;
} bench_life;

typedef struct bench {
    fli_runtime  rt; /* first member: the hooks cast it to the bench */
    fli_local    worker[FLI_WEAK_THREADS + 1];
    fli_send_waiters room;
    bench_life   lives[8];                   /* by slot */
    uint32_t     woke[FLI_WEAK_THREADS + 1]; /* by thread: number of times this thread woke the process */
    uint32_t     slept[FLI_WEAK_THREADS + 1];
    uint32_t     note;  /* plain: written by a thread before it cancels or kills */
    bool         noted; /* set up: the step that receives the cancel or kill reads `note` */
    /* Set up, or NULL: called by the step that receives a cancel; its result is kept in `heard`. */
    uint32_t (*listen)(void);
    uint32_t heard;
    bool         brief; /* set up: messages are sent and read on the fast paths */
    bool         ends;  /* set up: a process that receives a single message ends with it */
    uint32_t     unread[FLI_WEAK_THREADS + 1];
    uint32_t     accepted[FLI_WEAK_THREADS + 1], refused[FLI_WEAK_THREADS + 1];
} bench;

extern bench *b;

void bench_setup(void);
/* Creates an ACTIVE process, as filch_spawn() does. */
fli_proc  *bench_spawn(uint32_t mailbox_max, filch_overflow overflow);
filch_pid  bench_pid(fli_proc *p);
fli_local *bench_here(void);
/* Runs a process that the caller owns, as a worker does, until it settles or ends. */
void bench_drive(fli_proc *p);
/* Ends a process that the caller owns and frees its slot. */
void bench_finish(fli_proc *p);
/* Ends the process by the fast path of sched/finish.h, if it has read all mail behind `word`. Returns false if an event
 * has arrived. */
bool bench_exit(fli_proc *p, uint64_t word);
/* ACTIVE -> IDLE or BLOCKED. Returns false if an event has arrived. */
bool bench_settle(fli_proc *p, unsigned rest);
/* Sends message number `n` of this thread. */
void bench_send(filch_pid to, uint32_t n);
/* Checks that every node is in exactly one place: a magazine or the depot. */
void        bench_check_nodes(void);
uint32_t    bench_sum(const uint32_t *by_thread);
bench_life *bench_life_of(fli_proc *p);

#endif
