/* worker.c - the main loop of a worker: find a process, step it; at intervals read the clock, fire timers, poll
 * descriptors. When there is nothing to run: search.c.
 * Design: docs/design/run-queues.md, docs/design/timers.md, docs/design/io.md.
 */
#include "sched/worker.h"
#include "base/assert.h"
#include "clock/timers.h"
#include "io/io.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/parking.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/sentinel.h"
#include "sched/step.h"
#include "sched/throttle.h"
#include "sync/deque.h"
#include "sync/inject.h"

/* The clock is read every clock_interval steps. The interval adapts so that readings are 20 to 50 us apart: often
 * enough for timers, seldom enough to cost little. It is at most CLOCK_INTERVAL_MAX steps however short they are,
 * because the next steps may be long. A reading, with the work that follows it, takes as long as four messages: with a
 * reading at every 64th step that is 0.8 ns of the 13 ns of a message, at every 128th step half of that
 * (docs/design/run-queues.md). */
#define CLOCK_NEAR_NS UINT64_C(20000)
#define CLOCK_FAR_NS UINT64_C(50000)
#define CLOCK_INTERVAL_MAX 128
/* If a step reads the clock more than this time after the worker's own last reading, the worker reads the clock after
 * that step. */
#define LONG_AGO_NS UINT64_C(1000000)
/* If two readings of the worker are further apart, a step between them was long: processes that are queued, and timers
 * that are due, must not wait for several such steps. The value is several times the usual time between two
 * readings. */
#define LONG_STEP_NS UINT64_C(200000)
/* A queue wait is sampled at every SAMPLE_EVERY-th clock reading. A sample reads the clock two more times. */
#define SAMPLE_EVERY 8

/* After this time timers fire again, although processes that the last firing woke are still queued. */
#define TIMERS_AGAIN_NS UINT64_C(100000)
/* If timers are later than this, another worker is woken. */
#define TIMERS_LATE_NS UINT64_C(200000)

/* Poll intervals. The processes that a poll makes ready are the newest in the local deque; the process of the first
 * report is on top. The next poll comes when the deque is as short as before the last poll: then all processes made
 * ready by that poll have run. If the deque does not get that short, because steps make ever more processes ready, the
 * next poll comes after POLL_INTERVAL_NS and POLL_STEPS_PER_REPORT steps for each report: handling a request takes a
 * few steps, however long they are. A poll without reports is repeated after POLL_EMPTY_NS, not at each clock reading.
 * docs/design/io.md has the figures. */
#define POLL_INTERVAL_NS UINT64_C(5000000)
#define POLL_STEPS_PER_REPORT 16
#define POLL_EMPTY_NS UINT64_C(100000)

void fli_worker_begin_poll_interval(fli_worker *w, uint32_t reports)
{
    w->poll_depth = reports > 0 ? fli_deque_count(&w->deque) : 0;
    w->poll_until_ns = w->clock_ns + (reports > 0 ? POLL_INTERVAL_NS : POLL_EMPTY_NS);
    w->poll_steps = fli_counters_steps(&w->local.counters) + (uint64_t)reports * POLL_STEPS_PER_REPORT;
}

static bool is_poll_due(fli_worker *w)
{
    if (fli_deque_count(&w->deque) <= w->poll_depth) return true;
    return w->clock_ns >= w->poll_until_ns && fli_counters_steps(&w->local.counters) >= w->poll_steps;
}

/* No process is queued at this worker or globally, so a fairness pick would find nothing. Begins a new interval, as a
 * pick does: as many turns as fit between two clock readings, so that one firing of timers serves many of them. */
static void begin_lone_interval(fli_worker *w)
{
    uint64_t turns = CLOCK_NEAR_NS / w->step_ns;
    uint32_t most = w->sched->fair_most;
    w->fair_countdown = turns >= most ? most : turns > w->fair_every ? (uint32_t)turns : w->fair_every;
    w->fair_credit = 0;
    w->saw_continue = false;
}

/* Returns how many processes woken by timers or descriptors may run ahead of the next fairness pick.
 *
 * A process woken by a timer is the newest in the deque and runs next, unless a fairness pick is due. The picked
 * process may return CONTINUE or spawn others; these are pushed above the woken process, and so are the processes that
 * they spawn in turn. The woken process would then wait until it is the oldest. So at most as many timers fire as woken
 * processes can run before the pick. The other timers stay due in their wheels, in the order of their due times, and
 * the clock is read again after the pick. While processes return CONTINUE, the pick is brought forward; the number of
 * turns by which it was brought forward (fair_credit) is then the budget. Why the budget keeps the fairness bound:
 * find.c. */
static uint32_t bypass_budget(fli_worker *w)
{
    if (FLI_UNLIKELY(w->fair_every == 1)) return UINT32_MAX;
    if (fli_worker_queued(w) == 0 && fli_inject_count(&w->sched->global) == 0) begin_lone_interval(w);
    return FLI_UNLIKELY(w->saw_continue) ? w->fair_credit : w->fair_countdown - 1;
}

/* Reads the clock again after `turns` turns at the latest. */
static void read_clock_within(fli_worker *w, uint32_t turns)
{
    if (w->clock_countdown > turns) w->clock_countdown = turns;
}

/* Charges `count` turns to the budget of `most` turns ahead of the fairness pick: one for each timer or I/O report. If
 * the budget is used up, makes the worker read the clock again when the processes that were woken have run. */
static void spend_bypass(fli_worker *w, uint32_t count, uint32_t most)
{
    if (FLI_UNLIKELY(count > 0)) w->bypass_steps = fli_counters_steps(&w->local.counters) + count;
    uint32_t before_the_oldest = count < w->fair_credit ? count : w->fair_credit;
    w->fair_credit -= before_the_oldest;
    w->fair_countdown += before_the_oldest;
    if (FLI_LIKELY(count < most)) return;
    /* at least one turn, also if the budget was 0 */
    read_clock_within(w, count > 0 && count < w->fair_countdown ? count : w->fair_countdown);
}

/* Returns true if timers may fire: the processes that the last firing woke have left the deque. If steps make ever more
 * processes ready, these processes may stay in the deque for long; so timers may also fire after TIMERS_AGAIN_NS and as
 * many steps as the last firing woke processes. (These may be fewer than the timers that fired.) If timers fired
 * without this wait, then under overload the processes of later timers would run before those of earlier timers,
 * because the deque runs the newest first. If timers may not fire, makes the worker read the clock again when the woken
 * processes have run. */
static bool have_woken_run(fli_worker *w)
{
    uint32_t queued = fli_deque_count(&w->deque);
    if (FLI_LIKELY(queued <= w->timers_depth)) return true;
    if (w->clock_ns >= w->timers_until_ns && fli_counters_steps(&w->local.counters) >= w->timers_steps) return true;
    read_clock_within(w, queued - w->timers_depth);
    return false;
}

/* Fires due timers of this worker, and of other workers if it must help them (fli_timers_poll_near). A worker that was
 * parked checks the timers of all workers (surveys_timers), because it was woken for the earliest timer of all, or
 * because another worker is late; it goes on checking all timers until it has fired all that are due. A simulated
 * worker always checks the timers of all workers: it never parks, and in a simulation every due timer must fire. */
static uint32_t poll_timers(fli_worker *w, uint32_t most)
{
    fli_timers *timers = &w->sched->timers;
    if (FLI_LIKELY(!w->surveys_timers && w->sched->rt.sim == NULL))
        return fli_timers_poll_near(timers, w->clock_ns, most);
    uint32_t fired = fli_timers_poll_some(timers, w->clock_ns, most);
    w->surveys_timers = fired == most;
    return fired;
}

/* Timers that have not fired are not in a run queue, where other workers would see them. If more are due than this
 * worker may fire now, and they are late, another worker must be woken: here, or at the end of the search (search.c).
 */
static void call_for_help(fli_worker *w)
{
    filch_sched *sched = w->sched;
    uint64_t     word = fli_idle_look(&sched->idle);
    w->needs_help = fli_timers_late_ns(&sched->timers, w->local.index, w->clock_ns) >= TIMERS_LATE_NS;
    if (w->needs_help && fli_parked_in(word) > 0 && fli_searching_in(word) == 0) fli_parking_wake_one(sched);
}

/* Returns true if the process in the LIFO slot must join the deque before the processes that timers or descriptors
 * wake, so that it runs after the woken processes. This is needed after a long step: the process in the slot may spawn
 * a process with another long step, which would run before the woken processes. The process from the slot has its turn
 * after the woken processes and before the fairness pick. If every second turn is a pick, no turn is left for it, and
 * it stays in the slot. */
static bool should_empty_slot(fli_worker *w, bool after_long_step)
{
    return FLI_UNLIKELY(after_long_step) && w->fair_every > 2 && fli_lifo_slot_is_full(&w->lifo_slot);
}

/* Fires due timers. Returns how many turns this uses of the budget of `most` turns. The process of the timer that was
 * due first runs first. */
static uint32_t fire_timers(fli_worker *w, uint32_t most, bool after_long_step)
{
    if (FLI_UNLIKELY(!have_woken_run(w))) return 0;
    uint32_t depth = fli_deque_count(&w->deque);
    bool     gathers = w->fair_every > 1;
    if (FLI_UNLIKELY(gathers && most > FLI_GATHERED_MAX)) most = FLI_GATHERED_MAX;
    bool     empties = should_empty_slot(w, after_long_step);
    uint32_t kept = empties && most > 1;
    if (gathers) fli_ready_gather(w);
    uint32_t fired = poll_timers(w, most - kept), spent = fired;
    if (FLI_UNLIKELY(empties) && fired > 0 && fli_find_empty_slot(w)) spent += kept;
    fli_ready_push_gathered(w);
    spend_bypass(w, spent, most);
    w->needs_help = false;
    if (FLI_LIKELY(fired == 0)) return 0;
    uint32_t queued = fli_deque_count(&w->deque), woken = queued > depth ? queued - depth : 0;
    w->timers_depth = depth;
    w->timers_until_ns = w->clock_ns + TIMERS_AGAIN_NS;
    w->timers_steps = fli_counters_steps(&w->local.counters) + woken;
    /* fli_sentinel_note_timers() delays the next wake-up for timers. It is not called if the budget is used up, because
     * more timers may be due. */
    if (fired < most - kept) fli_sentinel_note_timers(w, fired);
    else call_for_help(w);
    return spent;
}

/* Polls descriptors. Called after the timers have fired; timers and descriptors share one budget. If the timers have
 * used up the budget, descriptors are polled nevertheless, and the processes that the descriptors wake wait for the
 * fairness picks. */
static void poll_descriptors(fli_worker *w, uint32_t most, bool after_long_step)
{
    fli_io_batch batch;
    bool         empties = should_empty_slot(w, after_long_step);
    uint32_t     kept = empties && most > 1;
    fli_io_collect(&w->sched->io, 0, &batch, most > 0 ? most - kept : UINT32_MAX);
    uint32_t spent = batch.count;
    if (FLI_UNLIKELY(empties) && batch.count > 0 && fli_find_empty_slot(w)) spent += kept;
    fli_worker_begin_poll_interval(w, batch.count);
    fli_io_deliver(&w->sched->io, &batch);
    spend_bypass(w, spent, most);
}

/* Reads the clock, fires timers, and polls descriptors. `stepping`: the worker has only run steps since the last
 * reading, so if much time has passed, a step was long. */
static void act_on_clock(fli_worker *w, bool stepping)
{
    uint64_t before_ns = w->clock_ns;
    w->clock_ns = fli_now(&w->sched->rt);
    w->local.sends = 0; /* 0, so that processes woken by timers do not count as a fan-out of the last step */
    bool after_long_step = w->had_long_step || (stepping && w->clock_ns > before_ns + LONG_STEP_NS);
    w->had_long_step = false;
    if (FLI_UNLIKELY(after_long_step)) fli_find_begin_series(w);
    uint32_t most = bypass_budget(w);
    uint32_t spent = fire_timers(w, most, after_long_step);
    if (FLI_UNLIKELY(fli_io_has_fds(&w->sched->io)) && most > 0 && is_poll_due(w))
        poll_descriptors(w, most - spent, after_long_step);
}

/* Sets fair_every, the number of turns between two fairness picks, by the average time of a step: find.c. */
static void adapt_fairness(fli_worker *w)
{
    uint64_t fair = FLI_FAIR_NS / w->step_ns;
    uint32_t least = w->sched->opt.fair_every, most = w->sched->fair_most;
    w->fair_every = fair <= least ? least : fair >= most ? most : (uint32_t)fair;
}

void fli_worker_clock(fli_worker *w)
{
    act_on_clock(w, false);
}

void fli_worker_noticed(fli_worker *w, uint64_t now_ns)
{
    if (now_ns <= w->clock_ns + LONG_AGO_NS) return;
    w->clock_countdown = 0;
    w->had_long_step = true;
}

/* Returns how many steps have run since the last call: fewer than clock_interval if this reading came early
 * (read_clock_within(), fli_worker_noticed()), more if it was put off, or if the worker has parked or searched since.
 * If no step has run, the turns ended processes without a step; these turns count as clock_interval steps. */
static uint64_t steps_since_reading(fli_worker *w)
{
    uint64_t steps = fli_counters_steps(&w->local.counters), ran = steps - w->clock_steps;
    w->clock_steps = steps;
    return ran > 0 ? ran : w->clock_interval;
}

/* Reads the clock, and does the work that depends on the time: timers, poll, intervals, samples, throttling. If the
 * next turn must be a fairness pick and no budget for timers is left, puts the reading off until after the pick. */
static void read_clock(fli_worker *w)
{
    if (FLI_UNLIKELY(bypass_budget(w) == 0)) {
        w->clock_countdown = w->fair_countdown;
        return;
    }
    uint64_t before = w->clock_ns;
    w->clock_countdown = w->clock_interval;
    act_on_clock(w, true);
    uint64_t passed = w->clock_ns - before, ran = steps_since_reading(w);
    w->step_ns = passed / ran + 1;
    adapt_fairness(w);
    bool whole = ran >= w->clock_interval;
    if (whole && passed < CLOCK_NEAR_NS && w->clock_interval < CLOCK_INTERVAL_MAX) w->clock_interval *= 2;
    else if (passed > 64 * CLOCK_FAR_NS) w->clock_interval = 1; /* timers are late already: reads the clock each step */
    else if (passed > CLOCK_FAR_NS && w->clock_interval > 1) w->clock_interval /= 2;
    if (w->clock_countdown > w->clock_interval) w->clock_countdown = w->clock_interval;
    if (--w->sample_in == 0) {
        w->sample_in = SAMPLE_EVERY;
        fli_ready_sample(w);
    }
    if (FLI_UNLIKELY(w->may_rerun && fli_throttle_is_due(w))) fli_throttle_pause(w);
}

bool fli_worker_turn(fli_worker *w)
{
    if (w->clock_countdown == 0) read_clock(w);
    w->clock_countdown--;
    fli_proc *p = fli_find_near(w);
    if (p == NULL) return false;
    fli_step(w, p);
    return true;
}

bool fli_worker_fire_due(fli_worker *w)
{
    uint64_t until_ns = w->clock_ns;
    /* A firing may wake fewer processes than it fires timers, or none. While a process is in the global queue, a turn
     * must come first: if a fairness pick is due, no timer may fire before it. */
    for (;;) {
        if (fli_worker_queued(w) > 0 || fli_inject_count(&w->sched->global) > 0) return true;
        if (fli_timers_help_ns(&w->sched->timers, w->local.index) > until_ns) return false;
        fli_worker_clock(w);
    }
}

void fli_worker_run(void *worker)
{
    fli_worker *w = worker;
    fli_current_set(&w->local);
    fli_thread_prompt();
    fli_timers_set_away(&w->sched->timers, w->local.index, false);
    w->may_rerun = w->sched->rt.sim == NULL;
    w->steps_left = UINT32_MAX;
    for (;;) {
        while (fli_step_on(w)) read_clock(w);
        fli_proc *p = fli_idle_find(w);
        if (p == NULL) break;
        fli_step(w, p);
    }
    fli_timers_set_away(&w->sched->timers, w->local.index, true);
    fli_current_set(NULL);
}

uint64_t filch_now(filch_sched *sched)
{
    if (sched == NULL) return 0;
    uint64_t   now = fli_now(&sched->rt);
    fli_local *worker = fli_current_worker(&sched->rt);
    /* If the running step has taken long, the worker reads its clock and checks its timers before the next step. */
    if (worker != NULL && sched->rt.sim == NULL) fli_worker_noticed(fli_worker_of(worker), now);
    return now;
}
