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
/* If a step reads the clock at least this long after the worker's last reading, the worker reads the clock after that
 * step. */
#define LONG_AGO_NS UINT64_C(1000000)
/* Clock readings between two samples of a queue wait. A sample takes two more readings. */
#define SAMPLE_EVERY 8

/* Poll intervals. The processes that a poll makes ready are the newest in the local deque; the process of the first
 * report is on top. The next poll comes when the deque is as short as before the last poll, so that all of them have
 * run. If the deque does not get that short, because steps make ever more processes ready, the next poll comes after
 * POLL_INTERVAL_NS and POLL_STEPS_PER_REPORT steps for each report: handling a request takes a few steps, however long
 * they are. A poll without reports is repeated after POLL_EMPTY_NS, not at each clock reading. docs/design/io.md has
 * the figures. */
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

/* Returns how many processes woken by timers or descriptors may run ahead of the next fairness pick.
 *
 * The problem is processes that return CONTINUE for ever. A process woken by a timer is the newest in the deque and
 * runs next, unless a fairness pick is due. If a pick is due, the timer must not fire yet: the picked process would
 * return CONTINUE and be pushed above the woken one, the next pick would be due at once, and so on until all CONTINUE
 * processes have had their turns. So at most this many timers fire. The others stay due, and the clock is read again
 * after the pick. Why the budget keeps the fairness bound: find.c. */
static uint32_t bypass_budget(fli_worker *w)
{
    if (FLI_LIKELY(!w->saw_continue && w->fair_countdown > 1) || w->fair_every == 1) return UINT32_MAX;
    bool alone = fli_worker_queued(w) == 0 && fli_inject_count(&w->sched->global) == 0;
    return alone ? UINT32_MAX : w->fair_credit;
}

/* Charges `count` timers or I/O reports to the budget of `most` wake-ups that may run ahead of the fairness pick. If
 * the budget is used up, the clock is read again right after the pick. */
static void spend_bypass(fli_worker *w, uint32_t count, uint32_t most)
{
    uint32_t before_the_oldest = count < w->fair_credit ? count : w->fair_credit;
    w->fair_credit -= before_the_oldest;
    w->fair_countdown += before_the_oldest;
    if (FLI_UNLIKELY(count == most && w->clock_countdown > w->fair_countdown)) w->clock_countdown = w->fair_countdown;
}

/* Fires up to `most` due timers. */
static void fire_timers(fli_worker *w, uint32_t most)
{
    uint32_t fired = fli_timers_poll_some(&w->sched->timers, w->clock_ns, most);
    spend_bypass(w, fired, most);
    if (FLI_UNLIKELY(fired > 0)) fli_sentinel_note_timers(w, fired);
}

/* Polls descriptors. Called after the timers have fired; timers and descriptors share one budget. If the timers have
 * used up the budget, descriptors are polled nevertheless, and the processes that the descriptors wake wait for the
 * fairness picks. */
static void poll_descriptors(fli_worker *w)
{
    fli_io_batch batch;
    uint32_t     most = bypass_budget(w);
    fli_io_collect(&w->sched->io, 0, &batch, most > 0 ? most : UINT32_MAX);
    fli_worker_begin_poll_interval(w, batch.count);
    fli_io_deliver(&w->sched->io, &batch);
    spend_bypass(w, batch.count, most);
}

void fli_worker_clock(fli_worker *w)
{
    w->clock_ns = fli_now(&w->sched->rt);
    w->local.sends = 0; /* so that processes woken by timers do not count as a fan-out of the last step */
    uint32_t most = bypass_budget(w);
    fire_timers(w, most);
    if (FLI_UNLIKELY(fli_io_has_fds(&w->sched->io)) && most > 0 && is_poll_due(w)) poll_descriptors(w);
}

/* Sets the number of turns between two fairness picks by the average time of a step: find.c. */
static void adapt_fairness(fli_worker *w)
{
    uint64_t fair = FLI_FAIR_NS / w->step_ns;
    uint32_t least = w->sched->opt.fair_every, most = w->sched->fair_most;
    w->fair_every = fair <= least ? least : fair >= most ? most : (uint32_t)fair;
}

void fli_worker_noticed(fli_worker *w, uint64_t now_ns)
{
    if (now_ns > w->clock_ns + LONG_AGO_NS) w->clock_countdown = 0;
}

/* Reads the clock, and does the work that depends on the time: timers, poll, intervals, samples, throttling. If only a
 * fairness pick may run now, the reading is put off until after the pick. */
static void read_clock(fli_worker *w)
{
    if (FLI_UNLIKELY(bypass_budget(w) == 0)) {
        w->clock_countdown = w->fair_countdown;
        return;
    }
    uint64_t before = w->clock_ns;
    w->clock_countdown = w->clock_interval;
    fli_worker_clock(w);
    uint64_t passed = w->clock_ns - before;
    w->step_ns = passed / w->clock_interval + 1;
    adapt_fairness(w);
    if (passed < CLOCK_NEAR_NS && w->clock_interval < CLOCK_INTERVAL_MAX) w->clock_interval *= 2;
    else if (passed > 64 * CLOCK_FAR_NS) w->clock_interval = 1; /* steps have become long: timers are late already */
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

void fli_worker_run(void *worker)
{
    fli_worker *w = worker;
    fli_current_set(&w->local);
    fli_thread_prompt();
    w->may_rerun = w->sched->rt.sim == NULL;
    w->steps_left = UINT32_MAX;
    for (;;) {
        while (fli_step_on(w)) read_clock(w);
        fli_proc *p = fli_idle_find(w);
        if (p == NULL) break;
        fli_step(w, p);
    }
    fli_current_set(NULL);
}

uint64_t filch_now(filch_sched *sched)
{
    if (sched == NULL) return 0;
    uint64_t   now = fli_now(&sched->rt);
    fli_local *worker = fli_current_worker(&sched->rt);
    /* If the step has taken long, the worker checks its timers before the next step. */
    if (worker != NULL && sched->rt.sim == NULL) fli_worker_noticed(fli_worker_of(worker), now);
    return now;
}
