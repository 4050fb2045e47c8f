/* sched.h - the scheduler: what all workers share. */
#ifndef FLI_SCHED_SCHED_H
#define FLI_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "clock/timers.h"
#include "dispatch/send_waiters.h"
#include "io/io.h"
#include "port/atomic.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/stop.h"
#include "sched/throttle.h"
#include "sched/trim.h"
#include "sync/inject.h"
#include "work/pool.h"

typedef struct fli_worker fli_worker;

struct filch_sched {
    fli_runtime     rt;  /* first member: a pointer to a filch_sched is also one to its fli_runtime */
    filch_options   opt; /* the options as given, with the defaults filled in */
    filch_registry *registry;
    uint64_t        program;   /* fli_program_self() of the program that created the scheduler; a forked child has
                                  another value */
    bool         learns;       /* the search time adapts, because option search_ns is 0 */
    uint32_t     fair_most;    /* the largest fair_every of a worker */
    uint32_t     worker_count; /* number of worker threads */
    uint32_t     worker_total; /* worker_count + 1: caller_worker is counted */
    fli_worker **workers;
    fli_worker  *caller_worker; /* the last of `workers`: used by the thread that ticks or stops */
    int          wake_fd;       /* becomes readable when work is queued, and is cleared by a tick; -1 if the
                                   scheduler has workers */
    int         poll_fd;        /* with I/O the descriptor of the poller, which contains wake_fd; otherwise wake_fd */
    fli_alarmfd alarm;          /* the descriptor that the host polls: readable if poll_fd is, or if a timer is due.
                                   Not atomic: used under `ticking`, except the field `poll` */
    /* The host has called filch_wake_fd, so ticks set the alarm.  writes: filch_wake_fd.  reads: ticks; relaxed:
     * the first call of filch_wake_fd signals the host, so a tick follows it. */
    FLI_ATOMIC(bool) alarm_asked;
    /* A thread is inside filch_tick.  PAIR tick.owner */
    FLI_ATOMIC(bool) ticking;
    /* Without workers: work was queued since the last tick.  PAIR tick.signal */
    FLI_ATOMIC(bool) signalled;
    fli_idle         idle;
    fli_throttle     throttle;
    fli_inject       global;
    fli_timers       timers;
    fli_send_waiters send_waiters;
    fli_workpool     workpool;
    fli_io           io;
    fli_stop         stop;
    fli_trim         trim;
};

/* ---- create.c ---- */

/* Creates a scheduler that calls the modules above sched through `upper`. With `sim` it is a scheduler for a
 * simulation: its workers have no threads. */
filch_err fli_sched_make(filch_sched **out, const filch_options *options, fli_simulator *sim,
                         const fli_upper_ops *upper);
void      fli_sched_free(filch_sched *sched);

#endif
