/* ready.h - queues processes that became ready. See ready.c. */
#ifndef FLI_SCHED_READY_H
#define FLI_SCHED_READY_H

#include <filch.h>

#include "proc/runtime.h"

typedef struct fli_worker fli_worker;

/* Queues a process that became ready. `worker`: the worker on the calling thread, if it belongs to this scheduler;
 * otherwise NULL. Thread: any. */
void fli_ready(fli_runtime *rt, fli_local *worker, fli_proc *p);
/* Pushes `p` to the local deque of `worker`. Returns FILCH_OK. Thread: `worker`. */
filch_err fli_ready_local(fli_local *worker, fli_proc *p);
/* Queues a process that the current step has woken: in the LIFO slot if the slot is empty, otherwise in the local
 * deque. */
filch_err fli_ready_next(fli_local *worker, fli_proc *p);
/* Queues a process that returned CONTINUE, behind the processes that its step has woken. */
void fli_ready_continue(fli_worker *w, fli_proc *p);
/* From here to fli_ready_push_gathered(), processes that are woken between steps are gathered instead of queued, up to
 * FLI_GATHERED_MAX. fli_ready_push_gathered() pushes them to the local deque in reverse order: the process that was
 * woken first runs first. */
void fli_ready_gather(fli_worker *w);
void fli_ready_push_gathered(fli_worker *w);
/* Requests one sample of a queue wait: the next process queued by this worker is measured. */
void fli_ready_sample(fli_worker *w);

/* Called when a timer was armed that may be the next to fire: wakes a worker or, for a scheduler without workers, the
 * thread of the program that calls filch_tick. Thread: any. */
void fli_ready_nudge(filch_sched *sched);

#endif
