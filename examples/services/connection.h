/* connection.h - the process for one connection of a service that answers requests: reads, answers, writes. */
#ifndef SERVICE_CONNECTION_H
#define SERVICE_CONNECTION_H

#include <filch.h>

/* Type of a process that serves one connection. Its args are a filch_ptr to the service, and its first message is its
 * stream. */
extern const filch_type connection_type;

#endif
