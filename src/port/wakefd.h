/* wakefd.h - a file descriptor that can be made readable and unreadable: a runtime without threads uses it to wake
 * its host's poll loop. */
#ifndef FLI_PORT_WAKEFD_H
#define FLI_PORT_WAKEFD_H

#include <filch.h>

/* Opens a wake descriptor. Returns FILCH_ESYS if the system refuses. */
filch_err fli_wakefd_open(int *out);
void      fli_wakefd_close(int fd);
/* Makes the descriptor readable. Several calls before one clear count as one. Thread: any. */
void fli_wakefd_signal(int fd);
void fli_wakefd_clear(int fd);

/* A descriptor that is readable while another descriptor is readable, or from the time of an alarm on. */
typedef struct fli_alarmfd {
    int      poll; /* the descriptor to poll; -1: none */
    int      timer;
    uint64_t at_ns; /* time of the alarm on the monotonic clock; FLI_NEVER: disarmed */
} fli_alarmfd;

/* Combines `fd` with an alarm, which is disarmed at first. `fd` still belongs to the caller. FILCH_ESYS: the system
 * refuses. */
filch_err fli_alarmfd_open(fli_alarmfd *alarm, int fd);
void      fli_alarmfd_close(fli_alarmfd *alarm);
/* Sets the alarm to `at_ns`; FLI_NEVER: disarmed. A time in the past makes the descriptor readable at once, until
 * the alarm is set again. Thread: one at a time. */
void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns);

#endif
