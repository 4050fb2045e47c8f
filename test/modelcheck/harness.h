/* harness.h - processes without a scheduler, for the programs about mailboxes, yields and limits. The programs use the
 * real files of src/proc and src/dispatch, with a runtime whose `ready` hook runs the process at once, on the thread
 * that woke it. So only the state word orders settling and waking: there is no run queue that would add ordering. */
#ifndef FILCH_TEST_PARTS_HARNESS_H
#define FILCH_TEST_PARTS_HARNESS_H

#include "dispatch/send_waiters.h"
#include "parts.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "proc/yields.h"

#define HARNESS_NODE 77u

/* What a process has received and done. Not atomic: used only by the thread that owns the process. */
typedef struct harness_life {
    /* number of workers that are inside a step of the process; must never exceed 1 */
    uint32_t inside;
    /* for each sending thread: the number in its last message that the process has received */
    uint32_t last[FLI_WEAK_THREADS + 1];
    uint32_t received, cancels, yields_completed, completion_error;
    int64_t  completion;
    bool     ended;
} harness_life;

typedef struct harness {
    fli_runtime      rt; /* must be the first member, because hooks cast a pointer to `rt` to a pointer to harness */
    fli_local        worker[FLI_WEAK_THREADS + 1];
    fli_send_waiters room;
    harness_life     lives[8];                   /* indexed by slot */
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
} harness;

extern harness *b;

void harness_setup(void);
/* Creates an ACTIVE process, as filch_spawn() does. */
fli_proc  *harness_spawn(uint32_t mailbox_max, filch_overflow overflow);
filch_pid  harness_pid(fli_proc *p);
fli_local *harness_worker(void);
/* Runs a process that the caller owns, as a worker does, until it settles or ends. */
void harness_drive(fli_proc *p);
/* Ends a process that the caller owns and frees its slot. */
void harness_finish(fli_proc *p);
/* Ends the process by the fast path of sched/finish.h. Requires that all messages behind the state word `word` have
 * been read. Returns false if an event has arrived since. */
bool harness_exit(fli_proc *p, uint64_t word);
/* Settles the process: ACTIVE -> IDLE or BLOCKED. Returns false if an event has arrived. */
bool harness_settle(fli_proc *p, unsigned settle_to);
/* Sends a message from the calling thread. The message contains the number of the thread and the number `n`. */
void harness_send(filch_pid to, uint32_t n);
/* Checks that every event node is in exactly one magazine, or in the depot. */
void          harness_check_nodes(void);
uint32_t      harness_sum(const uint32_t *by_thread);
harness_life *harness_life_of(fli_proc *p);

#endif
