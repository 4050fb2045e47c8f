/* poller.h - reports which descriptors have become readable or writable: one epoll, and a wake descriptor that
 * interrupts a waiting thread.
 *
 * Descriptors are added once, for both directions, and report *edges*: a report says that something has changed since
 * the last one, so its receiver tries until the system call would block. A report carries the number that was given
 * with the descriptor, never the descriptor itself: a number can be recognised as stale, a descriptor is reused.
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
    /* The system does not support waits in nanoseconds: not tried again.  writes and reads: the waiting thread; there
     * is one at a time, and a stale value only causes one more try, so relaxed. */
    FLI_ATOMIC(bool) coarse;
} fli_poller;

/* Number of the wake descriptor; not to be used for others. */
#define FLI_POLLER_BELL 0

typedef struct fli_poll_report {
    uint64_t number;
    bool     in, out; /* worth a try */
    bool     urgent; /* there is an urgent byte, at which a read ends */
    bool     ended; /* the other side has gone, or ended what it writes: there is an end to be read behind the bytes */
} fli_poll_report;

/* FILCH_ESYS: no descriptors left; then there is nothing to undo. */
FILCH_MUST_USE filch_err fli_poller_open(fli_poller *poller);
void                     fli_poller_close(fli_poller *poller);

/* 0, or the system's error number. EPERM: not a descriptor one can wait for. Thread: any. */
FILCH_MUST_USE int fli_poller_add(fli_poller *poller, int fd, uint64_t number);
/* Reports a descriptor that was added once more if it is ready, as if that were news, behind all other news. 0, or the
 * system's error number. Thread: any. */
FILCH_MUST_USE int fli_poller_again(fli_poller *poller, int fd, uint64_t number);
/* Removes `fd`. Call it before closing `fd`, because another process may hold a duplicate. */
void fli_poller_remove(fli_poller *poller, int fd);

/* Collects up to `max` reports. Waits for the first until the clock reads `until_ns`: 0 does not wait, UINT64_MAX waits
 * for ever. May return early without reports, and does so after fli_poller_ring(), which is thereby consumed. Thread:
 * any, also several; one at a time may wait. */
FILCH_MUST_USE uint32_t fli_poller_wait(fli_poller *poller, uint64_t until_ns, fli_poll_report *reports, uint32_t max);

/* Interrupts the waiting thread, or the next one that waits. Several calls may count as one. Thread: any. */
void fli_poller_ring(fli_poller *poller);

/* Returns a descriptor that is readable when there is something to collect, for a poll loop of the host program. */
int fli_poller_fd(const fli_poller *poller);

#endif
