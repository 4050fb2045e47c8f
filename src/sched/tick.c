/* tick.c - filch_tick() and the descriptor that the program polls: a scheduler without threads is run by a loop of the
 * program.
 *
 * The signal. A foreign thread that queues work sets `signalled` and, if `signalled` was not set before, makes the
 * descriptor wake_fd readable. A tick clears the descriptor first and `signalled` second. A signal that comes before
 * the second clear is cleared too, and this tick runs the work that it announced. A signal that comes after makes the
 * descriptor readable again. (PAIR tick.signal)
 */
#include "base/assert.h"
#include "clock/timers.h"
#include "port/clock.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/torn.h"
#include "sched/trim.h"
#include "sched/worker.h"
#include "sync/inject.h"

#define STEPS_MAX 65536

static bool has_work(filch_sched *sched)
{
    return fli_worker_queued(sched->caller_worker) > 0 || fli_inject_count(&sched->global) > 0;
}

/* Sets the alarm to the time of the next timer. At that time the alarm makes the descriptor of filch_wake_fd()
 * readable. Makes a system call only if the time has changed. A thread that arms a timer makes the descriptor readable,
 * so the program calls filch_tick again, which calls this function. */
static void set_alarm(filch_sched *sched)
{
    uint64_t next_ns = fli_sentinel_timer_ns(sched);
    /* `expired`: the time of the alarm has passed, and the timers due at that time have been fired. */
    bool expired = sched->alarm.at_ns <= sched->caller_worker->clock_ns;
    if (expired || next_ns != sched->alarm.at_ns) fli_alarmfd_set(&sched->alarm, next_ns);
}

/* State of a running tick, for its cleanup function tick_end(). */
typedef struct tick_scope {
    filch_sched *sched;
    bool         whole;
} tick_scope;

/* Cleanup function of filch_tick(). Runs also when a C++ exception of a step leaves filch_tick(): then the process of
 * that step is torn (torn.c). */
static void tick_end(tick_scope *t)
{
    if (FLI_UNLIKELY(!t->whole)) fli_torn_note(t->sched->caller_worker);
    fli_current_leave(&t->sched->caller_worker->local);
    fli_store_rel(&t->sched->ticking, false); /* PAIR tick.owner, release half */
}

/* Runs up to `steps` steps; 0: up to STEPS_MAX. Returns how many steps it ran. */
static uint32_t run(filch_sched *sched, uint32_t steps)
{
    fli_worker *w = sched->caller_worker;
    fli_torn_mend(w);
    fli_wakefd_clear(sched->wake_fd);
    (void)fli_swap_acqrel(&sched->signalled, false); /* PAIR tick.signal, both halves */
    fli_worker_clock(w);
    fli_throttle_forget_contended(w); /* here, because clock readings do this only for workers that may pause */
    uint32_t most = steps != 0 && steps < STEPS_MAX ? steps : STEPS_MAX;
    w->steps_left = most;
    while (w->steps_left > 0) {
        w->steps_left--;
        if (fli_worker_turn(w)) continue;
        w->steps_left++; /* no step has run: undoes the subtraction */
        if (!fli_worker_fire_due(w)) break;
    }
    uint32_t n = most - w->steps_left;
    w->steps_left = 0;
    if (has_work(sched) && !fli_swap_acqrel(&sched->signalled, true)) fli_wakefd_signal(sched->wake_fd);
    if (fli_load_rlx(&sched->wants_alarm)) set_alarm(sched);
    fli_trim_plan(sched);
    fli_trim_run(sched, w->clock_ns);
    return n;
}

filch_err filch_tick(filch_sched *sched, uint32_t steps, uint32_t *ran)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (fli_simulator_refuses(&sched->rt, "filch_tick")) return FILCH_ESTATE;
    if (sched->worker_count > 0 || fli_current_is_inside(&sched->rt)) return FILCH_ESTATE;
    if (fli_load_acq(&sched->rt.phase) == FLI_CLOSED) return FILCH_ECLOSED; /* PAIR runtime.phase, acquire half */
    /* PAIR tick.owner, acquire half: this thread sees what the last tick did. */
    if (fli_swap_acqrel(&sched->ticking, true)) return FILCH_EBUSY;
    __attribute__((cleanup(tick_end))) tick_scope t = { .sched = sched };
    fli_current_enter(&sched->caller_worker->local);
    uint32_t n = run(sched, steps);
    t.whole = true;
    if (ran != NULL) *ran = n;
    return FILCH_OK;
}

int filch_wake_fd(filch_sched *sched)
{
    if (sched == NULL || fli_simulator_refuses(&sched->rt, "filch_wake_fd")) return -1;
    /* A timer that was armed before the first call of filch_wake_fd is not in the alarm yet: the next tick sets the
     * alarm. */
    bool first = sched->worker_count == 0 && !fli_swap_acqrel(&sched->wants_alarm, true);
    if (first && fli_timers_count(&sched->timers) > 0) fli_ready_nudge(sched);
    return sched->alarm.poll;
}

uint64_t filch_next_timeout(filch_sched *sched)
{
    if (sched == NULL || fli_simulator_refuses(&sched->rt, "filch_next_timeout")) return FILCH_FOREVER;
    if (sched->worker_count > 0) return FILCH_FOREVER;
    if (fli_load_acq(&sched->rt.phase) == FLI_CLOSED) return FILCH_FOREVER; /* PAIR runtime.phase, acquire half */
    if (has_work(sched)) return 0;
    uint64_t next_ns = fli_sentinel_timer_ns(sched), now_ns = fli_clock_ns();
    if (next_ns == FLI_NEVER) return FILCH_FOREVER;
    return next_ns > now_ns ? next_ns - now_ns : 0;
}
