/* service.h - shared by the servers of this folder: one process per connection, under a supervisor, and an orderly end
 * on a signal.
 *
 *     supervisor                        restarts what fails, and ends the program when that does not help
 *       acceptor                        listens, starts a process for each connection
 *       (children of the service's own)
 *     connection, connection, ...       not children of the supervisor: a lost connection is not restarted
 *     watch                             waits for SIGINT and SIGTERM
 *
 * A connection that fails closes its socket and is named in a line on stderr; no other connection is affected.
 *
 * What one client may use is bounded: the connections (--connections), how long a request may take to arrive
 * (--request-seconds), how long a client may read nothing of a reply (--write-seconds), and the bytes of all incomplete
 * requests (--pending-mb). A client beyond a bound is disconnected.
 *
 * The end: at the first SIGINT or SIGTERM no more connections are accepted, replies that have begun are written
 * (--stop-seconds at most), and the program ends; at the second it ends at once, by the signal. Exit codes:
 * docs/SERVICES.md.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include <filch.h>

#include "bytes.h"

/* What comes after an answer. */
typedef enum service_next {
    SERVICE_READ,  /* all complete requests have been answered */
    SERVICE_AGAIN, /* the reply is long enough: write it, then call again with the rest */
    SERVICE_CLOSE, /* write it, then close */
    SERVICE_FAIL   /* write it, then the connection's process ends with an error */
} service_next;

/* Answers all complete requests in in[0 .. size), in order, by appending to `reply`; *used is the number of bytes they
 * had. Calls bytes_mark(reply) after each reply. `memory` is a number per connection, 0 at first. Runs inside a step:
 * it must not block. */
typedef service_next (*service_answer_fn)(uint64_t *memory, const char *in, size_t size, size_t *used, bytes *reply);

typedef struct service {
    const char        *name;
    service_answer_fn  answer;     /* requests and replies; NULL: `connection` does everything */
    uint64_t           patience_ns; /* how long a connection may send nothing; 0: for ever */
    uint64_t           request_ns;  /* default of --request-seconds; 0: 30 s */
    const filch_type  *connection; /* its first message is its stream; NULL: made of `answer` */
    const filch_spawn_options *connection_options; /* NULL: none; on_exit is the service's */
    const filch_child *children;   /* more children of the supervisor, before the acceptor */
    size_t             child_count;
} service;

/* The size at which a reply should be written: see SERVICE_AGAIN. */
#define SERVICE_REPLY_BYTES ((size_t)1 << 20)

/* What a client may use. Written before the scheduler starts. */
typedef struct service_limits {
    uint64_t connections;
    uint64_t request_ns, write_ns, stop_ns;
    uint64_t pending_bytes;
} service_limits;
extern service_limits service_may;

/* Runs the service until SIGINT or SIGTERM; the options are above, and --port N (0: any), --workers N (0: one per CPU). Prints
 * `listening on 127.0.0.1:N`. Returns the program's exit code. */
int service_run(const service *what, int argc, char **argv);

#endif
