/* ready.h - queues processes that became ready. See ready.c. */
#ifndef FLI_SCHED_READY_H
#define FLI_SCHED_READY_H

#include <filch.h>

#include "proc/runtime.h"

typedef struct fli_worker fli_worker;

/* Queues a process that became ready; `worker` is the calling worker of this scheduler, or NULL. Thread: any. */
void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p);
/* Pushes to the local deque. Returns FILCH_OK. Thread: the worker. */
filch_err fli_ready_local(fli_local *worker, fli_proc *p);
/* Queues a process that the current step has woken: in the LIFO slot if the slot is empty, otherwise in the local
 * deque. */
filch_err fli_ready_next(fli_local *worker, fli_proc *p);
/* Queues a process that returned CONTINUE, behind the processes that its step has woken. */
void fli_ready_continue(fli_worker *w, fli_proc *p);
/* Requests one sample of a queue wait: the next process queued by this worker is measured. */
void fli_ready_sample(fli_worker *w);

/* Wakes a worker, or the host of a scheduler without workers, because a timer was armed that may be the next to fire.
 * Thread: any. */
void fli_ready_nudge(filch_sched *sched);

#endif
