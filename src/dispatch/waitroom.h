/* waitroom.h - senders that wait for room in a full mailbox (FILCH_OVERFLOW_WAIT), in the order they came. */
#ifndef FLI_DISPATCH_WAITROOM_H
#define FLI_DISPATCH_WAITROOM_H

#include <filch.h>

#include "proc/runtime.h"

#define FLI_WAITROOM_DOORS 16

typedef struct fli_waiter fli_waiter;

typedef struct fli_waitroom {
    struct {
        alignas(FLI_LINE) fli_mutex lock;
        fli_waiter *first, *last; /* plain: under lock. All targets behind this door, in order of arrival */
    } doors[FLI_WAITROOM_DOORS];
} fli_waitroom;

filch_err fli_waitroom_init(fli_waitroom *room);
/* Thread: no process is left. */
void fli_waitroom_fini(fli_waitroom *room);

/* The handler of FILCH_CMD_SEND for this room's runtime: sends now, or waits here. */
filch_err fli_waitroom_send(fli_waitroom *room, fli_runtime *rt, const filch_command *command, filch_receiver receiver);

/* Lets in as many as fit into the mailbox of whoever lives in `p` now. Thread: any. */
void fli_waitroom_admit(fli_waitroom *room, fli_runtime *rt, fli_proc *p);

/* Turns everybody away who waits for the process of that serial: FILCH_EDEAD. */
void fli_waitroom_refuse(fli_waitroom *room, fli_runtime *rt, uint64_t serial);

#endif
