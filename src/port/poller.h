/* poller.h - which descriptors can be read or written again: one epoll, and a bell to interrupt whoever waits in it.
 *
 * Descriptors are added once, for both directions, and report *edges*: a report says that something has changed since
 * the last one, so whoever gets it tries until the system says "not now". A report carries the number that was given
 * with the descriptor, never the descriptor itself: numbers can tell that they are old, descriptors are used again.
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
    /* The system has said that it knows no waits in nanoseconds: not asked again.  writes and reads: who waits. One at a
     * time does, and an old answer would only ask once more, so relaxed. */
    FLI_ATOMIC(bool) coarse;
} fli_poller;

/* The bell's own number: nobody else may use it. */
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
/* Before it is closed, in case somebody else has a copy of it. */
void fli_poller_remove(fli_poller *poller, int fd);

/* Collects up to `max` reports. Waits for the first until the clock reads `until_ns`: 0 does not wait, UINT64_MAX waits
 * for ever. May come back early and empty, and does so when the bell rings; only then does it stop ringing.
 * Thread: any, also several, but one at a time waits. */
FILCH_MUST_USE uint32_t fli_poller_wait(fli_poller *poller, uint64_t until_ns, fli_poll_report *reports, uint32_t max);

/* Interrupts one who waits, or the next one who would. Many rings may be one. Thread: any. */
void fli_poller_ring(fli_poller *poller);

/* A descriptor that is readable when there is something to collect, for somebody else's poll loop. */
int fli_poller_fd(const fli_poller *poller);

#endif
