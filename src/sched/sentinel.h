/* sentinel.h - parked workers with a timeout, for timers and for workers stuck in a step. See sentinel.c. */
#ifndef FLI_SCHED_SENTINEL_H
#define FLI_SCHED_SENTINEL_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "sched/idle.h"

/* The functions _locked are called under the idle lock. */

/* Returns until when `w`, which is parked, may sleep, and makes it sentinel or backup if it is needed as one. FLI_NEVER: it has
 * no timeout. */
uint64_t fli_sentinel_deadline_locked(struct fli_worker *w);
/* Makes `w`, about to park, the sentinel, if there is none and another worker works. Returns true if so: then the caller adds
 * FLI_SENTINEL to the idle word, with the same RMW that counts `w` as parked. With two RMWs a worker that pushes every 20 ns
 * would see a parked worker and no sentinel in between, and would wake one. */
FILCH_MUST_USE bool fli_sentinel_join_locked(struct fli_worker *w);
/* `w` is unparked: it is sentinel or backup no longer. */
void fli_sentinel_leave_locked(fli_idle *idle, struct fli_worker *w);
/* Returns true if `w` must wake after its timeout: as the sentinel, or because the sentinel is late. If not, the backup
 * has found all well, and parks for longer the next time. */
bool fli_sentinel_heeds_timeout_locked(struct fli_worker *w);

/* Returns true if a parked worker will wake by timeout within 8 ms and look after `w`. `word` is the idle word. Thread: `w`. */
bool fli_sentinel_watches(const struct fli_worker *w, uint64_t word);
/* Returns true if another worker must be unparked although nothing is queued: no worker is left in the poller, or long steps
 * must be reported while they run. A worker inside a step can do neither. Called where fli_sentinel_watches() is false. */
bool fli_sentinel_is_needed(filch_sched *sched);
/* Returns true if a timer runs and no parked worker has a timeout for it. */
bool fli_sentinel_misses_timers(filch_sched *sched);

/* `w` has found work: its next timeouts are short again. */
void fli_sentinel_worked(struct fli_worker *w);
/* `w` was unparked, or woke by `timeout`: then its next timeout as sentinel is twice as long. */
void fli_sentinel_woke(struct fli_worker *w, bool timeout);

/* Notes that this many timers fired when the worker read its clock. After several, the next timeout for timers is delayed a
 * little, so that more of them share it. Thread: the worker. */
void fli_sentinel_note_timers(struct fli_worker *w, uint32_t timers);
/* Returns until when a thread that waits for timers only may sleep; FLI_NEVER: no timer runs. Thread: any. */
uint64_t fli_sentinel_timer_ns(filch_sched *sched);

#endif
