/* bench.h - processes without a scheduler, for the programs about mailboxes, yields and limits. The programs use the
 * real files of src/proc and src/dispatch, with a runtime whose `ready` hook runs the process at once, on the thread
 * that woke it. So only the state word orders settling and waking: there is no run queue that would add ordering. */
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

/* What a process has received and done. Not atomic: used only by the thread that owns the process. */
typedef struct bench_life {
    uint32_t inside;                     /* number of workers that are in a step of the process; never more than 1 */
    uint32_t last[FLI_WEAK_THREADS + 1]; /* for each sender: the number of its last message */
    uint32_t received, cancels, yields_completed, completion_error;
    int64_t  completion;
    bool     ended;
} bench_life;

typedef struct bench {
    fli_runtime      rt; /* must be the first member, because hooks cast a pointer to `rt` to a pointer to bench */
    fli_local        worker[FLI_WEAK_THREADS + 1];
    fli_send_waiters room;
    bench_life       lives[8];                   /* indexed by slot */
    uint32_t         woke[FLI_WEAK_THREADS + 1]; /* for each thread: how often it woke the process */
    uint32_t         slept[FLI_WEAK_THREADS + 1];
    uint32_t         note;  /* number that a thread writes before it cancels or kills the process; not atomic */
    bool             noted; /* option of a model program: the step that receives the cancel or kill reads `note` */
    /* Option of a model program, or NULL: the step that receives a cancel calls this function and keeps the result in
     * `note_seen`. */
    uint32_t (*on_cancel)(void);
    uint32_t note_seen;
    bool     fast; /* option of a model program: messages are sent and read on the fast paths */
    bool     ends; /* option of a model program: a process that receives a single message ends in that step */
    uint32_t unread[FLI_WEAK_THREADS + 1];
    uint32_t accepted[FLI_WEAK_THREADS + 1], refused[FLI_WEAK_THREADS + 1];
} bench;

extern bench *b;

void bench_setup(void);
/* Creates an ACTIVE process, as filch_spawn() does. */
fli_proc  *bench_spawn(uint32_t mailbox_max, filch_overflow overflow);
filch_pid  bench_pid(fli_proc *p);
fli_local *bench_worker(void);
/* Runs a process that the caller owns, as a worker does, until it settles or ends. */
void bench_drive(fli_proc *p);
/* Ends a process that the caller owns and frees its slot. */
void bench_finish(fli_proc *p);
/* Ends the process by the fast path of sched/finish.h. Requires that all messages behind the state word `word` have
 * been read. Returns false if an event has arrived since. */
bool bench_exit(fli_proc *p, uint64_t word);
/* Settles the process: ACTIVE -> IDLE or BLOCKED. Returns false if an event has arrived. */
bool bench_settle(fli_proc *p, unsigned settle_to);
/* Sends a message with the number `n` of the calling thread. */
void bench_send(filch_pid to, uint32_t n);
/* Checks that every event node is in exactly one magazine, or in the depot. */
void        bench_check_nodes(void);
uint32_t    bench_sum(const uint32_t *by_thread);
bench_life *bench_life_of(fli_proc *p);

#endif
