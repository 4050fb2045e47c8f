/* output.h - writes lines of text to a descriptor that other programs share (standard output, standard error),
 * without ever waiting for its reader.
 *
 * The flag O_NONBLOCK belongs to the open file, which the programs that inherited it share; so the flag is not
 * changed. A regular file accepts everything at once. A socket is written with MSG_DONTWAIT. For a pipe or a
 * terminal, poll() says whether it accepts CHUNK bytes. Two outputs can share a pipe (2>&1), and other programs can
 * write to it, so between poll() and write() the room can be used up. Therefore one lock of the program is held for
 * both calls, and the write says RWF_NOWAIT where the system knows it (pipes: Linux 6.4). With an older system only a
 * pipe that another program fills in this moment can still make a write wait.
 *
 * INVARIANT  bytes are written in the order of the calls, and an accepted line is written whole: bytes that the
 *            descriptor does not accept now are kept (`rest`) and written first the next time. No line is accepted
 *            while there is a rest.
 *
 * Rejected: a thread that writes (a library does not start one); opening /proc/self/fd/N again with O_NONBLOCK
 * (sockets, and files of other users, cannot be opened; it needs a descriptor per output). */
#ifndef FLI_PORT_OUTPUT_H
#define FLI_PORT_OUTPUT_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/thread.h"

typedef struct fli_output {
    fli_mutex lock; /* protects all fields below */
    int       fd;
    int       kind; /* which system calls write to the descriptor without waiting: see output.c */
    char     *rest; /* the bytes of the last accepted line that the descriptor has not accepted yet; NULL: none */
    size_t    rest_at, rest_size;
    bool      closed;  /* the reader is gone: a write returned EPIPE */
    uint64_t  dropped; /* lines that fli_output_drop() counted, and lines that the system refused */
} fli_output;

filch_err fli_output_init(fli_output *out, int fd);
void      fli_output_fini(fli_output *out);

/* Accepts the line `text` if the rest of the previous line and at least one byte of `text` can be written now. The
 * unwritten rest of `text` is kept. Never blocks. Returns true if the line was accepted, false if nothing of it was
 * written. */
bool fli_output_write(fli_output *out, const char *text, size_t size);
/* Like fli_output_write(), but waits for the descriptor until `until_ns` at the latest. */
bool fli_output_write_by(fli_output *out, const char *text, size_t size, uint64_t until_ns);
/* Writes as much of the rest of the last line as the descriptor accepts now. Returns true if no rest is left. */
bool fli_output_flush(fli_output *out);
/* Writes the rest of the last line; waits for the descriptor until `until_ns` at the latest. Returns true if no rest is
 * left. */
bool fli_output_finish(fli_output *out, uint64_t until_ns);

/* Counts a line that the caller drops because fli_output_write() did not accept it. */
void     fli_output_drop(fli_output *out);
uint64_t fli_output_dropped(fli_output *out);

/* Returns true if a write has failed because the reader of the pipe or socket is gone. The failed write raises no
 * SIGPIPE, so that the library sends no signal to a thread of the host program. */
bool fli_output_is_closed(fli_output *out);

#endif
