/* wakefd.h - a file descriptor that can be made readable and unreadable: how a runtime without threads knocks on its
 * host's poll loop. */
#ifndef FLI_PORT_WAKEFD_H
#define FLI_PORT_WAKEFD_H

#include <filch.h>

/* Gives a descriptor, or FILCH_ESYS. */
filch_err fli_wakefd_open(int *out);
void      fli_wakefd_close(int fd);
/* Thread: any. Many rings before one clear are one ring. */
void fli_wakefd_ring(int fd);
void fli_wakefd_clear(int fd);

#endif
