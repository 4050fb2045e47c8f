/* sentinel.c - the parked workers that wake by themselves: the sentinel and its backup.
 *
 * While a worker works or a timer runs, one parked worker, the sentinel, has a timeout. The timeout ends
 *   - when the next timer is due; timers that are close together share a wake-up (fli_sentinel_timer_ns)
 *   - when memory may be returned to the system (trim.c)
 *   - while any worker works: after 1 ms, then 2, 4, 8. The sentinel then searches: it takes the processes queued
 *     behind a long step, and reports that step
 * While no worker works, no timer runs and no memory is left to return there is no sentinel: an idle scheduler makes no
 * system call.
 *
 * The sentinel itself may be unparked for work. So while a timer runs, a second parked worker, the backup, has a
 * timeout one millisecond after the timeout of the sentinel (then 2 and 4 ms after it, as long as the backup finds the
 * sentinel parked).
 *
 * INVARIANT  under the idle lock: the sentinel and the backup are parked, and they are different workers.
 * INVARIANT  under the idle lock: the bit FLI_SENTINEL of the idle word is `sentinel_armed`: after its timeout the
 *            sentinel also checks working workers.
 *
 * One gap is left: a worker is unparked while all others are parked, arms a timer, and then blocks inside a handler
 * (which handlers must not do). That timer fires late.
 * Design: docs/design/parking.md.
 */
#include "sched/sentinel.h"

#include "clock/timers.h"
#include "io/io.h"
#include "port/clock.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/trim.h"
#include "sched/worker.h"

#define SENTINEL_FIRST_NS UINT64_C(1000000)
#define SENTINEL_LAST_NS UINT64_C(8000000)
/* Delay between the sentinel's timeout and the backup's timeout. The delay doubles each time the backup wakes and finds
 * that the sentinel is not late. fli_sentinel_watches() relies on BACKUP_LAST_NS being well below SENTINEL_LAST_NS. */
#define BACKUP_FIRST_NS UINT64_C(1000000)
#define BACKUP_LAST_NS UINT64_C(4000000)

/* After several timers fired together, no worker wakes for timers before this time has passed. Parking and unparking
 * cost 11 to 28 us of CPU time (2-core virtual machine): one wake-up for each of 100,000 timers a second would need
 * more than one CPU. If a timer fires alone, the next timer is not delayed. 100,000 timers a second are late by 136 us
 * at the median: docs/design/timers.md. */
#define TIMER_GAP_NS UINT64_C(150000)
/* If more than TIMERS_MANY timers fired together, TIMER_GAP_MANY_NS replaces TIMER_GAP_NS, so that one wake-up serves
 * still more timers. */
#define TIMERS_MANY 8
#define TIMER_GAP_MANY_NS UINT64_C(250000)

/* Makes `w` the sentinel; with NULL there is no sentinel from now on. `armed`: when it wakes by timeout, the sentinel
 * also checks the workers that are working. */
static void set_sentinel_locked(fli_idle *idle, fli_worker *w, uint64_t until_ns, bool armed)
{
    if (armed != idle->sentinel_armed) {
        (void)fli_add_acqrel(&idle->word, armed ? FLI_SENTINEL : (uint64_t)0 - FLI_SENTINEL); /* PAIR idle.word */
        fli_idle_update_hint_locked(idle);
    }
    idle->sentinel = w;
    idle->sentinel_until_ns = until_ns;
    idle->sentinel_armed = armed;
}

/* Makes `w` the backup; NULL: there is no backup from now on. */
static void set_backup_locked(fli_idle *idle, fli_worker *w, uint64_t until_ns)
{
    idle->backup = w;
    if (fli_load_rlx(&idle->backup_until_ns) != until_ns) fli_store_rlx(&idle->backup_until_ns, until_ns);
}

void fli_sentinel_leave_locked(fli_idle *idle, fli_worker *w)
{
    if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER);
    if (idle->sentinel == w) set_sentinel_locked(idle, NULL, FLI_NEVER, false);
}

bool fli_sentinel_join_locked(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    if (idle->sentinel != NULL || fli_parked_in(fli_load_rlx(&idle->word)) + 1 >= w->sched->worker_count) return false;
    idle->sentinel = w;
    idle->sentinel_armed = true;
    return true;
}

/* Returns the later of two times: `next_ns`, and the time before which no worker wakes for timers. */
static uint64_t no_earlier(filch_sched *sched, uint64_t next_ns)
{
    uint64_t from = fli_load_rlx(&sched->idle.timers_from_ns);
    return next_ns > from ? next_ns : from;
}

uint64_t fli_sentinel_deadline_locked(fli_worker *w)
{
    filch_sched *sched = w->sched;
    fli_idle    *idle = &sched->idle;
    uint64_t     timer = no_earlier(sched, fli_timers_help_ns(&sched->timers, w->local.index));
    uint64_t     trim = fli_trim_due_ns(sched);
    uint64_t     until = timer < trim ? timer : trim; /* a backup is needed for timers, but not to return memory,
                                                         which may be late */
    bool armed = fli_parked_in(fli_load_rlx(&idle->word)) < sched->worker_count;
    if (armed) {
        uint64_t look = fli_clock_after(fli_clock_ns(), w->idle.sentinel_ns);
        if (look < until) until = look;
    }
    /* If `w` would wake before the sentinel, `w` becomes the sentinel. The old sentinel is not told: it stays parked,
     * and finds out when its timeout has passed. */
    if (idle->sentinel == NULL || idle->sentinel == w || until < idle->sentinel_until_ns) {
        if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER); /* a sentinel is not its own backup */
        if (until != FLI_NEVER) set_sentinel_locked(idle, w, until, armed);
        else if (idle->sentinel == w) set_sentinel_locked(idle, NULL, FLI_NEVER, false);
        return until;
    }
    if (timer != FLI_NEVER && (idle->backup == NULL || idle->backup == w)) {
        uint64_t later = fli_clock_after(idle->sentinel_until_ns, w->idle.backup_ns);
        set_backup_locked(idle, w, later);
        return later;
    }
    if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER);
    return FLI_NEVER;
}

bool fli_sentinel_heeds_timeout_locked(fli_worker *w)
{
    const fli_idle *idle = &w->sched->idle;
    /* If there is no sentinel, sentinel_until_ns is FLI_NEVER and this function returns false: then `w` stays parked,
     * and fli_sentinel_deadline_locked() makes it the sentinel. */
    if (idle->sentinel == w || fli_clock_ns() >= fli_clock_after(idle->sentinel_until_ns, BACKUP_FIRST_NS)) return true;
    if (w->idle.backup_ns < BACKUP_LAST_NS) w->idle.backup_ns *= 2;
    return false;
}

bool fli_sentinel_watches(const fli_worker *w, uint64_t word)
{
    if ((word & FLI_SENTINEL) != 0) return true;
    return fli_load_rlx(&w->sched->idle.backup_until_ns) < w->clock_ns + SENTINEL_LAST_NS;
}

bool fli_sentinel_is_needed(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    if (sched->opt.on_long_step != NULL && sched->opt.long_step_ns != 0) return true;
    if (!fli_io_has_fds(&sched->io)) return false;
    fli_mutex_lock(&idle->lock);
    bool unpolled = idle->poller == NULL;
    fli_mutex_unlock(&idle->lock);
    return unpolled;
}

bool fli_sentinel_misses_timers(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    if (!fli_timers_any(&sched->timers)) return false;
    fli_mutex_lock(&idle->lock);
    bool missing = idle->sentinel == NULL && idle->backup == NULL;
    fli_mutex_unlock(&idle->lock);
    return missing;
}

void fli_sentinel_worked(fli_worker *w)
{
    w->idle.sentinel_ns = SENTINEL_FIRST_NS;
    w->idle.backup_ns = BACKUP_FIRST_NS;
}

void fli_sentinel_woke(fli_worker *w, bool timeout)
{
    if (!timeout) w->idle.sentinel_ns = SENTINEL_FIRST_NS;
    else if (w->idle.sentinel_ns < SENTINEL_LAST_NS) w->idle.sentinel_ns *= 2;
}

void fli_sentinel_note_timers(fli_worker *w, uint32_t timers)
{
    uint64_t gap_ns = timers > TIMERS_MANY ? TIMER_GAP_MANY_NS : TIMER_GAP_NS;
    if (timers > 1) fli_store_rlx(&w->sched->idle.timers_from_ns, fli_clock_after(w->clock_ns, gap_ns));
}

uint64_t fli_sentinel_timer_ns(filch_sched *sched)
{
    return no_earlier(sched, fli_timers_next_ns(&sched->timers));
}
