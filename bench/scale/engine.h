/* engine.h - runs virtual threads on one real thread, each on a core and with a clock of its own. The thread with the
 * earliest clock runs; a thread may be switched at every atomic access and at every call into the port, so a run is the
 * same each time.
 *
 * A blocked thread has no clock of its own: it continues at the time at which it is woken, or at its alarm.
 * When no thread can run and none has an alarm, the run ends with an error: a deadlock of the program.
 */
#ifndef SCALE_ENGINE_H
#define SCALE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "scale/lines.h"

typedef struct scale_thread scale_thread;

/* A queue of waiting threads, in the order in which they began to wait. A queue of zeros is empty. */
typedef struct scale_queue {
    scale_thread *first;
} scale_queue;

typedef struct scale_config {
    scale_machine machine;
    uint32_t      cores; /* cores of a socket */
    uint64_t      seed;  /* seed of scale_random(), and of the random part of wake-up latencies */
} scale_config;

/* Sums over all threads except thread 0, which only starts and ends the benchmark. */
typedef struct scale_totals {
    scale_counts counts;
    uint64_t     lock_waits; /* how often a thread blocked at a lock */
    uint64_t     wakes;      /* number of wake-ups of threads, including wake-ups by locks */
    scale_ps     locked;     /* time blocked at locks */
    scale_ps     asleep;     /* time blocked anywhere, locks included */
} scale_totals;

/* Runs `body(arg)` as thread 0 of the scale model until `body` returns. Other threads that have not ended by then never
 * run again. */
void scale_run(const scale_config *config, void (*body)(void *arg), void *arg);
/* True while the function `body` of scale_run() runs. */
extern bool scale_running;

/* ---- functions that the scale model's running thread calls inside scale_run() ---- */

uint32_t             scale_thread_start(void (*run)(void *arg), void *arg);
void                 scale_thread_join(uint32_t index);
uint32_t             scale_thread_index(void);
void                *scale_current_get(void);
void                 scale_current_set(void *worker);
void                *scale_inside_get(void);
void                 scale_inside_set(void *call);
const scale_machine *scale_machine_now(void);

scale_ps scale_now(void);
/* Returns the CPU time used so far: by all threads together if `all`, otherwise by this thread. */
scale_ps     scale_cpu(bool all);
uint64_t     scale_random(void);
scale_totals scale_totals_now(void);

/* Lets all threads run that have an earlier clock than the running thread. */
void scale_sync(void);
/* Advances the clock of the running thread. */
void scale_spend(scale_ps time);
/* Models an access to the memory at `at`; a wait is charged to the code at `pc`. Does not call scale_sync(). */
void scale_touch(uintptr_t at, scale_access access, const void *pc);

/* Blocks the running thread in `queue` until scale_wake() wakes it, or until the time `until`. Returns false if `until`
 * was reached. */
bool scale_block(scale_queue *queue, scale_ps until);
/* Wakes the first thread of the queue; that thread continues at the time `from` plus the wake-up latency. Returns false
 * if the queue is empty. */
bool scale_wake(scale_queue *queue, scale_ps from);
/* Counts a wait at a lock, from the time `since` until now. */
void scale_count_lock_wait(scale_ps since);

#endif
