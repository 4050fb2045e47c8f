/* find.h - finds the next process of a worker. See find.c. */
#ifndef FLI_SCHED_FIND_H
#define FLI_SCHED_FIND_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "proc/proc.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/lifo_slot.h"

#define FLI_GLOBAL_BATCH_MAX 256
/* Upper bound, in turns of a worker, on the wait of a process in the deque of that worker or in the global queue, while
 * R processes are ready. find.c derives the formula. */
#define FLI_FAIR_BOUND(sched, R) (2 * (uint64_t)(sched)->fair_most * ((uint64_t)(R) + 1 + (sched)->opt.global_batch))
/* A fairness pick comes every FLI_FAIR_EVERY turns. While steps are short it comes less often: about every FLI_FAIR_NS,
 * but at least every FLI_FAIR_MOST turns. */
#define FLI_FAIR_NS UINT64_C(2000)
#define FLI_FAIR_EVERY 8
#define FLI_FAIR_MOST 64

/* The fairness pick: returns the oldest process of the local deque or of the global queue; fair_local_next says which
 * queue comes first, and changes with each pick. Returns NULL if both queues are empty. */
fli_proc *fli_find_oldest(fli_worker *w);
/* Called after a long step: begins a series of fairness picks, and brings the first one forward. See the head of
 * find.c. */
void fli_find_begin_series(fli_worker *w);
/* Moves the process in the LIFO slot to the deque. Returns true if there was one. */
bool fli_find_empty_slot(fli_worker *w);
/* Returns the oldest process of the global queue, and moves up to `more` others to the local deque. Returns NULL
 * if the global queue is empty. */
fli_proc *fli_find_global(fli_worker *w, uint32_t more);
/* Returns the next process of this worker: the fairness pick if it is due, otherwise a process from the LIFO slot, the
 * local deque or the global queue, in this order. Returns NULL if there is none. */
static inline fli_proc *fli_find_near(fli_worker *w)
{
    fli_proc *p = NULL;
    if (FLI_UNLIKELY(--w->fair_countdown == 0)) p = fli_find_oldest(w);
    if (FLI_LIKELY(p == NULL)) p = fli_lifo_slot_take(&w->lifo_slot);
    if (p == NULL) p = fli_deque_pop(&w->deque);
    if (FLI_UNLIKELY(p == NULL)) p = fli_find_global(w, w->sched->opt.global_batch);
    return p;
}
/* Steals from another worker. Returns NULL if it got nothing. Sets *retry if another thread took a process first: then
 * the caller searches again before it parks. Without `any`, does not steal a process that is the only one queued at a
 * worker, unless that worker is stuck in a step. */
fli_proc *fli_find_far(fli_worker *w, bool any, bool *retry);
/* Returns true if there is a worker at which at least `queued` processes are queued. Does not count the global
 * queue. */
bool fli_find_visible(filch_sched *sched, uint32_t queued);

#endif
