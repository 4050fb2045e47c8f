/* wakefd.h - a file descriptor that can be made readable and unreadable: how a runtime without threads knocks on its
 * host's poll loop. */
#ifndef FLI_PORT_WAKEFD_H
#define FLI_PORT_WAKEFD_H

#include <filch.h>

/* Gives a descriptor, or FILCH_ESYS. */
filch_err fli_wakefd_open(int *out);
void      fli_wakefd_close(int fd);
/* Makes the descriptor readable. Several calls before one clear count as one. Thread: any. */
void fli_wakefd_ring(int fd);
void fli_wakefd_clear(int fd);

/* A descriptor that is readable while another one is, or when a time has come. */
typedef struct fli_alarmfd {
    int      poll;  /* what is polled; -1: none */
    int      timer;
    uint64_t at_ns; /* of the monotonic clock; FLI_NEVER: off */
} fli_alarmfd;

/* Adds an alarm, off at first, to `fd`, which stays the caller's. FILCH_ESYS */
filch_err fli_alarmfd_open(fli_alarmfd *alarm, int fd);
void      fli_alarmfd_close(fli_alarmfd *alarm);
/* Sets it to `at_ns`; FLI_NEVER: off. A time that has come makes it readable at once, until it is set again. Thread: one at a time. */
void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns);

#endif
