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
 * What clients may use is limited: the number of connections (--connections), how long a request may take to arrive
 * (--request-seconds), how long a client may read nothing of a reply (--write-seconds), and the bytes of all incomplete
 * requests (--pending-mb). A client that exceeds a limit is disconnected.
 *
 * The end: at the first SIGINT or SIGTERM no more connections are accepted, replies that have begun are written
 * (--stop-seconds at most), and the program ends; at the second signal the program ends at once, by the signal. Exit
 * codes: docs/SERVICES.md.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include <filch.h>

#include "bytes.h"

/* What the connection does after the service's answer function has returned. */
typedef enum service_next {
    SERVICE_READ,  /* all complete requests have been answered: write the reply, then read on */
    SERVICE_AGAIN, /* the reply is long enough: write it, then call `answer` again with the remaining requests */
    SERVICE_CLOSE, /* write the reply, then close the connection */
    SERVICE_FAIL   /* write the reply, then end the connection's process with an error */
} service_next;

/* Answers all complete requests in in[0 .. size), in order, by appending to `reply`; sets *used to the number of bytes
 * of these requests. Calls bytes_mark(reply) after each reply. `memory` is a number per connection, initially 0, for
 * use by the function. Called inside a step, so it must not block. */
typedef service_next (*service_answer_fn)(uint64_t *memory, const char *in, size_t size, size_t *used, bytes *reply);

typedef struct service {
    const char *name;
    /* function that answers requests; NULL: the processes of the type in `connection` answer them */
    service_answer_fn answer;
    uint64_t          idle_limit_ns; /* how long a client may send nothing; 0: no limit */
    uint64_t          request_ns;    /* default of --request-seconds; 0: 30 s */
    /* Process type of the connections. Each process gets its stream as its first message. NULL: connection_type, which
     * calls `answer`. */
    const filch_type *connection;
    /* spawn options of connections; NULL: the defaults. The service replaces on_exit */
    const filch_spawn_options *connection_options;
    const filch_child         *children; /* further children of the supervisor, started before the acceptor */
    size_t                     child_count;
} service;

/* If a reply has this size or more, the answer function should return SERVICE_AGAIN, so that the reply is written
 * before it grows further. */
#define SERVICE_REPLY_BYTES ((size_t)1 << 20)

/* Limits that the command line sets, in service_may; not changed after the scheduler has started. */
typedef struct service_limits {
    uint64_t connections;
    uint64_t request_ns, write_ns, stop_ns;
    uint64_t pending_bytes;
} service_limits;
extern service_limits service_may;

/* Runs the service until SIGINT or SIGTERM. Options of the command line: one for each field of service_limits, --port N
 * (0: any port) and --workers N (0: one per CPU). Prints `listening on 127.0.0.1:N`. Returns the program's exit
 * code. */
int service_run(const service *what, int argc, char **argv);

#endif
