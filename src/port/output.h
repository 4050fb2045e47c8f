/* output.h - lines of text to a descriptor that other programs share (standard output, standard error), without ever
 * waiting for its reader.
 *
 * The flag O_NONBLOCK belongs to the open file, which the programs that inherited it share: it stays as it is. A
 * regular file takes everything at once. A socket is written with MSG_DONTWAIT. For a pipe or a terminal, poll() says
 * whether it accepts CHUNK bytes.
 *
 * INVARIANT  bytes leave in the order of the calls, and a line that was taken leaves whole: what the descriptor does not take now
 *            is kept (`rest`) and goes first the next time. No line is taken while there is a rest.
 *
 * Rejected: a thread that writes (a library does not start one), and opening /proc/self/fd/N again with O_NONBLOCK (sockets, and files
 * of other users, cannot be opened).
 */
#ifndef FLI_PORT_OUTPUT_H
#define FLI_PORT_OUTPUT_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/thread.h"

typedef struct fli_output {
    fli_mutex lock; /* of all below */
    int       fd;
    int       kind; /* how it is asked: output.c */
    char     *rest; /* what the descriptor did not take of the last line, or NULL */
    size_t    rest_at, rest_size;
    bool      closed; /* its reader has gone: EPIPE */
    uint64_t  dropped; /* lines that fli_output_drop counted, and lines that the system refused */
} fli_output;

filch_err fli_output_init(fli_output *out, int fd);
void      fli_output_fini(fli_output *out);

/* Takes the line `text` if the descriptor takes the rest of the one before. Never blocks.
 * Returns true if it was taken, false if nothing changed. */
bool fli_output_write(fli_output *out, const char *text, size_t size);
/* Writes as much of the rest as the descriptor takes. Returns true if there is none left. */
bool fli_output_flush(fli_output *out);
/* Waits until there is no rest, until `until_ns` at the latest. Returns true if there is none left. */
bool fli_output_finish(fli_output *out, uint64_t until_ns);

/* Counts a line that was given up. */
void     fli_output_drop(fli_output *out);
uint64_t fli_output_dropped(fli_output *out);

/* True once the reader of the pipe or socket has gone. No SIGPIPE is raised for it: the thread is the host's. */
bool fli_output_is_closed(fli_output *out);

#endif
