/* sentinel.h - parked workers with a timeout, for timers and for workers stuck in a step. See sentinel.c. */
#ifndef FLI_SCHED_SENTINEL_H
#define FLI_SCHED_SENTINEL_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "sched/idle.h"

/* Functions with a name that ends in _locked are called under the idle lock. */

/* Returns until when `w`, which is parked, may sleep; FLI_NEVER if it needs no timeout. Makes `w` the sentinel or the
 * backup if one is needed. */
uint64_t fli_sentinel_deadline_locked(struct fli_worker *w);
/* Called when `w` is about to park. Makes `w` the sentinel if there is no sentinel and another worker works. Returns
 * true if `w` is the sentinel now. Then the caller adds FLI_SENTINEL to the idle word in the same RMW that counts `w`
 * as parked. Between two separate RMWs, a worker that pushes every 20 ns would see a parked worker and no sentinel, and
 * would unpark a worker for nothing. */
FILCH_MUST_USE bool fli_sentinel_join_locked(struct fli_worker *w);
/* Called when `w` is unparked: from now on `w` is neither sentinel nor backup. */
void fli_sentinel_leave_locked(fli_idle *idle, struct fli_worker *w);
/* Returns true if `w` must wake after its timeout: because it is the sentinel, or because the sentinel is
 * late. Returns false if `w` is the backup and the sentinel is not late; then the next timeout of the backup is longer.
 */
bool fli_sentinel_heeds_timeout_locked(struct fli_worker *w);

/* Returns true if a parked worker will wake by timeout within 8 ms and then check `w`. `word`: the idle word or the
 * hint. Thread: `w`. */
bool fli_sentinel_watches(const struct fli_worker *w, uint64_t word);
/* Returns true if another worker must be unparked although nothing is queued: no worker is left in the poller, or long
 * steps must be reported while they run. A worker inside a step can neither poll nor report. Called only if
 * fli_sentinel_watches() has returned false. */
bool fli_sentinel_is_needed(filch_sched *sched);
/* Returns true if a timer runs and there is neither a sentinel nor a backup to wake for it. */
bool fli_sentinel_misses_timers(filch_sched *sched);

/* Called when `w` has found work: resets its timeouts as sentinel and as backup to the shortest ones. */
void fli_sentinel_worked(struct fli_worker *w);
/* Called after a park of `w`. If `w` woke by timeout, doubles the length of its next timeout as sentinel, up to 8 ms;
 * otherwise sets it to 1 ms. */
void fli_sentinel_woke(struct fli_worker *w, bool timeout);

/* Notes that `timers` timers fired when the worker read its clock. If there were several, the next wake-up for timers
 * is delayed a little, so that more timers share it. Thread: the worker. */
void fli_sentinel_note_timers(struct fli_worker *w, uint32_t timers);
/* Returns until when a thread that waits only for timers may sleep; FLI_NEVER if no timer runs. Thread: any. */
uint64_t fli_sentinel_timer_ns(filch_sched *sched);

#endif
