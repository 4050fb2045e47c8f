/* worker.c - a worker's life: find a process, step it; now and then look at the clock; when dry, idle.c. */
#include "sched/sched.h"

/* The clock is read every clock_every steps, which adapts so that readings are about this far apart: close enough for
 * timers, rare enough to cost nothing. But not more rarely than every CLOCK_EVERY_MAX steps, be they ever so short: the next ones may
 * be long. A reading, with what is looked at then, takes as long as four messages: at every 64th step 0.8 ns of each message's 13,
 * at every 128th half of that. */
#define CLOCK_NEAR_NS UINT64_C(20000)
#define CLOCK_FAR_NS UINT64_C(50000)
#define CLOCK_EVERY_MAX 128
#define LONG_AGO_NS UINT64_C(1000000)
/* Every so many readings, one process's wait in the queue is measured, which takes two more. */
#define SAMPLE_EVERY 8

/* Descriptors are looked at in rounds: docs/design/io.md. What one look brings lies on top of the deque, the first to be
 * heard uppermost. The next look comes when the deque is down to where it was, so that all of them have run. Where it
 * does not come down, because steps make ever more processes ready, it comes after ROUND_NS and ROUND_STEPS for each
 * report: a request takes a few steps, however long they are. A look that brought nothing is not repeated at each
 * reading of the clock. */
#define ROUND_NS UINT64_C(5000000)
#define ROUND_STEPS 16
#define EMPTY_NS UINT64_C(100000)

void fli_worker_begin_round(fli_worker *w, uint32_t reports)
{
    w->round_depth = reports > 0 ? fli_deque_count(&w->deque) : 0;
    w->round_until_ns = w->clock_ns + (reports > 0 ? ROUND_NS : EMPTY_NS);
    w->round_steps = fli_counters_steps(&w->local.counters) + (uint64_t)reports * ROUND_STEPS;
}

static bool is_round_over(fli_worker *w)
{
    if (fli_deque_count(&w->deque) <= w->round_depth) return true;
    return w->clock_ns >= w->round_until_ns && fli_counters_steps(&w->local.counters) >= w->round_steps;
}

/* Timers and descriptors beside processes that loop for ever. Those that timers make ready are late already, and the
 * newest: they run next, unless the oldest does. Then they must not be ready yet: one that loops goes on as the newest, on
 * top of them, and the next oldest follows him, until all loops have had their turns. So no more timers fire than may go first. The others
 * stay due, and the clock is read again behind the turn of the oldest. How many may is argued in find.c. */
static uint32_t may_go_first(fli_worker *w)
{
    if (FLI_LIKELY(!w->looped && w->fair_in > 1) || w->fair_every == 1) return UINT32_MAX;
    bool alone = fli_worker_queued(w) == 0 && fli_inject_count(&w->sched->global) == 0;
    return alone ? UINT32_MAX : w->fair_more;
}

/* So many do, of `most` who may. */
static void goes_first(fli_worker *w, uint32_t count, uint32_t most)
{
    uint32_t before_the_oldest = count < w->fair_more ? count : w->fair_more;
    w->fair_more -= before_the_oldest;
    w->fair_in += before_the_oldest;
    if (FLI_UNLIKELY(count == most && w->clock_in > w->fair_in)) w->clock_in = w->fair_in;
}

static void fire(fli_worker *w, uint32_t most)
{
    uint32_t fired = fli_timers_poll_some(&w->sched->timers, w->clock_ns, most);
    goes_first(w, fired, most);
    if (FLI_UNLIKELY(fired > 0)) fli_idle_handed_out(w, fired);
}

/* Whom descriptors make ready goes first like those of timers, after them. Where so many timers are due that nobody may,
 * descriptors are looked at all the same: then those wait for the loops, but they are heard. */
static void look_at_descriptors(fli_worker *w)
{
    fli_io_batch batch;
    uint32_t     most = may_go_first(w);
    fli_io_collect(&w->sched->io, 0, &batch, most > 0 ? most : UINT32_MAX);
    fli_worker_begin_round(w, batch.count);
    fli_io_deliver(&w->sched->io, &batch);
    goes_first(w, batch.count, most);
}

void fli_worker_clock(fli_worker *w)
{
    w->clock_ns = fli_now(&w->sched->rt);
    w->local.sends = 0; /* whom a timer wakes is not one of many that the last step has sent to */
    uint32_t most = may_go_first(w);
    fire(w, most);
    if (FLI_UNLIKELY(fli_io_watches(&w->sched->io)) && most > 0 && is_round_over(w)) look_at_descriptors(w);
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
    if (now_ns > w->clock_ns + LONG_AGO_NS) w->clock_in = 0;
}

static void clock_due(fli_worker *w)
{
    if (FLI_UNLIKELY(may_go_first(w) == 0)) {
        w->clock_in = w->fair_in;
        return;
    }
    uint64_t before = w->clock_ns;
    w->clock_in = w->clock_every;
    fli_worker_clock(w);
    uint64_t passed = w->clock_ns - before;
    w->step_ns = passed / w->clock_every + 1;
    adapt_fairness(w);
    if (passed < CLOCK_NEAR_NS && w->clock_every < CLOCK_EVERY_MAX) w->clock_every *= 2;
    else if (passed > 64 * CLOCK_FAR_NS) w->clock_every = 1; /* steps have become long: timers are late already */
    else if (passed > CLOCK_FAR_NS && w->clock_every > 1) w->clock_every /= 2;
    if (w->clock_in > w->clock_every) w->clock_in = w->clock_every;
    if (--w->sample_in == 0) {
        w->sample_in = SAMPLE_EVERY;
        fli_ready_sample(w);
    }
    if (FLI_UNLIKELY(w->may_rerun && fli_throttle_is_due(w))) fli_throttle_pause(w);
}

bool fli_worker_turn(fli_worker *w)
{
    if (w->clock_in == 0) clock_due(w);
    w->clock_in--;
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
    w->turns = UINT32_MAX;
    for (;;) {
        while (fli_step_on(w)) clock_due(w);
        fli_proc *p = fli_idle_find(w);
        if (p == NULL) break;
        fli_step(w, p);
    }
    fli_current_set(NULL);
}
