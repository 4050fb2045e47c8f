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
    fli_runtime     rt;  /* first member: a pointer to a filch_sched is also a pointer to its fli_runtime */
    filch_options   opt; /* the options as given, with the defaults filled in */
    filch_registry *registry;
    uint64_t        program;   /* fli_program_self() of the program that created the scheduler; a forked child has
                                  another value */
    bool         learns;       /* option search_ns is 0: workers adapt the length of a search (search.c) */
    uint32_t     fair_most;    /* upper limit of fair_every of the workers */
    uint32_t     worker_count; /* number of worker threads */
    uint32_t     worker_total; /* worker_count + 1: caller_worker is counted */
    fli_worker **workers;
    fli_worker  *caller_worker; /* the last of `workers`: used by the thread that ticks or stops */
    int          wake_fd;       /* becomes readable when work is queued, and is cleared by a tick; -1 if the
                                   scheduler has workers */
    int poll_fd;                /* with I/O: the descriptor of the poller, which also reports wake_fd; otherwise
                                   wake_fd */
    /* The descriptor that the program polls (alarm.poll): readable if poll_fd is readable, or if a timer is due. Not
     * atomic: used under `ticking`, except the field `poll`. */
    fli_alarmfd alarm;
    /* The program has called filch_wake_fd, so ticks set the alarm.  writes: filch_wake_fd.  reads: ticks; relaxed:
     * the first call of filch_wake_fd makes the descriptor readable if a timer runs, so the program calls filch_tick
     * again. */
    FLI_ATOMIC(bool) wants_alarm;
    /* A thread is inside filch_tick.  PAIR tick.owner */
    FLI_ATOMIC(bool) ticking;
    /* For a scheduler without workers: work was queued since the last tick.  PAIR tick.signal */
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
