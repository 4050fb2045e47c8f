/* poller.h - reports which descriptors have become readable or writable: one epoll, and a wake descriptor that
 * interrupts a waiting thread.
 *
 * Descriptors are added once, for both directions, and report *edges*: a report says that the state has changed
 * since the last report, so its receiver repeats the system call until it would block. A report carries the number
 * that was passed with the descriptor, never the descriptor itself, because a stale number can be recognised, while
 * descriptors are reused.
 */
#ifndef FLI_PORT_POLLER_H
#define FLI_PORT_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef struct fli_poller {
    int epoll; /* -1: closed */
    int wakefd;
    /* True: the system does not support waits in nanoseconds, so waits are rounded up to milliseconds. writes and
     * reads: the waiting thread; only one thread waits at a time. Relaxed, because a stale value only causes one more
     * attempt to wait in nanoseconds. */
    FLI_ATOMIC(bool) coarse;
} fli_poller;

/* The number under which the wake descriptor is registered; other descriptors must not use it. */
#define FLI_POLLER_WAKEFD 0

typedef struct fli_poll_report {
    uint64_t number;
    bool     in, out; /* a read or a write may succeed now */
    bool     urgent;  /* an urgent byte has arrived, at which a read ends */
    bool     ended;   /* the peer is gone or has ended its writing direction: an end of file follows the bytes */
} fli_poll_report;

/* Opens the poller. FILCH_ESYS: no descriptors are left; then there is nothing to close. */
FILCH_MUST_USE filch_err fli_poller_open(fli_poller *poller);
void                     fli_poller_close(fli_poller *poller);

/* Adds the descriptor `fd`; its reports contain `number`. Returns 0 or the system's error number. EPERM: the system
 * cannot wait for this kind of descriptor. Thread: any. */
FILCH_MUST_USE int fli_poller_add(fli_poller *poller, int fd, uint64_t number);
/* Makes the poller report `fd` again if it is ready, as if its state had just changed, after all other pending reports.
 * Requires that `fd` was added. Returns 0 or the system's error number. Thread: any. */
FILCH_MUST_USE int fli_poller_again(fli_poller *poller, int fd, uint64_t number);
/* Removes `fd` from the poller. Call this before closing `fd`: if another program has a duplicate of `fd`, the close
 * alone does not remove `fd` from the poller. */
void fli_poller_remove(fli_poller *poller, int fd);

/* Collects up to `max` reports and returns their number. If there is no report, waits for the first one until the clock
 * reads `until_ns` (0: does not wait; UINT64_MAX: waits for ever). A wait may end early with 0 reports.
 * fli_poller_wake() ends a wait in this way, and the call that has waited consumes the wake-up. Thread: any, and
 * several threads may call this function at once, but only one of them may wait. */
FILCH_MUST_USE uint32_t fli_poller_wait(fli_poller *poller, uint64_t until_ns, fli_poll_report *reports, uint32_t max);

/* Ends the wait of the thread that is in fli_poller_wait(); if no thread waits, the next wait returns at once. Several
 * calls may count as one. Thread: any. */
void fli_poller_wake(fli_poller *poller);

/* Returns a descriptor that is readable when a report can be collected, for a poll loop of the host program. */
int fli_poller_fd(const fli_poller *poller);

#endif
