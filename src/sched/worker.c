/* worker.c - a worker's life: find a process, step it; now and then look at the clock; when dry, search.c. */
#include "sched/sched.h"
#include "sched/sentinel.h"

/* The clock is read every clock_interval steps, which adapts so that readings are about this far apart: close enough for
 * timers, rare enough to cost nothing. But not more rarely than every CLOCK_INTERVAL_MAX steps, be they ever so short: the next ones may
 * be long. A reading, with what is looked at then, takes as long as four messages: at every 64th step 0.8 ns of each message's 13,
 * at every 128th half of that. */
#define CLOCK_NEAR_NS UINT64_C(20000)
#define CLOCK_FAR_NS UINT64_C(50000)
#define CLOCK_INTERVAL_MAX 128
#define LONG_AGO_NS UINT64_C(1000000)
/* Every so many readings, one process's wait in the queue is measured, which takes two more. */
#define SAMPLE_EVERY 8

/* Descriptors are looked at in rounds: docs/design/io.md. What one look brings lies on top of the deque, the first to be
 * heard uppermost. The next look comes when the deque is down to where it was, so that all of them have run. Where it
 * does not come down, because steps make ever more processes ready, it comes after ROUND_NS and ROUND_STEPS for each
 * report: a request takes a few steps, however long they are. A look that brought nothing is not repeated at each
 * reading of the clock. */
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

/* Timers and descriptors beside processes that loop for ever. Those that timers make ready are late already, and the
 * newest: they run next, unless the oldest does. Then they must not be ready yet: one that loops goes on as the newest, on
 * top of them, and the next oldest follows him, until all loops have had their turns. So no more timers fire than may go first. The others
 * stay due, and the clock is read again behind the turn of the oldest. How many may is argued in find.c. */
static uint32_t bypass_budget(fli_worker *w)
{
    if (FLI_LIKELY(!w->saw_continue && w->fair_countdown > 1) || w->fair_every == 1) return UINT32_MAX;
    bool alone = fli_worker_queued(w) == 0 && fli_inject_count(&w->sched->global) == 0;
    return alone ? UINT32_MAX : w->fair_credit;
}

/* So many do, of `most` who may. */
static void spend_bypass(fli_worker *w, uint32_t count, uint32_t most)
{
    uint32_t before_the_oldest = count < w->fair_credit ? count : w->fair_credit;
    w->fair_credit -= before_the_oldest;
    w->fair_countdown += before_the_oldest;
    if (FLI_UNLIKELY(count == most && w->clock_countdown > w->fair_countdown)) w->clock_countdown = w->fair_countdown;
}

static void fire_timers(fli_worker *w, uint32_t most)
{
    uint32_t fired = fli_timers_poll_some(&w->sched->timers, w->clock_ns, most);
    spend_bypass(w, fired, most);
    if (FLI_UNLIKELY(fired > 0)) fli_sentinel_note_timers(w, fired);
}

/* Whom descriptors make ready goes first like those of timers, after them. Where so many timers are due that nobody may,
 * descriptors are looked at all the same: then those wait for the loops, but they are heard. */
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
    w->local.sends = 0; /* whom a timer wakes is not one of many that the last step has sent to */
    uint32_t most = bypass_budget(w);
    fire_timers(w, most);
    if (FLI_UNLIKELY(fli_io_has_fds(&w->sched->io)) && most > 0 && is_poll_due(w)) poll_descriptors(w);
}

/* How often the oldest goes first: find.c. */
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
