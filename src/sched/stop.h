/* stop.h - the state of a stop, and its phases. See stop.c and drain.c. */
#ifndef FLI_SCHED_STOP_H
#define FLI_SCHED_STOP_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "proc/proc.h"

typedef struct fli_worker fli_worker;

/* The entries of the next stop report. Used under the lock of fli_stop. */
typedef struct fli_losses {
    filch_straggler *stragglers;
    filch_loss      *losses;
    size_t           count, room, loss_count, loss_room, omitted;
    uint64_t         unread, writes, bytes, terminated;
} fli_losses;

typedef struct fli_stop {
    fli_mutex lock;
    fli_cond  changed; /* signalled when a worker has parked, when a foreign spawn has ended, or (without workers)
                          when a process became ready */
    /* A thread is inside a stop.  PAIR stop.owner */
    FLI_ATOMIC(bool) busy;
    /* The deadline has passed: every process is ended instead of stepped.  writes: the stopping thread, which also runs
     * steps. reads: workers; relaxed: a worker need not act before it sees the KILL flag, which is set after `force`.
     */
    FLI_ATOMIC(bool) force;
    /* `patience_ns` has passed: if a process waits for a completion, its cancel is delivered before its messages.
     * writes: the stopping thread.  reads: workers; relaxed: a worker need not act before it sees the ASK flag, which
     * is set after `hurry`. */
    FLI_ATOMIC(bool) hurry;
    /* Flags FILCH_STOP_* of the stop.  writes: the stopping thread, before it sets rt.phase. reads: workers, after they
     * have read rt.phase. PAIR runtime.phase */
    FLI_ATOMIC(uint32_t) flags;
    fli_losses           losses; /* the fields from `losses` to `ended_before` are used under `lock` */
    uint64_t             forced; /* processes ended by force since the stop began, because the deadline had passed */
    /* Ended processes that earlier reports contain: ended by force (forced_reported), ended without force
     * (polite_reported). */
    uint64_t forced_reported, polite_reported;
    uint64_t ended_before; /* how many processes had ended when the first stop began */
    /* Bits 0 to 30: count of foreign threads inside filch_spawn. Bit 31: FLI_SPAWN_CLOSED.  writes: these foreign
     * threads and the stopping thread.  PAIR spawn.closed */
    FLI_ATOMIC(uint32_t) foreign_spawns;
} fli_stop;

/* Bit of `foreign_spawns`: a stop has begun, so no foreign thread may begin a spawn. The stop waits for the threads
 * that are inside filch_spawn. */
#define FLI_SPAWN_CLOSED (UINT32_C(1) << 31)

/* ---- stop.c ---- */

/* Wakes a waiting stop: processes may have ended or become ready. */
void fli_stop_nudge(filch_sched *sched);
/* Called by a foreign thread that leaves filch_spawn, if a stop has begun since the thread entered. The thread must not
 * use the scheduler afterwards. */
void fli_stop_left(filch_sched *sched);
/* The next four functions are the phases of a stop. A simulation calls them one by one, and runs processes between
 * these calls. */
/* Closes the scheduler to spawns and messages of foreign threads, and asks every process to end. */
void fli_stop_begin(filch_sched *sched);
/* Asks every process again to end: some processes were still being spawned when they were last asked, or have lost
 * their supervisor since. `hurry`: patience_ns has passed. */
void fli_stop_round(filch_sched *sched, bool hurry);
/* Kills every process that is left. */
void fli_stop_force(filch_sched *sched);
/* Ends the stop when no process is left. Returns how many processes were ended by force. */
uint64_t fli_stop_over(filch_sched *sched);

/* ---- drain.c ---- */

/* Returns true if a stop has begun that delivers each cancel behind the messages of the process (no
 * FILCH_STOP_CANCEL_FIRST). */
bool fli_stop_is_polite(filch_sched *sched);
/* Clears ASK, and returns true if the step that is about to begin gets a cancel first. Called during a stop, when the
 * mailbox has been unstacked and no event collected. Thread: the worker that owns the process. */
bool fli_drain_cancel(fli_worker *w, fli_proc *p, uint64_t word);

#endif
