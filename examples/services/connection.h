/* connection.h - the process for one connection of a service that answers requests: reads, answers, writes. */
#ifndef SERVICE_CONNECTION_H
#define SERVICE_CONNECTION_H

#include <filch.h>

/* The args of the process are filch_ptr to the service; its first message is its stream. */
extern const filch_type connection_type;

#endif
